// All photos as one self-contained page. It is asked for in parts as large as the server takes,
// and put together here.

import * as api from "./api.js";

const AROUND = 2000; // bytes of a form beside a photo and its captions, at most

// What is between two texts, and what is before and after.
const cut = (text, start, end) => {
  const from = text.indexOf(start) + start.length;
  const to = text.indexOf(end, from);
  if (from < start.length || to < 0) throw new Error("the server gave no page that can be joined");
  return [text.slice(0, from), text.slice(from, to), text.slice(to)];
};

const DATA = ['<script id="data" type="application/json">', "</script>"];
const MAIN = ["<main>", "</main>"];

const join = (pages) => {
  const articles = pages.map((page) => cut(page, ...MAIN)[1]).join("");
  const items = pages.flatMap((page) => JSON.parse(cut(page, ...DATA)[1]).items);
  let number = 0;
  const numbered = articles.replace(/<article class="item" id="item-\d+"/g, () =>
    `<article class="item" id="item-${number++}"`);
  const [head, , rest] = cut(pages[0], ...MAIN);
  const [before, data, after] = cut(rest, ...DATA);
  return [head, numbered, before, JSON.stringify({ ...JSON.parse(data), items }), after];
};

// What is sent of a photo: the preview the server made of it, no smaller than the page has it.
const sent = ({ file, answer }) => {
  const bytes = atob(answer.preview.slice(answer.preview.indexOf(",") + 1));
  const codes = Uint8Array.from(bytes, (letter) => letter.charCodeAt(0));
  const small = new File([codes], file.name, { type: "image/jpeg" });
  const size = small.size + new Blob([JSON.stringify(answer.captions)]).size + AROUND;
  return { file: small, captions: answer.captions, size };
};

// One page of captioned items, as a Blob. limits: the server's.
export const pageOf = async (items, limits, strength) => {
  const parts = [];
  let size = Infinity;
  for (const each of items.map(sent)) {
    size += each.size;
    if (size > limits.upload_bytes || parts.at(-1).length === limits.photos) {
      parts.push([]);
      size = each.size;
    }
    parts.at(-1).push(each);
  }
  const pages = [];
  for (const part of parts) {
    const files = part.map((each) => each.file);
    const captions = part.map((each) => each.captions);
    pages.push(await (await api.overlay(files, captions, "html", strength)).text());
  }
  return new Blob(join(pages), { type: "text/html" });
};

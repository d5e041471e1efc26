// Downloads all photos as one standalone page: requests it in parts within the server's limits and
// joins them.

import * as api from "./api.js";

const FORM_BYTES = 2000; // upper bound on a form's size besides photo and captions

// Splits a text at the content between `start` and `end`.
const split = (text, start, end) => {
  const from = text.indexOf(start) + start.length;
  const to = text.indexOf(end, from);
  if (from < start.length || to < 0) throw new Error("the server gave no page that can be joined");
  return [text.slice(0, from), text.slice(from, to), text.slice(to)];
};

const MAIN = ['<main class="gallery" data-unit="', "</main>"];

// Its photos are the server's previews: their digests come from the answers.
const join = (pages, items) => {
  const [head, , foot] = split(pages[0], ...MAIN);
  const parts = pages.map((page) => split(page, ...MAIN)[1]);
  const start = parts[0].slice(0, parts[0].indexOf(">") + 1);
  const articles = parts.map((part) => part.slice(start.length)).join("");
  let number = 0;
  const digest = () => `data-digest="${items[number++].answer.photo_digest ?? ""}"`;
  return [head, start, articles.replace(/data-digest=""/g, digest), foot];
};

// The upload of a photo: the server's preview of it, which is as large as the page shows it.
const upload = ({ file, answer }) => {
  const bytes = atob(answer.preview.slice(answer.preview.indexOf(",") + 1));
  const codes = Uint8Array.from(bytes, (letter) => letter.charCodeAt(0));
  const small = new File([codes], file.name, { type: "image/jpeg" });
  const size = small.size + new Blob([JSON.stringify(answer.captions)]).size + FORM_BYTES;
  return { file: small, captions: answer.captions, size };
};

// Makes one page of captioned items, as a Blob. limits: those of the server.
export const pageOf = async (items, limits, strength) => {
  const parts = [];
  let size = Infinity;
  for (const each of items.map(upload)) {
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
  return new Blob(join(pages, items), { type: "text/html" });
};

// The photos tab: adding, captioning, downloading and removing photos.

import * as api from "./api.js";
import { startCamera } from "./camera.js";
import { announce, cloneTemplate, saveJson, showError } from "./common.js";
import { pageOf } from "./pages.js";
import { settings } from "./settings.js";
import { captionViewer, save, say, startEdits, startFilter, writeWords } from "./viewer.js";

const MAX_REQUESTS = 5; // concurrent requests; a browser has six connections
const SETTING_DELAY_MS = 250; // wait after a changed setting before captioning again

const find = (id) => document.getElementById(id);

const confidenceOf = ({ confidence, sure }) => {
  if (confidence == null) return "";
  const rounded = sure === false ? Math.floor : Math.round; // As `Caption.shown_confidence`.
  return say("confidence {} %", rounded(100 * confidence));
};

const capitalise = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const startPhotos = (model) => {
  const results = find("results");
  const slider = find("strength");
  const viewer = captionViewer(1, slider);
  const { edits: given, table } = model.edits ?? {};
  const { languages } = model;
  const edits = startEdits({ given, table, send: model.edits && api.saveEdit, languages });
  startFilter(results);
  find("edits-promise").hidden = !model.edits;
  const search = settings(model, () => captionAllSoon());
  const items = []; // in page order
  const queue = []; // items waiting to be captioned
  let running = 0;
  let timer = 0;

  const strength = () => Number(slider.value) / 100;

  const refresh = () => {
    const done = items.filter((item) => item.answer);
    document.body.classList.toggle("has-photos", items.length > 0);
    find("settings").hidden = items.length === 0;
    find("all").hidden = items.length === 0;
    for (const name of ["downloads", "html", "json"]) find(`all-${name}`).hidden = done.length < 2;
    for (const name of ["clear", "filter"]) find(name).hidden = items.length < 2;
  };

  const captionRow = (item, caption, place) => {
    const row = cloneTemplate("caption-template");
    const words = row.querySelector(".words");
    words.lang = caption.language ?? "en";
    words.dataset.text = caption.caption;
    writeWords(words, caption.words, caption.word_confidence);
    if (place === 0) {
      row.querySelector(".confidence").textContent = confidenceOf(caption);
      row.querySelector(".doubt").textContent = caption.sure === false ? say("not sure") : "";
    }
    const numbers = [caption.score, caption.log_probability].map((value) => value.toFixed(2));
    const score = say("score {}, log-probability {}", ...numbers);
    const notes = item.answer.captions.length > 1 ? [score] : [];
    if (caption.original) notes.unshift(`“${caption.original.caption}”`);
    row.querySelector(".score").textContent = notes.join(", ");
    row.querySelector(".play").setAttribute("aria-label", say("Play caption {}", place + 1));
    return row;
  };

  const show = async (item, answer) => {
    const { root } = item;
    viewer.remove(root);
    item.answer = answer;
    const photo = root.querySelector("img");
    photo.src = answer.preview;
    await photo.decode();
    root.style.setProperty("--ratio", answer.width / answer.height);
    photo.alt = answer.captions[0].caption;
    const list = root.querySelector(".captions");
    list.replaceChildren(...answer.captions.map((each, place) => captionRow(item, each, place)));
    const { width, height, region, captions: [best] } = answer;
    const maps = answer.captions.map((each) => each.maps);
    viewer.add(root, () => ({
      region: region.map((edge, side) => edge / (side % 2 ? height : width)),
      rows: maps[0][0].length,
      columns: maps[0][0][0].length,
      captions: maps.map((words) => words.map((map) => map.flat())),
      // A sample would be another one.
      test: search().sample || best.language ? null : async () => {
        const { captions } = await api.caption(item.file, { ...search(), erase: true, maps: false });
        return captions.map((each) => each.erased ?? []);
      },
    }));
    root.querySelector("figcaption").dataset.digest = answer.photo_digest ?? "";
    const doubt = best.sure === false ? say("not sure") : "";
    announce(`${item.file.name}: ${best.caption}. ${confidenceOf(best)} ${doubt}`);
  };

  const setState = (item, name, text) => {
    item.root.dataset.state = name;
    item.root.querySelector(".state").textContent = text;
    item.root.querySelector(".result").setAttribute("aria-busy", String(name === "waiting"));
  };

  const caption = async (item) => {
    const { signal } = item.request;
    try {
      if (item.file.size > model.limits.upload_bytes) {
        const most = Math.floor(model.limits.upload_bytes / 2 ** 20);
        throw new Error(say("{} is larger than {} MB, the limit", item.file.name, most));
      }
      const answer = await api.caption(item.file, search(), signal);
      if (signal.aborted) return;
      await show(item, answer);
      setState(item, "done", "");
      edits.show(item.root);
    } catch (error) {
      if (signal.aborted) return;
      viewer.remove(item.root);
      item.answer = null;
      item.root.querySelector(".captions").replaceChildren();
      const named = error.message.startsWith(item.file.name);
      setState(item, "failed", named ? error.message : capitalise(error.message));
      announce(error.message);
    }
    refresh();
  };

  const processQueue = async () => {
    if (running >= MAX_REQUESTS || queue.length === 0) return;
    running += 1;
    const item = queue.shift();
    await caption(item);
    running -= 1;
    processQueue();
  };

  // Captions an item, again if it already has a caption.
  const enqueue = (item) => {
    item.request?.abort();
    item.request = new AbortController();
    setState(item, "waiting", item.answer ? "" : say("Looking …"));
    if (!queue.includes(item)) queue.push(item);
    processQueue();
  };

  const captionAllSoon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => items.forEach(enqueue), SETTING_DELAY_MS);
  };

  const remove = (item) => {
    item.request.abort();
    viewer.remove(item.root);
    URL.revokeObjectURL(item.address);
    item.root.remove();
    items.splice(items.indexOf(item), 1);
    if (queue.includes(item)) queue.splice(queue.indexOf(item), 1);
    refresh();
  };

  const withoutPreview = ({ answer: { preview, ...rest } }) => rest;

  // Runs `make`, which saves a file; shows its error.
  const download = async (button, make) => {
    showError(null);
    button.disabled = true;
    try {
      await make();
    } catch (error) {
      showError(error);
    }
    button.disabled = false;
  };

  const downloadOne = async (item, format, name) => {
    if (format === "json") return saveJson(withoutPreview(item), `${name}.json`);
    if (format === "html") return save(await pageOf([item], model.limits, strength()), `${name}.html`);
    const captions = [item.answer.captions];
    save(await api.overlay([item.file], captions, format, strength()), `${name}.${format}`);
  };

  const downloadAll = async (format) => {
    const done = items.filter((item) => item.answer);
    const all = items.length;
    if (format === "json") saveJson(done.map(withoutPreview), "captions.json");
    else save(await pageOf(done, model.limits, strength()), "captions.html");
    if (done.length === all) return;
    throw new Error(say("{} of {} photos are in the file: the others have no caption", done.length, all));
  };

  const make = (file) => {
    const item = { file, root: cloneTemplate("photo-template"), answer: null, request: null };
    const { root } = item;
    const name = file.name.replace(/\.[^.]*$/, "") || "photo";
    item.address = URL.createObjectURL(file);
    root.setAttribute("aria-label", file.name);
    root.querySelector(".file").textContent = file.name;
    root.querySelector("figcaption").dataset.image = file.name;
    const photo = root.querySelector("img");
    photo.addEventListener("error", () => photo.removeAttribute("src"));
    photo.addEventListener("load", () => {
      const ratio = photo.naturalWidth / photo.naturalHeight;
      root.style.setProperty("--ratio", ratio);
    });
    photo.src = item.address;
    for (const button of root.querySelectorAll("[data-format]")) {
      button.addEventListener("click", () =>
        download(button, () => downloadOne(item, button.dataset.format, `${name}-captions`)));
    }
    const removal = root.querySelector(".remove");
    removal.setAttribute("aria-label", `${say("Remove")} ${file.name}`);
    removal.addEventListener("click", () => remove(item));
    return item;
  };

  const place = (file) => {
    const item = make(file);
    items.push(item);
    results.append(item.root);
    return item;
  };

  const add = (files) => {
    showError(null);
    for (const file of files) enqueue(place(file));
    refresh();
  };

  // A reload shows the last photos again, as many as the browser keeps for the visit: some 5 MB.
  const keep = () => {
    const kept = items.filter((item) => item.answer)
      .map(({ file, answer }) => JSON.stringify({ name: file.name, answer }));
    let room = 4_500_000;
    const fitting = kept.reverse().filter((text) => (room -= text.length) > 0).reverse();
    sessionStorage.setItem("photos", `[${fitting.join(",")}]`);
  };

  const restore = async () => {
    const kept = JSON.parse(sessionStorage.getItem("photos") ?? "[]");
    sessionStorage.removeItem("photos");
    for (const { name, answer } of kept) {
      const bytes = Uint8Array.from(atob(answer.preview.split(",")[1]), (byte) => byte.charCodeAt(0));
      const item = place(new File([bytes], name, { type: "image/jpeg" }));
      item.request = new AbortController();
      await show(item, answer);
      setState(item, "done", "");
      edits.show(item.root);
      find("language").value = answer.captions[0].language ?? "";
    }
    refresh();
  };

  for (const format of ["html", "json"]) {
    const button = find(`all-${format}`);
    button.addEventListener("click", () => download(button, () => downloadAll(format)));
  }
  find("clear").addEventListener("click", () => [...items].forEach(remove));

  startIncoming(add);
  startCamera(add, showError);
  find("example").addEventListener("click", () =>
    api.example().then((file) => add([file]), showError));
  addEventListener("pagehide", keep);
  restore();
};

// Adds photos that are chosen, dropped or pasted.
const startIncoming = (add) => {
  const files = find("files");
  const veil = find("veil");
  find("choose").addEventListener("click", () => files.click());
  files.addEventListener("change", () => {
    add([...files.files]);
    files.value = "";
  });

  const isOpen = () => !find("photos").hidden;
  const hasFiles = (event) => [...event.dataTransfer.types].includes("Files");
  addEventListener("dragenter", (event) => {
    veil.hidden = !isOpen() || !hasFiles(event);
  });
  addEventListener("dragover", (event) => {
    if (hasFiles(event)) event.preventDefault();
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) veil.hidden = true;
  });
  addEventListener("drop", (event) => {
    veil.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault(); // Otherwise the browser opens the file.
    if (isOpen()) add([...event.dataTransfer.files]);
  });
  addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (!isOpen() || pasted.length === 0) return;
    event.preventDefault();
    add(pasted);
  });
};

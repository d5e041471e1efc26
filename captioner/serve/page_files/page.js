// The page without a server: photos in, captions with maps out. What all pages share stands in front.

const [status, bar, list, files, slider, percent] = ["status", "bar", "photos", "files", "strength",
  "strength-shown"].map((name) => document.getElementById(name));
const template = document.getElementById("item");
const viewer = captionViewer(1, slider);
const waiting = new Map(); // number of a photo -> what becomes of its answer
let worker, number = 0, endLoading;
const loaded = new Promise((end) => { endLoading = end; }); // Or failed.
loaded.then(() => fetch("example.jpg")).catch(() => {}); // Kept for use without a network.

slider.addEventListener("input", () => { percent.textContent = `${slider.value} %`; });
document.getElementById("settings").addEventListener("submit", (event) => event.preventDefault());
const edited = startEdits();

const tell = (text) => { status.textContent = text; };

status.classList.remove("unscripted"); // The page itself says what to do where no script runs.
tell(say("Loading the model, once."));
bar.hidden = false;

const begin = () => {
  worker = new Worker("worker.js", { type: "module" });
  worker.onmessage = ({ data }) => {
    if ("progress" in data) bar.value = data.progress;
    else if (data.isReady) {
      endLoading();
      bar.hidden = true;
      const isKept = navigator.serviceWorker && navigator.serviceWorker.controller;
      tell(say(isKept ? "Ready. It works without a network from now on." : "Ready."));
    } else if ("number" in data) waiting.get(data.number)(data);
    else fail(data.failed);
  };
  worker.onerror = async (event) => fail(event.message || await reasonOfScripts());
};

// Why a browser runs no worker: it does not say that a script is missing or comes as another type.
const reasonOfScripts = async () => {
  for (const name of ["worker.js", "captioner.js", "ort.wasm.min.js"]) {
    const answer = await fetch(name).catch(() => null);
    if (!answer?.ok) return `${name}: ${answer ? `status ${answer.status}` : "no answer"}`;
    const kind = answer.headers.get("content-type");
    if (!/javascript/i.test(kind)) return `the server sends ${name} as ${kind}, which is no JavaScript`;
  }
  return "this browser cannot run its scripts";
};

const fail = (reason) => {
  endLoading();
  tell(say("The model could not be loaded ({}). Reload the page to try again.", reason));
};

// The pixels of a photo, upright and on white, as RGBA.
const pixelsOf = async (file) => {
  const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" });
  const { width, height } = bitmap;
  const data = new Uint8ClampedArray(4 * width * height);
  const rows = Math.min(height, Math.ceil(2 ** 22 / width)); // Telephones limit a canvas to 2 ** 24.
  const pen = new OffscreenCanvas(width, rows).getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "white";
  for (let top = 0; top < height; top += rows) {
    pen.fillRect(0, 0, width, rows);
    pen.drawImage(bitmap, 0, -top);
    const strip = pen.getImageData(0, 0, width, Math.min(rows, height - top));
    data.set(strip.data, 4 * width * top);
  }
  bitmap.close();
  return { data, width, height };
};

// Edges of what the model saw, as fractions of the photo's sides.
const regionOf = ({ width, height }) => {
  if (REGION.resize === "squash") return [0, 0, 1, 1];
  const side = Math.min(width, height) * REGION.size / REGION.resize_shorter;
  const across = (1 - side / width) / 2, down = (1 - side / height) / 2;
  return [across, down, 1 - across, 1 - down];
};

const add = async (root, file) => {
  const words = root.querySelector(".words"), state = root.querySelector(".state");
  const picture = root.querySelector("img");
  try {
    const photo = await pixelsOf(file);
    picture.src = URL.createObjectURL(file);
    root.querySelector(".stage").style.setProperty("--ratio", photo.width / photo.height);
    const region = regionOf(photo);
    const own = number++;
    const answered = new Promise((resolve) => waiting.set(own, resolve));
    worker.postMessage({ number: own, photo }, [photo.data.buffer]);
    const { caption, failed } = await answered;
    waiting.delete(own);
    if (failed) throw new Error(failed);
    if (!caption.words.length) throw new Error("the model wrote no words");
    writeWords(words, caption.words, caption.wordConfidence);
    picture.alt = caption.text;
    const rounded = caption.isSure ? Math.round : Math.floor; // As `Caption.shown_confidence`.
    root.querySelector(".score").textContent =
      caption.confidence == null ? "" : say("confidence {} %", rounded(100 * caption.confidence));
    root.querySelector(".doubt").textContent = caption.isSure ? "" : say("not sure");
    root.dataset.milliseconds = Math.round(caption.milliseconds);
    root.querySelector(".caption").hidden = false;
    state.textContent = "";
    await picture.decode();
    const [rows, columns] = REGION.map_shape;
    const item = { region, rows, columns, captions: [caption.maps.map((map) => Array.from(map))] };
    viewer.add(root, () => item);
    const doubt = caption.isSure ? "" : say("not sure");
    startDownloads(root, file.name, () => recordOf(file.name, photo, region, caption),
      () => pictureOf(picture, item, caption, doubt, Number(slider.value) / 100));
    root.dataset.state = "done";
    edited.show(root);
  } catch (error) {
    state.textContent = say("{} cannot be captioned: {}", file.name, error.message);
    root.dataset.state = "failed";
  }
};

// One at a time: the pixels of a photo of 12 megapixels take 48 MB.
const addAll = (chosen) => {
  document.body.classList.add("has-photos");
  for (const id of ["settings", "hint"]) document.getElementById(id).hidden = false;
  for (const file of chosen) {
    const root = template.content.firstElementChild.cloneNode(true);
    root.dataset.state = "waiting";
    root.querySelector(".file").textContent = file.name;
    root.querySelector("figcaption").dataset.image = file.name;
    list.append(root);
    last = last.then(() => add(root, file));
  }
};

document.getElementById("choose").addEventListener("click", () => files.click());
document.getElementById("example").addEventListener("click", async () => {
  const answer = await fetch("example.jpg");
  addAll([new File([await answer.blob()], "example.jpg", { type: "image/jpeg" })]);
});
files.addEventListener("change", () => { addAll(files.files); files.value = ""; });
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  if (event.dataTransfer.files.length) addAll(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) addAll(event.clipboardData.files);
});

// The worker begins once the service worker keeps and isolates the page, from its second load.
const isolate = async () => {
  const services = navigator.serviceWorker;
  if (!services) return false;
  const isKept = Boolean(services.controller);
  services.addEventListener("controllerchange", () => { // A new export's: its files, not a mixture.
    if (isKept && !list.children.length) location.reload();
  });
  const registration = await services.register("service_worker.js");
  // Chromium stalls a page that loads while a new export's service worker takes over.
  const takeOver = () => loaded.then(() => registration.waiting?.postMessage("take over"));
  const watch = () => registration.installing?.addEventListener("statechange", takeOver);
  registration.addEventListener("updatefound", watch);
  watch();
  takeOver();
  await services.ready;
  if (isKept || sessionStorage.getItem("isReloaded")) return false;
  sessionStorage.setItem("isReloaded", "yes");
  location.reload();
  return true;
};
let last = isolate().catch(() => false).then((reloads) => reloads ? new Promise(() => {}) : begin());

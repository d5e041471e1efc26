// Client of the HTTP interface. Every failure is an Error with a message for the user.

import { say } from "./viewer.js";

const MAX_ATTEMPTS = 30;
const MAX_SENTENCES = 16; // of a request

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

const errorMessage = async (answer) => {
  try {
    return (await answer.json()).error;
  } catch {
    return `the server answered with status ${answer.status}`;
  }
};

// Asks for the token by a form, once for all requests that wait for it; whether it was given.
// wrong: the token that was refused.
let asking = null;
const askToken = (wrong) => {
  if (wrong !== sessionStorage.getItem("token")) return true; // Another request has asked.
  const dialog = document.getElementById("token-dialog"), field = document.getElementById("token");
  document.getElementById("token-problem").textContent = wrong ? say("The server refuses this token.") : "";
  asking ??= new Promise((resolve) => {
    dialog.returnValue = field.value = "";
    dialog.showModal();
    dialog.addEventListener("close", () => {
      asking = null;
      const isGiven = dialog.returnValue === "send";
      if (isGiven) sessionStorage.setItem("token", field.value.trim());
      resolve(isGiven);
    }, { once: true });
  });
  return asking;
};

// Sends a request; repeats it while the server is busy, and with the token that it may ask for.
const request = async (address, options = {}) => {
  for (let attempt = 1; ; attempt++) {
    const token = sessionStorage.getItem("token");
    const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
    let answer;
    try {
      answer = await fetch(address, { ...options, headers });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Error(say("the program that serves this page does not answer; is it still running?"));
    }
    if (answer.ok) return answer;
    if (answer.status === 401 && await askToken(token)) continue;
    if (answer.status !== 503 || attempt === MAX_ATTEMPTS) {
      throw new Error(await errorMessage(answer));
    }
    await pause(Number(answer.headers.get("Retry-After")) || 1, options.signal);
  }
};

const form = (fields, files) => {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    for (const each of [value].flat()) body.append(name, String(each));
  }
  for (const file of files) body.append("photo", file, file.name);
  return body;
};

export const model = async () => (await request("api/model")).json();

export const example = async () => {
  const answer = await request("demo.jpg");
  return new File([await answer.blob()], "example.jpg", { type: "image/jpeg" });
};

// Captions one photo: name, width, height, region, captions and preview.
export const caption = async (file, search, signal) => {
  const body = form({ ...search, preview: true }, [file]);
  const answer = await request("api/caption", { method: "POST", body, signal });
  return (await answer.json()).photos[0];
};

// Renders photos with their captions as a file, a Blob.
export const overlay = async (files, captions, format, strength) => {
  const fields = { format, strength, captions: captions.map((each) => JSON.stringify(each)) };
  const body = form(fields, files);
  return (await request("api/overlay", { method: "POST", body })).blob();
};

const JSON_HEADERS = { "Content-Type": "application/json" };

// Saves a person's caption of a photo; without one, removes it. Returns its row of the table.
export const saveEdit = async (edit) => {
  const body = JSON.stringify(edit);
  return (await request("api/edits", { method: "POST", headers: JSON_HEADERS, body })).json();
};

// Translates sentences, as many at a time as a request may have.
export const translate = async (sentences, search) => {
  const translations = [];
  for (let first = 0; first < sentences.length; first += MAX_SENTENCES) {
    const part = sentences.slice(first, first + MAX_SENTENCES);
    const body = JSON.stringify({ sentences: part, ...search });
    const answer = await request("api/translate", { method: "POST", headers: JSON_HEADERS, body });
    translations.push(...(await answer.json()).translations);
  }
  return translations;
};

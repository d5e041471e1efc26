// Loads the ONNX folder and captions photos, beside the page so that it never freezes.

import * as ort from "./ort.wasm.min.mjs";
import { makeCaptioner } from "./captioner.js";

ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;

const load = async () => {
  const description = await (await fetch("captioner.json")).json();
  const total = Object.values(description.files).reduce((sum, size) => sum + size, 0);
  let loaded = 0;
  const read = async (name) => {
    const answer = await fetch(name);
    if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
    const content = new Uint8Array(description.files[name]);
    let end = 0;
    for (const reader = answer.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) return content;
      content.set(value, end);
      end += value.length;
      loaded += value.length;
      postMessage({ progress: loaded / total });
    }
  };
  const sessions = {};
  for (const name of ["encoder", "start", "step"]) {
    sessions[name] = await ort.InferenceSession.create(await read(`${name}.onnx`));
  }
  const ngrams = description.has_ngrams
    ? new BigInt64Array((await read("ngrams.bin")).buffer) : null;
  return makeCaptioner(ort, description, sessions, ngrams);
};

const loading = load();
loading.then(() => postMessage({ isReady: true }), (error) => postMessage({ failed: String(error) }));

// Messages: {number, photo}, answered by {number, caption} or {number, failed}.
let last = loading;
onmessage = ({ data: { number, photo } }) => {
  last = last.catch(() => {}).then(async () => {
    try {
      const begun = performance.now();
      const caption = await (await loading).caption(photo);
      postMessage({ number, caption: { ...caption, milliseconds: performance.now() - begun } });
    } catch (error) {
      postMessage({ number, failed: String(error) });
    }
  });
};

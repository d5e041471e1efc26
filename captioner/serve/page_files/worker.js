// Loads the ONNX folder and captions photos, beside the page so that it never freezes.

import * as ort from "./ort.wasm.min.js";
import { makeCaptioner } from "./captioner.js";

const WEIGHTS = "model.safetensors"; // Of graphs that do not hold theirs.

ort.env.wasm.wasmPaths = {
  mjs: new URL("ort-wasm-simd-threaded.js", import.meta.url).href,
  wasm: new URL("ort-wasm-simd-threaded.wasm", import.meta.url).href,
};
ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;

const load = async () => {
  const get = async (name) => {
    const answer = await fetch(name);
    if (!answer.ok) throw new Error(`${name}: status ${answer.status}`);
    return answer;
  };
  const description = await (await get("captioner.json")).json();
  const total = Object.values(description.files).reduce((sum, size) => sum + size, 0);
  let loaded = 0;
  const read = async (name) => {
    const answer = await get(name);
    const content = new Uint8Array(description.files[name]);
    let end = 0;
    for (const reader = answer.body.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done && end < content.length) throw new Error(`${name}: ${end} of ${content.length} bytes`);
      if (done) return content;
      content.set(value, end);
      end += value.length;
      loaded += value.length;
      postMessage({ progress: loaded / total });
    }
  };
  const sessions = {};
  const externalData = WEIGHTS in description.files ? [{ path: WEIGHTS, data: await read(WEIGHTS) }] : [];
  for (const name of ["encoder", "start", "step"]) {
    sessions[name] = await ort.InferenceSession.create(await read(`${name}.onnx`), { externalData });
  }
  return makeCaptioner(ort, description, sessions);
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

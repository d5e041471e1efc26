// The search settings of the photos tab.

import { range } from "./common.js";
import { languageOption } from "./viewer.js";

export const settings = (model, changed) => {
  const defaults = model.captioner.search;
  const ways = [...document.querySelectorAll("input[name=way]")];
  const searchSettings = document.getElementById("search-settings");
  const samplingSettings = document.getElementById("sampling-settings");
  let seed = 0;

  const plain = (value) => String(value);
  const captions = range("captions", plain, () => {
    beam.value = Math.max(beam.value, captions.value);
    changed();
  });
  const beam = range("beam", plain, () => {
    captions.value = Math.min(captions.value, beam.value);
    changed();
  });
  const temperature = range("temperature", (value) => value.toFixed(1), changed);
  range("strength", (value) => `${value} %`);
  beam.most = model.limits.beam;
  captions.most = model.limits.beam;
  beam.value = defaults.beam;
  captions.value = defaults.n_best;

  const language = document.getElementById("language");
  language.append(...model.languages.map(languageOption));
  language.addEventListener("change", changed);
  document.getElementById("language-setting").hidden = model.languages.length === 0;

  document.getElementById("decoding-setting").hidden = !model.captioner.can_sample;
  const isSampling = () => ways.find((each) => each.checked).value === "sample";
  for (const way of ways) {
    way.addEventListener("change", () => {
      searchSettings.hidden = isSampling();
      samplingSettings.hidden = !isSampling();
      changed();
    });
  }
  document.getElementById("resample").addEventListener("click", () => {
    seed += 1;
    changed();
  });
  document.getElementById("settings").addEventListener("submit", (event) => event.preventDefault());

  return () => ({
    ...(language.value && { language: language.value }),
    n_best: captions.value,
    sample: isSampling(),
    ...(isSampling() ? { temperature: temperature.value, seed } : { beam: beam.value }),
  });
};

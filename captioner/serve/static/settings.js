// How captions are searched for: what stands in the settings of the photos' tab.

import { range } from "./common.js";

export const settings = (model, changed) => {
  const own = model.captioner.search;
  const ways = [...document.querySelectorAll("input[name=way]")];
  const ofSearch = document.getElementById("of-search");
  const ofSampling = document.getElementById("of-sampling");
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
  beam.value = own.beam;
  captions.value = own.n_best;

  const sampling = () => ways.find((each) => each.checked).value === "sample";
  for (const way of ways) {
    way.addEventListener("change", () => {
      ofSearch.hidden = sampling();
      ofSampling.hidden = !sampling();
      changed();
    });
  }
  document.getElementById("again").addEventListener("click", () => {
    seed += 1;
    changed();
  });
  document.getElementById("settings").addEventListener("submit", (event) => event.preventDefault());

  return () =>
    sampling()
      ? { sample: true, n_best: captions.value, temperature: temperature.value, seed }
      : { sample: false, n_best: captions.value, beam: beam.value };
};

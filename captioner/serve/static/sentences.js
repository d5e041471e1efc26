// The sentences tab: translations with their alignments.

import * as api from "./api.js";
import { announce, cloneTemplate, range, saveJson, showError } from "./common.js";
import { element, languageOption, say } from "./viewer.js";

const find = (id) => document.getElementById(id);

export const startSentences = (model) => {
  const { translators, limits } = model;
  const language = find("translation-language");
  const languages = Object.keys(translators);
  language.append(...languages.map(languageOption));
  find("translation-language-setting").hidden = languages.length === 1;
  const releases = new Map(); // for each card, a function that unpins its word
  const results = find("translated");
  const text = find("text");
  const plain = (value) => String(value);
  const wanted = range("translations-wanted", plain, () => {
    beam.value = Math.max(beam.value, wanted.value);
  });
  const beam = range("translation-beam", plain, () => {
    wanted.value = Math.min(wanted.value, beam.value);
  });
  beam.most = limits.beam;
  wanted.most = limits.beam;
  const { search } = translators[languages[0]];
  beam.value = search.beam;
  wanted.value = search.n_best;

  const draw = (root, translation, tag) => {
    const { source_words: read, words: written, word_alignment: alignment } = translation;
    root.querySelector(".best").textContent = translation.translation || say("(nothing)");
    for (const each of root.querySelectorAll(".best, .target")) each.lang = tag;
    const lines = [
      [".source", read, "span"],
      [".target", written, "button"],
    ].map(([place, words, name]) => {
      const line = root.querySelector(place);
      line.replaceChildren();
      return words.map((word, number) => {
        const end = word === "<end>";
        if (number > 0) line.append(" ");
        const made = element(name, end ? "end" : word, line, "token");
        if (name === "button") made.type = "button";
        made.classList.toggle("special", end);
        return made;
      });
    });
    const [sources, targets] = lines;
    releases.delete(root);
    if (!translators[tag].attends || targets.length === 0) {
      root.querySelector(".alignment").hidden = true;
      return;
    }
    root.querySelector(".alignment").hidden = false;
    const rows = table(root.querySelector("table"), sources, targets, alignment);
    const highlight = (chosen) => {
      targets.forEach((target, row) => target.classList.toggle("shown", row === chosen));
      rows.forEach((row, place) => row.classList.toggle("shown", place === chosen));
      sources.forEach((each, column) => {
        const weight = chosen === null ? 0 : alignment[chosen][column];
        each.style.setProperty("--weight", `${Math.round(100 * weight)}%`);
        each.classList.toggle("lit", weight > 0.005);
      });
    };
    let pinned = null;
    const pin = (chosen) => {
      pinned = chosen;
      targets.forEach((target, row) => {
        target.setAttribute("aria-pressed", String(row === chosen));
      });
      highlight(chosen);
    };
    pin(null);
    releases.set(root, () => pin(null));
    targets.forEach((target, row) => {
      // Touch has no hover, and does not focus the button in every browser.
      for (const each of [target, rows[row]]) {
        each.addEventListener("pointerenter", (event) => {
          if (event.pointerType !== "touch") highlight(row);
        });
        each.addEventListener("pointerleave", (event) => {
          if (event.pointerType !== "touch") highlight(pinned);
        });
        each.addEventListener("click", () => pin(pinned === row ? null : row));
      }
      target.addEventListener("focus", () => highlight(row));
      target.addEventListener("blur", () => highlight(pinned));
      target.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!step) return;
        targets[(row + step + targets.length) % targets.length].focus();
        event.preventDefault();
      });
    });
  };

  const table = (place, sources, targets, alignment) => {
    place.replaceChildren();
    const head = element("tr", "", place);
    element("td", "", head);
    for (const each of sources) {
      const cell = element("th", "", head);
      cell.scope = "col";
      element("span", each.textContent, cell);
    }
    return targets.map((target, row) => {
      const line = element("tr", "", place);
      element("th", target.textContent, line).scope = "row";
      sources.forEach((each, column) => {
        const weight = alignment[row][column];
        const cell = element("td", "", line, "cell");
        cell.style.setProperty("--weight", `${(100 * Math.min(1, weight)).toFixed(1)}%`);
        cell.title = `${target.textContent} – ${each.textContent}: ${weight.toFixed(2)}`;
        element("span", weight.toFixed(2), cell, "visually-hidden");
      });
      return line;
    });
  };

  const show = (answer, tag) => {
    const root = cloneTemplate("translation-template");
    const [best] = answer.translations;
    root.setAttribute("aria-label", answer.source);
    const notesOf = (each) => {
      const notes = [];
      if (best.truncated) {
        const lost = best.truncated;
        notes.push(say("The last {} of its tokens were not read: it is too long for this model.", lost));
      }
      if (!each.sure) notes.push(say("The translation is not sure."));
      if (each.cut) notes.push(say("The translation was cut at {} tokens.", each.tokens.length));
      return notes.join(" ");
    };
    const others = root.querySelector(".alternatives");
    const buttons = answer.translations.map((each) => {
      const button = element("button", "", others, "alternative");
      button.type = "button";
      element("span", each.translation || say("(nothing)"), button);
      element("span", say("score {}", each.score.toFixed(2)), button, "score");
      return button;
    });
    const choose = (place) => {
      buttons.forEach((each, number) => each.setAttribute("aria-pressed", String(number === place)));
      root.querySelector(".state").textContent = notesOf(answer.translations[place]);
      draw(root, answer.translations[place], tag);
    };
    buttons.forEach((button, place) => button.addEventListener("click", () => choose(place)));
    others.hidden = buttons.length < 2;
    choose(0);
    const [json] = root.querySelectorAll("[data-format]");
    json.addEventListener("click", () => saveJson(answer, "translation.json"));
    root.querySelector(".remove").addEventListener("click", () => {
      releases.delete(root);
      root.remove();
    });
    results.prepend(root);
    announce(`${say("Translation")}: ${best.translation}`);
  };

  const send = async () => {
    showError(null);
    const sentences = text.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (sentences.length === 0) return text.focus();
    const button = find("translate").querySelector("[type=submit]");
    button.disabled = true;
    try {
      const search = { sample: false, beam: beam.value, n_best: wanted.value };
      const tag = language.value;
      const answers = await api.translate(sentences, { language: tag, ...search });
      for (const each of answers.reverse()) show(each, tag);
    } catch (error) {
      showError(error);
    }
    button.disabled = false;
  };

  find("translate").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") for (const release of releases.values()) release();
  });
};

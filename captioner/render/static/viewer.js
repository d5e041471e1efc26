// Shows the maps of captions' words by pointer, keyboard and touch; maps.js draws them. A press on a
// word that was tested erases what its map shows; so does the key E, while it is down.

const FADE_MS = 200; // from one map to the next
const WORD_MS = 850; // each word while playing
const PRESS_MS = 300; // a longer press of a tested word is no click

// Whether a click comes from a mouse or pen: it pins a word, as fingers and keys do, and opens a field.
let lastPointer = "";
document.addEventListener("pointerdown", (event) => { lastPointer = event.pointerType; }, true);
const byMouse = (event) => event.detail > 0 && lastPointer !== "touch";

// The sentence of a caption's words, which may be written otherwise: "Anna's" is two words.
const sentenceOf = (words) => words.dataset.text || words.textContent.trim();

// unit: value of 1 in the maps. slider: range input in percent, the strength of the overlay.
// Returns `add` and `remove`. Both take a card: an ".item" that holds a ".stage" with an img and a
// canvas, and for each ".caption" its ".word" spans, which become buttons, its ".play" and its
// ".copy" button, with `data-label` and, while it is pressed, `data-pressed`.
export const captionViewer = (unit, slider) => {
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

  const redraw = (figure) => draw(figure, figure.opacity * Number(slider.value) / 100);

  // Fades from the map on the screen to `target`, a normalised map, or for null to the bare photo.
  const fadeTo = (figure, target) => {
    cancelAnimationFrame(figure.frame);
    const opacity = figure.opacity, goal = target ? 1 : 0;
    if (opacity === 0 && goal === 0) return;
    const from = opacity > 0 ? figure.map : target;
    const to = target || figure.map;
    const start = performance.now();
    const step = (now) => {
      const passed = reducedMotion.matches ? 1 : Math.min(Math.max((now - start) / FADE_MS, 0), 1);
      const eased = passed * passed * (3 - 2 * passed);
      figure.map = to.map((value, cell) => from[cell] + eased * (value - from[cell]));
      figure.opacity = opacity + eased * (goal - opacity);
      figure.canvas.hidden = figure.opacity === 0;
      if (!figure.canvas.hidden) redraw(figure);
      if (passed < 1) figure.frame = requestAnimationFrame(step);
    };
    step(start);
    if (!reducedMotion.matches) figure.frame = requestAnimationFrame(step);
  };

  // A page has thousands of cards: one listener serves all, and a figure is made for the first use.
  const readers = new Map(); // cards -> what gives their items
  const figures = new Map(); // cards that were used -> their figures
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const figure = figureOf(target);
      if (!figure || figure.opacity === 0) continue;
      prepare(figure);
      redraw(figure);
    }
  });
  let lastUsed = null; // the card that the arrow keys act on when no word has the focus

  const figureOf = (node) => {
    const root = node?.closest?.(".item");
    if (!readers.has(root)) return null;
    if (!figures.has(root)) {
      const item = readers.get(root)();
      const captions = [...root.querySelectorAll(".caption")].map((caption, row) => ({
        row, button: caption.querySelector(".play"), copying: caption.querySelector(".copy"),
        words: [...caption.querySelectorAll(".word")],
      }));
      const [stage, photo, canvas] = [".stage", "img", "canvas"].map((each) => root.querySelector(each));
      figures.set(root, {
        root, stage, erasing: 0, pressed: 0, photo, canvas, captions, item, view: null, map: null, opacity: 0, frame: 0, current: null, pinned: null, timer: 0, playing: null,
      });
      sizes.observe(stage);
    }
    return figures.get(root);
  };

  // Where a word of a figure stands: {row, word} of its caption and itself; null for what is none.
  const positionOf = (figure, node) => {
    const row = figure.captions.findIndex(({ words }) => words.includes(node));
    return row < 0 ? null : { row, word: figure.captions[row].words.indexOf(node) };
  };

  const isSame = (one, other) =>
    one === other || (one && other && one.row === other.row && one.word === other.word);

  // position: as `positionOf` gives it, or null for the bare photo.
  const show = async (figure, position) => {
    lastUsed = figure.root;
    if (isSame(figure.current, position)) return;
    figure.current = position;
    figure.root.dispatchEvent(new CustomEvent("wordshown", { detail: position }));
    for (const caption of figure.captions) {
      caption.words.forEach((word, number) => word.classList.toggle(
        "shown", Boolean(position) && caption.row === position.row && number === position.word));
    }
    figure.erasing = 0;
    tell(figure, position);
    if (!position) return fadeTo(figure, null);
    if (!figure.photo.complete) {
      await figure.photo.decode();
      if (!isSame(figure.current, position)) return;
    }
    prepare(figure);
    const map = figure.item.captions[position.row][position.word];
    fadeTo(figure, normalise(figure.view, map.map((value) => value * unit)));
  };

  // What is left of a word without what its map shows; nothing of a word that was not tested.
  const testOf = (figure, position) =>
    position && figure.item.erased?.[position.row]?.find((test) => test.position === position.word);

  // While a word is pressed: the photo without what its map shows, and what becomes of the word.
  const erase = async (figure, position) => {
    const { item } = figure;
    if (!item.erased && item.test) {
      const { test } = item;
      item.test = null; // Asked for once.
      item.erased = await test().catch(() => []);
      tell(figure, figure.current);
      if (!figure.held) return;
    }
    const test = testOf(figure, position);
    if (!test || !figure.view || !isSame(figure.current, position)) return;
    cancelAnimationFrame(figure.frame);
    figure.opacity = 1;
    figure.canvas.hidden = false;
    figure.erasing = performance.now();
    drawErased(figure, test.places);
  };

  const restore = (figure) => {
    figure.held = false;
    if (!figure.erasing) return;
    figure.pressed = performance.now() - figure.erasing;
    figure.erasing = 0;
    redraw(figure);
  };

  const tell = (figure, position) => {
    if (!figure.item.erased) return;
    const list = figure.root.querySelector(".captions");
    const note = figure.root.querySelector(".erased") ?? element("p", "", list.parentElement, "erased");
    list.after(note);
    const test = testOf(figure, position);
    note.textContent = "";
    if (!test) return;
    const word = figure.captions[position.row].words[position.word].textContent;
    const percents = [test.probability, test.without, test.elsewhere].map((part) => Math.round(100 * part));
    note.textContent = say("{}: {} %; {} % without what its map shows, {} % without as much elsewhere.", word, ...percents);
    if (test.instead) note.textContent += ` ${say("Then: “{}”. Press the word to see it.", test.instead)}`;
  };

  const pin = (figure, position) => {
    figure.pinned = position;
    for (const { row, words } of figure.captions) {
      words.forEach((word, number) => {
        const pressed = Boolean(position) && position.row === row && position.word === number;
        word.setAttribute("aria-pressed", String(pressed));
      });
    }
  };

  // Of the words of a caption one is a stop of the Tab key: the last that had the focus.
  const rove = (words, stop) => words.forEach((word) => { word.tabIndex = word === stop ? 0 : -1; });

  const copy = async (root, caption) => {
    const words = root.querySelector(".person") ?? caption.words[0].parentElement;
    getSelection().selectAllChildren(words);
    try {
      await navigator.clipboard.writeText(sentenceOf(words));
    } catch {
      document.execCommand("copy"); // On pages without https there is no clipboard.
    }
    getSelection().removeAllRanges();
    caption.copying.textContent = caption.copying.dataset.pressed;
    setTimeout(() => { caption.copying.textContent = caption.copying.dataset.label; }, 2 * WORD_MS);
  };

  const stop = (figure) => {
    if (!figure.playing) return;
    clearTimeout(figure.timer);
    figure.playing.button.textContent = figure.playing.button.dataset.label;
    figure.playing.button.classList.remove("playing");
    figure.playing = null;
  };

  const play = (figure, caption) => {
    stop(figure);
    pin(figure, null);
    figure.playing = caption;
    caption.button.textContent = caption.button.dataset.pressed;
    caption.button.classList.add("playing");
    const next = (word) => {
      if (word === caption.words.length) {
        stop(figure);
        show(figure, null);
        return;
      }
      show(figure, { row: caption.row, word });
      figure.timer = setTimeout(next, WORD_MS, word + 1);
    };
    next(0);
  };

  const release = (figure) => {
    pin(figure, null);
    show(figure, null);
  };

  // read: gives the item of a card: region (edges as fractions of the photo), rows and columns of the
  // maps, for each caption its maps and, if its words were tested, `erased`, as `ErasedWord.to_dict`; or
  // `test`, which gives that at the first press.
  const add = (root, read) => {
    readers.set(root, read);
    lastUsed ??= root;
    for (const caption of root.querySelectorAll(".caption")) {
      const words = [...caption.querySelectorAll(".word")];
      for (const word of words) {
        word.setAttribute("role", "button");
        word.setAttribute("aria-pressed", "false");
      }
      rove(words, words[0]);
    }
  };

  const remove = (root) => {
    const figure = figures.get(root);
    if (figure) {
      stop(figure);
      cancelAnimationFrame(figure.frame);
      sizes.unobserve(figure.stage);
    }
    figures.delete(root);
    readers.delete(root);
    if (lastUsed === root) [lastUsed = null] = readers.keys();
  };

  slider.addEventListener("input", () => {
    for (const figure of figures.values()) if (figure.opacity > 0) redraw(figure);
  });

  const onWord = (type, act) => document.addEventListener(type, (event) => {
    const word = event.target.closest?.(".word"), figure = word && figureOf(word);
    if (figure) act(figure, positionOf(figure, word), event);
  });
  onWord("pointerover", (figure, position, event) => {
    if (event.pointerType === "touch") return;
    stop(figure);
    show(figure, position);
  });
  onWord("pointerout", (figure, position, event) => {
    if (event.pointerType !== "touch" && !figure.playing) show(figure, figure.pinned);
  });
  onWord("pointerdown", (figure, position) => {
    show(figure, position);
    figure.held = true;
    erase(figure, position);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    document.addEventListener(end, () => figures.forEach(restore));
  }
  document.addEventListener("click", (event) => { // Before all others: what was pressed stays as it is.
    const figure = figureOf(event.target);
    if (figure && figure.pressed > PRESS_MS) event.stopImmediatePropagation();
    if (figure) figure.pressed = 0;
  }, true);
  onWord("focusin", (figure, position, { target }) => {
    rove(figure.captions[position.row].words, target);
    stop(figure);
    show(figure, position);
  });
  onWord("focusout", (figure) => {
    if (!figure.playing) show(figure, figure.pinned);
  });
  onWord("keydown", (figure, position, event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.target.click();
  });
  onWord("click", (figure, position) => {
    if (!getSelection().isCollapsed) return; // The words are being selected.
    stop(figure);
    const isPinned = isSame(figure.pinned, position);
    pin(figure, isPinned ? null : position);
    show(figure, isPinned ? null : position);
  });
  document.addEventListener("click", ({ target }) => {
    const figure = target.closest?.(".play, .copy") && figureOf(target);
    if (!figure) return;
    lastUsed = figure.root;
    for (const caption of figure.captions) {
      if (caption.copying === target) copy(figure.root, caption);
      if (caption.button !== target) continue;
      if (figure.playing !== caption) return play(figure, caption);
      stop(figure);
      show(figure, null);
    }
  });
  document.addEventListener("release", ({ target }) => {
    const figure = figureOf(target);
    if (figure) release(figure);
  }, true);

  // Left and right move between words, up and down between captions and photos.
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest("input, textarea, select, dialog, [role=tab]")) return;
    if (event.key === "Escape") {
      for (const figure of figures.values()) {
        stop(figure);
        release(figure);
      }
      document.activeElement.blur();
      return;
    }
    if (event.key === "e" && !event.repeat) {
      for (const each of figures.values()) {
        each.held = true;
        if (each.current) erase(each, each.current);
      }
      return;
    }
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
    const figure = figureOf(event.target) ?? figureOf(lastUsed);
    if (!figure || figure.root.offsetParent === null) return;
    const focused = positionOf(figure, event.target);
    const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
    if (focused && (event.key === "Home" || event.key === "End")) {
      figure.captions[focused.row].words.at(event.key === "Home" ? 0 : -1).focus();
    } else if (sideways) {
      const step = steps[event.key];
      const here = focused || figure.current || { row: 0, word: step > 0 ? -1 : 0 };
      const words = figure.captions[here.row].words;
      words[(here.word + step + words.length) % words.length].focus();
    } else if (focused && event.key in steps) {
      const rows = [...document.querySelectorAll(".item:not([hidden]) .caption")];
      const next = rows[rows.indexOf(event.target.closest(".caption")) + steps[event.key]];
      const words = next ? next.querySelectorAll(".word") : [];
      if (!words.length) return;
      words[Math.min(focused.word, words.length - 1)].focus();
    } else {
      return;
    }
    event.preventDefault();
  });

  document.addEventListener("keyup", (event) => {
    if (event.key === "e") figures.forEach(restore);
  });

  return { add, remove };
};

// Draws the attention map of a caption's word over its photo, as captioner/render/overlay.py does.
// OVERLAY_STYLE, the numbers of the overlay, is defined by the line that Python puts in front.

const FADE_MS = 200; // from one map to the next
const WORD_MS = 850; // each word while playing
const MAX_SIDE = 1000; // pixels of the canvas

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
  const style = OVERLAY_STYLE;
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

  const cubicSpline = (distance) => {
    const size = Math.abs(distance);
    if (size < 1) return 2 / 3 - size * size + size * size * size / 2;
    return size < 2 ? (2 - size) ** 3 / 6 : 0;
  };

  // For each pixel from `first` to `end`: the four nearest cells and their weights.
  const interpolation = (cells, first, end, low, high) => {
    const index = new Int32Array(4 * (end - first));
    const weight = new Float32Array(4 * (end - first));
    for (let pixel = first; pixel < end; pixel++) {
      const position = (pixel + 0.5 - low) / (high - low) * cells - 0.5;
      const inside = Math.min(Math.max(position, 0), cells - 1);
      for (let tap = 0; tap < 4; tap++) {
        const cell = Math.floor(inside) + tap - 1;
        index[4 * (pixel - first) + tap] = Math.min(Math.max(cell, 0), cells - 1);
        weight[4 * (pixel - first) + tap] = cubicSpline(inside - cell);
      }
    }
    return { index, weight };
  };

  // Upsamples a map to the pixels of the region, row by row.
  const upsample = (view, map) => {
    const { columns, rows, across, down, wide, high } = view;
    const strips = new Float32Array(rows * wide);
    for (let row = 0; row < rows; row++) {
      for (let x = 0; x < wide; x++) {
        let sum = 0;
        for (let tap = 4 * x; tap < 4 * x + 4; tap++) {
          sum += across.weight[tap] * map[row * columns + across.index[tap]];
        }
        strips[row * wide + x] = sum;
      }
    }
    const field = new Float32Array(wide * high);
    for (let y = 0; y < high; y++) {
      for (let tap = 4 * y; tap < 4 * y + 4; tap++) {
        const weight = down.weight[tap], start = down.index[tap] * wide;
        for (let x = 0; x < wide; x++) field[y * wide + x] += weight * strips[start + x];
      }
    }
    return field;
  };

  // Scales a map so that 1 is full brightness; a flat map stays dim and even.
  const normalise = (view, map) => {
    let peak = style.flat_peak / map.length;
    for (const value of upsample(view, map)) peak = Math.max(peak, value);
    return Float32Array.from(map, (value) => value / peak);
  };

  const greyOf = (red, green, blue) => 0.299 * red + 0.587 * green + 0.114 * blue;
  const greyAt = (pixels, at) => greyOf(pixels[at], pixels[at + 1], pixels[at + 2]) / 255;

  // The k of `brightened` that makes a dark mean grey readable; 0 if it is bright enough.
  const liftOf = (grey) => {
    const wanted = style.readable_grey;
    const k = (wanted - grey) / Math.max(grey * (1 - wanted), 1e-6);
    return Math.min(Math.max(k, 0), style.steepest - 1);
  };

  // For each value in 0..255 that on a curve through both ends with the slope 1 + k in 0.
  const brightened = (k) =>
    Float32Array.from({ length: 256 }, (_, value) => value * (1 + k) / (1 + k * value / 255));

  // The mean grey of the photo, weighted by the light of the map.
  const greyUnderLight = (view, field) => {
    let light = 0, grey = 0;
    for (let j = 0, here = 0; j < view.high; j++) {
      let at = 4 * ((view.y0 + j) * view.width + view.x0);
      for (let i = 0; i < view.wide; i++, here++, at += 4) {
        light += field[here];
        grey += field[here] * greyAt(view.source, at);
      }
    }
    return grey / Math.max(light, 1e-6);
  };

  // Fits the canvas to the stage; keeps the photo's pixels and the interpolation weights.
  const prepare = (figure) => {
    const { stage, photo, canvas, item } = figure;
    const wanted = stage.clientWidth * Math.min(devicePixelRatio || 1, 2);
    const shape = photo.naturalHeight / photo.naturalWidth;
    const width = Math.max(2, Math.round(Math.min(wanted, MAX_SIDE, MAX_SIDE / shape)));
    const height = Math.max(2, Math.round(width * shape));
    if (figure.view && figure.view.width === width && figure.view.height === height) return;
    canvas.width = width;
    canvas.height = height;
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    pen.imageSmoothingQuality = "high";
    pen.drawImage(photo, 0, 0, width, height);
    const edges = item.region.map((edge, side) => edge * (side % 2 ? height : width));
    const [left, top, right, bottom] = edges;
    const [x0, y0, x1, y1] = edges.map((edge) => Math.ceil(edge - 0.5));
    const source = pen.getImageData(0, 0, width, height).data;
    let sum = 0;
    for (let at = 0; at < source.length; at += 4) sum += greyAt(source, at);
    figure.view = {
      width, height, pen, source, lift: liftOf(sum / (width * height)), x0, y0, x1, y1, wide: x1 - x0, high: y1 - y0,
      rows: item.rows, columns: item.columns,
      across: interpolation(item.columns, x0, x1, left, right),
      down: interpolation(item.rows, y0, y1, top, bottom),
      drawn: pen.createImageData(width, height),
    };
  };

  // Opacity of a contour line of `width` pixels where the slope of the light is `slope`.
  const contour = (light, level, slope, width) =>
    Math.min(Math.max(width / 2 + 0.5 - Math.abs(light - level) / Math.max(slope, 1e-6), 0), 1);

  const draw = (figure) => {
    const view = figure.view, strength = figure.opacity * Number(slider.value) / 100;
    const { width, height, x0, y0, x1, y1, wide, high, source, drawn } = view;
    const out = drawn.data, field = upsample(view, figure.map);
    const period = Math.max(6, Math.max(width, height) / 50);
    const thin = Math.max(1, Math.max(width, height) / 450);
    const tint = style.tint.map((part) => 255 * part);
    const everywhere = brightened(strength * view.lift);
    const underLight = brightened(strength * liftOf(greyUnderLight(view, field)));
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const at = 4 * (y * width + x);
        const isCovered = x >= x0 && x < x1 && y >= y0 && y < y1;
        let light = 0, dark = 0, bright = 0, hatch = 1;
        if (isCovered) {
          const i = x - x0, j = y - y0, here = j * wide + i;
          light = field[here];
          const before = i > 0 ? field[here - 1] : light;
          const after = i < wide - 1 ? field[here + 1] : light;
          const above = j > 0 ? field[here - wide] : light;
          const below = j < high - 1 ? field[here + wide] : light;
          const slope = Math.hypot(
            (after - before) / (i > 0 && i < wide - 1 ? 2 : 1),
            (below - above) / (j > 0 && j < high - 1 ? 2 : 1));
          dark = strength * 0.35 * contour(light, style.contour_level, slope, 3 * thin);
          bright = strength * 0.85 * contour(light, style.contour_level, slope, thin);
        } else {
          const phase = Math.abs((x + y) / period % 1 - 0.5);
          const stripe = Math.min(Math.max(1.25 - phase * period / 1.5, 0), 1);
          hatch = 1 - strength * (1 - style.hatch_light) * stripe;
        }
        const grey = greyOf(
          everywhere[source[at]], everywhere[source[at + 1]], everywhere[source[at + 2]]);
        for (let part = 0; part < 3; part++) {
          const full = everywhere[source[at + part]];
          const darkest = style.dimmed_light * (grey + style.dimmed_colour * (full - grey));
          const dimmed = full + strength * (darkest - full);
          let value = dimmed + light * (underLight[source[at + part]] - dimmed);
          value += strength * style.tint_share * light * (tint[part] - value);
          value *= hatch;
          value -= dark * value;
          out[at + part] = value + bright * (255 - value);
        }
        out[at + 3] = 255;
      }
    }
    view.pen.putImageData(drawn, 0, 0);
  };

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
      if (!figure.canvas.hidden) draw(figure);
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
      draw(figure);
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
        root, stage, photo, canvas, captions, item, view: null, map: null, opacity: 0, frame: 0, current: null, pinned: null, timer: 0, playing: null,
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
    if (!position) return fadeTo(figure, null);
    if (!figure.photo.complete) {
      await figure.photo.decode();
      if (!isSame(figure.current, position)) return;
    }
    prepare(figure);
    const map = figure.item.captions[position.row][position.word];
    fadeTo(figure, normalise(figure.view, map.map((value) => value * unit)));
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
  // maps, and for each caption its maps.
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
    for (const figure of figures.values()) if (figure.opacity > 0) draw(figure);
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

  return { add, remove };
};

"""The script that shows captions: `upsample` and `overlay` once more, in the browser."""

from __future__ import annotations

VIEWER = r"""
// Shows where the model looked: over photos, for the words of their captions.
//
// look: the numbers of the overlay. unit: what 1 stands for in the maps. slider: a range input in
// percent, the overlay's strength. Gives `add` and `remove`, which take an element that holds a
// ".stage" with an img and a canvas, and for each ".caption" its ".word" buttons and ".play".
const captionViewer = (look, unit, slider) => {
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const FADE = 200; // milliseconds from one map to the next
  const BEAT = 850; // milliseconds a word while playing
  const LONGEST = 1000; // pixels of the canvas

  const spline = (distance) => {
    const size = Math.abs(distance);
    if (size < 1) return 2 / 3 - size * size + size * size * size / 2;
    return size < 2 ? (2 - size) ** 3 / 6 : 0;
  };

  // For each pixel from `first` to `end`: four cells and how much each of them counts.
  const spread = (cells, first, end, low, high) => {
    const index = new Int32Array(4 * (end - first));
    const share = new Float32Array(4 * (end - first));
    for (let pixel = first; pixel < end; pixel++) {
      const position = (pixel + 0.5 - low) / (high - low) * cells - 0.5;
      const inside = Math.min(Math.max(position, 0), cells - 1);
      for (let tap = 0; tap < 4; tap++) {
        const cell = Math.floor(inside) + tap - 1;
        index[4 * (pixel - first) + tap] = Math.min(Math.max(cell, 0), cells - 1);
        share[4 * (pixel - first) + tap] = spline(inside - cell);
      }
    }
    return { index, share };
  };

  // The map over the pixels of the region, row by row.
  const upsample = (view, map) => {
    const { columns, rows, across, down, wide, high } = view;
    const strips = new Float32Array(rows * wide);
    for (let row = 0; row < rows; row++) {
      for (let x = 0; x < wide; x++) {
        let sum = 0;
        for (let tap = 4 * x; tap < 4 * x + 4; tap++) {
          sum += across.share[tap] * map[row * columns + across.index[tap]];
        }
        strips[row * wide + x] = sum;
      }
    }
    const field = new Float32Array(wide * high);
    for (let y = 0; y < high; y++) {
      for (let tap = 4 * y; tap < 4 * y + 4; tap++) {
        const share = down.share[tap], start = down.index[tap] * wide;
        for (let x = 0; x < wide; x++) field[y * wide + x] += share * strips[start + x];
      }
    }
    return field;
  };

  // Scaled so that 1 is full light; a flat map stays dim and even.
  const scaled = (view, map) => {
    let peak = look.flat_peak / map.length;
    for (const value of upsample(view, map)) peak = Math.max(peak, value);
    return Float32Array.from(map, (value) => value / peak);
  };

  const prepare = (figure) => {
    const { stage, photo, canvas, item } = figure;
    const wanted = stage.clientWidth * Math.min(devicePixelRatio || 1, 2);
    const shape = photo.naturalHeight / photo.naturalWidth;
    const width = Math.max(2, Math.round(Math.min(wanted, LONGEST, LONGEST / shape)));
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
    figure.view = {
      width, height, pen, x0, y0, x1, y1, wide: x1 - x0, high: y1 - y0,
      rows: item.rows, columns: item.columns,
      across: spread(item.columns, x0, x1, left, right),
      down: spread(item.rows, y0, y1, top, bottom),
      source: pen.getImageData(0, 0, width, height).data,
      drawn: pen.createImageData(width, height),
    };
  };

  const line = (light, level, steep, width) =>
    Math.min(Math.max(width / 2 + 0.5 - Math.abs(light - level) / Math.max(steep, 1e-6), 0), 1);

  const draw = (figure) => {
    const view = figure.view, strength = figure.presence * Number(slider.value) / 100;
    const { width, height, x0, y0, x1, y1, wide, high, source, drawn } = view;
    const out = drawn.data, field = upsample(view, figure.shown);
    const period = Math.max(6, Math.max(width, height) / 50);
    const thin = Math.max(1, Math.max(width, height) / 450);
    const tint = look.tint.map((part) => 255 * part);
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        const at = 4 * (y * width + x);
        const seen = x >= x0 && x < x1 && y >= y0 && y < y1;
        let light = 0, dark = 0, bright = 0, hatch = 1;
        if (seen) {
          const i = x - x0, j = y - y0, here = j * wide + i;
          light = field[here];
          const before = i > 0 ? field[here - 1] : light;
          const after = i < wide - 1 ? field[here + 1] : light;
          const above = j > 0 ? field[here - wide] : light;
          const below = j < high - 1 ? field[here + wide] : light;
          const steep = Math.hypot(
            (after - before) / (i > 0 && i < wide - 1 ? 2 : 1),
            (below - above) / (j > 0 && j < high - 1 ? 2 : 1));
          dark = strength * 0.35 * line(light, look.contour_level, steep, 3 * thin);
          bright = strength * 0.85 * line(light, look.contour_level, steep, thin);
        } else {
          const phase = Math.abs((x + y) / period % 1 - 0.5);
          const stripe = Math.min(Math.max(1.25 - phase * period / 1.5, 0), 1);
          hatch = 1 - strength * (1 - look.hatch_light) * stripe;
        }
        const grey = 0.299 * source[at] + 0.587 * source[at + 1] + 0.114 * source[at + 2];
        for (let part = 0; part < 3; part++) {
          const full = source[at + part];
          const dusk = look.dimmed_light * (grey + look.dimmed_colour * (full - grey));
          const dimmed = full + strength * (dusk - full);
          let value = dimmed + light * (full - dimmed);
          value += strength * look.tint_share * light * (tint[part] - value);
          value *= hatch;
          value -= dark * value;
          out[at + part] = value + bright * (255 - value);
        }
        out[at + 3] = 255;
      }
    }
    view.pen.putImageData(drawn, 0, 0);
  };

  // Move from what is on the screen to `target`, a scaled map, or to the bare photo for null.
  const move = (figure, target) => {
    cancelAnimationFrame(figure.moving);
    const presence = figure.presence, goal = target ? 1 : 0;
    if (presence === 0 && goal === 0) return;
    const from = presence > 0 ? figure.shown : target;
    const to = target || figure.shown;
    const start = performance.now();
    const step = (now) => {
      const passed = still.matches ? 1 : Math.min(Math.max((now - start) / FADE, 0), 1);
      const eased = passed * passed * (3 - 2 * passed);
      figure.shown = to.map((value, cell) => from[cell] + eased * (value - from[cell]));
      figure.presence = presence + eased * (goal - presence);
      figure.canvas.hidden = figure.presence === 0;
      if (!figure.canvas.hidden) draw(figure);
      if (passed < 1) figure.moving = requestAnimationFrame(step);
    };
    step(start);
    if (!still.matches) figure.moving = requestAnimationFrame(step);
  };
  const figures = [];
  let latest = null;

  const same = (one, other) =>
    one === other || (one && other && one.row === other.row && one.word === other.word);

  const show = async (figure, place) => {
    latest = figure;
    if (same(figure.current, place)) return;
    figure.current = place;
    figure.root.dispatchEvent(new CustomEvent("look", { detail: place }));
    for (const caption of figure.captions) {
      caption.words.forEach((word, number) => word.classList.toggle(
        "shown", Boolean(place) && caption.row === place.row && number === place.word));
    }
    if (!place) return move(figure, null);
    if (!figure.photo.complete) {
      await figure.photo.decode();
      if (!same(figure.current, place)) return;
    }
    prepare(figure);
    const map = figure.item.captions[place.row][place.word];
    move(figure, scaled(figure.view, map.map((value) => value * unit)));
  };

  const pin = (figure, place) => {
    figure.pinned = place;
    for (const { row, words } of figure.captions) {
      words.forEach((word, number) => {
        const pressed = Boolean(place) && place.row === row && place.word === number;
        word.setAttribute("aria-pressed", String(pressed));
      });
    }
  };

  const stop = (figure) => {
    if (!figure.playing) return;
    clearTimeout(figure.timer);
    figure.playing.button.textContent = "Play";
    figure.playing.button.classList.remove("playing");
    figure.playing = null;
  };

  const play = (figure, caption) => {
    stop(figure);
    pin(figure, null);
    figure.playing = caption;
    caption.button.textContent = "Stop";
    caption.button.classList.add("playing");
    const next = (word) => {
      if (word === caption.words.length) {
        stop(figure);
        show(figure, null);
        return;
      }
      show(figure, { row: caption.row, word });
      figure.timer = setTimeout(next, BEAT, word + 1);
    };
    next(0);
  };

  // item: region (edges as shares of the photo), rows, columns, and for each caption its maps.
  const add = (root, item) => {
    const figure = {
      item, root, stage: root.querySelector(".stage"), photo: root.querySelector("img"),
      canvas: root.querySelector("canvas"), view: null, shown: null, presence: 0, moving: 0,
      current: null, pinned: null, timer: 0, playing: null,
    };
    figure.captions = [...root.querySelectorAll(".caption")].map((caption, row) => ({
      row, button: caption.querySelector(".play"),
      words: [...caption.querySelectorAll(".word")],
    }));
    figures.push(figure);
    figures.sort((one, other) => one.root.compareDocumentPosition(other.root) & 4 ? -1 : 1);
    latest = latest || figure;
    for (const caption of figure.captions) {
      caption.button.addEventListener("click", () => {
        latest = figure;
        if (figure.playing === caption) {
          stop(figure);
          show(figure, null);
        } else {
          play(figure, caption);
        }
      });
      caption.words.forEach((word, number) => {
        const place = { row: caption.row, word: number };
        word.addEventListener("pointerenter", (event) => {
          if (event.pointerType === "touch") return;
          stop(figure);
          show(figure, place);
        });
        word.addEventListener("pointerleave", (event) => {
          if (event.pointerType !== "touch" && !figure.playing) show(figure, figure.pinned);
        });
        word.addEventListener("focus", () => {
          stop(figure);
          show(figure, place);
        });
        word.addEventListener("blur", () => {
          if (!figure.playing) show(figure, figure.pinned);
        });
        word.addEventListener("click", () => {
          stop(figure);
          const again = same(figure.pinned, place);
          pin(figure, again ? null : place);
          show(figure, again ? null : place);
        });
      });
    }
    figure.sizes = new ResizeObserver(() => {
      if (figure.presence === 0) return;
      prepare(figure);
      draw(figure);
    });
    figure.sizes.observe(figure.stage);
  };

  const remove = (root) => {
    const place = figures.findIndex((figure) => figure.root === root);
    if (place < 0) return;
    const [figure] = figures.splice(place, 1);
    stop(figure);
    cancelAnimationFrame(figure.moving);
    figure.sizes.disconnect();
    if (latest === figure) latest = figures[0] || null;
  };

  slider.addEventListener("input", () => {
    for (const figure of figures) if (figure.presence > 0) draw(figure);
  });

  // Left and right walk through the words, up and down through captions and photos.
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    if (event.target.closest("input, textarea, select, dialog, [role=tab]")) return;
    if (event.key === "Escape") {
      for (const figure of figures) {
        stop(figure);
        pin(figure, null);
        show(figure, null);
      }
      document.activeElement.blur();
      return;
    }
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 };
    const figure = figures.find((one) => one.root.contains(event.target)) || latest;
    if (!figure || figure.root.offsetParent === null) return;
    const row = figure.captions.findIndex((caption) => caption.words.includes(event.target));
    const word = row < 0 ? -1 : figure.captions[row].words.indexOf(event.target);
    const focused = row < 0 ? null : { row, word };
    const sideways = event.key === "ArrowLeft" || event.key === "ArrowRight";
    if (focused && (event.key === "Home" || event.key === "End")) {
      figure.captions[row].words.at(event.key === "Home" ? 0 : -1).focus();
    } else if (sideways) {
      const step = steps[event.key];
      const here = focused || figure.current || { row: 0, word: step > 0 ? -1 : 0 };
      const words = figure.captions[here.row].words;
      words[(here.word + step + words.length) % words.length].focus();
    } else if (focused && event.key in steps) {
      const rows = figures.flatMap((one) => one.captions);
      const next = rows[rows.indexOf(figure.captions[row]) + steps[event.key]];
      if (!next) return;
      next.words[Math.min(focused.word, next.words.length - 1)].focus();
    } else {
      return;
    }
    event.preventDefault();
  });

  return { add, remove };
};
"""

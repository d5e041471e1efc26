// Draws the attention map of a caption's word over its photo, as captioner/render/overlay.py does.
// OVERLAY_STYLE, the numbers of the overlay, is defined by the line that Python puts in front.

const MAX_SIDE = 1000; // pixels of the canvas

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
  let peak = OVERLAY_STYLE.flat_peak / map.length;
  for (const value of upsample(view, map)) peak = Math.max(peak, value);
  return Float32Array.from(map, (value) => value / peak);
};

const greyOf = (red, green, blue) => 0.299 * red + 0.587 * green + 0.114 * blue;
const greyAt = (pixels, at) => greyOf(pixels[at], pixels[at + 1], pixels[at + 2]) / 255;

// The k of `brightened` that makes a dark mean grey readable; 0 if it is bright enough.
const liftOf = (grey) => {
  const wanted = OVERLAY_STYLE.readable_grey;
  const k = (wanted - grey) / Math.max(grey * (1 - wanted), 1e-6);
  return Math.min(Math.max(k, 0), OVERLAY_STYLE.steepest - 1);
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

// Draws the map of a figure over its photo. strength: 0 to 1.
const draw = (figure, strength) => {
  const view = figure.view;
  const { width, height, x0, y0, x1, y1, wide, high, source, drawn } = view;
  const out = drawn.data, field = upsample(view, figure.map);
  const period = Math.max(6, Math.max(width, height) / 50);
  const thin = Math.max(1, Math.max(width, height) / 450);
  const tint = OVERLAY_STYLE.tint.map((part) => 255 * part);
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
        dark = strength * 0.35 * contour(light, OVERLAY_STYLE.contour_level, slope, 3 * thin);
        bright = strength * 0.85 * contour(light, OVERLAY_STYLE.contour_level, slope, thin);
      } else {
        const phase = Math.abs((x + y) / period % 1 - 0.5);
        const stripe = Math.min(Math.max(1.25 - phase * period / 1.5, 0), 1);
        hatch = 1 - strength * (1 - OVERLAY_STYLE.hatch_light) * stripe;
      }
      const grey = greyOf(
        everywhere[source[at]], everywhere[source[at + 1]], everywhere[source[at + 2]]);
      for (let part = 0; part < 3; part++) {
        const full = everywhere[source[at + part]];
        const darkest = OVERLAY_STYLE.dimmed_light * (grey + OVERLAY_STYLE.dimmed_colour * (full - grey));
        const dimmed = full + strength * (darkest - full);
        let value = dimmed + light * (underLight[source[at + part]] - dimmed);
        value += strength * OVERLAY_STYLE.tint_share * light * (tint[part] - value);
        value *= hatch;
        value -= dark * value;
        out[at + part] = value + bright * (255 - value);
      }
      out[at + 3] = 255;
    }
  }
  view.pen.putImageData(drawn, 0, 0);
};


// Draws the photo of a figure without some places of the map, which are blurred. cells: their numbers.
// Blurred by shrinking and enlarging, which every browser does; about as captioner/caption/erase.py.
const drawErased = (figure, cells) => {
  const { width, height, x0, y0, wide, high, rows, columns, pen } = figure.view;
  const layer = (across, down, paint) => {
    const canvas = Object.assign(document.createElement("canvas"), { width: across, height: down });
    const brush = canvas.getContext("2d");
    brush.imageSmoothingQuality = "high";
    paint(brush);
    return canvas;
  };
  const shrunk = 14 / Math.max(width, height);
  const small = layer(Math.max(1, Math.round(width * shrunk)), Math.max(1, Math.round(height * shrunk)), (brush) =>
    brush.drawImage(figure.photo, 0, 0, brush.canvas.width, brush.canvas.height));
  const mask = layer(columns, rows, (brush) =>
    cells.forEach((cell) => brush.fillRect(cell % columns, Math.floor(cell / columns), 1, 1)));
  const blurred = layer(width, height, (brush) => {
    brush.drawImage(mask, x0, y0, wide, high);
    brush.globalCompositeOperation = "source-in";
    brush.drawImage(small, 0, 0, width, height);
  });
  pen.drawImage(figure.photo, 0, 0, width, height);
  pen.drawImage(blurred, 0, 0);
};

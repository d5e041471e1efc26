// What a photo's card downloads: its caption as JSON, as /api/caption answers it, and as a picture.

const PANEL = 260, MARGIN = 24, GAP = 16, COLUMNS = 5; // Pixels, but for the last.
const INK = "#181a1f", PALE = "#707580", DOUBT = "#a64c00";

const recordOf = (name, { width, height }, region, caption) => {
  const [rows, columns] = REGION.map_shape, terms = caption.logProbabilities;
  const rowsOf = (map) => Array.from({ length: rows }, (_, row) =>
    Array.from(map.slice(row * columns, (row + 1) * columns), (weight) => Number(weight.toFixed(5))));
  return {
    name, width, height, region: region.map((edge, side) => edge * (side % 2 ? height : width)),
    captions: [{
      caption: caption.text, words: caption.words, score: caption.score,
      log_probability: terms.reduce((total, term) => total + term, 0), word_log_probabilities: terms.slice(0, -1),
      ...(caption.confidence != null && { confidence: caption.confidence, sure: caption.isSure }),
      ...(caption.wordConfidence && { word_confidence: caption.wordConfidence }),
      maps: caption.maps.map(rowsOf),
    }],
  };
};

// The words in lines of a width, in the pen's font.
const linesOf = (pen, text, width) => text.split(" ").reduce((lines, word) => {
  const longer = `${lines.at(-1)} ${word}`.trim();
  return pen.measureText(longer).width > width ? [...lines, word] : [...lines.slice(0, -1), longer];
}, [""]);

// A picture: the sentence, the photo, and a panel a word. As captioner/render/panels.py draws it, but
// for the panels of function words, which are as large as all. item: as the viewer reads it.
const pictureOf = (photo, item, caption, doubt, strength) => {
  const shape = photo.naturalHeight / photo.naturalWidth;
  const wide = Math.round(PANEL * Math.min(1, 1 / shape));
  const stage = { clientWidth: wide / Math.min(devicePixelRatio || 1, 2) };
  const figure = { stage, photo, item, canvas: document.createElement("canvas") };
  prepare(figure); // It draws the photo.
  const high = figure.canvas.height, cell = Math.max(wide, 120);
  const shares = caption.wordConfidence ?? [], label = 36 + (caption.wordConfidence ? 20 : 0);
  const count = caption.words.length + 1, columns = Math.min(COLUMNS, count);
  const sheet = document.createElement("canvas"), pen = sheet.getContext("2d");
  const font = (size) => { pen.font = `${size}px system-ui, sans-serif`; };
  sheet.width = 2 * MARGIN + columns * (cell + GAP) - GAP;
  font(30);
  const lines = linesOf(pen, caption.text, sheet.width - 2 * MARGIN);
  const top = MARGIN + 40 * lines.length + (doubt ? 27 : 0) + GAP;
  sheet.height = top + Math.ceil(count / columns) * (label + high + GAP) - GAP + MARGIN;
  pen.fillStyle = "white";
  pen.fillRect(0, 0, sheet.width, sheet.height);
  const write = (text, size, colour, x, y, width) => {
    font(size);
    pen.fillStyle = colour;
    pen.fillText(text, x, y, width);
  };
  lines.forEach((line, number) => write(line, 30, INK, MARGIN, MARGIN + 30 + 40 * number));
  write(doubt, 20, DOUBT, MARGIN, top - GAP - 4);
  pen.textAlign = "center";
  ["", ...caption.words].forEach((word, place) => {
    const left = MARGIN + place % columns * (cell + GAP);
    const above = top + Math.floor(place / columns) * (label + high + GAP);
    if (place) {
      figure.map = normalise(figure.view, Array.from(caption.maps[place - 1]));
      draw(figure, strength);
      const share = shares[place - 1];
      write(word, 24, share != null && share < DOUBTFUL ? PALE : INK, left + cell / 2, above + 28, cell);
      if (share != null) write(`${Math.round(100 * share)} %`, 15, PALE, left + cell / 2, above + 48);
    }
    pen.drawImage(figure.canvas, left + (cell - wide) / 2, above + label);
  });
  return new Promise((resolve) => { sheet.toBlob(resolve); });
};

// Gives a card's buttons their work. record, picture: make what they save.
const startDownloads = (root, name, record, picture) => {
  const file = `${name.replace(/\.[^.]*$/, "") || "photo"}-captions`;
  root.querySelector("[data-format=json]").addEventListener("click", () =>
    save(new Blob([`${JSON.stringify(record())}\n`], { type: "application/json" }), `${file}.json`));
  root.querySelector("[data-format=png]").addEventListener("click", async () =>
    save(await picture(), `${file}.png`));
};

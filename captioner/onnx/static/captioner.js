// Captions a photo with the graphs of an ONNX folder: the rules and numbers of captioner/onnx.
//
// Tokens 0 to 3 are padding, start, end and unknown. K rows (hypotheses), V words, L places.

const [PAD, START, END, UNKNOWN] = [0, 1, 2, 3];
const ORDER = 4; // of the n-grams that people wrote
const LIKELIEST = 64; // tokens of a step that are looked up among the known n-grams
const IMPOSSIBLE = -1e4; // floor on the end's log-probability where nothing else is left
const CLITICS = new Set(["'s", "'m", "'d", "'ll", "'re", "'ve", "n't"]);

// ort: the module of onnxruntime-web. description: captioner.json. sessions: encoder, start, step.
// ngrams: Uint16Array of ORDER tokens each, or null. Returns `caption`.
export const makeCaptioner = (ort, description, sessions, ngrams) => {
  const { words, search, preprocessing } = description;
  const size = words.length;
  const isRepeatable = new Set(description.repeatable);
  const known = ngrams && keysOf(ngrams, size);

  // Log-probabilities (K * V) of tokens that the histories (K arrays) rule out become -Infinity.
  const block = (terms, histories) => {
    histories.forEach((history, row) => {
      const own = terms.subarray(row * size, (row + 1) * size);
      let ending = Math.max(own[END], IMPOSSIBLE);
      if (history.length >= search.maximum_length) {
        own.fill(-Infinity);
        own[END] = ending;
        return;
      }
      for (const token of [PAD, START, UNKNOWN]) own[token] = -Infinity;
      if (known) keepKnown(own, history);
      if (history.length < search.minimum_length) {
        own[END] = -Infinity;
        ending = IMPOSSIBLE; // Ranks last.
      }
      const n = search.block_ngrams, context = history.length - n + 1;
      for (let first = 0; n && first < context; first++) {
        let place = 0;
        while (place < n - 1 && history[first + place] === history[context + place]) place++;
        if (place === n - 1) own[history[first + n - 1]] = -Infinity;
      }
      const recent = search.repeat_distance ? history.slice(-search.repeat_distance) : [];
      for (const token of recent) if (!isRepeatable.has(token)) own[token] = -Infinity;
      if (own.every((value) => value === -Infinity)) own[END] = ending;
    });
  };

  // Blocks all but the likeliest tokens that complete a known n-gram and clash with none.
  const keepKnown = (own, history) => {
    const starts = Array(ORDER - 1).fill(START), before = [...starts, ...history].slice(1 - ORDER);
    const hasNgram = (...tokens) => has(known, keyOf(tokens, size));
    const kept = largest(own, LIKELIEST).filter((token) => hasNgram(...before, token)
      && !history.some((earlier) => hasNgram(earlier, ...starts.slice(1), token)));
    const values = kept.map((token) => own[token]);
    own.fill(-Infinity);
    kept.forEach((token, place) => { own[token] = values[place]; });
  };

  // Beam search of one photo. step(tokens, state) gives log-probabilities (K * V), weights (K * L)
  // and the next state; select(state, parents) its rows.
  const beamSearch = async (step, select, state) => {
    let rows = [{ tokens: [], terms: [], maps: [], total: 0, isLive: true }];
    const finished = [];
    for (let length = 0; length <= search.maximum_length; length++) {
      const output = await step(rows.map((row) => row.tokens.at(-1) ?? START), state);
      const { terms, weights, places } = output;
      block(terms, rows.map((row) => row.tokens));
      const sums = new Float64Array(terms.length);
      rows.forEach((row, number) => {
        for (let at = number * size; at < (number + 1) * size; at++) {
          sums[at] = row.isLive ? row.total + terms[at] : -Infinity;
        }
      });
      const best = largest(sums, search.beam), free = search.beam - finished.length;
      const parents = best.map((at) => Math.floor(at / size));
      rows = best.map((at, rank) => {
        const parent = rows[parents[rank]], token = at % size;
        const next = {
          tokens: [...parent.tokens, token],
          terms: [...parent.terms, terms[at]],
          maps: [...parent.maps, weights.slice(parents[rank] * places, (parents[rank] + 1) * places)],
          total: sums[at],
          isLive: rank < free && sums[at] > -Infinity,
        };
        if (next.isLive && token === END) {
          finished.push(next);
          next.isLive = false;
        }
        return next;
      });
      if (!rows.some((row) => row.isLive)) break;
      state = select(output.state, parents);
    }
    const scored = finished.map((row) => ({ ...row, ...rank(row.terms) }));
    return scored.sort((one, other) => one.isCut - other.isCut || other.score - one.score);
  };

  // The score of T + 1 log-probabilities, the end's last, and whether the length ended it.
  const rank = (terms) => ({
    score: sum(terms) / ((5 + terms.length) / 6) ** search.length_normalisation,
    isCut: Number(terms.length > search.maximum_length && terms.at(-1) < Math.log(0.5)),
  });

  const tensor = (values, ...shape) => new ort.Tensor("float32", values, shape);

  // RGBA pixels {data, width, height} -> {words, text, maps (T arrays of L), confidence, isSure,
  // wordConfidence (T, null of function words)}.
  const caption = async (photo) => {
    const side = preprocessing.size;
    const pixels = tensor(preprocess(photo, preprocessing), 1, 3, side, side);
    const { annotations } = await sessions.encoder.run({ pixels });
    return captionAnnotations(annotations);
  };

  const captionAnnotations = async (annotations) => {
    const { values, keys, hidden, cell } = await sessions.start.run({ annotations });
    const step = async (tokens, state) => {
      const numbers = BigInt64Array.from(tokens, BigInt);
      const output = await sessions.step.run({
        tokens: new ort.Tensor("int64", numbers, [1, tokens.length]), values, keys, ...state,
      });
      return {
        terms: output.log_probabilities.data,
        weights: output.weights.data,
        places: output.weights.dims[2],
        state: { hidden: output.next_hidden, cell: output.next_cell },
      };
    };
    const select = (state, parents) => Object.fromEntries(
      Object.entries(state).map(([name, { data, dims: [, , width] }]) => {
        const rows = new Float32Array(parents.length * width);
        parents.forEach((parent, row) => {
          rows.set(data.subarray(parent * width, (parent + 1) * width), row * width);
        });
        return [name, tensor(rows, 1, parents.length, width)];
      }));
    const [best] = await beamSearch(step, select, { hidden, cell });
    const tokens = best.tokens.slice(0, -1), own = tokens.map((token) => words[token]);
    const isContent = tokens.map((token) => !isRepeatable.has(token));
    return {
      words: own, text: sentence(own), maps: best.maps.slice(0, -1), score: best.score,
      ...confidenceOf(description.confidence, own, best.terms, isContent),
    };
  };

  return { caption, captionAnnotations };
};

const sum = (values) => values.reduce((total, value) => total + value, 0);

const sentence = (words) => {
  let text = "", isAttached = true;
  for (const word of words) {
    const attaches = CLITICS.has(word) && !isAttached;
    text += attaches || !text ? word : ` ${word}`;
    isAttached = attaches;
  }
  return text;
};

// The logistic regressions of captioner/caption/confidence.py; terms: T + 1 log-probabilities.
// isContent: of each of the T words.
const confidenceOf = (confidence, words, terms, isContent) => {
  if (!confidence) return { confidence: null, isSure: true, wordConfidence: null };
  const { weights, unsure_below, words: ofWords } = confidence;
  const mean = sum(terms) / terms.length, own = terms.slice(0, -1);
  const content = own.filter((_, place) => isContent[place]);
  const logit = weights.intercept + weights.mean_log_probability * mean
    + weights.content_log_probability * (content.length ? sum(content) / content.length : mean)
    + weights.lowest_log_probability * (own.length ? Math.min(...own) : mean)
    + weights.words * own.length;
  const value = logistic(logit);
  const wordConfidence = ofWords && own.map((term, position) => {
    if (!isContent[position]) return null;
    const probability = Math.exp(term), offset = ofWords.offsets[words[position]] ?? 0;
    return logistic(ofWords.intercept + ofWords.probability * probability + ofWords.caption * logit
      + ofWords.both * probability * logit + ofWords.position * position + offset);
  });
  return { confidence: value, isSure: value >= unsure_below, wordConfidence };
};

const logistic = (logit) => 1 / (1 + Math.exp(-logit));

// N n-grams (ORDER * N), sorted -> their keys (N).
const keyOf = (tokens, size) => tokens.reduce((key, token) => key * size + token, 0);

const keysOf = (ngrams, size) => Float64Array.from(
  { length: ngrams.length / ORDER },
  (_, row) => keyOf(ngrams.subarray(ORDER * row, ORDER * (row + 1)), size));

const has = (sorted, value) => {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return sorted[low] === value;
};

// The indices of the `count` largest values, falling.
const largest = (values, count) => {
  const best = [];
  let least = -Infinity;
  for (let at = 0; at < values.length; at++) {
    const value = values[at];
    if (best.length === count && !(value > least)) continue;
    let place = best.length;
    while (place > 0 && values[best[place - 1]] < value) place--;
    best.splice(place, 0, at);
    if (best.length > count) best.pop();
    least = values[best.at(-1)];
  }
  return best;
};

// RGBA pixels -> (3 * size * size) numbers, as captioner/vision/preprocessing.py has them.
export const preprocess = (photo, { size, resize, resize_shorter, mean, standard_deviation, interpolation }) => {
  const shorter = 2 * (resize === "squash" ? size : resize_shorter);
  const small = reduce(photo, Math.floor(Math.min(photo.width, photo.height) / shorter));
  let [left, top, right, bottom] = [0, 0, small.width, small.height];
  if (resize === "crop") {
    const side = Math.min(right, bottom) * size / resize_shorter;
    [left, top] = [(right - side) / 2, (bottom - side) / 2];
    [right, bottom] = [left + side, top + side];
  }
  const across = coefficients(small.width, left, right, size, interpolation);
  const down = coefficients(small.height, top, bottom, size, interpolation);
  // Across first, unless only that enlarges the photo, as Pillow does.
  const { data: done } = small.width < size && small.height > size
    ? resampleAcross(resampleDown(small, down), across)
    : resampleDown(resampleAcross(small, across), down);
  const normalised = new Float32Array(3 * size * size);
  for (let place = 0; place < size * size; place++) {
    for (let part = 0; part < 3; part++) {
      const share = Math.fround(done[4 * place + part] / 255);
      normalised[part * size * size + place] = Math.fround(share - Math.fround(mean[part]))
        / Math.fround(standard_deviation[part]);
    }
  }
  return normalised;
};

// Width and height divided by an integer, rounded up: the mean of each block, as Pillow's `reduce`.
const reduce = (photo, divisor) => {
  if (divisor < 2) return photo;
  const width = Math.ceil(photo.width / divisor), height = Math.ceil(photo.height / divisor);
  const data = new Uint8ClampedArray(4 * width * height);
  for (let y = 0; y < height; y++) {
    const bottom = Math.min((y + 1) * divisor, photo.height);
    for (let x = 0; x < width; x++) {
      const right = Math.min((x + 1) * divisor, photo.width), totals = [0, 0, 0];
      for (let v = y * divisor; v < bottom; v++) {
        for (let u = x * divisor; u < right; u++) {
          for (let part = 0; part < 3; part++) totals[part] += photo.data[4 * (v * photo.width + u) + part];
        }
      }
      const count = (bottom - y * divisor) * (right - x * divisor);
      for (let part = 0; part < 3; part++) {
        data[4 * (y * width + x) + part] = Math.floor((totals[part] + (count >> 1)) / count);
      }
    }
  }
  return { data, width, height };
};

const FILTERS = {
  bilinear: [1, (x) => Math.max(0, 1 - Math.abs(x))],
  bicubic: [2, (x) => { // a = -0.5, as Pillow's
    const size = Math.abs(x);
    if (size < 1) return (1.5 * size - 2.5) * size * size + 1;
    return size < 2 ? ((-0.5 * size + 2.5) * size - 4) * size + 2 : 0;
  }],
};
const ONE = 1 << 22; // of Pillow's whole-number weights

// For each output pixel the first input pixel and the weights, antialiased, as Pillow has them.
const coefficients = (length, low, high, size, interpolation) => {
  const [reach, filter] = FILTERS[interpolation];
  const scale = (high - low) / size, stretch = Math.max(scale, 1), support = reach * stretch;
  return Array.from({ length: size }, (_, pixel) => {
    const centre = low + (pixel + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - support + 0.5));
    const last = Math.min(length, Math.trunc(centre + support + 0.5));
    const shares = Array.from(
      { length: last - first }, (_, tap) => filter((tap + first - centre + 0.5) / stretch));
    const total = sum(shares);
    return { first, weights: shares.map((share) => Math.round(share / total * ONE)) };
  });
};

const resampleAcross = ({ data, width, height }, weighted) => {
  const size = weighted.length;
  return { data: resample(data, weighted, 4, height, 4 * width, 4, 4 * size), width: size, height };
};

const resampleDown = ({ data, width }, weighted) => {
  const size = weighted.length;
  return { data: resample(data, weighted, 4 * width, width, 4, 4 * width, 4), width, height: size };
};

// Weighs pixels along one axis. step: bytes from one pixel to the next, line: from one line to the
// next; nextTo and lineTo: the same of the result.
const resample = (data, weighted, step, lines, line, nextTo, lineTo) => {
  const out = new Uint8ClampedArray(4 * weighted.length * lines);
  for (let number = 0; number < lines; number++) {
    weighted.forEach(({ first, weights }, pixel) => {
      for (let part = 0; part < 3; part++) {
        let total = ONE / 2, from = number * line + first * step + part;
        for (let tap = 0; tap < weights.length; tap++, from += step) total += weights[tap] * data[from];
        out[number * lineTo + pixel * nextTo + part] = Math.floor(total / ONE);
      }
    });
  }
  return out;
};

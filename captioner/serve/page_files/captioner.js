// Captions a photo with the graphs of an exported folder, whose step holds all rules of the search.
//
// Tokens 0 to 3 are padding, start, end and unknown. K rows (hypotheses), V words, L places.

const START = 1;
const CLITICS = new Set(["'s", "'m", "'d", "'ll", "'re", "'ve", "n't"]);

// ort: the module of onnxruntime-web. description: captioner.json. sessions: encoder, start, step.
// Returns `caption`.
export const makeCaptioner = (ort, description, sessions) => {
  const { words, search, preprocessing } = description;
  const isFunctionWord = new Set(description.function_words);

  const tensor = (type, values, ...shape) => new ort.Tensor(type, values, shape);
  const integer = (...values) => BigInt64Array.from(values, BigInt);
  const arrayOf = {
    bool: (values) => Uint8Array.from(values),
    int64: (values) => integer(...values),
    float32: (values) => Float32Array.from(values),
  };

  // The rules of each step, as `search_inputs` of captioner/backends/graphs.py makes them; the last
  // are those of all later steps.
  const rules = description.inputs.map((inputs) => Object.fromEntries(Object.entries(inputs).map(
    ([name, { type, shape, values }]) => [name, tensor(type, arrayOf[type](values), ...shape)])));

  const given = rules.length - 1; // The words of a given beginning.

  // The first rows of a tensor (1, K, ...).
  const narrow = ({ type, data, dims: [, rows, ...rest] }, width) => {
    const kept = Math.min(rows, width);
    return tensor(type, data.subarray(0, (data.length / rows) * kept), 1, kept, ...rest);
  };

  // RGBA pixels {data, width, height} -> {words, text, maps (T arrays of L), logProbabilities (T + 1),
  // confidence, isSure, wordConfidence (T, null of function words)}.
  const caption = async (photo) => {
    const side = preprocessing.size;
    const pixels = tensor("float32", preprocess(photo, preprocessing), 1, 3, side, side);
    const { annotations } = await sessions.encoder.run({ pixels });
    return captionAnnotations(annotations);
  };

  const captionAnnotations = async (annotations) => {
    let beam = {
      history: tensor("int64", integer(START), 1, 1, 1),
      totals: tensor("float32", Float32Array.of(0), 1, 1),
      live: tensor("bool", Uint8Array.of(1), 1, 1),
      ended: tensor("int64", integer(0), 1, 1),
      ...await sessions.start.run({ annotations }),
    };
    const steps = [];
    for (let live = 1; live && steps.length <= search.maximum_length;) {
      const step = await sessions.step.run({ ...beam, ...rules[Math.min(steps.length, rules.length - 1)] });
      steps.push(step);
      live = Number(step.live_counts.data[0]);
      beam = Object.fromEntries(Object.entries(beam).map(([name, before]) => {
        const next = step[`next_${name}`];
        return [name, next ? narrow(next, Math.max(1, live)) : before];
      }));
    }
    const ends = steps.flatMap(({ is_end, is_cut, scores }, last) => Array.from(is_end.data)
      .map((isEnd, row) => ({ isEnd, last, row, isCut: is_cut.data[row], score: scores.data[row] }))
      .filter(({ isEnd }) => isEnd));
    const byScore = (one, other) => one.isCut - other.isCut || other.score - one.score;
    ends.sort(byScore);
    const captions = (search.truth_weight ? ends : ends.slice(0, 1)).map((end) => pathOf(steps, end));
    return captions.sort(byScore)[0];
  };

  // The hypothesis that ends in a row of a step, followed to the start.
  const pathOf = (steps, { last, row, isCut, score }) => {
    const tokens = [], terms = [], maps = [];
    for (let number = last; number >= 0; number--) {
      const { parents, tokens: { data }, terms: { data: logarithms }, weights } = steps[number];
      const places = weights.dims[2];
      tokens.unshift(Number(data[row]));
      terms.unshift(logarithms[row]);
      maps.unshift(weights.data.slice(row * places, (row + 1) * places));
      row = Number(parents.data[row]);
    }
    const ofCaption = tokens.slice(0, -1);
    const spoken = withArticles(ofCaption.map((token) => words[token]), description.vowel_sound);
    const isContent = ofCaption.map((token) => !isFunctionWord.has(token));
    // The words of a given beginning count neither for nor against.
    const judged = confidenceOf(description.confidence, ...[spoken, terms, isContent].map((each) => each.slice(given)));
    judged.wordConfidence?.unshift(...Array(given).fill(null));
    const likely = (judged.wordConfidence ?? []).filter((value) => value !== null);
    const truth = sum(likely.map((value) => value - description.confidence.least_true));
    return {
      words: spoken, text: sentence(spoken), maps: maps.slice(0, -1), logProbabilities: terms, isCut,
      score: score + search.truth_weight * truth, ...judged,
    };
  };

  return { caption, captionAnnotations };
};

const sum = (values) => values.reduce((total, value) => total + value, 0);

// The words of a caption with "a" or "an" by the word that follows, if one does; in English alone.
const withArticles = (words, vowelSound) => words.map((word, place) => {
  const following = words[place + 1];
  if (!vowelSound || !following || !["a", "an"].includes(word)) return word;
  return new RegExp(`^${vowelSound}`).test(following) ? "an" : "a";
});

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

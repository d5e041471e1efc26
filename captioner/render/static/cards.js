// What all pages share beside maps: their language, the words of a caption, edits, large photos.
// TEXTS, for each language the texts by the English ones, and DOUBTFUL are defined in front.

const page = document.documentElement;
const language = (page.lang === "en" ? navigator.language : page.lang).slice(0, 2);

// A text of the page in its language, with `values` in the places of {}.
export const say = (english, ...values) =>
  values.reduce((text, value) => text.replace("{}", () => value), TEXTS[language]?.[english] ?? english);

// Puts the page's own texts into its language, but none of photos or people.
const translate = (root) => {
  for (const node of root.childNodes) {
    if (node.nodeType === Node.TEXT_NODE) {
      const text = node.data.trim();
      if (text) node.data = node.data.replace(text, () => say(text.replace(/\s+/g, " ")));
    } else if (node.nodeType === Node.ELEMENT_NODE && !node.matches(".words, figcaption, [translate=no]")) {
      for (const name of ["aria-label", "placeholder", "title", "data-label", "data-pressed"]) {
        if (node.hasAttribute(name)) node.setAttribute(name, say(node.getAttribute(name)));
      }
      translate(node.content ?? node);
    }
  }
};
if (language in TEXTS) {
  page.lang = language;
  translate(document.body);
  document.title = say(document.title);
}

export const element = (name, text, parent, className = "") => {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  parent.append(made);
  return made;
};

const buttonOf = (text, parent, className, act) => {
  const button = element("button", text, parent, className);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
};

export const save = (blob, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
};

// Writes the words of a caption, which `captionViewer` makes buttons. shares: their confidence.
export const writeWords = (paragraph, words, shares) =>
  paragraph.replaceChildren(...words.flatMap((word, place) => {
    const span = document.createElement("span");
    const share = shares?.[place];
    span.className = share != null && share < DOUBTFUL ? "word doubtful" : "word";
    if (share != null) span.title = `${Math.round(100 * share)} %`;
    span.textContent = word;
    return place ? [" ", span] : [span];
  }));

document.addEventListener("wordshown", ({ target, detail }) => {
  const words = detail && target.querySelectorAll(".caption")[detail.row].querySelectorAll(".word");
  const { title, textContent } = words?.[detail.word] ?? {};
  target.querySelector(".probability").textContent = title ? say("“{}”: {} likely", textContent, title) : "";
}, true);

// Shows a photo as large as the window, with its captions beside it; shows it in its place again.
const enlarge = (card) => {
  if (card.popover) return card.hidePopover();
  const place = document.createElement("div");
  place.style.height = `${card.offsetHeight}px`;
  card.before(place);
  card.popover = "auto";
  card.showPopover();
  card.addEventListener("toggle", function closed({ newState }) {
    if (newState === "open") return;
    card.removeEventListener("toggle", closed);
    card.removeAttribute("popover");
    place.remove();
  });
};

document.addEventListener("click", ({ target }) => {
  if (getSelection().isCollapsed && target.closest(".stage, .enlarge")) enlarge(target.closest(".item"));
});

// As `csv_text` of captioner/tables.py: a spreadsheet runs no formula of a photo's name.
const asText = (cell) => cell.replace(/^'*[=+\-@]/, (start) => `'${start}`).replaceAll('"', '""');
const csvRow = (cells) => cells.map((cell) => `"${asText(cell)}"`).join() + "\n";

// An option of a select: a language by its name in that language.
export const languageOption = (tag) => {
  let name = tag === "und" ? say("Another language") : tag;
  try {
    if (tag !== "und") name = new Intl.DisplayNames([tag], { type: "language" }).of(tag);
  } catch {
    // The browser does not know the tag, which then stands for itself.
  }
  return new Option(name, tag);
};

// The language whose function words a text has most of; that of the photo's caption if it has none.
const languageOf = (text, tag) => {
  const words = text.toLowerCase().split(/[^\p{L}’']+/u);
  let most = 0, best = tag;
  for (const [language, known] of Object.entries(tag in FUNCTION_WORDS ? FUNCTION_WORDS : {})) {
    const count = words.filter((word) => known.includes(word)).length;
    if (count > most || (count === most && language === tag)) [most, best] = [count, language];
  }
  return best;
};

// Captions that people write instead of the model's: rows of image, caption, language, photo_digest.
// given: those so far. table: name of their file. send: saves one on the server and returns its row;
// without it they are downloaded. folder: of the photos, before their names. languages: further ones
// to choose from. The server knows a photo by its digest, or by its name in a row that has none.
// Returns `show`, which shows the caption of a card's photo.
export const startEdits = (
  { given = [], table = "edits.csv", send = null, folder = "", languages = [] } = {}) => {
  const keyOf = ({ image, photo_digest }) => send ? photo_digest || image : `${image}\n${photo_digest}`;
  const edits = new Map(given.map((row) => [keyOf(row), row]));
  let isSaved = true;
  const opener = document.getElementById("show-edits");
  const photoOf = (card) => {
    const { image, digest = "" } = card.querySelector("figcaption").dataset;
    return { image, photo_digest: digest };
  };
  const editOf = (photo) => edits.get(keyOf(photo)) ?? edits.get(photo.image);

  const show = (card) => {
    const edit = editOf(photoOf(card));
    card.querySelector(".person")?.remove();
    card.classList.toggle("edited", Boolean(edit));
    if (!edit) return;
    const person = element("p", edit.caption, card.querySelector(".result"), "person");
    person.dir = "auto";
    person.lang = edit.language;
    person.dataset.note = say("your words");
    card.querySelector(".captions").before(person);
  };

  const refresh = () => {
    opener.hidden = edits.size === 0;
    opener.textContent = `${say("Edits")} (${edits.size})`;
    document.querySelectorAll(".item[data-state=done]").forEach(show);
  };

  // Without a caption, the photo has the model's again.
  const keep = async (photo, caption, language) => {
    const edit = { ...photo, caption, language };
    const row = send ? await send(edit) : edit;
    edits.delete(photo.image); // A row without a digest.
    if (row.caption) edits.set(keyOf(row), row);
    else edits.delete(keyOf(photo));
    isSaved = Boolean(send) || edits.size === 0;
    refresh();
  };

  // Opens a field in the place of a caption. word: the one to be selected; else all are.
  const open = (card, caption, word) => {
    if (card.querySelector(".editor")) return card.querySelector(".editor").focus();
    const words = caption.querySelector(".words");
    const edit = editOf(photoOf(card)), tag = edit?.language || words.lang || "en";
    const before = edit?.caption ?? sentenceOf(words);
    const editor = document.createElement("textarea");
    Object.assign(editor, { className: "editor", rows: 2, value: before, dir: "auto", enterKeyHint: "done" });
    editor.setAttribute("aria-label", say("Caption in your words"));
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    const choice = document.createElement("select");
    choice.className = "button";
    choice.setAttribute("aria-label", say("Language"));
    const tags = new Set([tag, ...Object.keys(FUNCTION_WORDS), ...languages]);
    choice.append(...[...tags].map(languageOption));
    let isChosen = Boolean(edit?.language);
    words.before(editor, choice, problem);
    caption.classList.add("editing");
    editor.focus();
    editor.select();
    if (word && before === words.textContent.trim()) {
      const range = document.createRange();
      range.setStart(words, 0);
      range.setEndBefore(word);
      const start = range.toString().length;
      editor.setSelectionRange(start, start + word.textContent.length);
    }

    let isBusy = false; // Or closed: then a blur changes nothing.
    const close = () => {
      isBusy = true;
      if (document.activeElement === editor) caption.querySelector(".edit").focus();
      for (const part of [editor, choice, problem]) part.remove();
      caption.classList.remove("editing");
    };
    const release = () => card.dispatchEvent(new Event("release")); // Of the word that was clicked.
    const finish = async () => {
      if (isBusy) return;
      isBusy = true;
      release();
      try {
        await keep(photoOf(card), editor.value.trim().replace(/\s+/g, " "), choice.value);
        close();
      } catch (error) {
        problem.textContent = error.message;
        isBusy = false;
      }
    };
    editor.addEventListener("input", () => {
      if (!isChosen) choice.value = languageOf(editor.value, tag);
    });
    choice.addEventListener("change", () => { isChosen = true; });
    const onKey = (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      if (event.key === "Enter") return finish();
      release();
      close();
    };
    const onLeave = ({ relatedTarget }) => { // What somebody typed is kept.
      if (isBusy || [editor, choice].includes(relatedTarget)) return;
      if (editor.value === before && choice.value === tag) close();
      else finish();
    };
    for (const part of [editor, choice]) {
      part.addEventListener("keydown", onKey);
      part.addEventListener("blur", onLeave);
    }
  };

  document.addEventListener("click", (event) => {
    const card = event.target.closest(".item");
    if (!card || !getSelection().isCollapsed) return;
    const caption = event.target.closest(".caption") ?? card.querySelector(".caption");
    const sentence = event.target.closest(".words:has(.word), .person");
    const isEdited = event.target.closest(".edit") || (sentence && (byMouse(event) || !event.target.closest(".word")));
    if (isEdited) open(card, caption, event.target.closest(".word"));
  });
  addEventListener("beforeunload", (event) => { if (!isSaved) event.preventDefault(); });

  // The list, and what can be done with it.
  const dialog = element("dialog", "", document.body);
  dialog.setAttribute("aria-labelledby", "edits-title");
  const file = /[^\w./-]/.test(table) ? `"${table}"` : table;
  const list = () => {
    dialog.replaceChildren();
    element("h2", say("Your captions"), dialog).id = "edits-title";
    const rows = element("ul", "", dialog, "edits");
    for (const edit of edits.values()) {
      const { image, caption, language, photo_digest } = edit;
      const row = element("li", "", rows);
      element("span", image, row, "file");
      Object.assign(element("span", caption, row), { dir: "auto", lang: language });
      const remove = buttonOf(say("Remove"), row, "link", async () => {
        await keep({ image, photo_digest }, "", language).catch((error) => { row.append(error.message); });
        if (edits.size) list();
        else dialog.close();
      });
      remove.setAttribute("aria-label", `${say("Remove")} ${image}`);
    }
    const where = say("Saved in {} on the machine that runs captioner, and nowhere else.", table);
    element("p", send ? where : say("They are on this page alone until you download them."), dialog, "state");
    for (const [about, command] of [
      ["Write them into the photos:", `captioner write ${file} --xmp`],
      ["Let the model learn from them:", `captioner train ${file} --start-from default`],
    ]) {
      element("h3", say(about), dialog);
      element("code", command, dialog, "command");
    }
    const ways = element("div", "", dialog, "ways");
    if (!send) {
      buttonOf(say("Download {}", table), ways, "button primary", () => {
        const names = ["image", "caption", "language", "photo_digest"];
        const rows = [...edits.values()].map((edit) => ({ ...edit, image: folder + edit.image }));
        save(new Blob([csvRow(names), ...rows.map((row) => csvRow(names.map((name) => row[name])))]), table);
        isSaved = true;
      });
    }
    buttonOf(say("Close"), ways, "button", () => dialog.close());
  };
  opener.addEventListener("click", () => {
    list();
    dialog.showModal();
  });
  refresh();
  return { show };
};

// Shows the photos of a gallery that have all words of the search, are in the album that is chosen, and
// are not sure. An album is what a heading stands above, which hides with its photos.
export const startFilter = (gallery) => {
  const [search, albums, unsure, nothing] = ["search", "albums", "unsure", "nothing"]
    .map((id) => document.getElementById(id));
  const names = [...gallery.querySelectorAll("h2")].map((heading) => heading.textContent);
  albums?.append(...names.map((name) => new Option(name)));
  if (albums) albums.hidden = names.length < 2;
  if (search.form.matches(".controls")) search.hidden = gallery.children.length < 2;
  const grow = () => gallery.classList.toggle("many", gallery.children.length > 6);
  new MutationObserver(grow).observe(gallery, { childList: true });
  grow();

  const textOf = (card) =>
    [...card.querySelectorAll(".person, .words, .file")].map(sentenceOf).join(" ").toLowerCase();
  const filter = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let heading = null, count = 0;
    for (const each of gallery.children) {
      if (each.matches("h2")) heading = each;
      each.hidden = each === heading;
      if (each.hidden) continue;
      const isInAlbum = !albums?.value || heading?.textContent === albums.value;
      const isDoubtful = !unsure?.checked || each.matches(":not(.edited):has(.doubt:not(:empty))");
      each.hidden = !isInAlbum || !isDoubtful || !wanted.every((word) => textOf(each).includes(word));
      if (each.hidden) continue;
      count += 1;
      if (heading) heading.hidden = false;
    }
    nothing.textContent = count ? "" : say("Nothing found.");
  };
  for (const each of [search, albums, unsure]) each?.addEventListener("input", filter);
  search.form.addEventListener("submit", (event) => event.preventDefault());
};

// On narrow screens a button shows the other controls.
document.getElementById("show-more")?.addEventListener("click", ({ target }) => {
  target.setAttribute("aria-expanded", String(target.closest(".controls").classList.toggle("open")));
});

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

// As `csv_text` of captioner/tables.py: a spreadsheet runs no formula of a photo's name.
const asText = (cell) => cell.replace(/^'*[=+\-@]/, (start) => `'${start}`).replaceAll('"', '""');
const csvRow = (cells) => cells.map((cell) => `"${asText(cell)}"`).join() + "\n";

// Captions that people write instead of the model's: one for each photo, by the photo's name.
// given: those so far. table: name of their file. send: saves one on the server and returns all;
// without it they are downloaded. folder: of the photos, before their names.
// Returns `show`, which shows the caption of a card's photo.
export const startEdits = ({ given = {}, table = "edits.csv", send = null, folder = "" } = {}) => {
  let edits = new Map(Object.entries(given));
  let isSaved = true;
  const opener = document.getElementById("show-edits");
  const nameOf = (card) => card.querySelector("figcaption").dataset.image;

  const show = (card) => {
    const text = edits.get(nameOf(card));
    card.querySelector(".person")?.remove();
    card.classList.toggle("edited", Boolean(text));
    if (!text) return;
    const person = element("p", text, card.querySelector(".result"), "person");
    person.dir = "auto";
    person.dataset.note = say("your words");
    card.querySelector(".captions").before(person);
  };

  const refresh = () => {
    opener.hidden = edits.size === 0;
    opener.textContent = `${say("Edits")} (${edits.size})`;
    document.querySelectorAll(".item[data-state=done]").forEach(show);
  };

  // Without a text, the photo has the model's caption again.
  const keep = async (image, text) => {
    if (send) {
      edits = new Map(Object.entries(await send(image, text)));
    } else {
      if (text) edits.set(image, text);
      else edits.delete(image);
      isSaved = edits.size === 0;
    }
    refresh();
  };

  // Opens a field in the place of a caption. word: the one to be selected; else all are.
  const open = (card, caption, word) => {
    if (card.querySelector(".editor")) return card.querySelector(".editor").focus();
    const words = caption.querySelector(".words");
    const before = edits.get(nameOf(card)) ?? words.textContent.trim();
    const editor = document.createElement("textarea");
    Object.assign(editor, { className: "editor", rows: 2, value: before, dir: "auto", enterKeyHint: "done" });
    editor.setAttribute("aria-label", say("Caption in your words"));
    const problem = document.createElement("p");
    problem.className = "problem";
    problem.setAttribute("role", "alert");
    words.before(editor, problem);
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
      editor.remove();
      problem.remove();
      caption.classList.remove("editing");
    };
    const release = () => card.dispatchEvent(new Event("release")); // Of the word that was clicked.
    const finish = async () => {
      if (isBusy) return;
      isBusy = true;
      release();
      try {
        await keep(nameOf(card), editor.value.trim().replace(/\s+/g, " "));
        close();
      } catch (error) {
        problem.textContent = error.message;
        isBusy = false;
      }
    };
    editor.addEventListener("keydown", (event) => {
      if (event.isComposing || !["Enter", "Escape"].includes(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      if (event.key === "Enter") return finish();
      release();
      close();
    });
    editor.addEventListener("blur", () => { // What somebody typed is kept.
      if (isBusy) return;
      if (editor.value === before) close();
      else finish();
    });
  };

  document.addEventListener("click", (event) => {
    const card = event.target.closest(".item");
    if (!card || !getSelection().isCollapsed) return;
    const caption = event.target.closest(".caption") ?? card.querySelector(".caption");
    const sentence = event.target.closest(".words:has(.word), .person");
    const isEdited = event.target.closest(".edit") || (sentence && (byMouse(event) || !event.target.closest(".word")));
    if (isEdited) open(card, caption, event.target.closest(".word"));
    else if (event.target.closest(".stage, .enlarge")) enlarge(card);
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
    for (const [image, text] of edits) {
      const row = element("li", "", rows);
      element("span", image, row, "file");
      element("span", text, row).dir = "auto";
      const remove = buttonOf(say("Remove"), row, "link", async () => {
        await keep(image, "").catch((error) => { row.append(error.message); });
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
        const rows = [...edits].map(([image, text]) => csvRow([folder + image, text]));
        save(new Blob([csvRow(["image", "caption"]), ...rows]), table);
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

// On narrow screens a button shows the other controls.
document.getElementById("show-more")?.addEventListener("click", ({ target }) => {
  target.setAttribute("aria-expanded", String(target.closest(".controls").classList.toggle("open")));
});

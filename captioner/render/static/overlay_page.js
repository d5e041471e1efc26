// Hands the data of the standalone page to the viewer, which stands in front of this in one script.

const data = JSON.parse(document.getElementById("data").textContent);
const slider = document.getElementById("strength");
const percent = document.getElementById("strength-shown");
slider.addEventListener("input", () => { percent.textContent = slider.value + " %"; });
const viewer = captionViewer(data.unit, slider);
data.items.forEach((item, number) => viewer.add(document.getElementById("item-" + number), item));

const search = document.getElementById("search");
const articles = [...document.querySelectorAll(".item")];
search.addEventListener("input", () => {
  const wanted = search.value.toLowerCase().split(/\s+/);
  for (const article of articles) {
    const captions = [...article.querySelectorAll(".words, figcaption")];
    const text = captions.map((part) => part.textContent).join(" ").toLowerCase();
    article.hidden = !wanted.every((word) => text.includes(word));
  }
});

// Captions that people write below the model's, as a table to train on.
const save = document.getElementById("save");
const edits = [...document.querySelectorAll(".edited")];
const written = () => edits.filter((edit) => !edit.hidden && edit.value.trim());
let isSaved = true;
const changed = () => {
  const count = written().length;
  save.hidden = isSaved = count === 0;
  save.textContent = `${save.dataset.label} (${count})`;
};
for (const edit of edits) {
  const caption = edit.closest(".caption"), button = caption.querySelector(".edit");
  edit.addEventListener("input", changed);
  button.addEventListener("click", () => {
    edit.value ||= caption.querySelector(".words").textContent;
    edit.hidden = !edit.hidden;
    button.textContent = edit.hidden ? button.dataset.label : button.dataset.pressed;
    if (!edit.hidden) edit.focus();
    changed();
  });
}
addEventListener("beforeunload", (event) => { if (!isSaved) event.preventDefault(); });

// Photos are named from the page's folder. A page in a file knows it: the table may lie anywhere.
const path = decodeURIComponent(new URL(".", location).pathname).replace(/^\/(?=[A-Z]:)/i, "");
const folder = location.protocol === "file:" ? path : "";
const row = (cells) => cells.map((cell) => `"${cell.replaceAll('"', '""')}"`).join() + "\n";
save.addEventListener("click", () => {
  const rows = written().map((edit) => {
    const { image } = edit.closest(".item").querySelector("figcaption").dataset;
    return row([folder + image, edit.value.trim().replace(/\s+/g, " ")]);
  });
  const link = document.createElement("a");
  link.download = "edits.csv";
  link.href = URL.createObjectURL(new Blob([row(["image", "caption"]), ...rows]));
  link.click();
  isSaved = true;
});

// The exported page: hands its data to the viewer, which stands in front of this in one script.

const data = JSON.parse(document.getElementById("data").textContent);
const slider = document.getElementById("strength");
const percent = document.getElementById("strength-shown");
slider.addEventListener("input", () => { percent.textContent = slider.value + " %"; });
document.querySelector(".controls").addEventListener("submit", (event) => event.preventDefault());
const viewer = captionViewer(data.unit, slider);
data.items.forEach((item, number) => viewer.add(document.getElementById("item-" + number), item));

const search = document.getElementById("search");
const articles = [...document.querySelectorAll(".item")];
search.addEventListener("input", () => {
  const wanted = search.value.toLowerCase().split(/\s+/);
  for (const article of articles) {
    const captions = [...article.querySelectorAll(".person, .words, .file")];
    const text = captions.map((part) => part.textContent).join(" ").toLowerCase();
    article.hidden = !wanted.every((word) => text.includes(word));
  }
});

// Photos are named from the page's folder. A page in a file knows it: the table may lie anywhere.
const path = decodeURIComponent(new URL(".", location).pathname).replace(/^\/(?=[A-Z]:)/i, "");
startEdits({ folder: location.protocol === "file:" ? path : "" });

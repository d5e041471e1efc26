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

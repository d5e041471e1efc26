// The exported page: hands its photos to the viewer, which stands in front of this in one script.

const gallery = document.querySelector(".gallery");
const slider = document.getElementById("strength") // A plain page has none, and no edits.
  ?? Object.assign(document.createElement("input"), { value: gallery.dataset.strength });
const viewer = captionViewer(Number(gallery.dataset.unit), slider);
const cards = [...gallery.querySelectorAll(".item")];

// A photo stands in a noscript element until it is near the window: thousands would load for a minute.
const reveal = (card) => {
  const hidden = card.querySelector("noscript");
  if (hidden) hidden.outerHTML = hidden.textContent;
};
const near = new IntersectionObserver((entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    near.unobserve(target);
    reveal(target);
  }
}, { rootMargin: "100%" });
for (const card of cards) {
  near.observe(card);
  viewer.add(card, () => {
    reveal(card);
    return JSON.parse(card.dataset.maps);
  });
}
addEventListener("beforeprint", () => cards.forEach(reveal));
startFilter(gallery);
const percent = document.getElementById("strength-shown");
if (percent) {
  slider.addEventListener("input", () => { percent.textContent = slider.value + " %"; });
  // Photos are named from the page's folder. A page in a file knows it: the table may lie anywhere.
  const path = decodeURIComponent(new URL(".", location).pathname).replace(/^\/(?=[A-Z]:)/i, "");
  startEdits({ folder: location.protocol === "file:" ? path : "" });
}

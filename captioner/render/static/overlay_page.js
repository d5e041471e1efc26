// Hands the data of the standalone page to the viewer, which stands in front of this in one script.

const data = JSON.parse(document.getElementById("data").textContent);
const slider = document.getElementById("strength");
const percent = document.getElementById("strength-shown");
slider.addEventListener("input", () => { percent.textContent = slider.value + " %"; });
const viewer = captionViewer(data.unit, slider);
data.items.forEach((item, number) => viewer.add(document.getElementById("item-" + number), item));

"""The script of the page of captions: what is on the page, handed to the viewer."""

from __future__ import annotations

from captioner.render.viewer_script import VIEWER

SCRIPT = (
    '"use strict";'
    + VIEWER
    + r"""
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const slider = document.getElementById("strength");
  const shown = document.getElementById("strength-shown");
  slider.addEventListener("input", () => { shown.textContent = slider.value + " %"; });
  const viewer = captionViewer(data.look, data.unit, slider);
  data.items.forEach((item, number) => viewer.add(document.getElementById("item-" + number), item));
})();
"""
)

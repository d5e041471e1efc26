// Starts the page and its tabs.

import * as api from "./api.js";
import { showError } from "./common.js";
import { startPhotos } from "./photos.js";
import { startSentences } from "./sentences.js";

const startTabs = () => {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const select = (chosen) => {
    for (const tab of tabs) {
      const here = tab === chosen;
      tab.setAttribute("aria-selected", String(here));
      tab.tabIndex = here ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !here;
    }
    history.replaceState(null, "", "#" + chosen.getAttribute("aria-controls"));
  };
  tabs.forEach((tab, place) => {
    document.getElementById(tab.getAttribute("aria-controls")).setAttribute("role", "tabpanel");
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = tabs[(place + step + tabs.length) % tabs.length];
      select(next);
      next.focus();
      event.preventDefault();
    });
  });
  document.getElementById("tabs").hidden = false;
  const wanted = tabs.find((tab) => "#" + tab.getAttribute("aria-controls") === location.hash);
  if (wanted) select(wanted);
};

// Where the server does not answer, or its token is not given, a click tries again.
const answered = async () => {
  try {
    return await api.model();
  } catch (error) {
    showError(error);
    await new Promise((resolve) => { addEventListener("click", resolve, { once: true }); });
    showError(null);
    return answered();
  }
};

try {
  const model = await answered();
  const heading = document.querySelector("h1");
  document.title = heading.textContent = model.title || heading.textContent;
  startPhotos(model);
  if (Object.keys(model.translators).length > 0) {
    startSentences(model);
    startTabs();
  }
  document.documentElement.dataset.ready = "yes";
} catch (error) {
  showError(error);
}

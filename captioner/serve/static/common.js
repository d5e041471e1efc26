// Helpers shared by both tabs.

import { save } from "./viewer.js";

const errorMessage = document.getElementById("error-message");
const announcements = document.getElementById("announcements");

// Shows an error message, or hides it for null.
export const showError = (error) => {
  errorMessage.textContent = error ? error.message : "";
  errorMessage.hidden = !error;
};

// Announces a text to screen readers.
export const announce = (text) => {
  announcements.textContent = text;
};

export const saveJson = (value, name) =>
  save(new Blob([JSON.stringify(value) + "\n"], { type: "application/json" }), name);

// A range input with its value beside it; calls `changed` when the slider is released.
export const range = (id, write, changed = () => {}) => {
  const input = document.getElementById(id);
  const shown = document.getElementById(id + "-shown");
  const update = () => {
    shown.textContent = write(Number(input.value));
  };
  input.addEventListener("input", update);
  input.addEventListener("change", changed);
  update();
  return {
    get value() {
      return Number(input.value);
    },
    set value(value) {
      input.value = String(value);
      update();
    },
    set most(value) {
      input.max = String(Math.min(Number(input.max), value));
      update();
    },
  };
};

export const cloneTemplate = (id) =>
  document.getElementById(id).content.firstElementChild.cloneNode(true);

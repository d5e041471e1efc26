// What both tabs use.

const trouble = document.getElementById("trouble");
const said = document.getElementById("said");

// Show what went wrong, in its own words; nothing takes it away.
export const complain = (error) => {
  trouble.textContent = error ? error.message : "";
  trouble.hidden = !error;
};

// Say something to those who do not see the page.
export const say = (text) => {
  said.textContent = text;
};

export const save = (blob, name) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
};

export const saveJson = (value, name) =>
  save(new Blob([JSON.stringify(value) + "\n"], { type: "application/json" }), name);

// A range input with its value written beside it; `changed` is called when it is let go.
export const range = (id, write, changed = () => {}) => {
  const input = document.getElementById(id);
  const shown = document.getElementById(id + "-shown");
  const update = () => {
    shown.textContent = write(Number(input.value));
    const share = (input.value - input.min) / (input.max - input.min);
    input.style.setProperty("--share", `${100 * share}%`);
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

export const copyOf = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);

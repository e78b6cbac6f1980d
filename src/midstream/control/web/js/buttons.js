/** Buttons. */

import { el } from "./dom.js";

export function button(name, test = null, look = "", type = "button") {
  return el("button", { type, class: `button ${look}`.trim(), test }, name);
}

/** One that does something when it is pressed. */
export function acting(name, act, { test = null, look = "", label = null } = {}) {
  return el(
    "button",
    { type: "button", class: `button ${look}`.trim(), test, "aria-label": label, on: { click: act } },
    name,
  );
}

/** A modal dialog: a head with a title, a body, a foot with buttons. Esc closes it; focus goes back where it was. */

import { el } from "./dom.js";

export class Dialog {
  body = el("div", { class: "dialog-body" });
  status = el("p", { class: "muted small", role: "status" });
  buttons = el("div", { class: "end" });
  #dialog;

  constructor(title, { test, narrow = false, onClose, onSubmit } = {}) {
    const heading = el("h2", { id: "dialog-title" }, title);
    const close = el(
      "button",
      { type: "button", class: "button bare icon", "aria-label": "Close", on: { click: () => this.close() } },
      "✕",
    );
    // A form, so that Enter in a field does what the main button does.
    const form = el(
      "form",
      { novalidate: true, style: "display: contents" },
      this.body,
      el("div", { class: "dialog-foot" }, this.status, this.buttons),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      onSubmit?.();
    });
    this.#dialog = el(
      "dialog",
      { class: narrow ? "narrow" : "", test, "aria-labelledby": "dialog-title" },
      el("header", { class: "dialog-head" }, heading, close),
      form,
    );
    this.#dialog.addEventListener("close", () => {
      this.#dialog.remove();
      onClose?.();
    });
  }

  open(first = null) {
    document.body.append(this.#dialog);
    this.#dialog.showModal();
    first?.focus();
  }

  close() {
    this.#dialog.close();
  }
}

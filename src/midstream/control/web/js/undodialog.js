/** Taking a change back: asked once, then followed. What would be lost is asked for when it turns out. */

import { clientId } from "./api.js";
import { button } from "./buttons.js";
import { Dialog } from "./dialog.js";
import { el, fill } from "./dom.js";
import { parsed, problemNotice } from "./problem.js";
import { ProgressPane } from "./progress.js";
import { lossNotice } from "./verdict.js";

export class UndoDialog {
  #page;
  #change;
  #dialog;
  #pane = null;
  #allow = el("input", { type: "checkbox", test: "allow-loss" });
  #confirm = button("Undo it", "confirm-button", "primary", "submit");
  #close = button("Close", "close-button");

  constructor(page, change) {
    this.#page = page;
    this.#change = change;
    this.#dialog = new Dialog(`Undo change ${change.id}?`, {
      test: "undo-dialog",
      onClose: () => this.#pane?.end(),
      onSubmit: () => this.#undo(),
    });
    const later = page.store.history.filter(
      (other) => other.id > change.id && other.phase === "applied" && other.undoes === null,
    );
    fill(
      this.#dialog.body,
      el("p", {}, el("strong", {}, change.text)),
      el(
        "p",
        {},
        "At the next epoch the pipeline is as it was without it. A removed step comes back with the state it had.",
      ),
      later.length > 0 &&
        el("p", { class: "muted" }, `Later changes stay: ${later.map((other) => other.text).join("; ")}.`),
    );
    this.#close.addEventListener("click", () => this.#dialog.close());
    this.#allow.addEventListener("change", () => {
      this.#confirm.disabled = !this.#allow.checked;
    });
    fill(this.#dialog.buttons, this.#close, this.#confirm);
    this.#dialog.open(this.#confirm);
  }

  async #undo() {
    this.#confirm.disabled = true;
    try {
      const undo = await this.#page.control.undo(this.#change.id, clientId(), this.#allow.checked);
      this.#pane?.end();
      this.#pane = new ProgressPane(this.#page, undo, (now) => this.#followed(now));
      fill(this.#dialog.body, this.#pane.node);
      fill(this.#dialog.buttons, this.#close);
      this.#close.focus();
    } catch (problem) {
      this.#confirm.disabled = false;
      fill(this.#dialog.body, problemNotice(problem, "It cannot be undone"));
    }
  }

  #followed(undo) {
    const refused = parsed(undo.reason);
    if (undo.phase !== "rejected" || refused.code !== "STATE_WOULD_BE_LOST") return;
    this.#allow.checked = false;
    this.#confirm.disabled = true;
    fill(this.#dialog.body, lossNotice([refused.message], this.#allow));
    fill(this.#dialog.buttons, this.#close, this.#confirm);
    this.#allow.focus();
  }
}

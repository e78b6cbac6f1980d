/** A change, from its form over the verdict to its end. Nothing is applied that was not shown first. */

import { clientId } from "./api.js";
import { button } from "./buttons.js";
import { Dialog } from "./dialog.js";
import { el, fill } from "./dom.js";
import { field, FormError } from "./forms/fields.js";
import { problemNotice } from "./problem.js";
import { ProgressPane } from "./progress.js";
import { setUserName, userName } from "./user.js";
import { lossNotice, verdictView } from "./verdict.js";

const STALE = "The form, or the pipeline, has changed since. Check it again.";

export class ChangeDialog {
  #page;
  #form;
  #dialog;
  #fields;
  #outcome = el("div", { hidden: true });
  #spec = null;
  #id = null;
  #pane = null;
  #off;
  #check = button("Check the change", "plan-button", "primary", "submit");
  #shadow = button("Run as shadow", "shadow-button");
  #apply = button("Apply", "confirm-button", "primary");
  #allow = el("input", { type: "checkbox", test: "allow-loss" });

  constructor(page, form) {
    this.#page = page;
    this.#form = form;
    const who = el("input", { value: userName(), autocomplete: "nickname", placeholder: "optional" });
    who.addEventListener("change", () => setUserName(who.value));
    this.#fields = el("div", { class: "fields" }, form.node);
    this.#dialog = new Dialog(form.title, {
      test: "change-dialog",
      onClose: () => this.#closed(),
      onSubmit: () => this.#plan(),
    });
    this.#fields.addEventListener("input", () => this.#outdate());
    this.#off = page.store.on("graph", () => this.#outdate());
    this.#apply.addEventListener("click", () => this.#confirm());
    this.#shadow.addEventListener("click", () => this.#runShadow());
    this.#allow.addEventListener("change", () => this.#arm());
    fill(this.#dialog.body, this.#fields, field("Your name, recorded with the change", who), this.#outcome);
    this.#showButtons(this.#check);
    this.#dialog.open(form.first ?? this.#check);
  }

  /** Ask what it would do. */
  async #plan() {
    const spec = this.#read();
    if (!spec) return;
    this.#busy("Being checked: it is tried on rows of the last epoch …");
    try {
      const verdict = await this.#page.control.plan([spec]);
      this.#spec = spec;
      this.#id = clientId();
      this.#showVerdict(verdict);
    } catch (problem) {
      this.#showProblem(problem, "The change would be rejected");
    }
  }

  #read() {
    for (const input of this.#fields.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    try {
      return this.#form.read();
    } catch (error) {
      if (!(error instanceof FormError)) throw error;
      error.input?.setAttribute("aria-invalid", "true");
      error.input?.focus();
      this.#dialog.status.textContent = error.message;
      return null;
    }
  }

  #showVerdict(verdict) {
    this.#dialog.status.textContent = "";
    const losses = verdict.losses.length > 0;
    this.#allow.checked = false;
    const view = el("section", { class: "verdict", test: "verdict", "aria-label": "Verdict", tabindex: "-1" });
    fill(view, verdictView(verdict, this.#page.graph.rows), losses && lossNotice(verdict.losses, this.#allow));
    this.#show(view);
    this.#check.textContent = "Check again";
    this.#check.classList.remove("primary");
    this.#showButtons(this.#check, this.#shadow, this.#apply);
    this.#arm();
    // Down to the verdict, and on to what is to be decided.
    view.scrollIntoView({ block: "start" });
    (losses ? this.#allow : this.#apply).focus({ preventScroll: true });
  }

  /** What was shown holds no more. */
  #outdate() {
    if (!this.#spec || this.#pane) return;
    this.#spec = null;
    const view = this.#outcome.firstElementChild;
    view?.classList.add("stale");
    view?.prepend(el("div", { class: "notice warn" }, STALE));
    this.#dialog.status.textContent = "";
    this.#arm();
  }

  #arm() {
    const needsLeave = this.#outcome.contains(this.#allow) && !this.#allow.checked;
    this.#apply.disabled = !this.#spec || needsLeave;
    this.#shadow.disabled = !this.#spec;
    this.#check.disabled = false;
    this.#check.classList.toggle("primary", !this.#spec);
  }

  /** Hand it in. Trying again after a lost answer is harmless: it has the same id. */
  async #confirm() {
    this.#busy("Being handed in …");
    try {
      const change = await this.#page.control.apply([this.#spec], this.#id, this.#allow.checked);
      this.#follow(change);
    } catch (problem) {
      this.#arm();
      this.#dialog.status.textContent = "";
      this.#outcome.append(problemNotice(problem, "It was not taken"));
      this.#outcome.lastElementChild.scrollIntoView({ block: "nearest" });
    }
  }

  async #runShadow() {
    this.#busy("The shadow is being started …");
    try {
      this.#page.store.setShadow(await this.#page.control.shadow([this.#spec]));
      this.#dialog.close();
      this.#page.showTab("shadow");
    } catch (problem) {
      this.#showProblem(problem, "The shadow was not started");
    }
  }

  #follow(change) {
    const { body, status } = this.#dialog;
    const kept = [...body.childNodes];
    const close = button("Close", "close-button");
    const back = button("Back to the form");
    const cancel = button("Cancel the change", "cancel-button", "danger");
    close.addEventListener("click", () => this.#dialog.close());
    back.addEventListener("click", () => {
      this.#pane = null;
      fill(body, kept);
      this.#outdate();
      this.#showButtons(this.#check);
      this.#form.first?.focus();
    });
    cancel.addEventListener("click", () => this.#cancel(change.id, cancel));
    status.textContent = "It goes on by itself when you close this.";
    this.#pane = new ProgressPane(this.#page, change, (now) => {
      const ended = !now.under_way;
      if (ended) status.textContent = "";
      const failed = ended && now.phase !== "applied";
      close.classList.toggle("primary", !failed);
      this.#showButtons(failed && back, !ended && now.phase !== "applying" && cancel, close);
    });
    fill(body, this.#pane.node);
    close.focus();
  }

  async #cancel(id, cancel) {
    cancel.disabled = true;
    try {
      this.#page.store.setChange(await this.#page.control.cancel(id));
    } catch (problem) {
      this.#dialog.status.textContent = problem.message;
    }
  }

  #showProblem(problem, title) {
    this.#spec = null;
    this.#dialog.status.textContent = "";
    this.#show(problemNotice(problem, title));
    this.#showButtons(this.#check);
    this.#arm();
    this.#outcome.scrollIntoView({ block: "nearest" });
  }

  #show(outcome) {
    this.#outcome.hidden = false;
    fill(this.#outcome, outcome);
  }

  #busy(status) {
    this.#dialog.status.textContent = status;
    for (const each of [this.#check, this.#shadow, this.#apply]) each.disabled = true;
  }

  #showButtons(...buttons) {
    const wanted = buttons.filter(Boolean);
    const there = [...this.#dialog.buttons.children];
    if (wanted.length === there.length && wanted.every((each, index) => each === there[index])) return;
    const focused = document.activeElement;
    fill(this.#dialog.buttons, wanted);
    if (wanted.includes(focused)) focused.focus();
  }

  #closed() {
    this.#off();
    this.#pane?.end();
  }
}

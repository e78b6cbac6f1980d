/** Every change that was handed in, newest first: what became of it, who wanted it, how long each part took. */

import { acting } from "./buttons.js";
import { el, fill, keep } from "./dom.js";
import { moment, phaseName, phaseTone, plural, seconds } from "./format.js";
import { parsed, pastProblem, problemNotice } from "./problem.js";
import { parts } from "./progress.js";
import { UndoDialog } from "./undodialog.js";

export class History {
  #page;
  #list = el("ol", { class: "history-list", test: "history", reversed: true });
  #head = el("div", { class: "history-head" });
  #said = el("p", { class: "muted" });
  #undoLast;
  #opened = new Set();

  constructor(host, page) {
    this.#page = page;
    this.#undoLast = acting("Undo the last change", () => this.#undo(this.#lastApplied()), { test: "undo-last" });
    fill(this.#head, this.#said, this.#undoLast);
    host.append(this.#head, this.#list);
    page.store.on("changes pipeline", () => this.#render());
    this.#render();
  }

  /** Bring one into view. */
  point(id) {
    const item = this.#list.querySelector(`[data-key="${id}"]`);
    for (const other of this.#list.querySelectorAll(".pointed")) other.classList.remove("pointed");
    item?.classList.add("pointed");
    item?.scrollIntoView({ block: "center" });
    item?.focus({ preventScroll: true });
  }

  #render() {
    const { store } = this.#page;
    const changes = store.history.reverse();
    this.#said.textContent = changes.length
      ? plural(changes.length, "change")
      : "No changes yet. Those you make are listed here.";
    const last = this.#lastApplied();
    this.#undoLast.hidden = !store.mayChange || !last;
    if (last) this.#undoLast.title = last.text;
    keep(
      this.#list,
      changes,
      (change) => change.id,
      (change) => this.#make(change),
      (item, change) => this.#update(item, change),
    );
  }

  #lastApplied() {
    return this.#page.store.history.findLast((change) => change.phase === "applied" && change.undoes === null) ?? null;
  }

  #make(change) {
    return el("li", {
      class: "history-item",
      test: `history-item-${change.id}`,
      tabindex: "-1",
      id: `change-${change.id}`,
    });
  }

  #update(item, change) {
    const { store } = this.#page;
    // Built anew only when it has changed, so that the focus and the code that was opened stay.
    const state = JSON.stringify([change, store.mayChange]);
    if (item.dataset.state === state) return;
    item.dataset.state = state;
    const focused = item.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
    const failed = ["rejected", "rolled_back"].includes(change.phase) && change.reason;
    fill(
      item,
      el(
        "div",
        { class: "history-line" },
        el("span", { class: "number" }, `#${change.id}`),
        el("span", { class: "what" }, change.text),
        el("span", { class: `badge dot ${phaseTone(change)}` }, phaseName(change.phase)),
        el("span", { class: "end" }, this.#buttons(change)),
      ),
      el("p", { class: "muted small" }, facts(change)),
      Object.keys(change.seconds).length > 0 && spans(change),
      failed && pastProblem(parsed(change.reason), `Why it was ${phaseName(change.phase)}`),
      !failed && change.reason && el("p", { class: "small" }, change.reason),
      this.#details(change),
    );
    if (focused) item.querySelector(`[data-testid="${focused}"]`)?.focus();
  }

  #buttons(change) {
    if (!this.#page.store.mayChange) return null;
    if (change.under_way)
      return acting("Cancel", () => this.#cancel(change), { look: "slight danger", test: `cancel-${change.id}` });
    if (change.phase !== "applied" || change.undoes !== null) return null;
    return acting("Undo", () => this.#undo(change), {
      look: "slight",
      test: `undo-${change.id}`,
      label: `Undo change ${change.id}`,
    });
  }

  /** The phases one by one, and the code that came with it, asked for when it is opened. */
  #details(change) {
    const code = el("div");
    const details = el(
      "details",
      { open: this.#opened.has(change.id) },
      el("summary", {}, "Phases and code"),
      phases(change),
      code,
    );
    const load = async () => {
      if (code.childNodes.length) return;
      try {
        const { sources } = await this.#page.control.change(change.id);
        fill(
          code,
          sources.length ? sources.map(sourceText) : el("p", { class: "muted small" }, "No code came with it."),
        );
      } catch (problem) {
        fill(code, problemNotice(problem, "The code could not be read"));
      }
    };
    details.addEventListener("toggle", () => {
      if (details.open) {
        this.#opened.add(change.id);
        load();
      } else this.#opened.delete(change.id);
    });
    return details;
  }

  #undo(change) {
    if (change) new UndoDialog(this.#page, change);
  }

  async #cancel(change) {
    try {
      this.#page.store.setChange(await this.#page.control.cancel(change.id));
    } catch (problem) {
      this.#page.say(problem);
    }
  }
}

function facts(change) {
  const told = [];
  if (change.undoes !== null) told.push(`undoes #${change.undoes}`);
  if (change.epoch !== null) told.push(`epoch ${change.epoch}`);
  if (change.plan !== null) told.push(`plan ${change.plan}`);
  const when = change.submitted_at ?? (change.times.proposed ? change.times.proposed * 1000 : null);
  told.push(`handed in ${moment(when)}${change.by ? ` by ${change.by}` : ""}`);
  return told.join(" · ");
}

function spans(change) {
  const total = Math.max(0.001, change.seconds.total ?? 0);
  const bars = ["submit", "wait", "perform"]
    .filter((name) => name in change.seconds)
    .map((name) => el("span", { class: name, style: `flex: ${Math.max(0.001, change.seconds[name] / total)} 1 0` }));
  return el(
    "div",
    {},
    el("div", { class: "spans", "aria-hidden": "true" }, bars),
    el(
      "p",
      { class: "muted small" },
      parts(change),
      "total" in change.seconds ? ` · ${seconds(change.seconds.total)} in all` : "",
    ),
  );
}

function phases(change) {
  const began = Object.entries(change.times).sort(([, a], [, b]) => a - b);
  const rows = began.map(([phase, at], index) => {
    const next = began[index + 1]?.[1];
    return [
      el("dt", {}, phaseName(phase)),
      el("dd", {}, moment(at * 1000), next === undefined ? "" : ` for ${seconds(next - at)}`),
    ];
  });
  return el("dl", { class: "pairs small", style: "max-width: 380px" }, rows);
}

function sourceText(source) {
  return el(
    "div",
    { class: "source-text" },
    el("p", { class: "small" }, el("strong", {}, source.function), ` of ${source.file}, line ${source.line}`),
    el("p", { class: "small muted mono", style: "overflow-wrap: anywhere" }, `SHA-256 ${source.sha256}`),
    el("pre", { tabindex: "0" }, source.text),
  );
}

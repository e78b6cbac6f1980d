/** A change that runs beside the pipeline: what it would give otherwise, what it costs, and what to do about it. */

import { acting, button } from "./buttons.js";
import { Dialog } from "./dialog.js";
import { el, fill } from "./dom.js";
import { bytes, count, milliseconds, plural } from "./format.js";
import { problemNotice } from "./problem.js";
import { ProgressPane } from "./progress.js";

export class ShadowPanel {
  #page;
  #error = el("div");
  #content = el("div");
  #promote;
  #discard;

  constructor(host, page) {
    this.#page = page;
    this.#promote = acting("Promote", () => this.#onPromote(), { test: "promote-button", look: "primary" });
    this.#discard = acting("Discard", () => this.#onDiscard(), { test: "discard-button", look: "danger" });
    host.dataset.testid = "shadow-panel";
    host.append(this.#error, this.#content);
    page.store.on("shadow pipeline", () => this.#render());
    this.#render();
  }

  #render() {
    const { shadow, mayChange } = this.#page.store;
    if (!shadow) {
      const how = mayChange
        ? " Check a change and choose “Run as shadow” to see what it would do to live data before you decide."
        : "";
      fill(this.#content, el("p", { class: "empty" }, `No shadow runs.${how}`));
      return;
    }
    const focused = document.activeElement;
    this.#promote.disabled = shadow.error !== null || shadow.epochs === 0;
    fill(
      this.#content,
      el(
        "div",
        { class: "comparison" },
        el(
          "div",
          { class: "head" },
          el("div", {}, el("strong", {}, shadow.change), el("p", { class: "muted small" }, by(shadow))),
          mayChange && el("div", { class: "buttons" }, this.#discard, this.#promote),
        ),
        shadow.error &&
          problemNotice(
            { code: null, message: shadow.error, hint: "Discard it, and start it again." },
            "The shadow has ended",
          ),
        el(
          "dl",
          { class: "figures" },
          figure("Epochs compared", count(shadow.epochs)),
          figure(
            "Epoch, shadow beside pipeline",
            `${milliseconds(shadow.shadow_ms)} beside ${milliseconds(shadow.epoch_ms)}`,
          ),
          figure("Written for it", bytes(shadow.written_bytes)),
        ),
        differences("Output", shadow.outputs),
        differences("State", shadow.state),
      ),
    );
    if (this.#content.contains(focused)) focused.focus();
  }

  async #onPromote() {
    const { control, store } = this.#page;
    try {
      const change = await control.promote(store.shadow.name);
      fill(this.#error);
      this.#follow(change);
    } catch (problem) {
      fill(this.#error, problemNotice(problem, "It was not promoted"));
    }
  }

  #follow(change) {
    const dialog = new Dialog("Promote the shadow", { test: "promote-dialog", onClose: () => pane.end() });
    const close = button("Close", "close-button", "primary");
    const pane = new ProgressPane(this.#page, change);
    close.addEventListener("click", () => dialog.close());
    fill(dialog.body, pane.node);
    fill(dialog.buttons, close);
    dialog.open(close);
  }

  async #onDiscard() {
    const { control, store } = this.#page;
    try {
      await control.discard(store.shadow.name);
      fill(this.#error);
      store.setShadow(null);
    } catch (problem) {
      fill(this.#error, problemNotice(problem, "It was not discarded"));
    }
  }
}

function by(shadow) {
  return `shadow ${shadow.name}${shadow.by ? ` · by ${shadow.by}` : ""}`;
}

function differences(title, found) {
  const entries = Object.entries(found);
  if (!entries.length) return null;
  return el(
    "section",
    {},
    el("h3", { style: "margin-bottom: 8px" }, title),
    el("div", { class: "differences" }, entries.map(difference)),
  );
}

function difference([name, found]) {
  const same = !found.changed && !found.only_old && !found.only_new;
  const samples = found.samples.map(([old, now]) => el("tr", {}, sample(old, "old"), sample(now, "new")));
  return el(
    "article",
    { class: "difference", test: `difference-${name}` },
    el(
      "header",
      {},
      el("strong", {}, name),
      el("span", { class: `badge ${same ? "good" : "warn"}` }, same ? "all the same" : "different"),
    ),
    el(
      "dl",
      { class: "pairs small" },
      pair("Rows", same ? count(found.rows_new) : `${count(found.rows_old)} in old, ${count(found.rows_new)} in new`),
      !same && [
        pair("Changed", count(found.changed)),
        pair("Only in old", count(found.only_old)),
        pair("Only in new", count(found.only_new)),
      ],
    ),
    samples.length > 0 &&
      el(
        "div",
        {
          class: "table-scroll",
          tabindex: "0",
          role: "region",
          "aria-label": `${plural(samples.length, "sample")} of ${name}`,
        },
        el(
          "table",
          { class: "rows" },
          el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "old"), el("th", { scope: "col" }, "new"))),
          el("tbody", {}, samples),
        ),
      ),
  );
}

/** A row that one side does not have comes as a dash. */
function sample(text, side) {
  const absent = text === "–";
  return el("td", { class: absent ? "nothing" : side }, absent ? "no such row" : text);
}

function figure(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

function pair(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

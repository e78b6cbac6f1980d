/** What is selected: a step, an edge, or else the pipeline as a whole. */

import { insertOn, stepActions, tuneAction } from "./actions.js";
import { acting } from "./buttons.js";
import { el, fill } from "./dom.js";
import { ofStep, overall } from "./figures.js";
import { bytes, count, milliseconds, moment, short } from "./format.js";
import { aggregatesOf } from "./kinds.js";

export class Panel {
  #page;
  #host;
  #shown = null;
  #live = [];
  #figures = null;

  constructor(host, page) {
    this.#host = host;
    this.#page = page;
    const { store } = page;
    store.on("selection graph pipeline", (topics) => this.#render(topics));
    store.on("epochs", () => this.#refresh());
  }

  /** Built anew only when it shows something else: who works in it keeps the place. */
  #render(topics) {
    const { store } = this.#page;
    const selected = store.selection;
    const about = JSON.stringify([selected, store.graph?.plan, store.mayChange, store.pipeline?.name]);
    if (about !== this.#shown || (!selected && topics.includes("pipeline"))) {
      this.#shown = about;
      this.#live = [];
      if (!store.graph) fill(this.#host, el("p", { class: "empty" }, "Nothing to show yet."));
      else if (selected?.step) this.#showStep(store.step(selected.step));
      else if (selected?.edge) this.#showEdge(...selected.edge);
      else this.#showPipeline();
    }
    this.#refresh();
  }

  #showStep(step) {
    const { store } = this.#page;
    const readers = store.graph.steps.filter((other) => other.inputs.includes(step.id)).map((other) => other.id);
    const keyed = step.partitions !== null;
    fill(
      this.#host,
      this.#head(step.id, step.kind),
      el(
        "section",
        {},
        el(
          "dl",
          { class: "figures" },
          this.#figure("rows/s", (now) => short(now.rate)),
          keyed && this.#figure("epoch", (now) => milliseconds(now.ms)),
          keyed && this.#figure("state", (now) => bytes(now.stateBytes)),
        ),
        el(
          "dl",
          { class: "pairs" },
          keyed && pair("Partitions", count(step.partitions)),
          keyed && this.#pair("Rows of state", (now) => count(now.stateRows)),
          step.target && pair("Writes to", step.target),
          step.watermark && this.#pair("Watermark", (now) => moment(now.watermark)),
          step.watermark && this.#pair("Late rows", (now) => count(now.lateRows)),
        ),
      ),
      store.mayChange &&
        el("section", { "aria-label": "Changes" }, el("div", { class: "buttons" }, stepActions(this.#page, step))),
      textOf(step),
      step.columns.length > 0 && el("section", {}, el("h3", {}, "Columns"), chips(step)),
      this.#neighbours("Reads", step.inputs, (other) => [other, step.id]),
      this.#neighbours("Read by", readers, (other) => [step.id, other]),
    );
    this.#figures = () => ofStep(step, store);
  }

  #showEdge(from, to) {
    const { store } = this.#page;
    const columns = store.step(from)?.columns ?? [];
    fill(
      this.#host,
      this.#head(`${from} → ${to}`, "edge"),
      store.mayChange &&
        el(
          "section",
          {},
          el(
            "div",
            { class: "buttons" },
            acting("Insert a step here", () => insertOn(this.#page, from, to), {
              test: "action-insert-edge",
              look: "primary",
            }),
          ),
        ),
      columns.length > 0 &&
        el(
          "section",
          {},
          el("h3", {}, "Columns that pass"),
          el(
            "div",
            { class: "chips" },
            columns.map((name) => el("span", { class: "chip" }, name)),
          ),
        ),
      el(
        "section",
        {},
        el("h3", {}, "Ends"),
        el(
          "ul",
          { class: "neighbours" },
          [from, to].map((id) => el("li", {}, this.#toStep(id))),
        ),
      ),
    );
    this.#figures = null;
  }

  #showPipeline() {
    const { store } = this.#page;
    const { pipeline } = store;
    if (!pipeline) return;
    const reader = pipeline.role !== "operator";
    fill(
      this.#host,
      el(
        "div",
        { class: "panel-head" },
        el("div", {}, el("h2", {}, pipeline.name), el("p", { class: "muted" }, "pipeline")),
      ),
      el(
        "section",
        {},
        el(
          "dl",
          { class: "pairs" },
          pair("Status", pipeline.status),
          pair("Started", moment(pipeline.started_at)),
          pair("Plan", count(store.graph.plan)),
          pipeline.trigger && pair("Trigger", pipeline.trigger),
          this.#pair("Rows of state", (now) => count(now.stateRows)),
          this.#pair("State", (now) => bytes(now.stateBytes)),
          pair("Checkpoint", el("span", { class: "mono" }, pipeline.checkpoint)),
          pair("Spark", pipeline.spark),
          pair("midstream", pipeline.version),
          pair("Your role", pipeline.role),
        ),
      ),
      store.mayChange && el("section", {}, el("div", { class: "buttons" }, tuneAction(this.#page))),
      el(
        "section",
        { class: "muted" },
        el(
          "p",
          {},
          "Select a step or an edge of the graph to see what it does",
          store.mayChange ? " and to change it." : ".",
        ),
        reader && el("p", {}, "You may look at everything. Changes need the operator's token."),
        !reader && !pipeline.changeable && el("p", {}, "The run was started so that it cannot be changed."),
      ),
    );
    this.#figures = () => overall(store);
  }

  #refresh() {
    if (!this.#figures) return;
    const now = this.#figures();
    for (const [element, tell] of this.#live) {
      const text = tell(now);
      if (element.textContent !== text) element.textContent = text;
    }
  }

  #head(title, kind) {
    const close = acting("✕", () => this.#page.store.select(null), { look: "bare icon", label: "Show the pipeline" });
    return el(
      "div",
      { class: "panel-head" },
      el("div", {}, el("h2", {}, title), el("p", { class: "muted" }, kind)),
      close,
    );
  }

  #figure(name, tell) {
    const value = el("dd");
    this.#live.push([value, tell]);
    return el("div", {}, el("dt", {}, name), value);
  }

  #pair(name, tell) {
    const value = el("dd");
    this.#live.push([value, tell]);
    return [el("dt", {}, name), value];
  }

  /** The steps next to it, and the edges to them. */
  #neighbours(title, ids, edgeTo) {
    if (!ids.length) return null;
    const items = [...new Set(ids)].map((id) =>
      el(
        "li",
        {},
        this.#toStep(id),
        this.#page.store.mayChange &&
          acting("Insert between", () => insertOn(this.#page, ...edgeTo(id)), {
            test: `insert-${edgeTo(id).join("-")}`,
            look: "slight",
          }),
      ),
    );
    return el("section", {}, el("h3", {}, title), el("ul", { class: "neighbours" }, items));
  }

  #toStep(id) {
    return el(
      "button",
      { type: "button", class: "link", on: { click: () => this.#page.store.select({ step: id }) } },
      id,
    );
  }
}

function textOf(step) {
  if (step.sql)
    return el(
      "section",
      {},
      el("h3", {}, "SQL"),
      el("pre", { class: "wrapped", tabindex: "0", test: "panel-sql" }, step.sql.trim()),
    );
  if (step.aggregates) {
    const lines = Object.entries(aggregatesOf(step)).flatMap(([name, text]) => [
      el("dt", {}, name),
      el("dd", {}, text),
    ]);
    return el("section", {}, el("h3", {}, "Aggregates"), el("dl", { class: "expressions" }, lines));
  }
  if (step.code) return el("section", {}, el("h3", {}, "Code"), el("pre", { tabindex: "0" }, step.code));
  return null;
}

function chips(step) {
  const others = step.columns.filter((name) => !step.keys.includes(name));
  return el(
    "div",
    { class: "chips" },
    step.keys.map((name) =>
      el("span", { class: "chip key", title: "key" }, name, el("span", { class: "only-read" }, " (key)")),
    ),
    others.map((name) => el("span", { class: "chip" }, name)),
  );
}

function pair(name, value) {
  return [el("dt", {}, name), el("dd", {}, value)];
}

/** Look into the state of any keyed step, at any epoch that is still kept. */

import { acting, button } from "./buttons.js";
import { el, fill } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { field } from "./forms/fields.js";
import { problemNotice } from "./problem.js";

const PAGE = 50;

export class StateBrowser {
  #page;
  #step = el("select", { test: "state-step" });
  #table = el("select", { test: "state-table" });
  #epoch = el("input", { type: "number", test: "state-epoch", placeholder: "the last one" });
  #where = el("input", {
    test: "state-where",
    placeholder: "column=value",
    spellcheck: "false",
    list: "state-columns",
  });
  #columns = el("datalist", { id: "state-columns" });
  #chips = el("div", { class: "chips" });
  #rows = el("div", { test: "state-rows" });
  #pager = el("div", { class: "pager" });
  #tables = null;
  #conditions = [];
  #offset = 0;
  #asked = 0;

  constructor(host, page) {
    this.#page = page;
    const form = el(
      "form",
      { class: "picker", on: { submit: (event) => this.#submit(event) } },
      field("Step", this.#step),
      field("Table", this.#table),
      field("Epoch", this.#epoch),
      wide(field("Only rows with", this.#where)),
      this.#columns,
      button("Show", "state-show", "primary", "submit"),
      acting("Export as Parquet", () => this.#export(), { test: "state-export" }),
    );
    host.append(form, this.#chips, this.#rows, this.#pager);
    this.#step.addEventListener("change", () => this.#choose());
    this.#table.addEventListener("change", () => this.#load(0, true));
    this.#epoch.addEventListener("change", () => this.#load(0));
    // Another plan may have other tables.
    page.store.on("graph", () => {
      if (this.#tables) this.open();
    });
  }

  /** Read which tables there are; called when the tab is shown. */
  async open() {
    try {
      this.#tables = await this.#page.control.stateTables();
    } catch (problem) {
      fill(this.#rows, problemNotice(problem, "The state could not be read"));
      return;
    }
    const [first, last] = this.#tables.epochs;
    this.#epoch.labels[0].textContent = first === undefined ? "Epoch" : `Epoch (${first} to ${last})`;
    this.#epoch.min = first ?? 0;
    this.#epoch.max = last ?? 0;
    const steps = [...new Set(this.#tables.tables.map((table) => table.step))];
    const chosen = this.#page.store.selection?.step;
    const before = steps.includes(this.#step.value) ? this.#step.value : steps.includes(chosen) ? chosen : steps[0];
    fill(
      this.#step,
      steps.map((id) => el("option", { value: id, selected: id === before }, id)),
    );
    if (!steps.length) {
      fill(this.#rows, el("p", { class: "empty" }, "No step of this pipeline keeps state."));
      return;
    }
    this.#choose(this.#table.value);
  }

  #choose(table = null) {
    const tables = this.#tables.tables.filter((each) => each.step === this.#step.value);
    const known = tables.some((each) => each.table === table);
    fill(
      this.#table,
      tables.map((each) => el("option", { value: each.table, selected: each.table === table }, each.table)),
    );
    this.#load(known ? this.#offset : 0, !known);
  }

  #submit(event) {
    event.preventDefault();
    const condition = this.#where.value.trim();
    if (condition) {
      if (!condition.includes("=")) {
        this.#where.setAttribute("aria-invalid", "true");
        this.#where.focus();
        return;
      }
      this.#conditions.push(condition);
      this.#where.value = "";
    }
    this.#where.removeAttribute("aria-invalid");
    this.#load(0);
  }

  async #load(offset, otherTable = false) {
    if (otherTable) this.#conditions = [];
    this.#offset = offset;
    this.#showConditions();
    const table = this.#chosen();
    if (!table) return;
    fill(
      this.#columns,
      table.columns.map((name) => el("option", { value: `${name}=` })),
    );
    this.#asked += 1;
    const mine = this.#asked;
    this.#rows.setAttribute("aria-busy", "true");
    try {
      const found = await this.#page.control.stateRows(table.step, {
        table: table.table,
        epoch: this.#wantedEpoch(),
        where: this.#conditions,
        limit: PAGE,
        offset,
      });
      // A later question may have been answered first.
      if (mine === this.#asked) this.#show(found, table);
    } catch (problem) {
      if (mine !== this.#asked) return;
      fill(this.#rows, problemNotice(problem, "The state could not be read"));
      fill(this.#pager);
    }
    this.#rows.removeAttribute("aria-busy");
  }

  #show(found, table) {
    const keys = new Set(found.keys);
    const numeric = found.columns.map((_, index) =>
      found.rows.every((row) => row[index] === null || typeof row[index] === "number"),
    );
    const head = found.columns.map((name, index) => {
      const look = [keys.has(name) && "key", numeric[index] && "number"].filter(Boolean).join(" ");
      return el("th", { scope: "col", class: look }, name, keys.has(name) ? " (key)" : "");
    });
    const body = found.rows.map((row) =>
      el(
        "tr",
        {},
        row.map((value, index) => cell(value, numeric[index])),
      ),
    );
    fill(
      this.#rows,
      found.rows.length
        ? el(
            "div",
            { class: "table-scroll", tabindex: "0", role: "region", "aria-label": `State of ${found.step}` },
            el("table", { class: "rows" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)),
          )
        : el("p", { class: "empty" }, "No rows match."),
    );
    const end = found.offset + found.rows.length;
    const previous = acting("Previous", () => this.#load(Math.max(0, found.offset - PAGE)), { look: "slight" });
    const next = acting("Next", () => this.#load(end), { look: "slight" });
    previous.disabled = found.offset === 0;
    next.disabled = end >= found.matched;
    fill(
      this.#pager,
      el(
        "span",
        { class: "muted", role: "status", test: "state-count" },
        found.rows.length ? `${count(found.offset + 1)} to ${count(end)} of ` : "",
        `${plural(found.matched, "row that matches", "rows that match")} at epoch ${found.epoch}. `,
        `The table has ${plural(table.rows, "row")} now, ${bytes(table.bytes)}.`,
      ),
      el("span", { class: "buttons end" }, previous, next),
    );
  }

  #showConditions() {
    const chips = this.#conditions.map((condition, index) =>
      el(
        "span",
        { class: "chip" },
        condition,
        el(
          "button",
          { type: "button", "aria-label": `Without ${condition}`, on: { click: () => this.#drop(index) } },
          "✕",
        ),
      ),
    );
    fill(this.#chips, chips);
    this.#chips.style.marginBottom = chips.length ? "10px" : "0";
  }

  #drop(index) {
    this.#conditions.splice(index, 1);
    this.#load(0);
    this.#where.focus();
  }

  async #export() {
    const table = this.#chosen();
    if (!table) return;
    try {
      const blob = await this.#page.control.exportState(table.step, {
        table: table.table,
        epoch: this.#wantedEpoch(),
        where: this.#conditions,
      });
      const link = el("a", { href: URL.createObjectURL(blob), download: `${table.step}.${table.table}.parquet` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    } catch (problem) {
      this.#page.say(problem);
    }
  }

  #chosen() {
    return (
      this.#tables?.tables.find((each) => each.step === this.#step.value && each.table === this.#table.value) ?? null
    );
  }

  #wantedEpoch() {
    return this.#epoch.value === "" ? null : Number(this.#epoch.value);
  }
}

function wide(node) {
  node.classList.add("wide");
  return node;
}

function cell(value, numeric) {
  const look = [numeric && "number", value === null && "nothing"].filter(Boolean).join(" ");
  return el("td", { class: look }, value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));
}

/** The bar at the top: which pipeline, how it is, and its figures. */

import { el, fill } from "./dom.js";
import { overall } from "./figures.js";
import { bytes, count, milliseconds, seconds, short } from "./format.js";

const TONES = { running: "good", starting: "info", stopped: "plain", failed: "bad" };
/** An epoch may take its time; after this long without one, it is worth saying. */
const QUIET_MS = 5000;

const FACTS = [
  ["epoch", "Epoch", (now, store) => count(store.lastEpoch?.epoch ?? store.pipeline?.epoch)],
  ["rate", "Rows/s", (now) => short(now.rate)],
  ["p50", "Epoch p50", (now) => milliseconds(now.p50)],
  ["p99", "p99", (now) => milliseconds(now.p99)],
  ["state", "State", (now) => bytes(now.stateBytes)],
];

export class Header {
  #store;
  #status;
  #name;
  #values;
  #facts;

  constructor({ status, name, facts }, store) {
    this.#store = store;
    this.#status = status;
    this.#name = name;
    this.#facts = facts;
    this.#values = FACTS.map(([id, label, tell]) => {
      const value = el("dd", { test: `fact-${id}` });
      facts.append(el("div", {}, el("dt", {}, label), value));
      return [value, tell];
    });
    store.on("pipeline epochs", () => this.#render());
    setInterval(() => this.#renderStatus(), 1000);
  }

  /** The pipelines there are; with more than one, they can be chosen from. */
  showNames(names, chosen, onChoose) {
    if (names.length < 2) return fill(this.#name, el("h1", {}, chosen));
    const select = el(
      "select",
      { "aria-label": "Pipeline", test: "pipeline-select", on: { change: () => onChoose(select.value) } },
      names.map((name) => el("option", { value: name, selected: name === chosen }, name)),
    );
    return fill(this.#name, el("h1", { class: "only-read" }, chosen), select);
  }

  #render() {
    this.#facts.hidden = !this.#store.pipeline;
    const now = overall(this.#store);
    for (const [value, tell] of this.#values) {
      const text = tell(now, this.#store);
      if (value.textContent !== text) value.textContent = text;
    }
    this.#renderStatus();
    const name = this.#store.pipeline?.name;
    document.title = name ? `${name} · midstream` : "midstream";
  }

  #renderStatus() {
    const { pipeline, lastEpoch } = this.#store;
    this.#status.hidden = !pipeline;
    if (!pipeline) return;
    const quiet = lastEpoch ? Date.now() - lastEpoch.ended : 0;
    const since = pipeline.status === "running" && quiet > QUIET_MS ? `, last epoch ${seconds(quiet / 1000)} ago` : "";
    this.#status.className = `badge dot ${TONES[pipeline.status] ?? "plain"}`;
    const text = `${pipeline.status}${since}`;
    if (this.#status.textContent !== text) this.#status.textContent = text;
  }
}

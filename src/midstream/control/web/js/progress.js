/** How far a change is: its phases and when each began. */

import { el, fill } from "./dom.js";
import { bytes, phaseName, plural, seconds } from "./format.js";
import { parsed, problemNotice } from "./problem.js";

const WAY = ["proposed", "validated", "preparing", "waiting", "applying", "applied"];
const POLL_MS = 3000;

/** The phases as a line of dots. */
export function track(change) {
  const began = change.times.proposed;
  const reached = WAY.filter((phase) => phase in change.times);
  // Of a change that ended otherwise, the end takes the place of what it did not come to.
  const way = change.under_way || change.phase === "applied" ? WAY : [...reached, change.phase];
  const items = way.map((phase) => {
    const at = change.times[phase];
    const now = phase === change.phase;
    const look = now
      ? change.under_way
        ? "now"
        : phase === "applied" || phase === "undone"
          ? "done"
          : "failed"
      : at !== undefined
        ? "done"
        : "todo";
    const time = at !== undefined && began !== undefined ? `+${seconds(Math.max(0, at - began))}` : " ";
    return el(
      "li",
      { class: look, "aria-current": now ? "step" : null },
      phaseName(phase),
      el("span", { class: "muted small" }, time),
    );
  });
  return el("ol", { class: "track", "aria-label": `Phase: ${phaseName(change.phase)}` }, items);
}

/** What a phase waits for, or how it ended, in a sentence. */
export function sentence(change) {
  const at = change.epoch === null ? "" : ` at epoch ${change.epoch}`;
  switch (change.phase) {
    case "proposed":
      return "It is being checked.";
    case "validated":
    case "preparing":
      return change.moved ? "State is being brought to where it will be read." : "The new version is being prepared.";
    case "waiting":
      return "It waits for the next epoch, which comes with the next rows.";
    case "applying":
      return `Epoch ${change.epoch ?? ""} is the first to run with it.`;
    case "applied":
      return `Applied${at}${took(change)}.`;
    case "rolled_back":
      return "The first epoch failed with it. It was taken back, and the epoch was run as before.";
    case "rejected":
      return "It was rejected. Nothing has changed.";
    case "cancelled":
      return "It was cancelled. Nothing has changed.";
    default:
      return `It was undone${at}.`;
  }
}

function took({ seconds: spent }) {
  return "total" in spent ? `, ${seconds(spent.total)} after it was handed in` : "";
}

/** Everything about a change on its way, kept up to date until it ends. */
export class ProgressPane {
  node = el("div", { class: "fields", test: "progress", "aria-live": "polite" });
  #page;
  #id;
  #onUpdate;
  #stop;
  #timer;

  constructor(page, change, onUpdate = () => {}) {
    this.#page = page;
    this.#id = change.id;
    this.#onUpdate = onUpdate;
    page.store.setChange(change);
    this.#stop = page.store.on("changes", () => this.#render());
    // Events may be lost with the connection; asking finds out, too.
    this.#timer = setInterval(() => this.#poll(), POLL_MS);
    this.#render();
  }

  end() {
    this.#stop();
    clearInterval(this.#timer);
  }

  async #poll() {
    try {
      this.#page.store.setChange(await this.#page.control.change(this.#id));
    } catch {
      // Tried again in a moment; that the connection is lost is told by the banner.
    }
  }

  #render() {
    const change = this.#page.store.changes.get(this.#id);
    if (!change.under_way) this.end();
    const failed = ["rejected", "rolled_back"].includes(change.phase);
    fill(
      this.node,
      el("p", {}, el("strong", {}, `${change.id}: ${change.text}`)),
      track(change),
      el("p", { test: "progress-sentence" }, sentence(change)),
      change.moved && movedBar(change.moved),
      failed && problemNotice(parsed(change.reason), `The change was ${phaseName(change.phase)}`),
      !failed && change.reason && el("p", { class: "muted" }, change.reason),
    );
    this.#onUpdate(change);
  }
}

export function movedBar(moved) {
  return el(
    "div",
    {},
    el("progress", { max: Math.max(1, moved.of_bytes), value: moved.bytes, "aria-label": "State brought over" }),
    el("p", { class: "muted small" }, `${bytes(moved.bytes)} of ${bytes(moved.of_bytes)} of state`),
  );
}

/** The parts of a change that took time, as words. */
export function parts(change) {
  const names = { submit: "checked in", wait: "waited", perform: "performed in" };
  return Object.entries(names)
    .filter(([name]) => name in change.seconds)
    .map(([name, word]) => `${word} ${seconds(change.seconds[name])}`)
    .join(" · ");
}

export function queued(store) {
  const waiting = store.history.filter((change) => change.under_way).length;
  return waiting > 1 ? `${plural(waiting - 1, "more change")} behind it` : "";
}

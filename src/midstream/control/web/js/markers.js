/** Marks of changes on a chart: a line where each took effect, its story on hover and focus. */

import { el, fill, keep } from "./dom.js";
import { milliseconds, moment, phaseName, phaseTone } from "./format.js";

export class Markers {
  #plot;
  #page;
  #layer = el("div");
  #tip = el("div", { class: "marker-tip", role: "tooltip", hidden: true });
  #times = new Map();

  constructor(plot, page) {
    this.#plot = plot;
    this.#page = page;
    plot.over.append(this.#layer, this.#tip);
  }

  show(history, epochs) {
    this.#times = new Map(history.map((change) => [String(change.id), momentOf(change, epochs)]));
    keep(
      this.#layer,
      history,
      (change) => change.id,
      (change) => this.#make(change.id),
      update,
    );
    this.place();
  }

  /** Put each where its time is now. Those out of the picture are left out. */
  place() {
    const { scales } = this.#plot;
    for (const marker of this.#layer.children) {
      const time = this.#times.get(marker.dataset.key);
      const inside = time !== null && scales.x.min !== null && time >= scales.x.min && time <= scales.x.max;
      marker.hidden = !inside;
      if (inside) marker.style.left = `${this.#plot.valToPos(time, "x")}px`;
    }
  }

  #make(id) {
    const marker = el("button", { type: "button", class: "marker", test: `marker-${id}` });
    const show = () => this.#showTip(marker, id);
    const hide = () => {
      this.#tip.hidden = true;
    };
    marker.addEventListener("mouseenter", show);
    marker.addEventListener("focus", show);
    marker.addEventListener("mouseleave", hide);
    marker.addEventListener("blur", hide);
    marker.addEventListener("click", () => this.#page.pointAtChange(id));
    return marker;
  }

  #showTip(marker, id) {
    const change = this.#page.store.changes.get(id);
    if (!change) return;
    fill(
      this.#tip,
      el("strong", {}, change.text),
      el("div", { class: "muted" }, story(change, this.#page.store.epochs)),
    );
    this.#tip.hidden = false;
    const left = parseFloat(marker.style.left);
    const width = this.#plot.over.clientWidth;
    const onRight = left > width / 2;
    this.#tip.style.left = onRight ? "auto" : `${left + 10}px`;
    this.#tip.style.right = onRight ? `${width - left + 10}px` : "auto";
  }
}

function update(marker, change) {
  marker.className = `marker ${phaseTone(change)}`;
  marker.setAttribute("aria-label", `Change ${change.id}, ${change.text}, ${phaseName(change.phase)}`);
}

/** When its first epoch began, so that the mark meets the epoch it cost; else when its last phase did. */
function momentOf(change, epochs) {
  const epoch = change.epoch === null ? null : epochs.find((each) => each.epoch === change.epoch);
  if (epoch) return epoch.began / 1000;
  const { applied, undone, ...others } = change.times;
  const ends = Object.values(others);
  return applied ?? (ends.length ? Math.max(...ends) : (undone ?? null));
}

function story(change, epochs) {
  const epoch = epochs.find((each) => each.epoch === change.epoch);
  const told = [`#${change.id} ${phaseName(change.phase)}`];
  if (change.epoch !== null)
    told.push(`epoch ${change.epoch}${epoch ? ` took ${milliseconds(epoch.duration_ms)}` : ""}`);
  if (epoch) told.push(moment(epoch.began));
  return told.join(" · ");
}

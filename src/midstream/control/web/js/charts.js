/** Time and throughput of epochs over time, side by side, with every change marked. */

import { el } from "./dom.js";
import { rates } from "./figures.js";
import { milliseconds, moment, short } from "./format.js";
import { Markers } from "./markers.js";
import { onTheme, resolved } from "./theme.js";

const { uPlot } = window;
const HEIGHT = 190;
const SYNC = "epochs";
/** Seconds back from the last epoch; null is everything. */
const WINDOWS = [
  ["1 min", 60],
  ["10 min", 600],
  ["all", null],
];

const KINDS = [
  {
    test: "chart-latency",
    title: "Epoch time",
    colour: "--accent",
    values: (epochs) => epochs.map((epoch) => epoch.duration_ms),
    tell: milliseconds,
  },
  {
    test: "chart-throughput",
    title: "Throughput",
    colour: "--info",
    values: rates,
    tell: (value) => `${short(value)} rows/s`,
  },
];

export class Charts {
  #store;
  #charts;
  #window = WINDOWS[1][1];

  constructor(host, page) {
    this.#store = page.store;
    this.#charts = KINDS.map((kind, index) => new Chart(kind, page, index === 1 ? this.#windows() : null));
    host.append(...this.#charts.map((chart) => chart.node));
    page.store.on("epochs changes", () => this.#render());
    onTheme(() => this.#charts.forEach((chart) => chart.recolour()));
    this.#render();
  }

  #render() {
    const all = this.#store.epochs;
    const since = this.#window === null || !all.length ? 0 : all.at(-1).began - this.#window * 1000;
    const from = Math.max(
      0,
      all.findIndex((epoch) => epoch.began >= since),
    );
    for (const chart of this.#charts) chart.show(all, from, this.#store.history);
  }

  #windows() {
    const buttons = WINDOWS.map(([name, length]) =>
      el(
        "button",
        {
          type: "button",
          "aria-pressed": String(length === this.#window),
          on: {
            click: (event) => {
              this.#window = length;
              for (const other of buttons) other.setAttribute("aria-pressed", String(other === event.currentTarget));
              this.#render();
            },
          },
        },
        name,
      ),
    );
    return el("div", { class: "segments end", role: "group", "aria-label": "Time shown" }, buttons);
  }
}

class Chart {
  node;
  #kind;
  #plot;
  #canvas = el("div", { class: "chart" });
  #now = el("span", { class: "chart-now" });
  #when = el("span", { class: "muted small" });
  #epochs = [];
  #markers;

  constructor(kind, page, tools) {
    this.#kind = kind;
    this.node = el(
      "section",
      { class: "card", test: kind.test, "aria-label": kind.title },
      el("header", {}, el("h2", {}, kind.title), this.#now, this.#when, tools),
      this.#canvas,
    );
    this.#plot = new uPlot(this.#options(), [[], []], this.#canvas);
    this.#markers = new Markers(this.#plot, page);
    new ResizeObserver(() => this.#resize()).observe(this.#canvas);
  }

  show(all, from, history) {
    this.#epochs = all.slice(from);
    const values = this.#kind.values(all).slice(from);
    this.#plot.setData([this.#epochs.map((epoch) => epoch.began / 1000), values]);
    this.#markers.show(history, all);
    this.#tell(null);
  }

  recolour() {
    this.#plot.redraw(false);
  }

  #tell(index) {
    const epoch = this.#epochs[index ?? this.#epochs.length - 1];
    if (!epoch) return;
    const value = this.#plot.data[1][index ?? this.#epochs.length - 1];
    this.#now.textContent = this.#kind.tell(value);
    this.#when.textContent = index === null ? "" : `epoch ${epoch.epoch}, ${moment(epoch.began)}`;
  }

  #resize() {
    const style = getComputedStyle(this.#canvas);
    const width = this.#canvas.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT });
  }

  #options() {
    const { colour, tell } = this.#kind;
    const axis = {
      stroke: () => resolved("--muted"),
      font: "11px system-ui, sans-serif",
      grid: { stroke: () => resolved("--line"), width: 1 },
      ticks: { show: false },
    };
    return {
      width: 400,
      height: HEIGHT,
      padding: [14, 12, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false, setScale: false }, sync: { key: SYNC }, points: { size: 7 } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, (high || 1) * 1.12] } },
      axes: [
        {
          ...axis,
          size: 30,
          space: 90,
          values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString("en-GB")),
        },
        {
          ...axis,
          size: 58,
          space: 36,
          values: (_, values) => values.map((value) => (value === 0 ? "0" : plain(tell(value)))),
        },
      ],
      series: [
        {},
        {
          stroke: () => resolved(colour),
          fill: () => resolved(`${colour}-soft`),
          width: 1.6,
          points: { show: (plot, _, from, to) => to - from < 40, size: 4, fill: () => resolved(colour) },
        },
      ],
      hooks: {
        draw: [() => this.#markers?.place()],
        setCursor: [(plot) => this.#tell(plot.cursor.idx ?? null)],
      },
    };
  }
}

/** A value of an axis, which is round: without the digits that only fill up. */
function plain(told) {
  return told.replace(" rows/s", "").replace(/\.0+(?=\D|$)|(\.\d*?[1-9])0+(?=\D|$)/, "$1");
}

/** The running pipeline as a graph. Steps that stay keep their places; where they must move, they glide. */

import { still, svg } from "./dom.js";
import { ofStep } from "./figures.js";
import { layout } from "./layout.js";
import { drawNode, SIZE, updateFigures, updateNode } from "./node.js";
import { handle, wire } from "./wires.js";

const GLIDE_MS = 420;
const SMALLEST = 0.8;
const MARGIN = 6;

export class GraphView {
  #store;
  #host;
  #onInsert;
  #svg;
  #edges = svg("g");
  #nodes = svg("g");
  #drawn = new Map();
  #wires = new Map();
  #layout = null;
  #shown = new Map();
  #focused = null;
  #frame = 0;

  constructor(host, store, onInsert) {
    this.#host = host;
    this.#store = store;
    this.#onInsert = onInsert;
    this.#svg = svg("svg", { test: "graph", role: "group", "aria-label": "Steps of the pipeline, left to right" });
    this.#svg.append(this.#edges, this.#nodes);
    this.#svg.addEventListener("keydown", (event) => this.#onKey(event));
    host.append(this.#svg);
    new ResizeObserver(() => this.#fit()).observe(host);
    store.on("graph", () => this.#redraw());
    store.on("selection pipeline", () => this.#mark());
    store.on("epochs", () => this.#refresh());
  }

  /** Rows of steps that are shown, for a diff to look alike. */
  get rows() {
    return this.#layout?.rows ?? new Map();
  }

  /** Lay everything out anew, as if it were seen for the first time. */
  tidy() {
    this.#layout = null;
    this.#redraw();
  }

  #redraw() {
    const graph = this.#store.graph;
    const steps = graph?.steps ?? [];
    const first = this.#drawn.size === 0;
    this.#layout = steps.length ? layout(steps, SIZE, this.#layout?.rows) : null;
    for (const [id, node] of this.#drawn) {
      if (steps.some((step) => step.id === id)) continue;
      node.remove();
      this.#drawn.delete(id);
      this.#shown.delete(id);
    }
    for (const step of steps) {
      if (this.#drawn.has(step.id)) continue;
      const node = drawNode(step);
      if (!first) node.classList.add("fresh");
      node.addEventListener("click", () => this.#select(step.id));
      node.addEventListener("focus", () => this.#rove(step.id));
      this.#drawn.set(step.id, node);
    }
    // In the order of the pipeline, so that who reads the page hears it in that order.
    this.#nodes.append(
      ...steps.map((step) => this.#drawn.get(step.id)).filter((node) => node.parentNode !== this.#nodes),
    );
    this.#redrawEdges();
    if (!this.#drawn.has(this.#focused)) this.#rove(steps[0]?.id ?? null);
    this.#fit();
    this.#mark();
    this.#refresh();
    this.#glide();
  }

  #redrawEdges() {
    const routes = this.#layout?.routes ?? [];
    const wanted = new Set(routes.map(key));
    for (const [id, edge] of this.#wires) {
      if (wanted.has(id)) continue;
      edge.remove();
      this.#wires.delete(id);
    }
    for (const route of routes) {
      if (this.#wires.has(key(route))) continue;
      const edge = this.#drawEdge(route.from, route.to);
      this.#wires.set(key(route), edge);
      this.#edges.append(edge);
    }
  }

  #drawEdge(from, to) {
    const plus = svg("g", { class: "plus" }, svg("circle", { r: 10 }), svg("path", { d: "M-4.5 0h9M0 -4.5v9" }));
    const edge = svg(
      "g",
      {
        class: "edge",
        role: "button",
        tabindex: "-1",
        test: `edge-${from}-${to}`,
        "aria-label": `Edge from ${from} to ${to}`,
      },
      svg("path", { class: "wire" }),
      svg("path", { class: "tip", d: "M-7 -4.5L0 0L-7 4.5Z" }),
      svg("path", { class: "reach" }),
      plus,
    );
    edge.addEventListener("click", () => this.#store.select({ edge: [from, to] }));
    plus.addEventListener("click", (event) => {
      event.stopPropagation();
      this.#store.select({ edge: [from, to] });
      this.#onInsert(from, to);
    });
    return edge;
  }

  /** As large as it is, smaller when it does not fit; when it would be too small to read, it scrolls. */
  #fit() {
    if (!this.#layout) return;
    const width = this.#layout.width + 2 * MARGIN;
    const height = this.#layout.height + 2 * MARGIN;
    const style = getComputedStyle(this.#host);
    const room = this.#host.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const scale = Math.min(1, Math.max(SMALLEST, room / width));
    this.#svg.setAttribute("viewBox", `${-MARGIN} ${-MARGIN} ${width} ${height}`);
    this.#svg.setAttribute("width", width * scale);
    this.#svg.setAttribute("height", height * scale);
  }

  #mark() {
    const { selection, mayChange } = this.#store;
    for (const step of this.#store.graph?.steps ?? []) {
      const node = this.#drawn.get(step.id);
      if (node) updateNode(node, step, selection?.step === step.id);
    }
    for (const route of this.#layout?.routes ?? []) {
      const edge = this.#wires.get(key(route));
      const selected = selection?.edge?.[0] === route.from && selection.edge[1] === route.to;
      edge.classList.toggle("selected", selected);
      edge.setAttribute("aria-pressed", String(selected));
      edge.querySelector(".plus").toggleAttribute("hidden", !mayChange);
    }
  }

  #refresh() {
    for (const step of this.#store.graph?.steps ?? []) {
      const node = this.#drawn.get(step.id);
      if (node) updateFigures(node, step, ofStep(step, this.#store));
    }
  }

  #glide() {
    cancelAnimationFrame(this.#frame);
    if (!this.#layout) return;
    const target = this.#layout.places;
    const start = new Map([...target].map(([id, place]) => [id, this.#shown.get(id) ?? place]));
    const moves = [...target].some(([id, place]) => start.get(id).x !== place.x || start.get(id).y !== place.y);
    const began = performance.now();
    const move = (now) => {
      const share = moves && !still() ? Math.min(1, Math.max(0, now - began) / GLIDE_MS) : 1;
      const eased = 1 - (1 - share) ** 3;
      for (const [id, place] of target) {
        const from = start.get(id);
        this.#shown.set(id, { x: from.x + (place.x - from.x) * eased, y: from.y + (place.y - from.y) * eased });
      }
      this.#place();
      if (share < 1) this.#frame = requestAnimationFrame(move);
    };
    move(began);
  }

  #place() {
    for (const [id, at] of this.#shown) {
      this.#drawn.get(id).setAttribute("transform", `translate(${at.x} ${at.y})`);
    }
    for (const route of this.#layout.routes) {
      const from = this.#shown.get(route.from);
      const to = this.#shown.get(route.to);
      const edge = this.#wires.get(key(route));
      const path = wire(from, to, route.through, SIZE);
      edge.querySelector(".wire").setAttribute("d", path);
      edge.querySelector(".reach").setAttribute("d", path);
      edge.querySelector(".tip").setAttribute("transform", `translate(${to.x} ${to.y + SIZE.height / 2})`);
      const middle = handle(from, to, route.through, SIZE);
      edge.querySelector(".plus").setAttribute("transform", `translate(${middle.x} ${middle.y})`);
    }
  }

  #select(id) {
    this.#rove(id);
    this.#store.select({ step: id });
  }

  /** One step at a time is reached with Tab, the others from it with arrows. */
  #rove(id) {
    this.#drawn.get(this.#focused)?.setAttribute("tabindex", "-1");
    this.#focused = id;
    this.#drawn.get(id)?.setAttribute("tabindex", "0");
  }

  #onKey(event) {
    const edge = event.target.closest(".edge");
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (edge) edge.dispatchEvent(new MouseEvent("click"));
      else if (this.#focused) this.#select(this.#focused);
      return;
    }
    if (event.key === "Escape") this.#store.select(null);
    const next = this.#neighbour(event.key);
    if (!next) return;
    event.preventDefault();
    const node = this.#drawn.get(next);
    node.focus();
    node.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  /** The step an arrow key leads to: along an edge to the side, the next one of the column up and down. */
  #neighbour(arrow) {
    const places = this.#layout?.places;
    const here = places?.get(this.#focused);
    if (!here) return null;
    const routes = this.#layout.routes;
    const nearest = (ids) =>
      ids.sort((a, b) => Math.abs(places.get(a).y - here.y) - Math.abs(places.get(b).y - here.y))[0];
    const column = [...places].filter(([, place]) => place.x === here.x);
    switch (arrow) {
      case "ArrowRight":
        return nearest(routes.filter((route) => route.from === this.#focused).map((route) => route.to));
      case "ArrowLeft":
        return nearest(routes.filter((route) => route.to === this.#focused).map((route) => route.from));
      case "ArrowDown":
        return nearest(column.filter(([, place]) => place.y > here.y).map(([id]) => id));
      case "ArrowUp":
        return nearest(column.filter(([, place]) => place.y < here.y).map(([id]) => id));
      case "Home":
        return this.#store.graph.steps[0].id;
      case "End":
        return this.#store.graph.steps.at(-1).id;
      default:
        return null;
    }
  }
}

function key(route) {
  return `${route.from} ${route.to}`;
}

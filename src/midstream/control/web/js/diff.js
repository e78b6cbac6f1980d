/** What a change does to the graph, drawn: steps and edges that come, go or become different. */

import { svg } from "./dom.js";
import { layout } from "./layout.js";
import { wire } from "./wires.js";

const SIZE = { width: 150, height: 46, gapX: 46, gapY: 16 };
const MARGIN = 4;
const SMALLEST = 0.62;
const LOOKS = { new: "added", removed: "removed", replaced: "changed", rescaled: "changed", rewired: "changed" };
const MARKS = { added: "+", removed: "−", changed: "~" };

/** Every edge of either version, with what becomes of it. A step that goes tells what it read, as its inputs. */
export function edgesOf(steps) {
  const gone = new Set(steps.filter((step) => step.edit === "removed").map((step) => step.id));
  const looks = new Map();
  const put = (from, to, look) => looks.set(`${from} ${to}`, { from, to, look });
  for (const step of steps) {
    const now = gone.has(step.id) ? [] : step.inputs;
    const before = gone.has(step.id) ? step.inputs : step.inputs_before;
    for (const from of now) put(from, step.id, before.includes(from) ? "same" : "added");
    for (const from of before) if (!now.includes(from)) put(from, step.id, "removed");
  }
  return [...looks.values()];
}

/** `rows` are those of the graph on the page, so that both look alike. */
export function drawDiff(steps, rows) {
  const edges = edgesOf(steps);
  const nodes = steps.map((step) => ({
    id: step.id,
    inputs: edges.filter((e) => e.to === step.id).map((e) => e.from),
  }));
  const shrunk = new Map([...rows].map(([id, row]) => [id, row * 0.55]));
  const laid = layout(nodes, SIZE, shrunk);
  const looks = new Map(edges.map((edge) => [`${edge.from} ${edge.to}`, edge.look]));
  const width = laid.width + 2 * MARGIN;
  const height = laid.height + 2 * MARGIN;
  const picture = svg("svg", {
    viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}`,
    // As wide as there is room, within reason; what is left scrolls.
    style: `width: 100%; min-width: ${width * SMALLEST}px; max-width: ${width}px`,
    role: "img",
    test: "diff",
    "aria-label": told(steps),
  });
  for (const route of laid.routes) {
    const path = wire(laid.places.get(route.from), laid.places.get(route.to), route.through, SIZE);
    const look = looks.get(`${route.from} ${route.to}`);
    picture.append(svg("path", { class: look, d: path, test: `diff-edge-${route.from}-${route.to}` }));
  }
  for (const step of steps) picture.append(drawStep(step, laid.places.get(step.id)));
  return picture;
}

function drawStep(step, at) {
  const look = LOOKS[step.edit] ?? "same";
  const mark = MARKS[look];
  const name = step.id.length > 16 ? `${step.id.slice(0, 15)}…` : step.id;
  return svg(
    "g",
    { class: look, transform: `translate(${at.x} ${at.y})`, test: `diff-${step.id}` },
    svg("rect", { width: SIZE.width, height: SIZE.height, rx: 7 }),
    mark && svg("text", { class: "mark", x: 10, y: 21 }, mark),
    svg("text", { class: "id", x: mark ? 24 : 12, y: 20 }, name),
    svg("text", { class: "note", x: mark ? 24 : 12, y: 35 }, look === "same" ? step.kind : step.edit),
  );
}

function told(steps) {
  const changed = steps.filter((step) => step.edit !== "same").map((step) => `${step.id} ${step.edit}`);
  return changed.length ? `The graph changes: ${changed.join(", ")}` : "The graph stays as it is";
}

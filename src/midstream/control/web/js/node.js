/** One step of the graph, drawn as a card with its figures. */

import { svg } from "./dom.js";
import { bytes, milliseconds, NONE, plural, short } from "./format.js";
import { family, icon } from "./kinds.js";

export const SIZE = { width: 192, height: 94, gapX: 46, gapY: 26 };

const COLUMNS = [
  { name: "rate", x: 12, unit: "rows/s" },
  { name: "ms", x: 68, unit: "epoch" },
  { name: "state", x: 122, unit: "state" },
];
const FONT = "system-ui, sans-serif";
const measure = document.createElement("canvas").getContext("2d");

export function drawNode(step) {
  const node = svg("g", { class: "node", role: "button", tabindex: "-1", test: `node-${step.id}` });
  node.append(
    svg("rect", { class: "ring", x: -4, y: -4, width: SIZE.width + 8, height: SIZE.height + 8, rx: 14 }),
    svg("rect", { class: "card-shape", width: SIZE.width, height: SIZE.height, rx: 10 }),
    svg("rect", { class: "tile", x: 10, y: 10, width: 32, height: 32, rx: 8 }),
    svg("path", { class: "icon", transform: "translate(14 14)" }),
    svg("text", { class: "id", x: 52, y: 24 }),
    svg("text", { class: "kind", x: 52, y: 40 }),
    svg("text", { class: "width", x: SIZE.width - 12, y: 40 }),
    svg("line", { class: "rule", x1: 0.5, x2: SIZE.width - 0.5, y1: 52, y2: 52 }),
  );
  for (const column of COLUMNS) {
    node.append(
      svg(
        "g",
        { class: column.name, transform: `translate(${column.x} 0)` },
        svg("text", { class: "value", y: 70 }),
        svg("text", { class: "unit", y: 84 }, column.unit),
      ),
    );
  }
  node.append(svg("text", { class: "unit aside", x: 12, y: 77 }), svg("title"));
  return node;
}

/** Bring a card up to date with its step. */
export function updateNode(node, step, selected) {
  const fresh = node.classList.contains("fresh");
  node.setAttribute(
    "class",
    ["node", family(step), selected && "selected", fresh && "fresh"].filter(Boolean).join(" "),
  );
  node.setAttribute("aria-pressed", String(selected));
  node.querySelector(".icon").setAttribute("d", icon(step.kind));
  const id = fitted(step.id, SIZE.width - 62, `650 13.5px ${FONT}`);
  text(node, ".id", id);
  text(node, "title", id === step.id ? (step.target ?? "") : step.id);
  text(
    node,
    ".kind",
    fitted(step.target ? `${step.kind} to ${step.target}` : step.kind, SIZE.width - 62, `11px ${FONT}`),
  );
  text(node, ".width", step.partitions === null ? "" : `× ${step.partitions}`);
}

/** The last figures, on the card and for who cannot see it. What a step does not have is left out. */
export function updateFigures(node, step, figures) {
  const keyed = step.partitions !== null;
  const shown = {
    rate: short(figures.rate),
    ms: milliseconds(figures.ms),
    state: keyed ? bytes(figures.stateBytes) : NONE,
  };
  for (const [name, value] of Object.entries(shown)) {
    node.querySelector(`.${name}`).toggleAttribute("hidden", value === NONE);
    text(node, `.${name} .value`, value);
  }
  const nothing = Object.values(shown).every((value) => value === NONE);
  text(node, ".aside", nothing && step.columns.length ? plural(step.columns.length, "column") : "");
  const told = [`${step.id}, ${step.kind}`];
  if (step.inputs.length) told.push(`reads ${step.inputs.join(" and ")}`);
  if (shown.rate !== NONE) told.push(`${shown.rate} rows a second`);
  if (keyed) told.push(`${step.partitions} partitions, ${shown.state} of state`);
  node.setAttribute("aria-label", told.join(", "));
}

function text(node, selector, value) {
  const target = node.querySelector(selector);
  if (target.textContent !== value) target.textContent = value;
}

function fitted(value, width, font) {
  measure.font = font;
  if (measure.measureText(value).width <= width) return value;
  let cut = value;
  while (cut && measure.measureText(`${cut}…`).width > width) cut = cut.slice(0, -1);
  return `${cut}…`;
}

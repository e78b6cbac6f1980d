/** The forms of changes. Each has a title, a node, the field to begin with, and `read()`, which gives the change. */

import { el } from "../dom.js";
import { aggregatesOf, family } from "../kinds.js";
import { aggregateBody, codeBody, oneOf, sqlBody } from "./bodies.js";
import { guardPart, renamePart, windowsPart } from "./extras.js";
import { choose, field, FormError, given, optionalNumber, stepId } from "./fields.js";

const SQL_HINT = "The rows it reads are called input.";
const MOST_PARTITIONS = 4096;
const CUTS = [
  ["even", "evenly"],
  ["load", "by what keys had to do lately"],
  ["parts", "likewise, keys that are too much for one in parts"],
];

export function editSql(step) {
  const hint = step.inputs.length > 1 ? `${SQL_HINT} It also reads ${step.inputs.slice(1).join(", ")}.` : SQL_HINT;
  return replaceForm(step, `Edit the SQL of ${step.id}`, sqlBody(step.sql ?? "SELECT * FROM input", "edit-sql", hint));
}

export function editAggregates(step) {
  return replaceForm(step, `Edit the aggregates of ${step.id}`, aggregateBody(aggregatesOf(step) ?? {}, step.keys));
}

export function replaceCode(step) {
  const whole = /^(?:async\s+)?(?:def|import|from)\s/.test(step.code ?? "");
  const name = /^def\s+(\w+)/m.exec(step.code ?? "")?.[1] ?? "";
  const body = codeBody(whole ? step.code : "", whole ? name : "", usesFor(step));
  return replaceForm(step, `Replace the code of ${step.id}`, body);
}

export function rescale(step) {
  const most = Math.min(MOST_PARTITIONS, Math.max(16, 2 ** Math.ceil(Math.log2(step.partitions * 4))));
  const slider = el("input", { type: "range", min: 1, max: most, value: step.partitions, test: "rescale-slider" });
  const exact = el("input", {
    type: "number",
    min: 1,
    max: MOST_PARTITIONS,
    value: step.partitions,
    test: "rescale-number",
    "aria-label": "Partitions, as a number",
  });
  slider.addEventListener("input", () => {
    exact.value = slider.value;
  });
  exact.addEventListener("input", () => {
    slider.value = exact.value;
  });
  const cut = choose(CUTS, "even", { test: "rescale-cut" });
  const node = el(
    "div",
    { class: "fields" },
    el("p", {}, `It has ${step.partitions} now. No state is rewritten: partitions read what becomes theirs.`),
    field("Partitions", slider, null, el("div", { class: "slider" }, slider, exact)),
    field("Cut", cut, "By load is for keys of which some have more to do than others."),
  );
  const read = () => {
    const to = optionalNumber(exact, "Partitions");
    if (!Number.isInteger(to) || to < 1 || to > MOST_PARTITIONS) {
      throw new FormError(`Give a number between 1 and ${MOST_PARTITIONS}.`, exact);
    }
    if (cut.value === "even") return { kind: "rescale", step: step.id, to };
    return { kind: "rebalance", step: step.id, to, ...(cut.value === "parts" ? { split: true } : {}) };
  };
  return { title: `Rescale ${step.id}`, node, first: slider, read };
}

/** A new step between two, or after one. `graph` tells who reads it. */
export function insert(graph, upper, lower = null) {
  const source = graph.steps.find((step) => step.id === upper);
  const readers = graph.steps.filter((step) => step.inputs.includes(upper)).map((step) => step.id);
  const places = [
    ["after", readers.length > 1 ? "before all that read it" : "after it"],
    ...readers.map((reader) => [`between ${reader}`, `only before ${reader}`]),
    ["branch", "beside them, as a branch of its own"],
  ];
  const id = el("input", {
    test: "insert-id",
    placeholder: "a name for the new step",
    spellcheck: "false",
    required: true,
  });
  const place = choose(places, lower ? `between ${lower}` : "after", { test: "insert-place" });
  const body = oneOf([
    [
      "SQL",
      sqlBody("SELECT * FROM input", "insert-sql", `${SQL_HINT} Columns: ${source?.columns.join(", ") || "unknown"}.`),
    ],
    ["Aggregates", aggregateBody({}, [], { isNew: true })],
    ["Python", codeBody("", "", ["function", "build", "sink"])],
  ]);
  const guard = guardPart();
  const node = el(
    "div",
    { class: "fields" },
    el("div", { class: "columns" }, field("Id", id), !lower && field(`Reads ${upper}, and stands`, place)),
    body.node,
    guard.node,
  );
  const read = () => {
    const spec = { kind: "insert", step: stepId(id), ...body.read(), ...guard.read() };
    // Nothing reads a sink, so it cannot stand between two.
    if (spec.code?.use === "sink") return { ...spec, after: upper };
    if (place.value === "branch") return { ...spec, after: upper, branch: true };
    if (place.value === "after") return { ...spec, after: upper };
    return { ...spec, between: [upper, place.value.slice("between ".length)] };
  };
  return {
    title: lower ? `Insert a step between ${upper} and ${lower}` : `Insert a step after ${upper}`,
    node,
    first: id,
    read,
  };
}

export function remove(step, readers) {
  const windows = isWindowed(step)
    ? windowsPart([
        ["drop", "go with it"],
        ["drain", "give what they have first"],
      ])
    : null;
  const rest = readers.length
    ? `${readers.join(", ")} will read ${step.inputs.join(", ") || "nothing"}.`
    : "Nothing reads it.";
  const node = el("div", { class: "fields" }, el("p", {}, rest), windows?.node);
  return {
    title: `Remove ${step.id}`,
    node,
    first: null,
    read: () => ({ kind: "remove", step: step.id, ...windows?.read() }),
  };
}

export function tune() {
  const trigger = el("input", { type: "number", min: 0, step: "any", placeholder: "as it is", test: "tune-trigger" });
  const rows = el("input", { type: "number", min: 1, placeholder: "as it is", test: "tune-rows" });
  const batch = el("input", { type: "number", min: 1, placeholder: "as it is" });
  const node = el(
    "div",
    { class: "columns" },
    field("Seconds from epoch to epoch", trigger),
    field("Rows an epoch at most", rows),
    field("Rows in an Arrow batch", batch),
  );
  const read = () => {
    const settings = given({
      trigger_seconds: optionalNumber(trigger, "The interval"),
      rows_per_epoch: optionalNumber(rows, "Rows an epoch"),
      arrow_batch_rows: optionalNumber(batch, "Rows in a batch"),
    });
    if (!Object.keys(settings).length) throw new FormError("There is nothing to change yet.", trigger);
    return { kind: "tune", ...settings };
  };
  return { title: "Tune the run", node, first: trigger, read };
}

function replaceForm(step, title, body) {
  const parts = [guardPart()];
  if (step.partitions !== null) parts.push(renamePart());
  if (isWindowed(step)) {
    parts.push(
      windowsPart([
        ["keep", "stay, and end as they would"],
        ["drain", "give what they have first"],
      ]),
    );
  }
  const [guard, ...more] = parts;
  const node = el(
    "div",
    { class: "fields" },
    body.node,
    more.length > 0 &&
      el(
        "details",
        {},
        el("summary", {}, "State"),
        el(
          "div",
          { class: "fields" },
          more.map((part) => part.node),
        ),
      ),
    guard.node,
  );
  const read = () =>
    Object.assign({ kind: "replace", step: step.id }, body.read(), ...parts.map((part) => part.read()));
  return { title, node, first: body.first, read };
}

function isWindowed(step) {
  return step.kind === "window" || (step.watermark !== null && step.partitions !== null);
}

function usesFor(step) {
  if (family(step) === "sink") return ["sink"];
  if (family(step) === "source") return ["source"];
  return ["sql", "transform", "stateful", "window"].includes(step.kind) ? ["function", "build"] : ["build"];
}

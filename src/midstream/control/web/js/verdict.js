/** What a change would do, told before it is confirmed: the diff of the graph, the fate of state, what it costs. */

import { drawDiff } from "./diff.js";
import { el } from "./dom.js";
import { bytes, milliseconds, plural } from "./format.js";

const FATES = {
  kept: ["good", "kept"],
  converted: ["info", "converted as it is read"],
  moved: ["info", "read by other partitions"],
  new: ["plain", "begins empty"],
  lost: ["bad", "lost"],
};

/** `rows` are those of the graph on the page. */
export function verdictView(verdict, rows) {
  const touched = verdict.steps.filter(
    (step) => step.edit !== "same" || !["none", "kept"].includes(step.state) || step.notes.length,
  );
  const same = verdict.steps.length - touched.length;
  return [
    el("h3", {}, "What it would do"),
    el("p", {}, el("strong", {}, verdict.change)),
    el(
      "div",
      { class: "diff", tabindex: "0", role: "region", "aria-label": "Diff of the graph" },
      drawDiff(verdict.steps, rows),
    ),
    el(
      "dl",
      { class: "figures" },
      figure("State", summary(verdict)),
      figure("State other partitions read", bytes(verdict.moved_bytes)),
      figure("Expected pause", milliseconds(verdict.expected_pause_ms)),
    ),
    el("p", { class: "muted small" }, `The new version was ${verdict.dry_run}.`),
    touched.length > 0 && fatesTable(touched),
    same > 0 && el("p", { class: "muted small" }, `${plural(same, "step stays as it is", "steps stay as they are")}.`),
    verdict.hand_over &&
      el(
        "div",
        { class: "notice warn" },
        "Spark's query is started again for it, in one hand-over. State stays as it is.",
      ),
    el("details", {}, el("summary", {}, "As text"), el("pre", { class: "wrapped" }, verdict.text)),
  ];
}

/** What would be lost, and a box to tick before that is allowed. */
export function lossNotice(losses, box) {
  return el(
    "div",
    { class: "notice bad" },
    el("p", { class: "title" }, "State would be lost"),
    el(
      "ul",
      {},
      losses.map((loss) => el("li", {}, loss)),
    ),
    el("label", { class: "choice hint" }, box, "It may go: apply the change all the same."),
  );
}

function fatesTable(steps) {
  return el(
    "table",
    { class: "fates" },
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ["Step", "Change", "State", ""].map((name) => el("th", { scope: "col" }, name)),
      ),
    ),
    el("tbody", {}, steps.map(fateRow)),
  );
}

function fateRow(step) {
  const tone = { new: "good", removed: "bad", same: "plain" }[step.edit] ?? "warn";
  const notes = [...step.notes];
  if (step.edit === "rewired") notes.unshift(`reads ${step.inputs.join(", ")}, was ${step.inputs_before.join(", ")}`);
  if (step.moved_bytes) notes.push(`${bytes(step.moved_bytes)} read by other partitions`);
  const [look, words] = FATES[step.state] ?? ["plain", step.state];
  const size = step.state_bytes ? ` (${bytes(step.state_bytes)})` : "";
  return el(
    "tr",
    { test: `verdict-${step.id}` },
    el("td", {}, el("strong", {}, step.id), el("div", { class: "muted small" }, step.kind)),
    el("td", {}, el("span", { class: `badge ${tone}` }, step.edit)),
    el("td", {}, step.state === "none" ? "–" : [el("span", { class: `badge ${look}` }, words), size]),
    el("td", { class: "small" }, notes.join("; ")),
  );
}

function summary(verdict) {
  if (verdict.losses.length) return "some is lost";
  return verdict.steps.some((step) => step.state === "converted") ? "kept, converted" : "all kept";
}

function figure(name, value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, value));
}

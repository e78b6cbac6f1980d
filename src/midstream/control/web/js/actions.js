/** The changes that fit a step, as buttons that open their forms. */

import { acting } from "./buttons.js";
import { ChangeDialog } from "./changedialog.js";
import { editAggregates, editSql, insert, remove, replaceCode, rescale, tune } from "./forms/forms.js";
import { isRead } from "./kinds.js";

export function openForm(page, form) {
  return new ChangeDialog(page, form);
}

export function stepActions(page, step) {
  const { graph } = page.store;
  const readers = graph.steps.filter((other) => other.inputs.includes(step.id)).map((other) => other.id);
  const open = (make) => () => openForm(page, make());
  const actions = [];
  const add = (name, make, test, look = "") => actions.push(acting(name, open(make), { test, look }));
  if (step.sql !== null || step.kind === "sql") add("Edit SQL", () => editSql(step), "action-sql");
  if (step.aggregates !== null) add("Edit aggregates", () => editAggregates(step), "action-aggregates");
  if (!["union", "loop", "late", "feedback"].includes(step.kind)) {
    add(
      step.sql !== null || step.aggregates !== null ? "Replace by code" : "Replace code",
      () => replaceCode(step),
      "action-code",
    );
  }
  if (step.kind === "transform") add("Replace by SQL", () => editSql(step), "action-sql");
  if (step.partitions !== null) add("Rescale", () => rescale(step), "action-rescale");
  if (isRead(step)) add("Insert after", () => insert(graph, step.id), "action-insert");
  add("Remove", () => remove(step, readers), "action-remove", "danger");
  return actions;
}

export function insertOn(page, from, to) {
  return openForm(page, insert(page.store.graph, from, to));
}

export function tuneAction(page) {
  return acting("Tune", () => openForm(page, tune()), { test: "action-tune" });
}

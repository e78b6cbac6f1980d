/** What may be said beside a change: a promise that is watched, renamed columns, what becomes of open windows. */

import { el } from "../dom.js";
import { choose, field, FormError, given, names, optionalNumber } from "./fields.js";

/** A promise; the change is undone by itself when it breaks. */
export function guardPart() {
  const errors = el("input", { class: "mono", placeholder: "amount < 0", spellcheck: "false", test: "guard-errors" });
  const rate = el("input", { type: "number", min: 0, max: 1, step: "any", placeholder: "0" });
  const slowest = el("input", { type: "number", min: 1, step: "any", placeholder: "no limit" });
  const epochs = el("input", { type: "number", min: 1, max: 10_000, value: "10" });
  const node = el(
    "details",
    {},
    el("summary", {}, "Undo it by itself when it turns out bad"),
    el(
      "div",
      { class: "fields" },
      field("A row is bad when", errors, "SQL over what the step gives."),
      el(
        "div",
        { class: "columns" },
        field("Bad rows allowed (share)", rate),
        field("Slowest epoch (ms)", slowest),
        field("Watched for epochs", epochs),
      ),
    ),
  );
  const read = () => {
    const limit = optionalNumber(slowest, "The slowest epoch");
    if (!errors.value.trim() && limit === null) return {};
    return {
      guard: given({
        errors: errors.value.trim() || null,
        error_rate: optionalNumber(rate, "The share of bad rows") ?? 0,
        max_epoch_ms: limit,
        epochs: optionalNumber(epochs, "The number of epochs") ?? 10,
      }),
    };
  };
  return { node, read };
}

/** Old names of state columns to new ones. */
export function renamePart() {
  const input = el("input", { class: "mono", placeholder: "old=new, …", spellcheck: "false" });
  const read = () => {
    const rename = {};
    for (const pair of names(input)) {
      const [old, now, ...rest] = pair.split("=").map((part) => part.trim());
      if (!old || !now || rest.length) throw new FormError("Write old=new, with commas between.", input);
      rename[old] = now;
    }
    return Object.keys(rename).length ? { rename } : {};
  };
  return { node: field("Renamed columns of its state", input), read };
}

export function windowsPart(options) {
  const input = choose(options, options[0][0]);
  return { node: field("Windows that are open", input), read: () => ({ on_open_windows: input.value }) };
}

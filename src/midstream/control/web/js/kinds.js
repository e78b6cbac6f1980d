/** The kinds of steps: their family, by which they are coloured, and their icon, drawn on a grid of 24. */

const ICONS = {
  source: "M4 7h5M4 12h14M4 17h5M14 8l4 4-4 4",
  sql: "M5 7h14M8 12h8M10.5 17h3",
  transform: "M9.5 5C7 5 8 11 5 12c3 1 2 7 4.5 7M14.5 5C17 5 16 11 19 12c-3 1-2 7-4.5 7",
  aggregate: "M17 8V6H7l6 6-6 6h10v-2",
  stateful: "M6 7c0-2 12-2 12 0s-12 2-12 0v10c0 2 12 2 12 0V7",
  window: "M12 5a7 7 0 1 0 0 14a7 7 0 1 0 0-14M12 8.5V12l2.5 2",
  late: "M12 5a7 7 0 1 0 0 14a7 7 0 1 0 0-14M12 8v5M12 15.6v.1",
  join: "M9.5 7a5 5 0 1 0 0 10a5 5 0 1 0 0-10M14.5 7a5 5 0 1 0 0 10a5 5 0 1 0 0-10",
  union: "M5 6c6 0 4 6 9 6h5M5 18c6 0 4-6 9-6",
  top: "M7 18V6M12 18v-7M17 18v-4",
  dedup: "M8 8h10v10H8zM6 15V6h9",
  sink: "M12 5v9M8 11l4 4 4-4M6 19h12",
  loop: "M18 12a6 6 0 1 1-2-4.5M18 5v3.5h-3.5",
};

export function icon(kind) {
  return ICONS[kind === "feedback" ? "loop" : kind] ?? ICONS.transform;
}

export function family(step) {
  if (step.kind === "source" || step.kind === "loop") return "source";
  if (step.kind === "sink" || step.kind === "feedback") return "sink";
  return step.partitions === null ? "plain" : "keyed";
}

/** Whether other steps can read it. */
export function isRead(step) {
  return family(step) !== "sink";
}

/** Its aggregates as SQL: Spark prints a column as `Column<'sum(x)'>`. */
export function aggregatesOf(step) {
  if (step.aggregates === null) return null;
  const plain = Object.entries(step.aggregates).map(([name, text]) => [
    name,
    text.replace(/^Column<'([\s\S]*)'>$/, "$1"),
  ]);
  return Object.fromEntries(plain);
}

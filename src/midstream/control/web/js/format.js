/** Numbers, sizes and times as people read them. */

/** What stands for a figure that is not known. */
export const NONE = "–";
const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

export function count(number) {
  return number === null || number === undefined ? NONE : whole.format(number);
}

/** Three figures and a unit: 950, 12.3k, 1.20M. */
export function short(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return NONE;
  return scaled(number, 1000, ["", "k", "M", "G"], "");
}

export function bytes(number) {
  if (number === null || number === undefined) return NONE;
  return scaled(number, 1000, ["B", "kB", "MB", "GB", "TB"], " ");
}

export function milliseconds(number) {
  if (number === null || number === undefined || !Number.isFinite(number)) return NONE;
  if (number > 0 && number < 10) return `${number.toFixed(1)} ms`;
  if (number < 1000) return `${number.toFixed(0)} ms`;
  return seconds(number / 1000);
}

export function seconds(number) {
  if (number === null || number === undefined) return NONE;
  if (number < 0.995) return `${Math.round(number * 1000)} ms`;
  if (number < 59.5) return `${number.toFixed(1)} s`;
  const total = Math.round(number);
  if (total < 3600) return `${Math.floor(total / 60)} min ${total % 60} s`;
  return `${Math.floor(total / 3600)} h ${Math.floor((total % 3600) / 60)} min`;
}

/** The time of day, with the date when it is another day. */
export function moment(when) {
  if (!when) return NONE;
  const date = new Date(when);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${day(date)}, ${time}`;
}

export function day(date) {
  return date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** What the phases of a change are called. */
export function phaseName(phase) {
  return phase.replaceAll("_", " ");
}

/** The colour of an outcome, as a class. */
export function phaseTone(change) {
  if (change.under_way) return "info";
  return { applied: "good", rejected: "bad", rolled_back: "warn" }[change.phase] ?? "plain";
}

function scaled(number, step, units, space) {
  let size = Math.abs(number);
  let unit = 0;
  while (size >= step * 0.9995 && unit < units.length - 1) {
    size /= step;
    unit += 1;
  }
  const digits = unit === 0 ? (size < 10 && size % 1 ? 1 : 0) : size < 10 ? 2 : size < 100 ? 1 : 0;
  return `${number < 0 ? "-" : ""}${size.toFixed(digits)}${units[unit] && space}${units[unit]}`;
}

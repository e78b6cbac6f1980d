/** Fields of forms. */

import { el } from "../dom.js";

let made = 0;

/** What is missing in a form, and where. */
export class FormError extends Error {
  constructor(message, input) {
    super(message);
    this.input = input;
  }
}

/** An input with its name above it and a hint below. `shown` is what holds it, when that is more than the input. */
export function field(name, input, hint = null, shown = input) {
  made += 1;
  input.id ||= `field-${made}`;
  const label = el("label", { class: "name", for: input.id }, name);
  if (!hint) return el("div", { class: "field" }, label, shown);
  input.setAttribute("aria-describedby", `${input.id}-hint`);
  return el("div", { class: "field" }, label, shown, el("p", { class: "hint", id: `${input.id}-hint` }, hint));
}

export function choose(options, value, given = {}) {
  return el(
    "select",
    given,
    options.map(([key, name]) => el("option", { value: key, selected: key === value }, name)),
  );
}

/** Text that must be there. */
export function required(input, what) {
  const value = input.value.trim();
  if (!value) throw new FormError(`${what} is missing.`, input);
  return value;
}

/** A number, or null when nothing was written. */
export function optionalNumber(input, what) {
  if (input.value.trim() === "") return null;
  const number = Number(input.value);
  if (!Number.isFinite(number)) throw new FormError(`${what} must be a number.`, input);
  return number;
}

/** Names with commas between. */
export function names(input) {
  return input.value
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
}

export function stepId(input) {
  const id = required(input, "The id of the step");
  if (!/^[A-Za-z][A-Za-z0-9_.-]{0,63}$/.test(id)) {
    throw new FormError("An id begins with a letter; letters, digits, dots, dashes and underscores may follow.", input);
  }
  return id;
}

/** Some of a spec's fields, without those that were left open. */
export function given(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
}

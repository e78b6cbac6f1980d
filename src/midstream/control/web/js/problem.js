/** Something that went wrong, readable: its code, what it says, and what to do next. */

import { el } from "./dom.js";

/** The parts of a reason as the pipeline writes it: `[CODE] message`, a blank line, `Hint: …`. */
export function parsed(reason) {
  const [, code = null, rest] = /^(?:\[([A-Z0-9_]+)\] )?([\s\S]*)$/.exec(reason ?? "");
  const cut = rest.search(/\n\s*\n?Hint: /);
  if (cut < 0) return { code, message: rest.trim(), hint: null };
  return {
    code,
    message: rest.slice(0, cut).trim(),
    hint: rest
      .slice(cut)
      .trim()
      .replace(/^Hint: /, ""),
  };
}

/** A notice for a `Problem`, or for parts as `parsed` gives them, that has just come up. */
export function problemNotice(problem, title) {
  return notice(problem, title, { role: "alert", test: "change-error" });
}

/** The same for one of old. */
export function pastProblem(problem, title) {
  return notice(problem, title, {});
}

function notice(problem, title, given) {
  return el(
    "div",
    { class: "notice bad", ...given },
    el("p", { class: "title" }, title),
    problem.code && el("p", {}, el("code", { test: "error-code" }, problem.code)),
    el("p", { class: "message" }, problem.message),
    problem.hint && el("p", { class: "hint" }, el("strong", {}, "What to do: "), problem.hint),
  );
}

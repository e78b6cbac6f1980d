/** What a step does: SQL, aggregates by key, or Python. Each part gives its share of a change with `read()`. */

import { el } from "../dom.js";
import { choose, field, FormError, given, names, optionalNumber, required } from "./fields.js";

export function sqlBody(text, test, hint) {
  const rows = Math.min(14, Math.max(5, text.trim().split("\n").length + 1));
  const input = el("textarea", { test, spellcheck: "false", rows, value: text.trim(), required: true });
  input.setSelectionRange(0, 0);
  return { node: field("SQL", input, hint), first: input, read: () => ({ sql: required(input, "The SQL") }) };
}

/** Named expressions, a line each, and the columns they go by. */
export function aggregateBody(aggregates, keys, { isNew = false } = {}) {
  const lines = el("div", { class: "aggregates" });
  const line = (name, expression) => {
    const row = el(
      "div",
      { class: "row" },
      el("input", { value: name, placeholder: "name", "aria-label": "Name", spellcheck: "false" }),
      el("input", {
        value: expression,
        placeholder: "sum(amount)",
        "aria-label": "SQL expression",
        spellcheck: "false",
      }),
      el(
        "button",
        { type: "button", class: "button bare icon", "aria-label": "Take this line out", on: { click: remove } },
        "✕",
      ),
    );
    function remove() {
      row.remove();
      lines.dispatchEvent(new Event("input", { bubbles: true }));
    }
    return row;
  };
  for (const [name, expression] of Object.entries(aggregates)) lines.append(line(name, expression));
  if (!lines.children.length) lines.append(line("", ""));
  const more = el("button", { type: "button", class: "button slight", on: { click: () => add() } }, "Add a line");
  function add() {
    const row = line("", "");
    lines.append(row);
    row.querySelector("input").focus();
  }
  const by = el("input", { value: keys.join(", "), spellcheck: "false", test: "key-by" });
  const width = el("input", { type: "number", min: 1, max: 10_000, placeholder: "as many as cores" });
  const node = el(
    "div",
    { class: "fields" },
    el("div", { class: "field" }, el("p", { class: "legend" }, "Aggregates"), lines, el("div", {}, more)),
    field("By", by, "Columns, with commas between."),
    isNew && field("Partitions", width),
  );
  const read = () => {
    const aggregate = {};
    for (const row of lines.children) {
      const [name, expression] = row.querySelectorAll("input");
      if (!name.value.trim() && !expression.value.trim()) continue;
      aggregate[required(name, "A name")] = required(expression, "An expression");
    }
    if (!Object.keys(aggregate).length)
      throw new FormError("There must be one aggregate at least.", lines.querySelector("input"));
    if (!names(by).length) throw new FormError("There must be one column to go by.", by);
    const same = names(by).join() === keys.join();
    return given({
      aggregate,
      key_by: isNew || !same ? names(by) : null,
      parallelism: isNew ? optionalNumber(width, "Partitions") : null,
    });
  };
  return { node, first: lines.querySelector("input"), read };
}

const USES = {
  function: "the step's function",
  build: "a function that builds the step from a stream",
  sink: "a sink, or a function that makes one",
  source: "a function from a session to the source's DataFrame",
};

/** A Python file, chosen or pasted, and the name in it that is meant. */
export function codeBody(text, name, uses) {
  const code = el("textarea", { test: "code-text", spellcheck: "false", rows: 12, value: text, required: true });
  const wanted = el("input", {
    test: "code-name",
    value: name,
    spellcheck: "false",
    required: true,
    list: "code-names",
  });
  const known = el("datalist", { id: "code-names" });
  const use = choose(
    uses.map((each) => [each, USES[each]]),
    uses[0],
    { test: "code-use" },
  );
  const file = el("input", { type: "file", accept: ".py,text/x-python", test: "code-file" });
  let fileName = "page.py";
  const findNames = () => {
    const found = [...code.value.matchAll(/^(?:def\s+(\w+)|(\w+)\s*=)/gm)].map(([, def, value]) => def ?? value);
    known.replaceChildren(...found.map((each) => el("option", { value: each })));
    if (!wanted.value && found.length) wanted.value = found.at(-1);
  };
  code.addEventListener("input", findNames);
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    fileName = chosen.name;
    code.value = await chosen.text();
    wanted.value = "";
    findNames();
    code.dispatchEvent(new Event("input", { bubbles: true }));
  });
  findNames();
  const node = el(
    "div",
    { class: "fields" },
    field("Python file", file, "Or write it below. It is kept with the change, with its SHA-256 and who handed it in."),
    field("Code", code, "All it needs, imports too. It runs in the driver and on the executors."),
    el("div", { class: "columns" }, field("Name in it", wanted), field("This is", use)),
    known,
  );
  const read = () => {
    const all = required(code, "The code");
    const meant = required(wanted, "The name");
    if (!/^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(meant)) throw new FormError("The name must be one of Python.", wanted);
    return { code: { file: fileName, text: `${all}\n`, name: meant, use: use.value } };
  };
  return { node, first: code, read, use };
}

/** Several ways to say it, one of them shown. */
export function oneOf(ways) {
  const shown = el("div");
  const buttons = ways.map(([name, body], index) =>
    el("button", { type: "button", role: "radio", test: `way-${index}`, on: { click: () => show(body, true) } }, name),
  );
  let current = null;
  const show = (body, byHand = false) => {
    current = body;
    shown.replaceChildren(body.node);
    buttons.forEach((button, index) => button.setAttribute("aria-checked", String(ways[index][1] === body)));
    if (byHand) shown.dispatchEvent(new Event("input", { bubbles: true }));
  };
  show(ways[0][1]);
  const choice = el(
    "div",
    { class: "segments", role: "radiogroup", "aria-label": "What the step is written in" },
    buttons,
  );
  const node = el("div", { class: "fields" }, el("div", {}, choice), shown);
  return {
    node,
    first: ways[0][1].first,
    read: () => current.read(),
    get current() {
      return current;
    },
  };
}

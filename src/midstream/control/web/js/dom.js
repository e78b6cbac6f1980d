/** Elements, made in one call. Text goes in as text: nothing the server says is ever read as markup. */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "readOnly"]);

/** An element; `test` is its data-testid, `on` its listeners, the rest are attributes. */
export function el(tag, given = {}, ...children) {
  return dress(document.createElement(tag), given, children);
}

/** The same for SVG. */
export function svg(tag, given = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), given, children);
}

/** Children in place of those that are there. Nothing, null and false are left out. */
export function fill(parent, ...children) {
  parent.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return parent;
}

/** Rows of a list, each kept as long as its key is there: what has the focus keeps it. */
export function keep(parent, items, keyOf, make, update) {
  const there = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = there.get(key);
    there.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    update?.(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const gone of there.values()) gone.remove();
}

/** Whether the user wants things to stay still. */
export function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function dress(element, given, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "test") element.dataset.testid = value;
    else if (PROPERTIES.has(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

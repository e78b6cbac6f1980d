/** Says what has happened to who does not see it. */

let region = null;

export function announceIn(element) {
  region = element;
}

export function announce(text) {
  if (region && region.textContent !== text) region.textContent = text;
}

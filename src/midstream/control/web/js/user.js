/** Who the user says to be: recorded beside a change, proven by nothing. */

const KEPT_AS = "midstream.user";

export function userName() {
  return localStorage.getItem(KEPT_AS) ?? "";
}

/** Headers carry Latin-1 only. */
export function setUserName(name) {
  const plain = [...name.trim()].map((letter) => (/^[\x20-\x7e\xa0-\xff]$/.test(letter) ? letter : "?")).join("");
  localStorage.setItem(KEPT_AS, plain.slice(0, 100));
}

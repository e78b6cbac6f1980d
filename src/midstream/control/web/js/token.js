/** The token: from the address at first, then kept for the tab. It never stays in the address bar. */

const KEPT_AS = "midstream.token";

/** What the part of the address behind # says; a token in it is kept and taken out of sight. */
export function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const token = said.get("token");
  if (token !== null) {
    keepToken(token);
    said.delete("token");
    const rest = said.toString();
    history.replaceState(null, "", location.pathname + location.search + (rest ? `#${rest}` : ""));
  }
  return said;
}

export function token() {
  return sessionStorage.getItem(KEPT_AS) ?? "";
}

export function keepToken(value) {
  sessionStorage.setItem(KEPT_AS, value.trim());
}

export function forgetToken() {
  sessionStorage.removeItem(KEPT_AS);
}

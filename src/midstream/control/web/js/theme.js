/** Light or dark: as the system has it, until the user says otherwise. */

const KEPT_AS = "midstream.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");
const probe = document.createElement("span");
const listeners = [];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : dark.matches;
}

export function onTheme(listener) {
  listeners.push(listener);
}

export function toggleTheme() {
  const theme = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(KEPT_AS, theme);
  tell();
}

/** The colour a variable stands for now: a canvas knows none. */
export function resolved(variable) {
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = `var(${variable})`;
  return getComputedStyle(probe).color;
}

function tell() {
  for (const listener of listeners) listener();
}

dark.addEventListener("change", tell);

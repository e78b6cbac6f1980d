/** Puts the page together. */

import { Activity } from "./activity.js";
import { insertOn } from "./actions.js";
import { pipelines } from "./api.js";
import { Banner } from "./banner.js";
import { acting } from "./buttons.js";
import { Charts } from "./charts.js";
import { phaseName } from "./format.js";
import { GraphView } from "./graph.js";
import { Header } from "./header.js";
import { History } from "./history.js";
import { announce, announceIn } from "./live.js";
import { Panel } from "./panel.js";
import { Session } from "./session.js";
import { ShadowPanel } from "./shadow.js";
import { StateBrowser } from "./statebrowser.js";
import { Store } from "./store.js";
import { Tabs } from "./tabs.js";
import { isDark, onTheme, toggleTheme } from "./theme.js";
import { forgetToken, keepToken, readAddress, token } from "./token.js";

const $ = (id) => document.getElementById(id);
const store = new Store();
const told = new Map();

/** What the parts of the page share. */
const page = {
  store,
  control: null,
  graph: null,
  showTab(name) {
    tabs.show(name);
    $("lower").scrollIntoView({ block: "start" });
  },
  pointAtChange(id) {
    tabs.show("history");
    changes.point(id);
  },
  say: (problem) => (problem.needsToken ? askForToken(true) : banner.say(problem)),
};

announceIn($("live"));
const banner = new Banner($("banner"), () => session?.hurry());
const header = new Header({ status: $("status"), name: $("name"), facts: $("facts") }, store);
page.graph = new GraphView($("graph"), store, (from, to) => insertOn(page, from, to));
$("graph-tools").append(acting("Tidy up", () => page.graph.tidy(), { look: "slight" }));
new Panel($("panel"), page);
new Charts($("charts"), page);
new Activity($("activity"), page);
const changes = new History($("tab-history"), page);
const state = new StateBrowser($("tab-state"), page);
new ShadowPanel($("tab-shadow"), page);
const tabs = new Tabs($("tabs"), (name) => {
  if (name === "state" && page.control) state.open();
});
let session = null;

store.on("pipeline", () => banner.pipeline(store.pipeline));
store.on("shadow", () => {
  $("shadow-dot").hidden = !store.shadow;
});
store.on("changes", () => {
  for (const change of store.history) {
    const before = told.get(change.id);
    if (before && before !== change.phase) announce(`Change ${change.id}, ${change.text}: ${phaseName(change.phase)}.`);
    told.set(change.id, change.phase);
  }
});

function showTheme() {
  $("theme").setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
}
$("theme").addEventListener("click", toggleTheme);
onTheme(showTheme);
showTheme();

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepToken($("token").value);
  $("token").value = "";
  begin();
});

/** Ask for a token; `refused` when the one there was is not accepted. */
function askForToken(refused) {
  session?.end();
  session = null;
  forgetToken();
  store.clear();
  $("app").hidden = true;
  $("entry").hidden = false;
  $("token-problem").textContent = refused ? "That token was not accepted." : "";
  $("token").focus();
}

/** Find the pipelines, and show the one the address names, or the first. */
async function begin() {
  const said = readAddress();
  if (!token()) return askForToken(false);
  let found;
  try {
    found = await pipelines();
  } catch (problem) {
    if (problem.needsToken) return askForToken(true);
    banner.lost(Date.now() + 3000);
    return setTimeout(begin, 3000);
  }
  $("entry").hidden = true;
  $("app").hidden = false;
  const names = found.map((each) => each.name);
  if (!names.length) return banner.say({ code: "NO_PIPELINE", message: "This server serves no pipeline." });
  const wanted = said.get("pipeline");
  return watch(names.includes(wanted) ? wanted : names[0], names);
}

function watch(name, names) {
  session?.end();
  store.clear();
  told.clear();
  session = new Session(name, store, {
    lost: (wait) => banner.lost(Date.now() + wait),
    found: () => banner.found(),
    refused: page.say,
  });
  page.control = session.control;
  header.showNames(names, name, (other) => {
    location.hash = new URLSearchParams({ pipeline: other });
    watch(other, names);
  });
  session.begin();
  tabs.show("history");
}

addEventListener("hashchange", () => {
  if (new URLSearchParams(location.hash.slice(1)).has("token")) begin();
});

begin();

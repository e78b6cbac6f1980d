/** What must not be overlooked: a lost connection, a pipeline that has failed or stopped, something refused. */

import { acting } from "./buttons.js";
import { el, fill } from "./dom.js";
import { announce } from "./live.js";

export class Banner {
  #host;
  #rows = { lost: null, pipeline: null, said: null };
  #when = el("span", { class: "message", "aria-live": "off" });
  #timer;
  #retry;

  constructor(host, onRetry) {
    this.#host = host;
    this.#retry = acting("Try now", onRetry, { look: "slight" });
  }

  /** The connection is lost, and tried again at a time. */
  lost(again) {
    clearInterval(this.#timer);
    const count = () => {
      const left = Math.ceil((again - Date.now()) / 1000);
      this.#when.textContent = left > 0 ? `Trying again in ${left} s.` : "Trying again …";
    };
    this.#timer = setInterval(count, 500);
    count();
    if (this.#rows.lost) return;
    announce("The connection is lost.");
    this.#put("lost", row("", "The connection is lost: what you see may be old.", this.#when, this.#retry));
  }

  found() {
    clearInterval(this.#timer);
    if (!this.#rows.lost) return;
    announce("Connected again.");
    this.#put("lost", null);
  }

  pipeline(pipeline) {
    const { status, failure } = pipeline ?? {};
    if (status === "failed") this.#put("pipeline", row("bad", "The pipeline has failed.", message(failure ?? "")));
    else this.#put("pipeline", status === "stopped" ? row("", "The pipeline has stopped.") : null);
  }

  /** A problem that belongs to no form. */
  say(problem) {
    announce(problem.message);
    const dismiss = acting("Dismiss", () => this.#put("said", null), { look: "slight" });
    this.#put("said", row("bad", problem.code ?? "", message(problem.message), dismiss));
  }

  #put(name, content) {
    if (!content && !this.#rows[name]) return;
    this.#rows[name] = content;
    const shown = Object.values(this.#rows).filter(Boolean);
    this.#host.hidden = shown.length === 0;
    fill(this.#host, shown);
  }
}

function row(look, title, ...rest) {
  return el("div", { class: `banner ${look}`.trim() }, el("span", {}, title), rest);
}

function message(text) {
  return el("span", { class: "message" }, text);
}

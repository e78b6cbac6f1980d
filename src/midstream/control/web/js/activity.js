/** The change that is under way, whoever handed it in. */

import { acting } from "./buttons.js";
import { el, fill } from "./dom.js";
import { movedBar, queued, sentence, track } from "./progress.js";

export class Activity {
  #page;
  #host;
  #cancel;

  constructor(host, page) {
    this.#page = page;
    this.#host = host;
    this.#cancel = acting("Cancel", () => this.#onCancel(), { look: "slight danger" });
    page.store.on("changes pipeline", () => this.#render());
  }

  #render() {
    const { store } = this.#page;
    const change = store.underWay;
    this.#host.hidden = !change;
    if (!change) return;
    this.#cancel.hidden = !store.mayChange || change.phase === "applying";
    fill(
      this.#host,
      el(
        "div",
        { class: "what" },
        el("strong", {}, `#${change.id} ${change.text}`),
        el("p", { class: "muted small" }, [sentence(change), queued(store)].filter(Boolean).join(" ")),
        change.moved && movedBar(change.moved),
      ),
      track(change),
      this.#cancel,
    );
  }

  async #onCancel() {
    const change = this.#page.store.underWay;
    if (!change) return;
    try {
      this.#page.store.setChange(await this.#page.control.cancel(change.id));
    } catch (problem) {
      this.#page.say(problem);
    }
  }
}

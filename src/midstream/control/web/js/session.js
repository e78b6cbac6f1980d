/** The connection to one pipeline: its events, and what they do not tell, read once when they begin. */

import { Control } from "./api.js";
import { EventFeed } from "./events.js";

const EPOCHS = 1000;
const CHANGES = 1000;

export class Session {
  control;
  #store;
  #on;
  #feed;

  /** `on` is told of `lost(milliseconds)`, `found()` and `refused(problem)`. */
  constructor(name, store, on) {
    this.control = new Control(name);
    this.#store = store;
    this.#on = on;
    this.#feed = new EventFeed((signal) => this.control.events(signal), {
      event: (event, data) => this.#take(event, data),
      lost: (problem, wait) => on.lost(wait),
      refused: (problem) => on.refused(problem),
    });
  }

  begin() {
    this.#feed.run();
  }

  hurry() {
    this.#feed.hurry();
  }

  end() {
    this.#feed.end();
  }

  /** Read what happened before the events began, or while they were lost. */
  async #catchUp() {
    const store = this.#store;
    try {
      const [graph, epochs, changes, shadows] = await Promise.all([
        this.control.graph(),
        this.control.epochs(EPOCHS),
        this.control.changes(CHANGES),
        this.control.shadows(),
      ]);
      store.setGraph(graph);
      store.addEpochs(epochs);
      for (const change of changes) store.setChange(change);
      store.setShadow(shadows[0] ?? null);
      this.#on.found();
    } catch (problem) {
      // Refused: tell. Otherwise the connection went again, and the feed will notice by itself.
      if (problem.status) this.#on.refused(problem);
    }
  }

  /** An undo that is applied makes another change undone, of which no event tells. */
  async #takenBack({ phase, undoes }) {
    if (phase !== "applied" || undoes === null) return;
    try {
      this.#store.setChange(await this.control.change(undoes));
    } catch {
      // Read again with everything else, when the connection is back.
    }
  }

  #take(event, data) {
    const store = this.#store;
    switch (event) {
      case "hello":
        store.setPipeline(data);
        return this.#catchUp();
      case "epoch":
        return store.addEpoch(data);
      case "change":
        store.setChange(data);
        return this.#takenBack(data);
      case "graph":
        return store.setGraph(data);
      case "shadow":
        return store.setShadow(data);
      case "status":
        return store.setStatus(data);
      default:
        return undefined;
    }
  }
}

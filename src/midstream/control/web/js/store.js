/** What the page knows of the pipeline. Views subscribe to topics and are told at most once a frame. */

const MOST_EPOCHS = 1000;

export class Store {
  pipeline = null;
  graph = null;
  /** Oldest first. */
  epochs = [];
  changes = new Map();
  shadow = null;
  /** `{step: id}`, `{edge: [from, to]}` or null. */
  selection = null;

  #listeners = new Map();
  #dirty = new Set();

  /** Be told of topics, named with spaces between. What is returned ends it. */
  on(topics, listener) {
    const named = topics.split(" ");
    for (const topic of named) this.#listeners.set(topic, [...(this.#listeners.get(topic) ?? []), listener]);
    return () => {
      for (const topic of named)
        this.#listeners.set(
          topic,
          this.#listeners.get(topic).filter((other) => other !== listener),
        );
    };
  }

  get mayChange() {
    return this.pipeline?.role === "operator" && this.pipeline.changeable;
  }

  get lastEpoch() {
    return this.epochs.at(-1) ?? null;
  }

  /** The changes in the order they were handed in. */
  get history() {
    return [...this.changes.values()].sort((a, b) => a.id - b.id);
  }

  get underWay() {
    return this.history.find((change) => change.under_way) ?? null;
  }

  step(id) {
    return this.graph?.steps.find((step) => step.id === id) ?? null;
  }

  setPipeline(pipeline) {
    // Another run counts its plans anew.
    if (this.pipeline?.started_at !== pipeline.started_at) this.graph = null;
    this.pipeline = pipeline;
    if (pipeline.modification) this.setChange(pipeline.modification);
    this.#tell("pipeline");
  }

  setStatus({ status, failure }) {
    if (!this.pipeline) return;
    this.pipeline = { ...this.pipeline, status, failure: failure ?? null };
    this.#tell("pipeline");
  }

  setGraph(graph) {
    if (this.graph && graph.plan < this.graph.plan) return;
    this.graph = graph;
    const selected = this.selection;
    const gone =
      (selected?.step && !this.step(selected.step)) ||
      (selected?.edge && !this.step(selected.edge[1])?.inputs.includes(selected.edge[0]));
    if (gone) this.select(null);
    this.#tell("graph");
  }

  addEpochs(epochs) {
    const known = new Map(this.epochs.map((epoch) => [epoch.epoch, epoch]));
    for (const epoch of epochs) known.set(epoch.epoch, timed(epoch));
    this.epochs = [...known.values()].sort((a, b) => a.epoch - b.epoch).slice(-MOST_EPOCHS);
    this.#tell("epochs");
  }

  addEpoch(epoch) {
    const last = this.lastEpoch;
    if (last && epoch.epoch <= last.epoch) return this.addEpochs([epoch]);
    this.epochs.push(timed(epoch));
    if (this.epochs.length > MOST_EPOCHS) this.epochs.shift();
    return this.#tell("epochs");
  }

  /** What was read may be older than what an event has told meanwhile: the later one stays. */
  setChange(change) {
    const known = this.changes.get(change.id);
    if (known && latest(known) > latest(change)) return;
    this.changes.set(change.id, { ...known, ...change });
    this.#tell("changes");
  }

  setShadow(shadow) {
    this.shadow = shadow;
    this.#tell("shadow");
  }

  select(selection) {
    this.selection = selection;
    this.#tell("selection");
  }

  /** Nothing of another pipeline stays. */
  clear() {
    this.pipeline = this.graph = this.shadow = null;
    this.epochs = [];
    this.changes = new Map();
    this.select(null);
    for (const topic of ["pipeline", "graph", "epochs", "changes", "shadow"]) this.#tell(topic);
  }

  #tell(topic) {
    if (this.#dirty.size === 0) requestAnimationFrame(() => this.#flush());
    this.#dirty.add(topic);
  }

  #flush() {
    const topics = [...this.#dirty];
    this.#dirty.clear();
    const listeners = new Set(topics.flatMap((topic) => this.#listeners.get(topic) ?? []));
    for (const listener of listeners) listener(topics);
  }
}

function timed(epoch) {
  const began = Date.parse(epoch.started_at);
  return { ...epoch, began, ended: began + epoch.duration_ms };
}

function latest(change) {
  return Math.max(0, ...Object.values(change.times));
}

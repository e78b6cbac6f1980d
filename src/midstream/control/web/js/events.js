/** Server-sent events read with `fetch`, since `EventSource` cannot send a token. Connects again by itself. */

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
/** The server says something every 15 s; silence for longer than this is a dead connection. */
const SILENCE = 40_000;

/** Events out of lines, however they were cut into chunks. */
export class EventParser {
  #rest = "";
  #name = "";
  #data = [];

  /** The events that are complete with this text. */
  *feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) yield { name: this.#name || "message", data: this.#data.join("\n") };
        this.#name = "";
        this.#data = [];
      } else if (!line.startsWith(":")) {
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (field === "event") this.#name = value;
        if (field === "data") this.#data.push(value);
      }
    }
  }
}

/** A feed of events. `connect(signal)` opens it, `on` is told what comes: `event(name, data)`,
 * `lost(problem, milliseconds until the next try)` and `refused(problem)` when trying again is of no use. */
export class EventFeed {
  #connect;
  #on;
  #abort = null;
  #wake = null;
  #ended = false;

  constructor(connect, on) {
    this.#connect = connect;
    this.#on = on;
  }

  async run() {
    let wait = FIRST_WAIT;
    while (!this.#ended) {
      let problem = null;
      try {
        await this.#listen(() => {
          wait = FIRST_WAIT;
        });
      } catch (error) {
        problem = error;
      }
      if (this.#ended) return;
      if (problem?.needsToken || problem?.status === 404) {
        this.#on.refused(problem);
        return;
      }
      this.#on.lost(problem, wait);
      await this.#pause(wait);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  }

  /** Try now instead of later. */
  hurry() {
    this.#wake?.();
  }

  end() {
    this.#ended = true;
    this.#abort?.abort();
    this.#wake?.();
  }

  async #listen(connected) {
    this.#abort = new AbortController();
    let watchdog = setTimeout(() => this.#abort.abort(), SILENCE);
    try {
      const response = await this.#connect(this.#abort.signal);
      connected();
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(() => this.#abort.abort(), SILENCE);
        for (const event of parser.feed(value)) this.#on.event(event.name, JSON.parse(event.data));
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  #pause(milliseconds) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

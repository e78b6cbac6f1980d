/** The REST interface: one method an endpoint. Every failure is a `Problem`. */

import { token } from "./token.js";
import { userName } from "./user.js";

/** What went wrong, as the server says it, or that it could not be reached. */
export class Problem extends Error {
  constructor(status, code, message, details = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.details = details;
  }

  get hint() {
    return typeof this.details?.hint === "string" ? this.details.hint : null;
  }

  get needsToken() {
    return this.status === 401;
  }
}

/** A response, whatever its status was if it was good. */
export async function call(method, path, { body, signal } = {}) {
  const headers = { Authorization: `Bearer ${token()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (userName() && method !== "GET") headers["X-Midstream-User"] = userName();
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "NOT_REACHED", "The server could not be reached.", { hint: "is the pipeline still running?" });
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  try {
    const told = await response.json();
    if (told.error_code) return new Problem(response.status, told.error_code, told.message, told.details);
  } catch {
    // Not from the control server itself: its status is all there is to tell.
  }
  return new Problem(response.status, `HTTP_${response.status}`, response.statusText || "The request was refused.");
}

async function json(method, path, body) {
  const response = await call(method, path, { body });
  return response.status === 204 ? null : response.json();
}

export function pipelines() {
  return json("GET", "v1/pipelines");
}

/** One pipeline, by its name. */
export class Control {
  constructor(name) {
    this.name = name;
    this.root = `v1/pipelines/${encodeURIComponent(name)}`;
  }

  graph() {
    return json("GET", `${this.root}/graph`);
  }

  epochs(last) {
    return json("GET", `${this.root}/epochs?last=${last}`);
  }

  changes(last) {
    return json("GET", `${this.root}/changes?last=${last}`);
  }

  change(id) {
    return json("GET", `${this.root}/changes/${id}`);
  }

  plan(changes) {
    return json("POST", `${this.root}/plan`, { changes });
  }

  apply(changes, id, allowStateLoss) {
    return json("POST", `${this.root}/changes`, { changes, id, allow_state_loss: allowStateLoss });
  }

  cancel(id) {
    return json("DELETE", `${this.root}/changes/${id}`);
  }

  undo(modification, id, allowStateLoss) {
    return json("POST", `${this.root}/undo`, { modification, id, allow_state_loss: allowStateLoss });
  }

  shadows() {
    return json("GET", `${this.root}/shadows`);
  }

  shadow(changes) {
    return json("POST", `${this.root}/shadows`, { changes });
  }

  promote(name) {
    return json("POST", `${this.root}/shadows/${encodeURIComponent(name)}/promote`);
  }

  discard(name) {
    return json("DELETE", `${this.root}/shadows/${encodeURIComponent(name)}`);
  }

  stateTables() {
    return json("GET", `${this.root}/state`);
  }

  stateRows(step, { table, epoch, where, limit, offset }) {
    const asked = new URLSearchParams({ table, limit, offset });
    if (epoch !== null) asked.set("epoch", epoch);
    for (const condition of where) asked.append("where", condition);
    return json("GET", `${this.root}/state/${encodeURIComponent(step)}?${asked}`);
  }

  async exportState(step, { table, epoch, where }) {
    const asked = new URLSearchParams({ table });
    if (epoch !== null) asked.set("epoch", epoch);
    for (const condition of where) asked.append("where", condition);
    const response = await call("GET", `${this.root}/state/${encodeURIComponent(step)}/export?${asked}`);
    return response.blob();
  }

  events(signal) {
    return call("GET", `${this.root}/events`, { signal });
  }
}

/** An id for a change, so that handing it in again does it no second time. */
export function clientId() {
  // Not randomUUID: browsers have that on secure origins only.
  const random = crypto.getRandomValues(new Uint8Array(12));
  return `page-${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** Rows/s, times and sizes out of the last epochs, for the whole pipeline and for each step. */

const LAST = 20;

/** Rows a second of each epoch, over the time since the one before had ended: pauses count. Without one, unknown. */
export function rates(epochs) {
  return epochs.map((epoch, number) => {
    const before = epochs[number - 1];
    if (before?.epoch !== epoch.epoch - 1 || epoch.ended <= before.ended) return null;
    return (epoch.rows / (epoch.ended - before.ended)) * 1000;
  });
}

export function quantile(numbers, share) {
  if (!numbers.length) return null;
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

/** Of the pipeline: rows a second, median and 99th percentile of the epochs' times, state. */
export function overall(store) {
  const { epochs, pipeline } = store;
  const last = store.lastEpoch;
  if (!last) {
    return {
      rate: pipeline?.rows_per_second ?? null,
      p50: pipeline?.epoch_p50_ms ?? null,
      p99: pipeline?.epoch_p99_ms ?? null,
      stateRows: pipeline?.state_rows ?? null,
      stateBytes: pipeline?.state_bytes ?? null,
    };
  }
  const times = epochs.slice(-100).map((epoch) => epoch.duration_ms);
  return {
    rate: perSecond(epochs, (epoch) => epoch.rows),
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    stateRows: last.state_rows,
    stateBytes: last.state_bytes,
  };
}

/** Of a step: what the epochs tell of it, or else what follows from them, or what the graph said when it was read. */
export function ofStep(step, store) {
  const recent = store.epochs.slice(-LAST).filter((epoch) => epoch.steps[step.id]);
  const last = recent.at(-1)?.steps[step.id];
  if (!last) {
    return {
      rate: derivedRate(step, store) ?? step.rows_per_second,
      ms: step.epoch_ms,
      stateRows: step.state_rows,
      stateBytes: step.state_bytes,
      lateRows: step.late_rows,
      watermark: step.watermark,
    };
  }
  return {
    rate: perSecond(recent, (epoch) => epoch.steps[step.id].rows),
    ms: quantile(
      recent.map((epoch) => epoch.steps[step.id].slowest_ms),
      0.5,
    ),
    stateRows: last.state_rows,
    stateBytes: last.state_bytes,
    lateRows: store.epochs.reduce((sum, epoch) => sum + (epoch.steps[step.id]?.late_rows ?? 0), 0),
    watermark: last.watermark ?? step.watermark,
  };
}

/** Rows that go into a step without state, which tells nothing itself: what the one step before it gave, as far as that
 * is known, or else what the one step behind it got. */
function derivedRate(step, store) {
  const { graph, epochs, lastEpoch } = store;
  const sources = graph.steps.filter((other) => other.kind === "source").map((other) => other.id);
  if (!lastEpoch || step.inputs.length > 1) return null;
  const from = step.kind === "source" ? step.id : step.inputs[0];
  if (sources.length === 1 && sources[0] === from) return perSecond(epochs, (epoch) => epoch.rows);
  if (lastEpoch.steps[from]) return perSecond(epochs, (epoch) => epoch.steps[from]?.output_rows ?? 0);
  const readers = graph.steps.filter((other) => other.inputs.includes(step.id));
  const [reader] = readers;
  if (readers.length !== 1 || reader.inputs.length !== 1 || !lastEpoch.steps[reader.id]) return null;
  return perSecond(epochs, (epoch) => epoch.steps[reader.id]?.rows ?? 0);
}

function perSecond(epochs, rowsOf) {
  const recent = epochs.slice(-LAST);
  if (!recent.length) return null;
  const before = epochs[epochs.length - recent.length - 1];
  const span = recent.at(-1).ended - (before ? before.ended : recent[0].began);
  const rows = recent.reduce((sum, epoch) => sum + rowsOf(epoch), 0);
  return span > 0 ? (rows / span) * 1000 : null;
}

/** The curve of an edge. */

/** From the right side of one place to the left side of another, level through the bends between. */
export function wire(from, to, through, size) {
  const start = { x: from.x + size.width, y: from.y + size.height / 2 };
  const end = { x: to.x, y: to.y + size.height / 2 };
  let path = `M${start.x},${start.y}`;
  let at = start;
  for (const bend of through) {
    path += curve(at, bend);
    at = { x: bend.x + size.width, y: bend.y };
    path += `L${at.x},${at.y}`;
  }
  return path + curve(at, end);
}

/** The middle of the way from the first place to what comes next: the handle of the edge is there. */
export function handle(from, to, through, size) {
  const next = through[0] ?? { x: to.x, y: to.y + size.height / 2 };
  return { x: (from.x + size.width + next.x) / 2, y: (from.y + size.height / 2 + next.y) / 2 };
}

function curve(a, b) {
  const reach = Math.max(24, (b.x - a.x) / 2);
  return `C${a.x + reach},${a.y} ${b.x - reach},${b.y} ${b.x},${b.y}`;
}

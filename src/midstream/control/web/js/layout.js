/** Places of steps, left to right: columns by the longest way from a source, rows so that edges cross little.
 *
 * What was there before keeps its row, and only columns shift when steps come or go: a graph that changes stays the
 * picture one knows. An edge over several columns runs through bends, which take room as steps do.
 */

const SWEEPS = 12;

/** `nodes` are `{id, inputs}`; `before` are rows by id from an earlier layout, or nothing. */
export function layout(nodes, size, before = new Map()) {
  const known = new Set(nodes.map((node) => node.id));
  const edges = nodes.flatMap((node) =>
    [...new Set(node.inputs)].filter((input) => known.has(input)).map((from) => ({ from, to: node.id })),
  );
  const columns = columnsOf(nodes, edges);
  const { items, layers, links } = layersOf(nodes, edges, columns);
  const rooms = { node: size.height + size.gapY, bend: size.gapY };
  if (nodes.some((node) => before.has(node.id))) keepRows(items, layers, links, rooms, before);
  else findRows(items, layers, links, rooms);
  return placed(nodes, edges, items, columns, size);
}

/** The longest way from a step without inputs. Sources stand right before their first reader. */
function columnsOf(nodes, edges) {
  const inputs = grouped(edges, "to", "from");
  const readers = grouped(edges, "from", "to");
  const columns = new Map();
  const onTheWay = new Set();
  const visit = (id) => {
    if (columns.has(id)) return columns.get(id);
    // Old and new edges of a diff drawn together may form a circle: the edge that closes it counts for nothing.
    if (onTheWay.has(id)) return -1;
    onTheWay.add(id);
    const column = Math.max(-1, ...(inputs.get(id) ?? []).map(visit)) + 1;
    onTheWay.delete(id);
    columns.set(id, column);
    return column;
  };
  for (const node of nodes) visit(node.id);
  for (const node of nodes) {
    if (inputs.has(node.id) || !readers.has(node.id)) continue;
    const first = Math.min(...readers.get(node.id).map((id) => columns.get(id)));
    columns.set(node.id, Math.max(0, first - 1));
  }
  return columns;
}

/** Steps and bends by column, and which of them are next to each other on an edge. */
function layersOf(nodes, edges, columns) {
  const items = new Map();
  const layers = [];
  const add = (item) => {
    items.set(item.key, item);
    (layers[item.column] ??= []).push(item);
    return item;
  };
  for (const node of nodes)
    add({ key: node.id, column: columns.get(node.id), bend: false, row: 0, left: [], right: [] });
  const links = [];
  for (const edge of edges) {
    let last = items.get(edge.from);
    for (let column = last.column + 1; column < columns.get(edge.to); column += 1) {
      const bend = add({ key: bendKey(edge, column), edge, column, bend: true, row: 0, left: [], right: [] });
      links.push([last, bend]);
      last = bend;
    }
    links.push([last, items.get(edge.to)]);
  }
  for (const [left, right] of links) {
    left.right.push(right);
    right.left.push(left);
  }
  return { items, layers: Array.from(layers, (layer) => layer ?? []), links };
}

/** Rows of a graph that is drawn for the first time. */
function findRows(items, layers, links, rooms) {
  let best = null;
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    layers.forEach(number);
    const crossings = crossingsOf(links);
    if (!best || crossings < best.crossings) best = { crossings, orders: layers.map((layer) => [...layer]) };
    const rightwards = sweep % 2 === 0;
    for (const layer of rightwards ? layers : [...layers].reverse()) {
      const side = rightwards ? "left" : "right";
      const wanted = new Map(layer.map((item) => [item, mean(item[side].map((other) => other.order)) ?? item.order]));
      layer.sort((a, b) => wanted.get(a) - wanted.get(b) || a.order - b.order);
      number(layer);
    }
  }
  layers.forEach((layer, column) => layer.splice(0, layer.length, ...best.orders[column]));
  for (const layer of layers)
    spread(
      layer,
      () => 0,
      () => 1,
      rooms,
    );
  for (let pass = 0; pass < SWEEPS; pass += 1) {
    const side = pass % 2 === 0 ? "left" : "right";
    for (const layer of pass % 2 === 0 ? layers : [...layers].reverse()) {
      spread(
        layer,
        (item) => mean(item[side].map((other) => other.row)) ?? item.row,
        () => 1,
        rooms,
      );
    }
  }
}

/** Rows of a graph that has changed: old steps where they were, new ones between their neighbours. */
function keepRows(items, layers, links, rooms, before) {
  const wanted = new Map();
  for (const item of items.values()) if (before.has(item.key)) wanted.set(item, before.get(item.key));
  for (let missing = items.size - wanted.size; missing > 0;) {
    for (const item of items.values()) {
      if (wanted.has(item)) continue;
      const near = mean(
        [...item.left, ...item.right].filter((other) => wanted.has(other)).map((other) => wanted.get(other)),
      );
      if (near !== null) wanted.set(item, near);
    }
    const left = items.size - wanted.size;
    if (left === missing) for (const item of items.values()) if (!wanted.has(item)) wanted.set(item, 0);
    missing = items.size - wanted.size;
  }
  for (const layer of layers) {
    layer.sort((a, b) => wanted.get(a) - wanted.get(b));
    spread(
      layer,
      (item) => wanted.get(item),
      (item) => (before.has(item.key) ? 8 : 1),
      rooms,
    );
  }
}

/** Rows as near as can be to those wanted, in order and with room between: neighbours that clash share the way. */
function spread(layer, wantedOf, weightOf, rooms) {
  const offsets = [];
  let offset = 0;
  layer.forEach((item, index) => {
    if (index) offset += (room(layer[index - 1], rooms) + room(item, rooms)) / 2;
    offsets.push(offset);
  });
  const blocks = [];
  const wishes = layer.map((item, index) => ({ wish: wantedOf(item) - offsets[index], weight: weightOf(item) }));
  for (const { wish, weight } of wishes) {
    blocks.push({ sum: wish * weight, weight, size: 1 });
    while (blocks.length > 1 && level(blocks.at(-2)) > level(blocks.at(-1))) {
      const last = blocks.pop();
      const into = blocks.at(-1);
      into.sum += last.sum;
      into.weight += last.weight;
      into.size += last.size;
    }
  }
  const levels = blocks.flatMap((block) => Array(block.size).fill(level(block)));
  layer.forEach((item, index) => {
    item.row = levels[index] + offsets[index];
  });
}

function placed(nodes, edges, items, columns, size) {
  const top = Math.min(...nodes.map((node) => items.get(node.id).row));
  const bends = [...items.values()].filter((item) => item.bend);
  const lift = Math.min(top, ...bends.map((bend) => bend.row));
  const x = (column) => column * (size.width + size.gapX);
  const places = new Map(
    nodes.map((node) => [node.id, { x: x(columns.get(node.id)), y: items.get(node.id).row - lift }]),
  );
  const routes = edges.map((edge) => {
    const through = [];
    for (let column = columns.get(edge.from) + 1; column < columns.get(edge.to); column += 1) {
      const bend = items.get(bendKey(edge, column));
      through.push({ x: x(column), y: bend.row - lift + size.height / 2 });
    }
    return { ...edge, through };
  });
  const lowest = Math.max(...[...items.values()].map((item) => item.row - lift));
  return {
    places,
    routes,
    rows: new Map(nodes.map((node) => [node.id, places.get(node.id).y])),
    columns,
    width: x(Math.max(0, ...columns.values())) + size.width,
    height: lowest + size.height,
  };
}

function crossingsOf(links) {
  let crossings = 0;
  for (let i = 0; i < links.length; i += 1) {
    for (let j = i + 1; j < links.length; j += 1) {
      const [a, b] = links[i];
      const [c, d] = links[j];
      if (a.column === c.column && (a.order - c.order) * (b.order - d.order) < 0) crossings += 1;
    }
  }
  return crossings;
}

function grouped(edges, by, what) {
  const groups = new Map();
  for (const edge of edges) groups.set(edge[by], [...(groups.get(edge[by]) ?? []), edge[what]]);
  return groups;
}

function number(layer) {
  layer.forEach((item, order) => {
    item.order = order;
  });
}

function mean(numbers) {
  return numbers.length ? numbers.reduce((sum, each) => sum + each, 0) / numbers.length : null;
}

function bendKey(edge, column) {
  return `${edge.from} ${edge.to} ${column}`;
}

function room(item, rooms) {
  return item.bend ? rooms.bend : rooms.node;
}

function level(block) {
  return block.sum / block.weight;
}

// The graph of modules and data flow: both sides, one box for each module and call, from top to bottom as the data flows. A module
// can be opened and closed; only what is open is laid out and exists as elements. A box has the signs of the tree: forward, backward.

// One step of one side. Nodes are numbered as they are nested: what is in a module follows it directly, `size` has how much that is.
class Flow {
  constructor(side, columns, words, from, counts, app) {
    Object.assign(this, { side, words, app });
    const [nodes, edges, gradients] = counts;
    this.length = nodes;
    this.parent = new Int32Array(nodes);
    this.depth = new Uint16Array(nodes);
    this.size = new Int32Array(nodes).fill(1);
    this.key = new Int32Array(nodes);
    this.label = columns.label.slice(from.nodes, from.nodes + nodes);
    this.nodeOf = new Map();
    let key = 0;
    for (let at = 0; at < nodes; at++) {
      const up = columns.up[from.nodes + at];
      this.parent[at] = up ? at - up : -1;
      this.depth[at] = up ? this.depth[at - up] + 1 : 0;
      this.key[at] = key += columns.key[from.nodes + at];
      if (key >= 0) this.nodeOf.set(key, at);
    }
    for (let at = nodes - 1; at >= 0; at--) if (this.parent[at] >= 0) this.size[this.parent[at]] += this.size[at];
    this.gradients = [];
    let row = 0;
    for (let at = from.gradients; at < from.gradients + gradients; at++) {
      const node = columns.gradient_node[at];
      this.gradients.push([(row += columns.gradient_row[at]), node]);
      if (!this.nodeOf.has(2 * row)) this.nodeOf.set(2 * row, node);
    }
    this.loose = Uint8Array.from(columns.loose.slice(from.nodes, from.nodes + nodes));
    for (let at = nodes - 1; at >= 0; at--) if (this.parent[at] >= 0) this.loose[this.parent[at]] |= this.loose[at];
    this.sumUp();
    this.wire(columns, from.edges, edges);
  }

  // What the rows of a node and of all within it say together.
  sumUp() {
    const { columns } = this.app.rows;
    this.totals = Array.from({ length: this.length }, () => ({ ...newTotal(), alone: 0 }));
    const count = (at, row) => {
      const total = this.totals[at];
      total.rows++;
      for (const name of DIRECTIONS) {
        const outcome = columns[name][row];
        raise(total[name], { arises: columns.flags[row] & FLAGS[name] ? 1 : 0, different: outcome === DIFFERENT ? 1 : 0, outcome, score: columns[`${name}_score`][row] });
      }
    };
    for (const [row, at] of this.gradients) count(at, row);
    for (let at = this.length - 1; at >= 0; at--) {
      const key = this.key[at];
      if (key >= 0 && key % 2 === 0) count(at, key / 2);
      else if (key >= 0) this.totals[at].alone++;
      if (this.parent[at] < 0) continue;
      const above = this.totals[this.parent[at]];
      add(above, this.totals[at]);
      above.alone += this.totals[at].alone;
    }
  }

  // An edge is drawn in the innermost module that has both its ends, and on the way to it from the rim of each module that it leaves
  // or enters. Several between the same two boxes are one line.
  wire(columns, from, count) {
    const { parent, depth, size } = this;
    this.wires = new Map();
    const spot = (container) => {
      if (!this.wires.has(container)) this.wires.set(container, { between: new Map(), into: new Map(), out: new Map() });
      return this.wires.get(container);
    };
    let to = 0;
    for (let at = from; at < from + count; at++) {
      to += columns.to[at];
      let [target, source] = [to, to - columns.back[at]];
      if (source < 0 || source >= this.length || to >= this.length) continue;
      if ((target >= source && target < source + size[source]) || (source >= target && source < target + size[target])) continue;
      const value = { outcome: columns.outcome[at], spec: this.words[columns.spec[at]] };
      while (parent[source] !== parent[target]) {
        const [deep, shallow] = [depth[source], depth[target]];
        if (deep >= shallow) join(spot(parent[source]).out, source, value), (source = parent[source]);
        if (shallow >= deep) join(spot(parent[target]).into, target, value), (target = parent[target]);
      }
      join(spot(parent[source]).between, source * this.length + target, value);
    }
  }

  *children(at) {
    const end = at < 0 ? this.length : at + this.size[at];
    for (let child = at + 1; child < end; child += this.size[child]) yield child;
  }

  name(at) {
    return this.words[this.label[at]];
  }

  *above(at) {
    for (let up = this.parent[at]; up >= 0; up = this.parent[up]) yield up;
  }

  list(at) {
    return this.key[at] % 2 ? this.app.alone[this.side === "left" ? 0 : 1] : this.app.rows;
  }

  // The second line of a box: its class; of a function what it gives.
  note(at) {
    if (this.key[at] < 0) return "";
    const [rows, row, alone] = [this.list(at), this.key[at] >> 1, this.key[at] % 2];
    const type = rows.word(alone ? "type" : `${this.side}_type`, row);
    if (type) return type;
    if (alone) return `only ${this.side}`;
    const [left, right] = rows.word("spec", row).split(" | ");
    return (this.side === "right" && right) || left;
  }

  fullName(at) {
    if (this.key[at] < 0) return this.name(at);
    const [rows, row, alone] = [this.list(at), this.key[at] >> 1, this.key[at] % 2];
    const number = rows.columns[alone ? "call" : `${this.side}_call`][row];
    return `${rows.word(alone ? "name" : this.side, row)}${number ? ` #${number}` : ""}`;
  }

  // The node of a module, by its path: of its own row, or the outermost of its name around a row that is in it.
  module(path) {
    const { rows } = this.app;
    const [column, kinds] = [rows.columns[`${this.side}_path`], this.app.index.kinds];
    const name = path.split(".").pop();
    for (let at = 0; at < this.length; at++) {
      const [key, row] = [this.key[at], this.key[at] >> 1];
      if (key < 0 || key % 2) continue;
      const where = rows.words[column[row]];
      if (where === path && kinds[rows.columns.kind[row]] === "module") return at;
      if (where === path || where.startsWith(`${path}.`)) return [at, ...this.above(at)].reverse().find((up) => this.name(up) === name) ?? at;
    }
    return -1;
  }

  // The row that a box opens: [what, row], null for a name that is never called.
  target(at) {
    const key = this.key[at];
    return key < 0 ? null : [key % 2 ? this.side : "row", key >> 1];
  }

  // The state that the colour of a node stands for: of its values, as the lines do; gradients have their own sign. A difference that
  // arises here counts in either.
  state(at) {
    const { forward, backward, rows, alone } = this.totals[at];
    if (!rows) return alone ? "alone" : "nothing";
    if (forward.arises + backward.arises) return "introduced";
    return ["same", "rounding", "unknown", "inherited", "nothing"][forward.outcome === NOTHING ? backward.outcome : forward.outcome];
  }

  // The same in words, with the gradients.
  told(at) {
    const { forward, backward, rows } = this.totals[at];
    const both = rows && forward.outcome !== NOTHING && backward.outcome !== NOTHING;
    const states = this.app.two ? STATES : TRACE_STATES;
    return `${states[this.state(at)]}${both ? `; gradients ${this.app.index.outcomes[backward.outcome]}` : ""}`;
  }
}

const STATES = {
  introduced: "a difference arises here",
  inherited: "differs; the difference came in",
  rounding: "within rounding",
  same: "the same",
  unknown: "unknown",
  nothing: "nothing to compare",
  alone: "on this side only",
};
const TRACE_STATES = { same: "finite", unknown: "unknown", inherited: "not finite", nothing: "no values" };

function join(wires, key, { outcome, spec }) {
  let found = wires.get(key);
  if (!found) wires.set(key, (found = { count: 0, outcome: NOTHING, specs: new Set() }));
  found.count++;
  if (SEVERITY[outcome] > SEVERITY[found.outcome]) found.outcome = outcome;
  if (spec && found.specs.size < 4) found.specs.add(spec);
}

const BOX = { height: 44, head: 44, pad: 14, least: 104, most: 236 };
const ruler = document.createElement("canvas").getContext("2d");
const widths = new Map();

function textWidth(text, font) {
  const key = `${font}\n${text}`;
  if (!widths.has(key)) {
    ruler.font = font;
    widths.set(key, ruler.measureText(text).width);
  }
  return widths.get(key);
}

// One side: its boxes, laid out and drawn.
class Pane {
  constructor(graph, side, title) {
    Object.assign(this, { graph, side, selected: -1, active: -1 });
    this.stage = el("div", { class: "stage" });
    this.tree = el("div", { class: "boxes", role: "tree", "aria-label": `Graph${title ? `, ${side}` : ""}` }, this.stage);
    this.scroller = el("div", { class: "scroller" }, this.tree);
    this.element = el("section", { class: "pane", "aria-label": title ? `${side} side` : "Graph" }, title ? el("h3", {}, el("span", { class: "quiet" }, `${side} `), title) : null, this.scroller);
    this.tree.addEventListener("keydown", (event) => this.press(event));
    this.drag();
  }

  show(flow, open) {
    Object.assign(this, { flow, open, selected: -1, active: -1 });
    this.layouts = new Map();
  }

  // --- where everything is ---

  measure(at) {
    if (this.open.has(at)) return this.layout(at);
    const { flow } = this;
    const inner = flow.size[at] > 1;
    const name = textWidth(flow.name(at), "600 12.5px monospace") + (inner ? 20 : 0) + (flow.totals[at].rows ? 64 : 30);
    const badge = this.badge(at);
    const width = Math.max(name + (badge ? textWidth(badge, "12px sans-serif") + 10 : 0), textWidth(flow.note(at), "11.5px monospace") + (inner ? 50 : 30));
    return { width: Math.round(clamp(width, BOX.least, BOX.most)), height: BOX.height };
  }

  // The inside of an open module (-1: of everything), kept until something within it is opened or closed.
  layout(at) {
    if (this.layouts.has(at)) return this.layouts.get(at);
    const { flow } = this;
    const graph = new Dagre.Graph();
    graph.setGraph({ rankdir: "TB", rankalign: "top", nodesep: 18, ranksep: 30, edgesep: 12 });
    const wires = flow.wires.get(at) || { between: new Map(), into: new Map(), out: new Map() };
    const children = [...flow.children(at)];
    for (const child of children) graph.setNode(`${child}`, { ...pick(this.measure(child)), node: child });
    const [fed, feeding] = [new Set(), new Set()];
    const connect = (from, to, wire) => {
      graph.setEdge(from, to, { wire, weight: 1 });
      fed.add(to);
      feeding.add(from);
    };
    for (const [key, wire] of wires.between) connect(`${Math.floor(key / flow.length)}`, `${key % flow.length}`, wire);
    for (const [name, list] of [["into", wires.into], ["out", wires.out]]) {
      if (!list.size) continue;
      graph.setNode(name, { width: 10, height: 10, port: name });
      for (const [child, wire] of list) name === "into" ? connect(name, `${child}`, wire) : connect(`${child}`, name, wire);
    }
    // What takes something that no recorded call gave comes after what ran before it; and so does what is not connected at all.
    children.forEach((child, place) => {
      if (place && !fed.has(`${child}`) && (flow.loose[child] || !feeding.has(`${child}`))) graph.setEdge(`${children[place - 1]}`, `${child}`, { wire: null, weight: 0 });
    });
    Dagre.layout(graph);
    const { width = 0, height = 0 } = graph.graph();
    const around = at < 0 ? { left: 16, top: 16, right: 16, bottom: 16 } : { left: BOX.pad, top: BOX.head + 6, right: BOX.pad, bottom: BOX.pad };
    const least = at < 0 ? 0 : Math.min(BOX.most, textWidth(flow.name(at), "600 12.5px monospace") + textWidth(flow.note(at), "11.5px monospace") + 120);
    const wide = Math.max(width, least - around.left - around.right);
    const shift = around.left + (wide - width) / 2;
    const found = {
      width: Math.round(wide + around.left + around.right),
      height: Math.round(height + around.top + around.bottom),
      boxes: [],
      ports: [],
      wires: graph.edges().map((edge) => ({ ...graph.edge(edge), points: graph.edge(edge).points.map(({ x, y }) => [x + shift, y + around.top]) })),
    };
    for (const name of graph.nodes()) {
      const { x, y, width: w, height: h, node, port } = graph.node(name);
      if (port) found.ports.push([x + shift, y + around.top]);
      else found.boxes.push({ node, x: Math.round(x - w / 2 + shift), y: Math.round(y - h / 2 + around.top), width: w, height: h });
    }
    found.boxes.sort((a, b) => a.node - b.node); // as executed: in this order they are walked through
    this.layouts.set(at, found);
    return found;
  }

  forget(at) {
    this.layouts.delete(at);
    for (const up of this.flow.above(at)) this.layouts.delete(up);
    this.layouts.delete(-1);
  }

  // --- drawing ---

  draw() {
    this.items = new Map();
    const { width, height } = this.layout(-1);
    Object.assign(this.stage.style, { width: `${width}px`, height: `${height}px`, transform: `scale(${this.graph.zoom})` });
    Object.assign(this.tree.style, { width: `${width * this.graph.zoom}px`, height: `${height * this.graph.zoom}px` });
    this.stage.replaceChildren(...this.inside(-1, 1));
    this.mark();
    this.dim();
  }

  inside(at, level) {
    const { width, height, boxes, ports, wires } = this.layout(at);
    return [wiring(width, height, wires, ports, this.graph.app.index.outcomes), ...boxes.map((box) => this.box(box, level))];
  }

  badge(at) {
    const { forward, backward } = this.flow.totals[at];
    const arises = forward.arises + backward.arises;
    const different = forward.different + backward.different;
    if (this.flow.size[at] === 1) return "";
    return arises ? `${ARISES} ${count(arises)}` : different ? `${SIGNS[DIFFERENT]} ${count(different)}` : `${count(this.flow.size[at] - 1)}`;
  }

  box({ node, x, y, width, height }, level) {
    const { flow } = this;
    const inner = flow.size[node] > 1;
    const open = this.open.has(node);
    const total = flow.totals[node];
    const state = flow.state(node);
    const twist = inner ? el("span", { class: "twist", "aria-hidden": "true", title: open ? "Close" : "Open" }, open ? "▾" : "▸") : null;
    const marks = total.rows ? DIRECTIONS.map((name) => mark(total[name].outcome, total[name].score, flow.size[node] === 1 && total[name].arises)) : [];
    const badge = this.badge(node);
    const note = flow.note(node);
    const words = [flow.fullName(node), note, flow.told(node), inner ? summedUp(flow, node) : ""].filter(Boolean);
    const head = el("div", { class: "head", title: words.join("\n") }, twist, el("span", { class: "text" },
      el("span", { class: "line" }, marks, el("span", { class: "name" }, flow.name(node)), badge ? el("span", { class: total.forward.arises + total.backward.arises ? "bad" : "quiet" }, badge) : null),
      el("span", { class: "line note quiet" }, note || (inner ? `${count(flow.size[node] - 1)} inside` : ""))));
    const item = el("div", {
      class: `box ${state}${open ? " open" : ""}${inner ? " group" : ""}`, role: "treeitem", tabindex: node === this.active ? 0 : -1, "data-node": node,
      "aria-level": level, "aria-expanded": inner ? String(open) : null, "aria-selected": "false", "aria-label": words.join(", "),
      style: { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` },
    }, head, open ? el("div", { role: "group" }, this.inside(node, level + 1)) : null);
    head.addEventListener("click", () => {
      this.focus(node);
      this.choose(node);
    });
    for (const [event, on] of [["mouseenter", true], ["mouseleave", false]]) head.addEventListener(event, () => this.graph.hint(this, node, on));
    if (twist) {
      twist.addEventListener("click", (event) => {
        event.stopPropagation();
        this.graph.toggle(this, node);
      });
      head.addEventListener("dblclick", () => flow.target(node) && this.graph.toggle(this, node));
    }
    this.items.set(node, item);
    return item;
  }

  choose(node) {
    const target = this.flow.target(node);
    if (target) this.graph.app.go(...target);
    else this.graph.toggle(this, node);
  }

  // --- what is chosen, and what the filters keep ---

  mark() {
    for (const [node, item] of this.items) {
      item.setAttribute("aria-selected", String(node === this.selected));
    }
    if (!this.items.has(this.active)) this.active = this.items.keys().next().value ?? -1;
    for (const [node, item] of this.items) item.tabIndex = node === this.active ? 0 : -1;
  }

  dim() {
    const { flow } = this;
    const { keep } = this.graph.app.rows;
    if (this.graph.app.unfiltered()) {
      for (const item of this.items.values()) item.classList.remove("dim");
      return;
    }
    const kept = new Uint8Array(flow.length);
    for (const [row, at] of flow.gradients) kept[at] |= keep[row];
    for (let at = flow.length - 1; at >= 0; at--) {
      const key = flow.key[at];
      if (key >= 0) kept[at] |= flow.list(at).keep[key >> 1];
      if (flow.parent[at] >= 0) kept[flow.parent[at]] |= kept[at];
    }
    for (const [node, item] of this.items) item.classList.toggle("dim", !kept[node]);
  }

  // Opens the way down to a node. True if something had to be opened.
  uncover(at) {
    let opened = false;
    for (const up of this.flow.above(at)) {
      if (this.open.has(up)) continue;
      this.open.add(up);
      this.forget(up);
      opened = true;
    }
    return opened;
  }

  // The middle of the node's head in the middle of the pane, if it is not well in sight.
  look(at, always) {
    const item = this.items.get(at);
    if (!item) return;
    const head = item.firstElementChild.getBoundingClientRect();
    const frame = this.scroller.getBoundingClientRect();
    const [dx, dy] = [head.left + Math.min(head.width, frame.width - 20) / 2 - (frame.left + frame.width / 2), head.top + head.height / 2 - (frame.top + frame.height * 0.4)];
    const inSight = head.left >= frame.left && head.left + Math.min(head.width, frame.width) <= frame.right + 1 && head.top >= frame.top + 8 && head.bottom <= frame.bottom - 8;
    if (always || !inSight) {
      this.scroller.scrollLeft += dx;
      this.scroller.scrollTop += dy;
    }
  }

  focus(node) {
    this.active = node;
    for (const [other, item] of this.items) item.tabIndex = other === node ? 0 : -1;
    this.items.get(node)?.focus({ preventScroll: true });
  }

  press(event) {
    const { flow, graph } = this;
    const at = this.active;
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const shown = [...this.items.keys()].sort((a, b) => a - b);
    const place = shown.indexOf(at);
    const go = (node) => {
      if (node === undefined || node < 0) return;
      this.focus(node);
      this.look(node);
    };
    const inner = flow.size[at] > 1;
    const actions = {
      ArrowDown: () => go(shown[place + 1]),
      ArrowUp: () => go(shown[place - 1]),
      ArrowRight: () => (inner && !this.open.has(at) ? graph.toggle(this, at, true) : inner && go(at + 1)),
      ArrowLeft: () => (this.open.has(at) ? graph.toggle(this, at, false) : go(flow.parent[at])),
      Home: () => go(shown[0]),
      End: () => go(shown[shown.length - 1]),
      Enter: () => this.choose(at),
      " ": () => this.choose(at),
      o: () => graph.cross(this, at),
      "+": () => graph.scale(1.25),
      "-": () => graph.scale(0.8),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }

  drag() {
    let from = null;
    this.scroller.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest(".head")) return;
      from = { x: event.clientX, y: event.clientY, left: this.scroller.scrollLeft, top: this.scroller.scrollTop };
      this.scroller.setPointerCapture(event.pointerId);
      this.scroller.classList.add("dragged");
    });
    this.scroller.addEventListener("pointermove", (event) => {
      if (!from) return;
      this.scroller.scrollLeft = from.left + from.x - event.clientX;
      this.scroller.scrollTop = from.top + from.y - event.clientY;
    });
    for (const name of ["pointerup", "pointercancel"]) this.scroller.addEventListener(name, () => {
      from = null;
      this.scroller.classList.remove("dragged");
    });
    this.scroller.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.graph.scale(event.deltaY < 0 ? 1.12 : 1 / 1.12);
    }, { passive: false });
  }
}

const pick = ({ width, height }) => ({ width, height });

function summedUp(flow, at) {
  const { forward, backward, rows, alone } = flow.totals[at];
  const { two } = flow.app;
  const told = (name, { arises, different }) => (!different ? "" : two ? `${name}: ${count(different)} differ, in ${count(arises)} of them it arises` : `${count(different)} not finite`);
  return [`${count(rows)} ${two ? "pairs" : "rows"}`, told("forward", forward), told("backward", backward), alone ? `${count(alone)} calls on this side only` : ""].filter(Boolean).join("; ");
}

// A line through points, rounded where it bends; it ends as it is going: downwards.
function line(points) {
  const at = ([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const middle = ([ax, ay], [bx, by]) => [(ax + bx) / 2, (ay + by) / 2];
  let path = `M${at(points[0])}`;
  for (let place = 1; place < points.length - 1; place++) path += `Q${at(points[place])} ${at(place === points.length - 2 ? points[place + 1] : middle(points[place], points[place + 1]))}`;
  return points.length === 2 ? `${path}L${at(points[1])}` : path;
}

function wiring(width, height, wires, ports, outcomes) {
  const drawn = wires.slice().sort((a, b) => Number(a.wire?.outcome === DIFFERENT) - Number(b.wire?.outcome === DIFFERENT)).flatMap(({ wire, points }) => {
    const kind = !wire ? "order" : wire.outcome === DIFFERENT ? "different" : "agree";
    const [x, y] = points[points.length - 1];
    const [px, py] = points[points.length - 2];
    const angle = (Math.atan2(y - py, x - px) * 180) / Math.PI;
    const path = svg("path", { d: line(points), class: `wire ${kind}` });
    const about = wire ? `${wire.count === 1 ? "1 tensor" : `${count(wire.count)} tensors`}${wire.specs.size ? `: ${[...wire.specs].join(", ")}` : ""}${wire.outcome === DIFFERENT ? `; ${outcomes[DIFFERENT]}` : ""}` : "ran after it; no flow was recorded";
    const touch = svg("path", { d: line(points), class: "touch" }, svg("title", {}, about));
    const tip = wire ? svg("path", { d: "M0 0L-7 -3.5L-7 3.5Z", class: `tip ${kind}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${angle.toFixed(1)})` }) : null;
    return [path, tip, touch].filter(Boolean);
  });
  const dots = ports.map(([x, y]) => svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 3.5, class: "port" }));
  return svg("svg", { class: "wires", width, height, "aria-hidden": "true" }, ...drawn, ...dots);
}

async function layoutLibrary() {
  if (typeof Dagre === "undefined") {
    const text = await load("layout");
    const script = document.createElement("script"); // its hash is in the page's policy
    script.textContent = text;
    document.head.append(script);
  }
}

// Both sides, kept in step.
class Graph {
  constructor(app, data, element) {
    Object.assign(this, { app, data, element, zoom: 1, place: null, flows: new Map(), opened: new Map() });
    const names = data.sides.length > 1 ? ["left", "right"] : ["left"];
    this.panes = names.map((side, at) => new Pane(this, side, data.sides.length > 1 ? app.index.sides[at].path : ""));
    const button = (label, title, action) => el("button", { type: "button", class: "small", title, "aria-label": title, onclick: action }, label);
    this.where = el("span", { class: "quiet", role: "status" });
    this.percent = el("span", { class: "quiet percent" });
    // Of the signs those that the filters above do not explain.
    const { two } = app;
    const legend = !two ? [] : [["introduced", ARISES, "introduced here"], ["inherited", SIGNS[DIFFERENT], "inherited"]]
      .map(([state, sign, text]) => el("span", { class: "key" }, el("span", { class: state === "introduced" ? "mark arises" : "mark", "aria-hidden": "true", "data-state": state }, sign), text));
    this.thread = svg("svg", { class: "link-line", "aria-hidden": "true" });
    for (const { scroller } of this.panes) scroller.addEventListener("scroll", () => this.tie());
    new ResizeObserver(() => this.tie()).observe(element);
    element.append(
      el("div", { class: "tools" },
        button("−", "Zoom out", () => this.scale(0.8)), this.percent, button("+", "Zoom in", () => this.scale(1.25)), button("⤢ fit", "Fit into the window", () => this.fit()),
        two ? button("▾ differences", "Open all modules in which a difference arises", () => this.openDifferences()) : null, button("▸ close all", "Close all modules", () => this.closeAll()),
        this.where, el("span", { class: "keys" }, ...legend, two ? el("span", { class: "key" }, el("span", { class: "swatch dashed" }), "one side only") : null,
          el("span", { class: "key" }, el("span", { class: "swatch thick" }), two ? "a value that differs" : "a value that is not finite"))),
      el("div", { class: "panes" }, this.panes.map((pane) => pane.element), this.thread));
    this.recolour();
  }

  // The step and rank that are shown: those of the row that is open, those of the filters, those where the runs part.
  wanted() {
    const { app } = this;
    const open = app.details.wanted;
    const { columns } = app.rows;
    const { step, rank } = app.filters;
    const shown = this.data.sides.flatMap((side) => side.places);
    const fits = ([s, r]) => (step === null || s === step) && (rank === null || r === rank);
    if (open) {
      const from = open.what === "row" ? columns : app.alone[open.what === "left" ? 0 : 1].columns;
      return [from.step[open.row], from.rank[open.row]];
    }
    if (this.place && fits(this.place)) return this.place;
    const parting = (app.index.partings || []).map(([row]) => row).find((row) => row >= 0 && fits([columns.step[row], columns.rank[row]]));
    if (parting !== undefined) return [columns.step[parting], columns.rank[parting]];
    return (shown.find(fits) || shown[0]).slice(0, 2);
  }

  flow(at, [step, rank]) {
    const key = `${at} ${step} ${rank}`;
    if (!this.flows.has(key)) {
      const columns = this.data.sides[at];
      const from = { nodes: 0, edges: 0, gradients: 0 };
      let counts = [0, 0, 0];
      for (const [s, r, ...many] of columns.places) {
        if (s === step && r === rank) {
          counts = many;
          break;
        }
        from.nodes += many[0], from.edges += many[1], from.gradients += many[2];
      }
      if (this.flows.size > 8) this.flows.clear(); // steps that were looked at before
      this.flows.set(key, new Flow(this.panes[at].side, columns, this.data.words, from, counts, this.app));
    }
    return this.flows.get(key);
  }

  // Shows the step that is wanted, and in it the row that is open.
  update() {
    const place = this.wanted();
    if (!this.place || this.place[0] !== place[0] || this.place[1] !== place[1]) {
      this.place = place;
      this.panes.forEach((pane, at) => {
        const flow = this.flow(at, place);
        const key = `${pane.side} ${place}`;
        if (!this.opened.has(key)) this.opened.set(key, firstOpen(flow));
        pane.show(flow, this.opened.get(key));
      });
      const many = new Set(this.data.sides.flatMap((side) => side.places.map(([s, r]) => `${s} ${r}`))).size > 1;
      this.where.textContent = many ? `step ${place[0]}, rank ${place[1]}` : "";
      this.uncoverPartings();
    }
    const { wanted } = this.app.details;
    this.panes.forEach((pane) => (pane.selected = -1));
    if (wanted) this.select(wanted);
    else this.draw();
    if (!wanted && !this.seen) this.lookAtPartings();
    this.seen = true;
  }

  draw() {
    this.percent.textContent = `${Math.round(this.zoom * 100)} %`;
    this.panes.forEach((pane) => pane.draw());
    this.tie();
  }

  partings() {
    const { columns } = this.app.rows;
    return (this.app.index.partings || []).map(([row]) => row).filter((row) => row >= 0 && columns.step[row] === this.place[0] && columns.rank[row] === this.place[1]);
  }

  uncoverPartings() {
    for (const row of this.partings()) for (const pane of this.panes) if (pane.flow.nodeOf.has(2 * row)) pane.uncover(pane.flow.nodeOf.get(2 * row));
  }

  lookAtPartings() {
    const row = this.partings()[0];
    for (const pane of this.panes) {
      const node = pane.flow.nodeOf.get(2 * row);
      pane.active = node ?? pane.active;
      pane.mark();
      if (node !== undefined) pane.look(node, true);
    }
  }

  select({ what, row }) {
    for (const pane of this.panes) {
      const key = what === "row" ? 2 * row : what === pane.side ? 2 * row + 1 : -1;
      const node = key < 0 ? undefined : pane.flow.nodeOf.get(key);
      if (node === undefined) continue;
      pane.uncover(node);
      pane.selected = pane.active = node;
    }
    this.draw();
    for (const pane of this.panes) if (pane.selected >= 0) pane.look(pane.selected);
    this.tie();
  }

  // A line from one side to the other between the two that are chosen, as far as both are in sight.
  tie() {
    const frame = this.thread.getBoundingClientRect();
    const ends = this.panes.map((pane) => {
      const box = pane.selected >= 0 && pane.items?.get(pane.selected)?.getBoundingClientRect();
      const view = pane.scroller.getBoundingClientRect();
      if (!box || box.top + 20 < view.top || box.top + 20 > view.bottom || box.left > view.right || box.right < view.left) return null;
      return { left: Math.max(box.left, view.left) - frame.left, right: Math.min(box.right, view.right) - frame.left, y: box.top + Math.min(box.height, BOX.height * this.zoom) / 2 - frame.top, below: box.top + Math.min(box.height, BOX.height * this.zoom) - frame.top, top: box.top - frame.top };
    });
    this.thread.replaceChildren();
    const [left, right] = ends;
    if (!left || !right) return;
    const stacked = getComputedStyle(this.thread.parentElement).flexDirection === "column";
    const [a, b] = stacked ? [[(left.left + left.right) / 2, left.below], [(right.left + right.right) / 2, right.top]] : [[left.right, left.y], [right.left, right.y]];
    const middle = stacked ? `C${a[0]} ${(a[1] + b[1]) / 2} ${b[0]} ${(a[1] + b[1]) / 2}` : `C${(a[0] + b[0]) / 2} ${a[1]} ${(a[0] + b[0]) / 2} ${b[1]}`;
    this.thread.append(svg("path", { d: `M${a.join(" ")}${middle} ${b.join(" ")}` }), ...[a, b].map(([cx, cy]) => svg("circle", { cx, cy, r: 4 })));
  }

  // The node of the other side that belongs to one: its pair; of a name that is never called the innermost module with most of its pairs.
  partner(pane, at) {
    const other = this.panes.find((item) => item !== pane);
    if (!other) return -1;
    const { flow } = pane;
    if (flow.key[at] >= 0 && other.flow.nodeOf.has(flow.key[at]) && flow.key[at] % 2 === 0) return other.flow.nodeOf.get(flow.key[at]);
    const found = new Map();
    let pairs = 0;
    for (let inner = at + 1; inner < at + flow.size[at]; inner++) {
      const match = flow.key[inner] >= 0 && flow.key[inner] % 2 === 0 ? other.flow.nodeOf.get(flow.key[inner]) : undefined;
      if (match === undefined) continue;
      pairs++;
      for (const up of other.flow.above(match)) found.set(up, (found.get(up) || 0) + 1);
    }
    let best = -1;
    for (const [node, many] of found) if (2 * many > pairs && (best < 0 || other.flow.depth[node] > other.flow.depth[best])) best = node;
    return best;
  }

  toggle(pane, at, open) {
    if (pane.flow.size[at] === 1) return;
    const opening = open ?? !pane.open.has(at);
    const partner = this.partner(pane, at);
    const other = this.panes.find((item) => item !== pane);
    const before = [pane, other].map((item, place) => [item, place ? partner : at]).filter(([item, node]) => item && item.items.has(node))
      .map(([item, node]) => [item, node, item.items.get(node).getBoundingClientRect()]);
    const set = (item, node) => {
      if (opening) item.open.add(node), openSingles(item.flow, node, item.open);
      else item.open.delete(node);
      item.forget(node);
    };
    set(pane, at);
    if (partner >= 0 && other.flow.size[partner] > 1) {
      set(other, partner);
      if (opening) other.uncover(partner);
    }
    const held = document.activeElement?.closest?.(".box");
    pane.active = at;
    this.draw();
    if (held) pane.focus(at);
    for (const [item, node, box] of before) { // what was clicked stays where it was
      const now = item.items.get(node)?.getBoundingClientRect();
      if (!now) continue;
      item.scroller.scrollLeft += now.left + Math.min(now.width, item.scroller.clientWidth) / 2 - (box.left + Math.min(box.width, item.scroller.clientWidth) / 2);
      item.scroller.scrollTop += now.top - box.top;
    }
  }

  // Under the pointer, a box shows its partner, where that is drawn.
  hint(pane, at, on) {
    const other = this.panes.find((item) => item !== pane);
    const node = on && other ? this.partner(pane, at) : -1;
    if (other) for (const [number, item] of other.items) item.classList.toggle("hint", number === node);
  }

  // To the partner on the other side.
  cross(pane, at) {
    const other = this.panes.find((item) => item !== pane);
    const node = other ? this.partner(pane, at) : -1;
    if (node < 0) return;
    if (other.uncover(node)) other.draw();
    other.focus(node);
    other.look(node);
  }

  // Opens the way to a module that was chosen in a tree, and to its partner.
  showModule(side, path) {
    const pane = this.panes.find((item) => item.side === side);
    const node = pane ? pane.flow.module(path) : -1;
    if (node < 0) return;
    const other = this.panes.find((item) => item !== pane);
    const partner = other ? this.partner(pane, node) : -1;
    const found = [[pane, node], [other, partner]].filter(([item, at]) => item && at >= 0);
    for (const [item, at] of found) {
      item.uncover(at);
      item.active = at;
    }
    this.draw();
    for (const [item, at] of found) item.look(at);
  }

  openDifferences() {
    for (const pane of this.panes) {
      const { flow } = pane;
      let left = OPENED_AT_ONCE;
      for (let at = 0; at < flow.length && left; at++) {
        const { forward, backward } = flow.totals[at];
        if (flow.size[at] > 1 && forward.arises + backward.arises && !pane.open.has(at)) pane.open.add(at), pane.forget(at), left--;
      }
    }
    this.draw();
    this.lookAtPartings();
  }

  closeAll() {
    for (const pane of this.panes) {
      pane.open.clear();
      for (const at of firstOpen(pane.flow)) pane.open.add(at);
      pane.layouts.clear();
    }
    this.draw();
  }

  scale(by) {
    const middles = this.panes.map(({ scroller }) => [(scroller.scrollLeft + scroller.clientWidth / 2) / this.zoom, (scroller.scrollTop + scroller.clientHeight / 2) / this.zoom]);
    this.zoom = clamp(Math.round(this.zoom * by * 100) / 100, 0.1, 2);
    this.draw();
    this.panes.forEach(({ scroller }, at) => {
      scroller.scrollLeft = middles[at][0] * this.zoom - scroller.clientWidth / 2;
      scroller.scrollTop = middles[at][1] * this.zoom - scroller.clientHeight / 2;
    });
  }

  fit() {
    const shares = this.panes.map((pane) => {
      const { width, height } = pane.layout(-1);
      return Math.min(pane.scroller.clientWidth / width, pane.scroller.clientHeight / height);
    });
    this.zoom = clamp(Math.floor(Math.min(...shares) * 100) / 100, 0.1, 1);
    this.draw();
    for (const pane of this.panes) pane.scroller.scrollTop = pane.scroller.scrollLeft = 0;
  }

  filter() {
    this.panes.forEach((pane) => pane.dim());
  }

  recolour() {
    for (const sign of this.element.querySelectorAll("[data-state]")) paint(sign, DIFFERENT, sign.dataset.state === "introduced" ? 1000 : 800);
    if (this.place) this.draw();
  }
}

const OPENED_AT_ONCE = 40; // modules that one click opens

// At first the outermost modules that hold everything are open.
function firstOpen(flow) {
  const open = new Set();
  for (const at of flow.children(-1)) if (flow.size[at] > flow.length * 0.5 && flow.size[at] > 1) open.add(at), openSingles(flow, at, open);
  return open;
}

// A module with nothing but one other in it is opened together with it.
function openSingles(flow, at, open) {
  for (let inner = at + 1; flow.size[inner] === flow.size[at] - 1 && flow.size[inner] > 1; inner++) open.add((at = inner));
}

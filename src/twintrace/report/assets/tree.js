// The modules of one side. Forward and backward are counted apart, and so are rows where a difference arises and rows that it only
// reaches: gradients that differ say nothing of the forward pass, and what follows is not at fault.

const DIRECTIONS = ["forward", "backward"];

const newTotal = () => ({ rows: 0, ...Object.fromEntries(DIRECTIONS.map((name) => [name, { arises: 0, different: 0, outcome: NOTHING, score: 0 }])) });

function growTree(rows, column) {
  const root = { name: "", path: "", children: new Map(), ...newTotal() };
  const paths = rows.columns[column];
  const totals = new Map();
  const { columns } = rows;
  for (let row = 0; row < rows.length; row++) {
    let total = totals.get(paths[row]);
    if (!total) totals.set(paths[row], (total = newTotal()));
    total.rows++;
    for (const name of DIRECTIONS) {
      const outcome = columns[name][row];
      const arises = columns.flags[row] & FLAGS[name] ? 1 : 0;
      raise(total[name], { arises, different: outcome === DIFFERENT ? 1 : 0, outcome, score: columns[`${name}_score`][row] });
    }
  }
  for (const [word, total] of totals) {
    let node = root;
    const path = rows.words[word];
    add(node, total);
    if (!path) continue;
    let walked = "";
    for (const part of path.split(".").slice(0, 64)) {
      walked = walked ? `${walked}.${part}` : part;
      if (!node.children.has(part)) node.children.set(part, { name: part, path: walked, children: new Map(), ...newTotal() });
      node = node.children.get(part);
      add(node, total);
    }
  }
  return root;
}

function add(node, total) {
  node.rows += total.rows;
  for (const name of DIRECTIONS) raise(node[name], total[name]);
}

// Counts are added; the outcome is the worst of both.
function raise(total, { arises, different, outcome, score }) {
  total.arises += arises;
  total.different += different;
  const [here, there] = [SEVERITY[outcome], SEVERITY[total.outcome]];
  if (here > there || (here === there && score > total.score)) [total.outcome, total.score] = [outcome, score];
}

function summed(node, two) {
  const words = (name) => {
    const { arises, different } = node[name];
    return two ? `${name}: ${count(different)} differ, in ${count(arises)} of them it arises` : `${name === "forward" ? "values" : "gradients"}: ${count(different)} not finite`;
  };
  return `${node.path}: ${count(node.rows)} rows; ${DIRECTIONS.map(words).join("; ")}`;
}

const SHOWN_AT_ONCE = 200;

class Tree {
  constructor(root, choose, label, two) {
    Object.assign(this, { root, choose, two });
    this.element = el("ul", { class: "tree", role: "tree", "aria-label": label });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.items = new Map();
    this.fill(root, this.element, 0);
    const first = this.element.querySelector("[role=treeitem] > .node");
    if (first) first.tabIndex = 0;
    let node = root; // as long as there is nothing to choose, open
    while (node.children.size === 1) {
      node = [...node.children.values()][0];
      this.toggle(node, true);
    }
  }

  fill(node, list, from) {
    const children = [...node.children.values()];
    for (const child of children.slice(from, from + SHOWN_AT_ONCE)) if (!this.items.has(child.path)) list.append(this.item(child));
    const rest = children.length - from - SHOWN_AT_ONCE;
    if (rest <= 0) return;
    const more = el("button", { class: "link", type: "button" }, `${count(rest)} more`);
    more.addEventListener("click", () => {
      more.parentElement.remove();
      this.fill(node, list, from + SHOWN_AT_ONCE);
    });
    list.append(el("li", { role: "none" }, more));
  }

  item(node) {
    const inner = node.children.size > 0;
    const twist = el("span", { class: "twist", "aria-hidden": "true" }, inner ? "▸" : "");
    const marks = DIRECTIONS.map((name) => mark(node[name].outcome, node[name].score, node[name].arises));
    const arises = node.forward.arises + node.backward.arises;
    const different = node.forward.different + node.backward.different;
    const number = arises ? el("span", { class: "bad" }, `${ARISES} ${count(arises)}`) : el("span", { class: "quiet" }, different ? `${SIGNS[DIFFERENT]} ${count(different)}` : count(node.rows));
    const title = summed(node, this.two);
    const line = el("div", { class: "node", tabindex: -1, title }, twist, ...marks, el("span", { class: "name" }, node.name), number);
    const item = el("li", { role: "treeitem", "aria-expanded": inner ? "false" : null, "aria-selected": "false" }, line);
    twist.addEventListener("click", (event) => {
      event.stopPropagation();
      this.toggle(node);
    });
    line.addEventListener("click", () => {
      this.focus(line);
      this.choose(node.path);
    });
    line.addEventListener("dblclick", () => this.toggle(node));
    this.items.set(node.path, { node, item, line, marks, twist });
    return item;
  }

  toggle(node, open) {
    const found = this.items.get(node.path);
    if (!found || !node.children.size) return;
    const list = found.item.querySelector("ul");
    const opening = open ?? !(list && !list.hidden);
    if (!list && opening) {
      const made = el("ul", { role: "group" });
      this.fill(node, made, 0);
      found.item.append(made);
    } else if (list) {
      list.hidden = !opening;
    }
    found.item.setAttribute("aria-expanded", String(opening));
    found.twist.textContent = opening ? "▾" : "▸";
  }

  // Opens the way down to a module.
  reveal(path) {
    let walked = "";
    for (const part of path.split(".")) {
      const found = this.items.get(walked);
      if (walked && !found) return;
      if (found) this.toggle(found.node, true);
      walked = walked ? `${walked}.${part}` : part;
      const child = (found ? found.node : this.root).children.get(part);
      const list = found ? found.item.querySelector("ul") : this.element;
      if (child && list && !this.items.has(walked)) list.lastElementChild.before(this.item(child)); // one of those that are not shown yet
    }
  }

  select(path) {
    for (const { item, node } of this.items.values()) item.setAttribute("aria-selected", String(node.path === path));
  }

  // Marks the module of the row that is open, and opens the way to it.
  show(path) {
    for (const { item } of this.items.values()) item.removeAttribute("aria-current");
    if (path === null) return;
    this.reveal(path);
    const found = this.items.get(path);
    if (!found) return;
    found.item.setAttribute("aria-current", "true");
    const [line, frame] = [found.line.getBoundingClientRect(), this.element.parentElement?.getBoundingClientRect()];
    if (frame && (line.top < frame.top || line.bottom > frame.bottom)) this.element.parentElement.scrollTop += line.top - frame.top - frame.height / 3;
  }

  recolour() {
    for (const { node, marks } of this.items.values()) DIRECTIONS.forEach((name, at) => paint(marks[at], node[name].outcome, node[name].score));
  }

  focus(line) {
    for (const other of this.element.querySelectorAll(".node[tabindex='0']")) other.tabIndex = -1;
    line.tabIndex = 0;
    line.focus();
  }

  key(event) {
    const lines = [...this.element.querySelectorAll(".node")].filter((line) => line.offsetParent !== null);
    const at = lines.indexOf(document.activeElement);
    if (at < 0) return;
    const found = [...this.items.values()].find((item) => item.line === lines[at]);
    const open = found.item.getAttribute("aria-expanded") === "true";
    const actions = {
      ArrowDown: () => lines[at + 1] && this.focus(lines[at + 1]),
      ArrowUp: () => lines[at - 1] && this.focus(lines[at - 1]),
      ArrowRight: () => (open ? lines[at + 1] && this.focus(lines[at + 1]) : this.toggle(found.node, true)),
      ArrowLeft: () => {
        const above = found.item.parentElement.closest("[role=treeitem]");
        if (open) this.toggle(found.node, false);
        else if (above) this.focus(above.querySelector(".node"));
      },
      Enter: () => this.choose(found.node.path),
      " ": () => this.choose(found.node.path),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  }
}

// Puts the page together, and keeps table, ribbon, trees and address in step.

class App {
  constructor(index) {
    this.index = index;
    this.two = index.kind === "comparison";
    SIGNS = SIGNS_OF[index.kind];
    const searched = ["left", "left_type", "left_path", "left_source", "spec"];
    if (this.two) searched.push("right", "right_type", "right_path", "right_source");
    this.rows = new Rows(index.rows, index.words, searched);
    this.alone = (index.alone || []).map((columns) => new Rows(columns, index.words, ["name", "type", "path", "source", "because"]));
    this.filters = this.noFilters();
    this.details = new Details(this);
    this.lists = [{ key: "row", label: this.two ? "Pairs" : "Calls", rows: this.rows, columns: pairColumns }];
    this.alone.forEach((rows, at) => this.lists.push({ key: ["left", "right"][at], label: `Only ${["left", "right"][at]}`, rows, columns: aloneColumns }));
    this.current = null;
    this.trees = [];
    for (const id of ["ribbon", "work"]) byId(id).hidden = false;
    this.showSides();
    this.makeFilters();
    this.makeTabs();
    this.ribbon = new Ribbon(this.rows, (row) => this.describe(row), (row) => this.go("row", row));
    this.ribbon.marks = (index.partings || []).map(([row]) => row).filter((row) => row >= 0);
    this.ribbon.middle = this.ribbon.marks[0] ?? 0;
    this.makeTrees();
    this.tab("row");
    this.keys();
    window.addEventListener("hashchange", () => this.route());
    this.route();
  }

  noFilters() {
    return { query: "", outcomes: new Set(), kind: null, phase: null, step: null, rank: null, module: null, arises: false };
  }

  showSides() {
    const { sides, policy } = this.index;
    const side = (item) => el("span", { class: "side", title: Object.entries(item.environment).map(([name, value]) => `${name}: ${value}`).join("\n") },
      el("b", {}, item.path), ` ${item.framework}`);
    byId("sides").append(side(sides[0]), ...(sides[1] ? [el("span", { class: "quiet" }, " against "), side(sides[1])] : []),
      policy ? el("span", { class: "quiet" }, `  policy ${policy}`) : "");
    const bands = this.two ? ["forward", "backward"] : ["values", "gradients"];
    document.querySelectorAll(".bands").forEach((labels) => bands.forEach((band, at) => (labels.children[at].textContent = band)));
    const left = Number(PAGE_FACTS.pages) - HELD;
    byId("foot").textContent = left > 0 ? `The tensors of ${count(Math.min(this.rows.length, left * this.index.page))} rows are not in this file, to keep it small.` : "";
  }

  describe(row) {
    const { rows, index } = this;
    const { columns } = rows;
    const direction = (name) => (name === "forward" && isUpdate(index, columns, row) ? "update" : name);
    const arises = (name) => (columns.flags[row] & FLAGS[name] ? " (arises here)" : "");
    const verdict = (name) => (columns[name][row] === NOTHING ? null : `${direction(name)} ${index.outcomes[columns[name][row]]}${arises(name)}`);
    return [
      `${count(row)}  ${rows.word("left", row)}`,
      ...(this.two ? [rows.word("right", row)] : []),
      [verdict("forward"), verdict("backward"), `step ${columns.step[row]}`].filter(Boolean).join(", "),
    ];
  }

  makeTabs() {
    const tabs = this.lists.map((list) => {
      list.tab = el("button", { type: "button", role: "tab", "aria-selected": "false", "aria-controls": "grid" }, list.label, el("span", { class: "number" }, count(list.rows.length)));
      list.tab.addEventListener("click", () => this.tab(list.key));
      return list.tab;
    });
    byId("tabs").append(...tabs);
    byId("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = this.lists[clamp(this.lists.indexOf(this.current) + step, 0, this.lists.length - 1)];
      this.tab(next.key);
      next.tab.focus();
    });
  }

  tab(key) {
    const list = this.lists.find((item) => item.key === key);
    if (list === this.current) return;
    for (const item of this.lists) {
      item.tab.setAttribute("aria-selected", String(item === list));
      item.tab.tabIndex = item === list ? 0 : -1;
      if (item.element) item.element.hidden = item !== list;
    }
    this.current = list;
    if (!list.table) {
      const inner = el("div", { class: "rows" });
      list.element = el("div", { class: "grid" }, inner);
      byId("grid").append(list.element);
      list.table = new Table(inner, list.rows, list.columns(list.rows, this.index), (row) => this.go(key, row));
    }
    byId("outcomes").hidden = key !== "row";
    this.apply();
    list.table.grid.resizeCanvas();
  }

  makeFilters() {
    const { index, rows } = this;
    byId("search").addEventListener("input", (event) => {
      this.filters.query = event.target.value;
      this.apply();
    });
    const totals = index.outcomes.map(() => 0);
    for (const outcome of rows.worst) totals[outcome]++;
    this.buttons = index.outcomes.map((label, outcome) => {
      if (!label) return null;
      const button = el("button", { type: "button", class: "toggle", "aria-pressed": "false", disabled: !totals[outcome] },
        el("span", { class: "mark", "aria-hidden": "true", "data-outcome": outcome }, SIGNS[outcome]), label, el("span", { class: "number" }, count(totals[outcome])));
      button.addEventListener("click", () => {
        const { outcomes } = this.filters;
        if (!outcomes.delete(outcome)) outcomes.add(outcome);
        this.apply();
      });
      return button;
    });
    this.arises = el("button", { type: "button", class: "toggle", "aria-pressed": "false", title: "The inputs agree, the outputs do not" }, `${ARISES} arises here`);
    this.arises.addEventListener("click", () => {
      this.filters.arises = !this.filters.arises;
      this.apply();
    });
    byId("outcomes").append(...this.buttons.filter(Boolean), ...(this.two ? [this.arises] : []));
    this.choices = {};
    for (const [name, labels] of [["kind", index.kinds], ["phase", index.phases], ["step", null], ["rank", null]]) {
      const values = [...new Set([rows, ...this.alone].flatMap((list) => [...new Set(list.columns[name])]))].sort((a, b) => a - b);
      if (values.length < 2) continue;
      const select = el("select", { "aria-label": name, id: `choose-${name}` }, el("option", { value: "" }, `any ${name}`),
        values.map((value) => el("option", { value }, labels ? labels[value] : `${name} ${value}`)));
      select.addEventListener("change", () => {
        this.filters[name] = select.value === "" ? null : Number(select.value);
        this.apply();
      });
      this.choices[name] = select;
      byId("choices").append(select);
    }
    this.module = el("button", { type: "button", class: "toggle module", "aria-pressed": "true", title: "All modules again", hidden: true });
    this.module.addEventListener("click", () => this.chooseModule(null, null));
    byId("choices").append(this.module);
    byId("reset").addEventListener("click", () => this.reset());
  }

  reset() {
    this.filters = this.noFilters();
    byId("search").value = "";
    for (const select of Object.values(this.choices)) select.value = "";
    this.apply();
  }

  // Filters apply to the list that is open; the ribbon shows what they keep of the rows.
  apply() {
    const { filters, current } = this;
    let chosen = filters;
    if (filters.module && current.key !== "row") {
      const column = filters.module.column === `${current.key}_path` ? "path" : null;
      chosen = { ...filters, module: column && { ...filters.module, column } };
    }
    current.rows.filter(chosen);
    current.table.show();
    const shown = current.rows.view.length;
    byId("shown").textContent = shown === current.rows.length ? `${count(shown)} rows` : `${count(shown)} of ${count(current.rows.length)} rows`;
    byId("empty").hidden = shown > 0;
    this.buttons.forEach((button, outcome) => button && button.setAttribute("aria-pressed", String(filters.outcomes.has(outcome))));
    this.arises.setAttribute("aria-pressed", String(filters.arises));
    this.module.hidden = !filters.module;
    if (filters.module) this.module.replaceChildren(`${this.two ? `${filters.module.side} ` : ""}${filters.module.path}`, el("span", { class: "number" }, "✕"));
    this.trees.forEach(({ tree, side }) => tree.select(filters.module && filters.module.side === side ? filters.module.path : null));
    if (current.key === "row") this.redrawRibbon();
  }

  redrawRibbon() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      this.ribbon.draw();
    });
  }

  makeTrees() {
    const sides = this.two ? ["left", "right"] : ["left"];
    for (const side of sides) {
      const tree = new Tree(growTree(this.rows, `${side}_path`), (path) => this.chooseModule(side, path), this.two ? `Modules, ${side}` : "Modules", this.two);
      this.trees.push({ tree, side });
      const head = el("h2", {}, this.two ? `Modules, ${side}` : "Modules");
      const none = tree.root.children.size ? null : el("p", { class: "quiet" }, "no modules in this record");
      byId("modules").append(el("section", {}, head, el("div", { class: "scroll" }, tree.element, none)));
      for (const [row] of this.index.partings || []) if (row >= 0) tree.reveal(this.rows.word(`${side}_path`, row));
    }
  }

  chooseModule(side, path) {
    const { module } = this.filters;
    const same = module && module.side === side && module.path === path;
    this.filters.module = path === null || same ? null : { side, path, column: `${side}_path` };
    this.apply();
  }

  go(what, row) {
    const hash = `#${what}=${row}`;
    if (location.hash === hash) this.route();
    else history.replaceState(null, "", hash), this.route(); // no entry in the history for each arrow key
  }

  route() {
    const found = /^#(row|left|right)=(\d+)$/.exec(location.hash);
    const list = found && this.lists.find((item) => item.key === found[1]);
    if (!list || Number(found[2]) >= list.rows.length) return;
    const row = Number(found[2]);
    this.tab(list.key);
    const before = this.details.wanted;
    this.details.show(list.key, row);
    this.lists.forEach((item) => item.table && item.table.select(item === list ? row : -1, !before || item === list));
    this.ribbon.select(list.key === "row" ? row : -1);
    if (!before && byId("work").getBoundingClientRect().top > window.innerHeight * 0.7) byId("work").scrollIntoView({ block: "start" });
  }

  close() {
    this.details.close();
    history.replaceState(null, "", location.pathname + location.search);
    this.lists.forEach((item) => item.table && item.table.select(-1, false));
    this.ribbon.select(-1);
    byId("search").focus({ preventScroll: true });
  }

  // The next row of the list as it is filtered and ordered.
  step(by, test) {
    const { view } = this.current.rows;
    const open = this.details.wanted;
    let at = open && open.what === this.current.key ? view.indexOf(open.row) + by : by > 0 ? 0 : view.length - 1;
    while (test && at >= 0 && at < view.length && !test(view[at])) at += by;
    if (at >= 0 && at < view.length) this.go(this.current.key, view[at]);
  }

  keys() {
    const different = (row) => this.current.key !== "row" || this.rows.worst[row] === DIFFERENT;
    const actions = {
      "/": () => byId("search").focus(),
      j: () => this.step(1),
      k: () => this.step(-1),
      n: () => this.step(1, different),
      p: () => this.step(-1, different),
      Escape: () => this.details.wanted && this.close(),
    };
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      if (event.ctrlKey || event.metaKey || event.altKey || (typing && event.key !== "Escape") || !actions[event.key]) return;
      if (typing && byId("search").value) {
        byId("search").value = "";
        this.filters.query = "";
        this.apply();
        return;
      }
      event.preventDefault();
      actions[event.key]();
    });
    byId("ribbon-hint").textContent = "click a cell to open it; keys: / search, j k next and previous row, n p next and previous difference, Esc close";
  }

  recolour() {
    for (const dot of document.querySelectorAll("[data-outcome]")) {
      const outcome = Number(dot.dataset.outcome);
      paint(dot, outcome, [0, 250, 0, 900][outcome]);
    }
    const swatch = (background, width) => el("span", { class: "scale", style: { background, width } });
    const ramp = `linear-gradient(90deg, ${[0, 1, 250, 500, 501, 750, 1000].map((score) => SCALE[score]).join(", ")})`;
    const legend = this.two ? ["same", swatch(ramp, "120px"), "far beyond rounding", el("span", { class: "aside" }, `${ARISES} where a difference arises; taller: worse`)] : [swatch(SCALE[0], "10px"), "finite", swatch(SCALE[1000], "10px"), "not finite"];
    const aside = el("span", { class: "aside" }, swatch(greys.unknown, "10px"), "unknown", swatch(greys.nothing, "10px"), "nothing there");
    byId("legend").replaceChildren(...legend, aside);
    this.trees.forEach(({ tree }) => tree.recolour());
    this.lists.forEach((list) => list.table && (list.table.grid.invalidateAllRows(), list.table.grid.render()));
    this.ribbon.draw();
    const open = this.details.wanted;
    if (open) this.details.show(open.what, open.row);
  }
}

let app = null;

async function start() {
  startTheme(() => app && app.recolour());
  if (!canUnpack()) throw new Error("This browser cannot unpack the data in this file: it needs Chromium 93, Firefox 113, Safari 16.4 or later. The verdict above is complete.");
  const index = await load("index");
  app = new App(index);
  app.recolour();
  document.documentElement.dataset.ready = "yes";
  setTimeout(() => app.rows.prepare(), 100); // before the first key, and after the first picture
}

start().catch((error) => {
  const place = byId("problem");
  place.hidden = false;
  place.textContent = error.message;
});

// Puts the page together, and keeps table, ribbon, trees, graph, curves and address in step.

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
    this.panels = [];
    if (PAGE_FACTS.graph) this.panels.push({ key: "graph", label: "Graph", make: (element) => this.makeGraph(element) });
    if (this.two || (index.curves || []).length) this.panels.push({ key: "curves", label: "Curves", make: (element) => new Charts(this, element) });
    this.current = null;
    this.panel = null;
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
    relink();
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
    const all = [...this.lists, ...this.panels];
    const tabs = all.map((item) => {
      item.tab = el("button", { type: "button", role: "tab", "aria-selected": "false", "aria-controls": "grid" }, item.label, item.rows ? el("span", { class: "number" }, count(item.rows.length)) : null);
      item.tab.addEventListener("click", () => this.turn(item.key));
      return item.tab;
    });
    byId("tabs").append(...tabs);
    byId("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = all[clamp(all.indexOf(this.panel || this.current) + step, 0, all.length - 1)];
      this.turn(next.key);
      next.tab.focus();
    });
  }

  // To another tab. The address has it, so that a link leads to the graph.
  turn(key) {
    this.tab(key);
    this.address();
  }

  tab(key) {
    const panel = this.panels.find((item) => item.key === key) || null;
    const list = panel ? this.current : this.lists.find((item) => item.key === key);
    if (list === this.current && panel === this.panel) return;
    for (const item of [...this.lists, ...this.panels]) {
      const shown = item === (panel || list);
      item.tab.setAttribute("aria-selected", String(shown));
      item.tab.tabIndex = shown ? 0 : -1;
      if (item.element) item.element.hidden = !shown;
    }
    this.panel = panel;
    byId("work").classList.toggle("drawn", Boolean(panel));
    byId("outcomes").hidden = key !== "row" && key !== "graph";
    byId("filters").hidden = key === "curves";
    if (panel) return this.showPanel(panel);
    this.current = list;
    if (!list.table) {
      const inner = el("div", { class: "rows" });
      list.element = el("div", { class: "grid" }, inner);
      byId("grid").append(list.element);
      list.table = new Table(inner, list.rows, list.columns(list.rows, this.index), (row) => this.go(key, row));
    }
    this.apply();
    list.table.grid.resizeCanvas();
    const open = this.details.wanted;
    list.table.select(open && open.what === key ? open.row : -1, true);
  }

  showPanel(panel) {
    if (!panel.element) {
      panel.element = el("div", { class: `panel ${panel.key}` });
      byId("grid").append(panel.element);
      panel.shown = panel.make(panel.element);
    } else {
      panel.shown.draw?.();
    }
    this.apply();
    this.graph?.update();
  }

  // Data and layout library of the graph are unpacked when it is first looked at.
  makeGraph(element) {
    element.append(el("p", { class: "quiet" }, "Reading the graph …"));
    Promise.all([load("graph"), layoutLibrary()]).then(([data]) => {
      element.replaceChildren();
      this.graph = new Graph(this, data, element);
      this.graph.update();
    }).catch((error) => element.replaceChildren(el("p", { class: "problem" }, error.message)));
    return {};
  }

  // The step and rank of the pictures: of the row that is open, of the filters, of the place where the runs part.
  place() {
    const { columns, length } = this.rows;
    const { step, rank } = this.filters;
    const open = this.details.wanted;
    const fits = (row) => (step === null || columns.step[row] === step) && (rank === null || columns.rank[row] === rank);
    let row = open && open.what === "row" ? open.row : (this.index.partings || []).map(([at]) => at).find((at) => at >= 0 && fits(at)) ?? 0;
    if (!open) while (row < length && !fits(row)) row++;
    return row < length ? [columns.step[row], columns.rank[row]] : [step ?? 0, rank ?? 0];
  }

  makeFilters() {
    const { index, rows } = this;
    byId("search").addEventListener("input", (event) => {
      this.filters.query = event.target.value;
      this.apply();
    });
    byId("search").addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1);
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

  unfiltered() {
    const { query, outcomes, arises, module, kind, phase, step, rank } = this.filters;
    return !query.trim() && !outcomes.size && !arises && !module && [kind, phase, step, rank].every((value) => value === null);
  }

  filterList(list) {
    const { filters } = this;
    let chosen = filters;
    if (filters.module && list.key !== "row") {
      const column = filters.module.column === `${list.key}_path` ? "path" : null;
      chosen = { ...filters, module: column && { ...filters.module, column } };
    }
    list.rows.filter(chosen);
  }

  // Filters apply to the list that is open, in the graph to all of them; the ribbon shows what they keep of the rows.
  apply() {
    const { filters, current } = this;
    if (this.panel) this.lists.forEach((list) => this.filterList(list));
    else this.filterList(current);
    current.table?.show();
    const shown = current.rows.view.length;
    byId("shown").textContent = shown === current.rows.length ? `${count(shown)} rows` : `${count(shown)} of ${count(current.rows.length)} rows`;
    byId("empty").hidden = shown > 0;
    this.buttons.forEach((button, outcome) => button && button.setAttribute("aria-pressed", String(filters.outcomes.has(outcome))));
    this.arises.setAttribute("aria-pressed", String(filters.arises));
    this.module.hidden = !filters.module;
    if (filters.module) this.module.replaceChildren(`${this.two ? `${filters.module.side} ` : ""}${filters.module.path}`, el("span", { class: "number" }, "✕"));
    this.trees.forEach(({ tree, side }) => tree.select(filters.module && filters.module.side === side ? filters.module.path : null));
    if (current.key === "row" || this.panel) this.redrawRibbon();
    if (this.panel?.key === "graph" && this.graph) {
      const [step, rank] = this.graph.wanted();
      if (!this.graph.place || step !== this.graph.place[0] || rank !== this.graph.place[1]) this.graph.update();
      this.graph.filter();
    }
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
    if (this.filters.module && this.panel?.key === "graph") this.graph?.showModule(side, path);
  }

  go(what, row) {
    this.address({ what, row });
    this.route();
  }

  // No entry in the history for each arrow key.
  address(open = this.details.wanted) {
    const parts = [open && `${open.what}=${open.row}`, this.panel && `view=${this.panel.key}`].filter(Boolean);
    history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
  }

  route() {
    const asked = new Map(location.hash.slice(1).split("&").map((part) => part.split("=")));
    const panel = this.panels.find((item) => item.key === asked.get("view"));
    if (panel) this.tab(panel.key);
    const list = this.lists.find((item) => /^\d+$/.test(asked.get(item.key)) && Number(asked.get(item.key)) < item.rows.length);
    if (!list) return;
    const row = Number(asked.get(list.key));
    const before = this.details.wanted;
    this.details.show(list.key, row);
    if (!this.panel) this.tab(list.key);
    else if (this.current !== list) this.current = list;
    this.lists.forEach((item) => item.table && item.table.select(item === list ? row : -1, !before || item === list));
    this.ribbon.select(list.key === "row" ? row : -1);
    this.trees.forEach(({ tree, side }) => tree.show(list.key === "row" ? this.rows.word(`${side}_path`, row) : list.key === side ? list.rows.word("path", row) : null));
    if (this.panel?.key === "graph") this.graph?.update();
    if (!before && byId("work").getBoundingClientRect().top > window.innerHeight * 0.7) byId("work").scrollIntoView({ block: "start" });
  }

  close() {
    this.details.close();
    this.address();
    this.lists.forEach((item) => item.table && item.table.select(-1, false));
    this.ribbon.select(-1);
    this.trees.forEach(({ tree }) => tree.show(null));
    if (this.panel?.key === "graph") this.graph?.update();
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
    this.graph?.recolour();
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

// The table: only the rows on the screen exist as elements.

function chip(outcome, score, label, arises) {
  if (outcome === NOTHING) return el("span", { class: "quiet" }, "–");
  const title = arises ? `${label}: what comes in agrees, the difference arises here` : label;
  return el("span", { class: "chip", title }, mark(outcome, score, arises), label);
}

// An optimizer's step is neither forward nor backward.
const isUpdate = (index, columns, row) => index.phases[columns.phase[row]] === "update";

function pairColumns(rows, index) {
  const { columns } = rows;
  const named = (side) => (row) => {
    const name = rows.word(side, row);
    const type = rows.word(`${side}_type`, row);
    const number = columns[`${side}_call`][row];
    const tail = `${number ? `#${number}` : ""}${type ? `  ${type}` : ""}`;
    return el("span", { title: `${name}${tail}` }, name, el("span", { class: "quiet" }, tail));
  };
  const verdict = (name) => (row) => chip(columns[name][row], columns[`${name}_score`][row],
    `${name === "forward" && isUpdate(index, columns, row) ? "update " : ""}${index.outcomes[columns[name][row]]}`, columns.flags[row] & FLAGS[name]);
  const badness = (name) => (row) => (columns[name][row] === NOTHING ? -1 : columns[name][row] * 2000 + columns[`${name}_score`][row]);
  const measured = (name) => ({ show: (row) => format(columns[name][row]), sort: { number: (row) => sortable(columns[name][row]) }, right: true });
  const text = (name) => ({ show: (row) => rows.word(name, row), sort: { words: true, column: name }, code: name !== "because" });
  const two = index.kind === "comparison";
  return [
    { id: "row", name: "#", width: 64, show: (row) => count(row), sort: { number: (row) => row }, right: true },
    { id: "forward", name: two ? "forward" : "values", width: 132, show: verdict("forward"), sort: { number: badness("forward") } },
    { id: "backward", name: two ? "backward" : "gradients", width: 112, show: verdict("backward"), sort: { number: badness("backward") } },
    { id: "left", name: two ? "left" : "call", width: two ? 240 : 320, show: named("left"), sort: { words: true, column: "left" }, code: true },
    ...(two ? [{ id: "right", name: "right", width: 240, show: named("right"), sort: { words: true, column: "right" }, code: true }] : []),
    { id: "spec", name: "tensor", width: 130, ...text("spec") },
    ...(two ? [
      ...["forward", "backward"].flatMap((direction) => [["max_abs", "max abs"], ["max_rel", "max rel"], ["cosine", "cosine"], ["ratio", "error / bound"]]
        .map(([name, label]) => ({ id: `${direction}_${name}`, name: direction === "forward" ? label : `grad ${label}`,
          width: name === "ratio" ? 132 : 112, ...measured(`${direction}_${name}`) }))),
    ] : [
      { id: "min", name: "min", width: 96, ...measured("min") },
      { id: "max", name: "max", width: 96, ...measured("max") },
      { id: "mean", name: "mean", width: 96, ...measured("mean") },
      { id: "norm", name: "norm", width: 96, ...measured("norm") },
    ]),
    { id: "left_path", name: "module", width: 150, ...text("left_path") },
    { id: "kind", name: "kind", width: 80, show: (row) => index.kinds[columns.kind[row]], sort: { number: (row) => columns.kind[row] } },
    { id: "phase", name: "phase", width: 84, show: (row) => index.phases[columns.phase[row]], sort: { number: (row) => columns.phase[row] } },
    { id: "step", name: "step", width: 68, ...measured("step") },
    { id: "rank", name: "rank", width: 68, ...measured("rank") },
    { id: "source", name: "source", width: 130, ...text("left_source") },
  ];
}

function aloneColumns(rows, index) {
  const { columns } = rows;
  const text = (name) => ({ show: (row) => rows.word(name, row), sort: { words: true, column: name }, code: name !== "because" });
  const measured = (name) => ({ show: (row) => format(columns[name][row]), sort: { number: (row) => columns[name][row] }, right: true });
  const name = (row) => {
    const tail = `${columns.call[row] ? `#${columns.call[row]}` : ""}${rows.word("type", row) ? `  ${rows.word("type", row)}` : ""}`;
    return el("span", {}, rows.word("name", row), el("span", { class: "quiet" }, tail));
  };
  return [
    { id: "row", name: "#", width: 64, show: (row) => count(row), sort: { number: (row) => row }, right: true },
    { id: "name", name: "call", width: 260, show: name, sort: { words: true, column: "name" }, code: true },
    { id: "because", name: "why it has no partner", width: 380, ...text("because") },
    { id: "skipped", name: "matters", width: 96, show: (row) => (columns.skipped[row] ? "no" : "yes"), sort: { number: (row) => columns.skipped[row] } },
    { id: "path", name: "module", width: 180, ...text("path") },
    { id: "kind", name: "kind", width: 80, show: (row) => index.kinds[columns.kind[row]], sort: { number: (row) => columns.kind[row] } },
    { id: "phase", name: "phase", width: 84, show: (row) => index.phases[columns.phase[row]], sort: { number: (row) => columns.phase[row] } },
    { id: "step", name: "step", width: 68, ...measured("step") },
    { id: "rank", name: "rank", width: 68, ...measured("rank") },
    { id: "source", name: "source", width: 130, ...text("source") },
  ];
}

class Table {
  constructor(element, rows, columns, open) {
    Object.assign(this, { rows, open });
    this.order = null;
    this.selected = -1;
    const data = {
      getLength: () => rows.view.length,
      getItem: (at) => ({ row: rows.view[at] }),
      getItemMetadata: (at) => (rows.view[at] === this.selected ? { cssClasses: "open-row" } : null),
    };
    const shaped = columns.map((column) => ({
      id: column.id,
      name: column.name,
      field: column.id,
      width: column.width,
      sortable: true,
      sort: column.sort,
      cssClass: column.right ? "number" : column.code ? "code" : "",
      headerCssClass: column.right ? "number" : "",
      formatter: (_at, _cell, _value, _column, item) => column.show(item.row),
    }));
    this.grid = new Slick.SlickGrid(element, data, shaped, {
      rowHeight: 28,
      enableCellNavigation: true,
      enableColumnReorder: false,
      enableHtmlRendering: false, // what a formatter gives as a text stays a text
      enableTextSelectionOnCells: true,
      suppressCssChangesOnHiddenInit: true,
      explicitInitialization: false,
    });
    // A grid may have rows for children, or groups of them: what takes the keys goes beside it, and only the rows are walked through.
    element.before(this.grid._focusSink);
    element.after(this.grid._focusSink2);
    for (const pane of element.querySelectorAll(".slick-pane, .slick-viewport")) pane.removeAttribute("tabindex");
    for (const canvas of element.querySelectorAll(".grid-canvas")) canvas.setAttribute("role", "rowgroup");
    this.grid.onSort.subscribe((_event, sort) => {
      this.order = { key: sort.sortCol.sort, descending: !sort.sortAsc };
      this.show();
    });
    this.grid.onClick.subscribe((_event, at) => this.open(rows.view[at.row]));
    this.grid.onKeyDown.subscribe((event) => {
      const cell = this.grid.getActiveCell();
      if (event.key !== "Enter" || !cell) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      this.open(rows.view[cell.row]);
    });
    this.grid.onActiveCellChanged.subscribe((_event, at) => {
      if (this.following() && at.row !== undefined && rows.view[at.row] !== undefined) this.open(rows.view[at.row]);
    });
    new ResizeObserver(() => this.grid.resizeCanvas()).observe(element);
  }

  // With a row open, moving in the table opens the next one.
  following() {
    return !byId("details").hidden && this.selected >= 0;
  }

  show() {
    if (this.order) this.rows.sort(this.order.key, this.order.descending);
    this.grid.resetActiveCell();
    this.grid.invalidateAllRows();
    this.grid.updateRowCount();
    this.grid.render();
  }

  select(row, scroll) {
    this.selected = row;
    this.grid.invalidateAllRows();
    this.grid.render();
    const at = row >= 0 && scroll ? this.rows.view.indexOf(row) : -1;
    if (at >= 0) {
      const range = this.grid.getViewport();
      if (at < range.top + 1 || at > range.bottom - 2) this.grid.scrollRowToTop(Math.max(0, at - 3));
    }
  }
}

// One row: both calls side by side, then their tensors.

class Details {
  constructor(app) {
    this.app = app;
    this.element = byId("details");
    this.wanted = null;
  }

  close() {
    this.wanted = null;
    this.element.hidden = true;
    this.element.replaceChildren();
  }

  async show(what, row) {
    const wanted = (this.wanted = { what, row });
    const { app } = this;
    const rows = what === "row" ? app.rows : app.alone[what === "left" ? 0 : 1];
    this.element.hidden = false;
    const title = what === "row" ? this.rowTitle(rows, row) : this.aloneTitle(rows, row, what);
    const body = el("div", { class: "body" }, el("p", { class: "quiet" }, "…"));
    const bar = el("div", { class: "bar" },
      el("button", { type: "button", class: "small", title: "The row before (k)", onclick: () => app.step(-1) }, "↑"),
      el("button", { type: "button", class: "small", title: "The next row (j)", onclick: () => app.step(1) }, "↓"),
      el("span", { class: "quiet grow" }, `${what === "row" ? "row" : `only ${what},`} ${count(row)}`),
      el("button", { type: "button", class: "small", title: "Close (Esc)", "aria-label": "Close", onclick: () => app.close() }, "✕"));
    this.element.replaceChildren(bar, title, body);
    this.element.scrollTop = 0;
    try {
      const parts = what === "row" ? await this.rowParts(rows, row) : await this.aloneParts(rows, row, what);
      if (this.wanted === wanted) body.replaceChildren(...parts.flat().filter(Boolean));
    } catch (error) {
      if (this.wanted === wanted) body.replaceChildren(el("p", { class: "problem" }, error.message));
    }
  }

  rowTitle(rows, row) {
    const { index } = this.app;
    const { columns } = rows;
    const two = index.kind === "comparison";
    const side = (name) => {
      const number = columns[`${name}_call`][row];
      const type = rows.word(`${name}_type`, row);
      return [rows.word(name, row), el("span", { class: "quiet" }, `${number ? ` #${number}` : ""}${type ? ` ${type}` : ""}`)];
    };
    const verdict = (name, label) => columns[name][row] === NOTHING ? null : el("span", { class: "verdict" }, el("span", { class: "quiet" }, `${label} `),
      chip(columns[name][row], columns[`${name}_score`][row], index.outcomes[columns[name][row]], columns.flags[row] & FLAGS[name]));
    const place = `${index.kinds[columns.kind[row]]}, ${index.phases[columns.phase[row]]}, step ${columns.step[row]}, rank ${columns.rank[row]}`;
    return el("header", {},
      el("h2", {}, side("left")),
      two ? el("h2", { class: "other" }, side("right")) : null,
      el("p", {}, verdict("forward", isUpdate(index, columns, row) ? "update" : two ? "forward" : "values"), " ", verdict("backward", two ? "backward" : "gradients")),
      el("p", { class: "quiet" }, place));
  }

  aloneTitle(rows, row, side) {
    const { columns } = rows;
    return el("header", {}, el("h2", {}, rows.word("name", row), el("span", { class: "quiet" }, ` #${columns.call[row]} ${rows.word("type", row)}`)),
      el("p", {}, `Only on the ${side}: ${rows.word("because", row)}`),
      columns.skipped[row] ? el("p", { class: "quiet" }, "It does not matter: no result depends on it.") : null);
  }

  async aloneParts(rows, row, side) {
    const calls = await load("calls");
    const [stack, config, args] = calls.alone[side === "left" ? 0 : 1][row];
    return [
      section("Source", el("div", {}, editorChoice(), stackOf(calls, stack))),
      section("Configuration", configTable(calls.configs[config], null, {}, false)),
      section("Arguments", argumentsTable(calls.arguments[args], null, false)),
    ];
  }

  async rowParts(rows, row) {
    const { index } = this.app;
    const two = index.kind === "comparison";
    const position = rows.position[row];
    const number = Math.floor(position / index.page);
    const calls = await load("calls");
    const held = number < HELD;
    const page = held ? await load(`page-${number}`) : null;
    const found = page && page[position % index.page];
    const sides = two ? ["left", "right"] : ["left"];
    const lists = sides.map((side) => calls.rows[side][row]);
    const first = lists.map((list) => list[0] || null);
    const settings = two ? Object.fromEntries(calls.settings[calls.rows.settings[row]].map(([name, left, right]) => [name, [left, right]])) : {};
    const config = first.map((call) => (call ? calls.configs[call[1]] : null));
    const args = first.map((call) => (call ? calls.arguments[call[2]] : null));
    return [
      found && this.verdicts(found, index, isUpdate(index, rows.columns, row)),
      two && pairing(calls, row),
      section("Source", el("div", {}, editorChoice(), el("div", { class: "two" }, sides.map((side, at) => el("div", {}, two ? el("h4", {}, side) : null,
        lists[at].length > 1 ? lists[at].map((call) => el("details", { open: call === lists[at][0] },
          el("summary", {}, el("code", {}, call[3]), ` ${call[4]}`), stackOf(calls, call[0]))) : first[at] ? stackOf(calls, first[at][0]) : el("p", { class: "quiet" }, "a gradient that reached a parameter")))))),
      section("Configuration", configTable(config[0], config[1], settings, two)),
      section("Arguments", argumentsTable(args[0], args[1], two)),
      section("Set differently", settingsTable(settings, [...config.map((found) => found && found[1]), ...args.map((found) => found && Object.fromEntries(found))])),
      found ? section("Tensors", this.tensors(found, row, two)) : el("p", { class: "problem" },
        `The tensors of this row are not in this file, which holds those of the ${count(HELD * index.page)} rows that tell most. `,
        "Write the report as JSON and open that with twintrace view: it has those of all rows."),
    ];
  }

  verdicts(found, index, update) {
    const line = (name) => {
      const verdict = found[name];
      if (!verdict) return null;
      return el("p", { class: "because" }, el("b", {}, `${update && name === "forward" ? "update" : name}: `), verdict[1], sizeOf(verdict));
    };
    const mistakes = (found.mistakes || []).map(([what, why, effective]) => el("p", { class: "because" },
      what ? [el("b", {}, effective ? "mistake: " : "mistake without effect on any result: "), what, el("br")] : null, el("b", {}, "why: "), why));
    return index.kind === "comparison" ? [line("forward"), line("backward"), ...mistakes] : [];
  }

  async heat(row, tensor) {
    const position = this.app.rows.position[row];
    const number = Math.floor(position / this.app.index.page);
    if (number >= PICTURED) return null;
    return (await load(`heat-${number}`))[position % this.app.index.page][tensor];
  }

  tensors(found, row, two) {
    const { index, rows } = this.app;
    const step = rows.columns.step[row];
    const rank = rows.columns.rank[row];
    const said = new Set([found.forward, found.backward].filter(Boolean).map((verdict) => verdict[1])); // above, of the row
    const worst = found.tensors.reduce((best, item, at) => (badnessOf(item) > badnessOf(found.tensors[best] || item) ? at : best), 0);
    const items = found.tensors.map((item, at) => {
      const [[part, leftSlot, rightSlot, layout, because, pass], left, given, verdict, equal, measurement, differences, terms] = item;
      const right = given === 0 ? left : given; // 0: there is nothing to tell them apart
      const specs = two && left[0] !== right[0] ? `${left[0]} | ${right[0]}` : left[0];
      const summary = el("summary", {},
        verdict ? chip(verdict[0], verdict[4], index.outcomes[verdict[0]], 0) : null,
        el("span", { class: "slot" }, tensorTitle(part, leftSlot, two ? rightSlot : undefined), pass ? ` (pass ${pass})` : ""),
        el("code", {}, specs),
        measurement ? el("span", { class: "quiet" }, `max abs ${format(measurement[0][0])}`) : null);
      const more = el("details", { class: "tensor", open: two ? at === worst && (verdict[0] !== 0 || found.tensors.length === 1) : part === "output" || verdict[0] === DIFFERENT }, summary);
      const fill = () => {
        if (more.dataset.filled) return;
        more.dataset.filled = "yes";
        const missing = [["left", left], ["right", right]].filter(([, side]) => side && side[3]);
        more.append(...[
          two && verdict[1] && !said.has(verdict[1]) ? el("p", {}, verdict[1], sizeOf(verdict)) : null,
          two && because ? el("p", { class: "quiet" }, `Paired because ${because}.`) : null,
          two && layout !== "as it is" ? el("p", { class: "quiet" }, `The right one is laid out anew: ${layout}.`) : null,
          equal && !/\bbit/.test(verdict[1]) ? el("p", { class: "quiet" }, "The same bytes on both sides.") : null,
          ...missing.map(([side, tensor]) => el("p", { class: "problem" }, `${two ? `${side}: ` : ""}${tensor[3]}`)),
          two && terms ? termsTable(terms) : null,
          ...(measurement ? measurementParts(measurement, index, () => this.heat(row, at)) : []),
          left[2] || (right && right[2]) ? statisticsTable(left, two ? right : undefined, differences) : null,
          ...[["left", left], ["right", right]].filter(([, side]) => side).map(([side, tensor]) => otherFacts(two ? side : "", tensor)),
          ...[["left", left], ["right", right]].filter(([, side]) => SERVED && index.values && side && side[5] !== null).map(([side, tensor]) => valuesButton(two ? side : "", step, rank, tensor[5])),
        ].filter(Boolean));
      };
      if (more.open) fill();
      more.addEventListener("toggle", fill);
      return more;
    });
    const strays = (found.only || []).flatMap((list, at) => list.map(([part, slot, because]) =>
      el("p", { class: "stray" }, el("b", {}, `only ${at ? "right" : "left"}: `), tensorTitle(part, slot), `: ${because}`)));
    return el("div", {}, items.length ? items : el("p", { class: "quiet" }, two ? "No tensor is on both sides." : "No tensor."), strays);
  }
}

function sizeOf([, , error, bound]) {
  if (error === null) return "";
  return bound === null ? ` (error ${format(error)})` : ` (error ${format(error)}, allowed ${format(bound)})`;
}

const badnessOf = (item) => (item[3] ? item[3][0] * 2000 + item[3][4] : 0);

function otherFacts(side, tensor) {
  const [, device, , , more] = tensor;
  const texts = [device === "cpu" ? "" : device, ...Object.entries(more).map(([name, value]) => `${name}: ${value}`)].filter(Boolean);
  return texts.length ? el("p", { class: "quiet" }, `${side ? `${side}: ` : ""}${texts.join("; ")}`) : null;
}

function section(title, content) {
  return content ? el("section", { class: "part" }, el("h3", {}, title), content) : null;
}

function pairing(calls, row) {
  const because = calls.texts[calls.rows.because[row]];
  return because ? el("p", { class: "because" }, el("b", {}, "paired: "), because, el("span", { class: "quiet" }, ` (confidence ${format(calls.rows.confidence[row])})`)) : null;
}

function stackOf(calls, number) {
  const frames = calls.stacks[number];
  if (!frames.length) return el("p", { class: "quiet" }, "no source line was recorded");
  return el("ol", { class: "stack" }, frames.map(([file, line, name, code]) => {
    const path = calls.texts[file];
    return el("li", {}, el("div", { class: "place" }, sourceLine(path, line), el("span", { class: "quiet" }, ` in ${calls.texts[name]}`)),
      calls.texts[code] ? el("code", {}, calls.texts[code]) : null);
  }));
}

function sideBySide(names, left, right, two, differs) {
  return el("table", { class: "numbers wide" },
    el("thead", {}, el("tr", {}, el("td"), (two ? ["left", "right"] : ["value"]).map((text) => el("th", { scope: "col" }, text)))),
    el("tbody", {}, names.map((name) => el("tr", { class: two && differs(name) ? "differs" : null }, el("th", { scope: "row" }, name),
      el("td", {}, el("code", {}, left(name))), two ? el("td", {}, el("code", {}, right(name))) : null))));
}

function configTable(left, right, settings, two) {
  if (!left && !right) return null;
  const values = [left, right].map((config) => new Map(Object.entries(config ? config[1] : {})));
  const names = [...new Set([...values[0].keys(), ...values[1].keys()])];
  const text = (side) => (name) => (values[side].has(name) ? values[side].get(name) : "–");
  if (!names.length) return null;
  return sideBySide(names, text(0), text(1), two, (name) => Object.hasOwn(settings, name) || text(0)(name) !== text(1)(name));
}

function argumentsTable(left, right, two) {
  const lists = [left || [], right || []];
  if (!lists[0].length && !lists[1].length) return null;
  const values = lists.map((list) => new Map(list));
  const names = [...new Set(lists.flatMap((list) => list.map(([name]) => name)))];
  const text = (side) => (name) => (values[side].has(name) ? values[side].get(name) : "–");
  return sideBySide(names, text(0), text(1), two, (name) => text(0)(name) !== text(1)(name));
}

// Settings that differ and are not among the configurations and the arguments, where they are marked already.
function settingsTable(settings, shown) {
  const names = Object.keys(settings).filter((name) => !shown.some((values) => values && Object.hasOwn(values, name)));
  return names.length ? sideBySide(names, (name) => settings[name][0], (name) => settings[name][1], true, () => true) : null;
}

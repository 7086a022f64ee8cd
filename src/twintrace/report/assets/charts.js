// Curves: the error over the depth of a step and over the steps, with what is allowed as a line; numbers of the runs over their steps.

const CHART = { height: 220, left: 62, right: 16, top: 12, bottom: 30, columns: 480 };

// A number for the axis; what is not finite stands at the top.
const drawable = (value) => (typeof value === "number" ? value : value === null || value === undefined ? null : Infinity);

const power = (exponent) => (exponent >= -3 && exponent <= 3 ? String(10 ** exponent) : `1e${exponent}`);

// The next of 1, 2, 5, 10, 20, …
function round(step) {
  const size = 10 ** Math.floor(Math.log10(step));
  return size * ([1, 2, 5].find((digit) => digit * size >= step * 0.999) || 10);
}

// A scale from [low, high] to [from, to]. Logarithmic: what is 0 or smaller is put at `low`, a step below all others.
function scaleOf(values, log, from, to) {
  const finite = values.filter((value) => Number.isFinite(value) && (!log || value > 0)).map((value) => (log ? Math.log10(value) : value));
  let [low, high] = finite.length ? [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))] : [0, 1];
  const none = log && values.some((value) => value <= 0);
  if (log) [low, high] = [Math.floor(low - 0.3) - (none ? 1 : 0), Math.ceil(high + 0.1)];
  else if (low === high) [low, high] = [low - Math.max(1e-9, Math.abs(low) / 10), high + Math.max(1e-9, Math.abs(high) / 10)];
  const place = (value) => {
    const at = log ? (value > 0 ? Math.log10(value) : low) : value;
    return from + ((clamp(at, low, high) - low) / (high - low)) * (to - from);
  };
  const step = log ? Math.max(1, Math.ceil((high - low) / 6)) : round((high - low) / 5);
  const ticks = [];
  for (let at = log ? low : Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) ticks.push(log ? [10 ** at, none && at === low ? "0" : power(at)] : [at, format(Number(at.toPrecision(6)))]);
  return { place, ticks };
}

// Points that share a pixel are one: the worst of them.
function thinned(points, columns) {
  if (points.length <= columns) return points;
  const first = points[0][0];
  const share = (points[points.length - 1][0] - first + 1) / columns;
  const kept = new Map();
  const rank = (point) => (point[3] ? 1e6 : 0) + Math.log10(Math.max(point[1], 1e-30));
  for (const point of points) {
    const column = Math.floor((point[0] - first) / share);
    if (!kept.has(column) || rank(point) > rank(kept.get(column))) kept.set(column, point);
  }
  return [...kept.values()];
}

// `series`: [{ name, line, dash, points: [[x, y, row, arises], …] }]; `bound`: a level to draw; `describe(point)`: its words.
function chart({ title, series, bound, log, across, describe, open, width, about }) {
  const drawn = series.map((one) => ({ ...one, points: thinned(one.points.filter(([, y]) => y !== null), CHART.columns) }));
  const all = drawn.flatMap((one) => one.points);
  const [left, right, top, bottom] = [CHART.left, width - CHART.right, CHART.top, CHART.height - CHART.bottom];
  const x = scaleOf(all.map(([at]) => at), false, left, right);
  const y = scaleOf([...all.map(([, value]) => value), ...(bound ? [bound] : [])], log, bottom, top);
  const xs = x.ticks.map(([at]) => at).filter(Number.isInteger);
  const text = (where, content, more) => svg("text", { ...where, class: "axis", ...more }, document.createTextNode(content));
  const parts = [
    ...y.ticks.flatMap(([value, label]) => [
      svg("line", { x1: left, x2: right, y1: y.place(value).toFixed(1), y2: y.place(value).toFixed(1), class: "grid-line" }),
      text({ x: left - 8, y: (y.place(value) + 4).toFixed(1) }, label, { "text-anchor": "end" })]),
    ...xs.map((at) => text({ x: x.place(at).toFixed(1), y: bottom + 16 }, count(at), { "text-anchor": "middle" })),
    text({ x: right, y: CHART.height - 2 }, across, { "text-anchor": "end" }),
  ];
  if (bound) {
    const level = y.place(bound).toFixed(1);
    parts.push(svg("line", { x1: left, x2: right, y1: level, y2: level, class: "bound" }), text({ x: right, y: (y.place(bound) - 5).toFixed(1) }, "what is allowed", { "text-anchor": "end", class: "axis bound-name" }));
  }
  drawn.forEach((one, number) => {
    if (one.line && one.points.length > 1) {
      parts.push(svg("polyline", { points: one.points.map(([a, b]) => `${x.place(a).toFixed(1)},${y.place(b).toFixed(1)}`).join(" "), class: `curve curve-${number}` }));
    }
    if (one.line && one.points.length > 200) return;
    for (const point of one.points) {
      const [a, b] = [x.place(point[0]), y.place(point[1])];
      const shape = point[3] ? svg("path", { d: `M${a} ${b - 6}L${a + 6} ${b}L${a} ${b + 6}L${a - 6} ${b}Z` }) : svg("circle", { cx: a.toFixed(1), cy: b.toFixed(1), r: one.line ? 2.5 : 3.2 });
      shape.setAttribute("class", `point point-${number}${bound && !one.line && point[1] > bound ? " beyond" : ""}${point[3] ? " arises" : ""}`);
      shape.append(svg("title", {}, document.createTextNode(describe(point, one))));
      if (open && point[2] !== undefined) {
        shape.classList.add("opens");
        shape.addEventListener("click", () => open(point[2]));
      }
      parts.push(shape);
    }
  });
  const names = drawn.length > 1 ? el("span", { class: "names" }, drawn.map((one, number) => el("span", { class: `key name-${number}` }, el("span", { class: "swatch" }), one.name))) : null;
  return el("figure", { class: "chart" }, el("figcaption", {}, el("b", {}, title), names),
    svg("svg", { viewBox: `0 0 ${width} ${CHART.height}`, width, height: CHART.height, role: "img", "aria-label": `${title}. ${about}` }, ...parts), el("p", { class: "quiet" }, about));
}

const SIDE_NAMES = ["left", "right"];

class Charts {
  constructor(app, element) {
    Object.assign(this, { app, element });
    let width = 0;
    new ResizeObserver(() => {
      if (element.clientWidth && Math.abs(element.clientWidth - width) > 4) {
        width = element.clientWidth;
        this.draw();
      }
    }).observe(element);
  }

  // Error in units of what is allowed, of all rows of a step in the order of execution.
  overDepth(name, step, rank) {
    const { columns, length } = this.app.rows;
    const ratios = columns[`${name}_ratio`];
    const points = [];
    for (let row = 0; row < length; row++) {
      if (columns.step[row] !== step || columns.rank[row] !== rank || columns[name][row] === NOTHING) continue;
      const ratio = columns[name][row] === 0 ? 0 : drawable(ratios[row]);
      points.push([points.length, ratio, row, Boolean(columns.flags[row] & FLAGS[name])]);
    }
    return points;
  }

  overSteps(name, rank) {
    const { columns, length } = this.app.rows;
    const worst = new Map();
    for (let row = 0; row < length; row++) {
      if (columns.rank[row] !== rank || columns[name][row] === NOTHING) continue;
      const ratio = columns[name][row] === 0 ? 0 : drawable(columns[`${name}_ratio`][row]);
      const known = worst.get(columns.step[row]);
      if (ratio !== null && (!known || ratio > known[1])) worst.set(columns.step[row], [columns.step[row], ratio, row, false]);
    }
    return [...worst.values()].sort((a, b) => a[0] - b[0]);
  }

  draw() {
    const { app, element } = this;
    const width = Math.max(300, Math.min(element.clientWidth - 34, 1200));
    const open = (row) => app.go("row", row);
    const figures = [];
    if (app.two) {
      const [step, rank] = app.place();
      const many = new Set(app.rows.columns.step).size > 1;
      const told = ([, ratio, row]) => `${app.describe(row).join("\n")}\n${ratio === 0 ? "the same" : Number.isFinite(ratio) ? `${format(Number(ratio.toPrecision(3)))} of what is allowed` : "not finite"}`;
      for (const [name, label] of [["forward", "values"], ["backward", "gradients"]]) {
        const points = this.overDepth(name, step, rank);
        if (!points.some(([, ratio]) => ratio > 0)) continue;
        const title = `Error of the ${label} over the depth${many ? `, step ${step}` : ""}${rank ? `, rank ${rank}` : ""}`;
        figures.push([chart({ title, series: [{ name, points }], bound: 1, log: true, across: "pairs in the order of execution", describe: told, open, width, about: beyond(points) }), worst(app, points)]);
      }
      const series = ["forward", "backward"].map((name) => ({ name, line: true, points: this.overSteps(name, rank) })).filter((one) => one.points.some(([, ratio]) => ratio > 0));
      if (many && series.length) {
        figures.push([chart({ title: "Largest error of each step", series, bound: 1, log: true, across: "step", describe: told, open, width, about: beyond(series.flatMap((one) => one.points), "steps and passes") })]);
      }
    }
    for (const { name, meaning, sides } of app.index.curves || []) {
      const series = sides.map((points, at) => ({ name: app.two ? SIDE_NAMES[at] : name, line: true, points: points.map(([step, value]) => [step, drawable(value)]) }));
      const known = series.flatMap((one) => one.points.map(([, value]) => value)).filter((value) => value !== null);
      if (!known.length) continue;
      const [low, high] = [known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))];
      const ends = series.map((one) => one.points.filter(([, value]) => value !== null)).filter((list) => list.length)
        .map((list) => `${format(list[0][1])} → ${format(list[list.length - 1][1])}`).join(" | ");
      figures.push([chart({ title: name, series, log: low > 0 && high > 100 * low, across: "step", describe: ([step, value], one) => `${one.name}, step ${step}: ${format(value)}`, width, about: `${meaning ? `${meaning}: ` : ""}${ends}` })]);
    }
    element.replaceChildren(...(figures.length ? figures.flat() : [el("p", { class: "quiet" }, "There is no number to draw: everything is the same, or nothing was measured.")]));
  }
}

function beyond(points, noun = "pairs") {
  const known = points.filter(([, ratio]) => ratio !== null);
  const over = known.filter(([, ratio]) => ratio > 1).length;
  return `${count(over)} of ${count(known.length)} ${noun} beyond what is allowed. A larger error is not a worse call: it may have come in (◆ where it arises).`;
}

// The largest, as buttons: what the picture offers to the mouse.
function worst(app, points) {
  const largest = points.filter(([, ratio]) => ratio > 0).sort((a, b) => Number(b[3]) - Number(a[3]) || b[1] - a[1]).slice(0, 5);
  return el("p", { class: "worst" }, el("span", { class: "quiet" }, "Open: "), largest.map(([, ratio, row, arises]) => el("button", { type: "button", class: "link", onclick: () => app.go("row", row) },
    `${arises ? `${ARISES} ` : ""}${app.rows.word("left", row)} (${Number.isFinite(ratio) ? format(Number(ratio.toPrecision(3))) : "∞"})`)));
}

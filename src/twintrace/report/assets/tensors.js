// Facts about tensors: numbers side by side, the histogram of the error, where in the tensor it is.

function tensorTitle(part, leftSlot, rightSlot) {
  const slots = rightSlot === undefined || leftSlot === rightSlot ? leftSlot : `${leftSlot || "–"} | ${rightSlot || "–"}`;
  return slots ? `${part} ${slots}` : part;
}

function facts(rows) {
  return el("table", { class: "facts" }, el("tbody", {}, rows.map(([name, ...cells]) =>
    el("tr", {}, el("th", { scope: "row" }, name), cells.map((cell) => el("td", {}, cell))))));
}

const STATISTIC_NAMES = ["min", "max", "mean", "norm", "NaN", "Inf", "zeros"];

// `differences` has the relative ones from its fifth place on; where there are none, the two sides have the same numbers.
function statisticsTable(left, right, differences) {
  const two = right !== undefined;
  const cell = (side, at) => (side && side[2] ? format(side[2][at]) : "–");
  const places = [0, 1, 2, 3, 8, 9, 10];
  const head = two ? ["left", "right", "right − left", "relative"] : ["value"];
  const body = STATISTIC_NAMES.map((name, at) => {
    const cells = two ? [cell(left, at), cell(right, at)] : [cell(left, at)];
    const known = two && [left, right].every((side) => side && side[2] && side[2][at] !== null);
    const apart = (place) => (known ? format(differences ? differences[place] : 0) : "–");
    if (two) cells.push(apart(places[at]), at < 4 ? apart(4 + at) : "");
    const odd = (at === 4 || at === 5) && [left, right].some((side) => side && side[2] && side[2][at]);
    return el("tr", { class: odd ? "odd" : null }, el("th", { scope: "row" }, name), cells.map((text) => el("td", {}, text)));
  });
  return el("table", { class: "numbers" },
    el("thead", {}, el("tr", {}, el("td"), head.map((text) => el("th", { scope: "col" }, text)))), el("tbody", {}, body));
}

function histogram(bars, title) {
  const most = Math.max(1, ...bars.map((bar) => bar.count));
  const height = (value) => (value ? 4 + (96 * Math.log1p(value)) / Math.log1p(most) : 0);
  return el("figure", { class: "histogram" },
    el("figcaption", {}, title),
    el("div", { class: "bars", role: "img", "aria-label": bars.filter((bar) => bar.count).map((bar) => `${bar.label}: ${bar.count}`).join(", ") },
      bars.map((bar) => el("div", { class: "bin", title: `${bar.label}: ${count(bar.count)}` },
        el("span", { class: "column", style: { height: `${height(bar.count)}%`, background: bar.colour } }),
        el("span", { class: "tick" }, bar.short)))));
}

function errorHistogram(counts, edges) {
  const bars = counts.map((value, at) => {
    const score = at < 2 ? 0 : Math.round(clamp((edges[at - 2] + 10) / 11, 0, 1) * 1000);
    if (at === 0) return { count: value, label: "equal", short: "=", colour: SCALE[0] };
    if (at === 1) return { count: value, label: `below 1e${edges[0]}`, short: "<", colour: SCALE[1] };
    const last = at === counts.length - 1;
    const label = last ? `1e${edges[at - 2]} and more` : `1e${edges[at - 2]} to 1e${edges[at - 1]}`;
    return { count: value, label, short: String(edges[at - 2]), colour: SCALE[score] };
  });
  return histogram(bars, "Relative errors by power of ten, counts on a logarithmic scale");
}

// A grid of numbers as a picture. `signed`: both ends of the scale are marked, zero is in the middle.
function heatMap(rows, columns, values, title, { signed = false } = {}) {
  if (rows * columns !== values.length || values.length > 65536) return el("p", { class: "problem" }, "The heat map is damaged.");
  const finite = values.filter((value) => typeof value === "number");
  const most = Math.max(...finite.map(Math.abs), 0);
  const size = clamp(Math.floor(Math.min(520 / columns, 260 / rows)), 1, 22);
  const canvas = el("canvas", { width: columns * size, height: rows * size, role: "img", "aria-label": `${title}; largest ${format(most)}` });
  const pen = canvas.getContext("2d");
  values.forEach((value, at) => {
    const share = typeof value === "number" ? (most ? Math.abs(value) / most : 0) : null;
    if (share === null) pen.fillStyle = greys.unknown;
    else if (signed) pen.fillStyle = value < 0 ? `rgb(47 111 222 / ${share})` : `rgb(217 45 58 / ${share})`;
    else pen.fillStyle = share === 0 ? SCALE[0] : SCALE[Math.round(100 + 900 * share)];
    pen.fillRect((at % columns) * size, Math.floor(at / columns) * size, size, size);
  });
  const hint = el("span", { class: "quiet" }, `largest ${format(most)}; ${rows} × ${columns} cells`);
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const column = clamp(Math.floor(((event.clientX - box.left) / box.width) * columns), 0, columns - 1);
    const row = clamp(Math.floor(((event.clientY - box.top) / box.height) * rows), 0, rows - 1);
    const value = values[row * columns + column];
    hint.textContent = `cell ${row}, ${column}: ${typeof value === "number" ? format(Number(value.toPrecision(3))) : value}`;
  });
  return el("figure", { class: "heat" }, el("figcaption", {}, title), canvas, el("div", {}, hint));
}

const METRIC_NAMES = {
  max_abs: "largest absolute error", mean_abs: "mean absolute error", max_rel: "largest relative error", mean_rel: "mean relative error",
  rmse: "RMSE", mape: "MAPE", cosine: "cosine", euclidean: "Euclidean distance", within_1_1000: "share within 1/1000",
  within_5_1000: "share within 5/1000", close: "share that is close", max_ulp: "largest error in ULP", max_left: "largest magnitude, left",
  max_right: "largest magnitude, right", rms_left: "root mean square, left", rms_right: "root mean square, right",
  filled: "elements of a fill value", rms_rest: "root mean square of the others",
  count: "elements", finite: "finite on both sides", equal: "equal", nan_left: "NaN, left", nan_right: "NaN, right", nan_both: "NaN, both",
  inf_left: "Inf, left", inf_right: "Inf, right", inf_both: "the same Inf", sign_flips: "sign flips",
};

const SHADES = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function errorHeat([rows, columns, most, cells]) {
  const values = Array.from(cells, (letter) => (letter === "?" ? "not finite" : (SHADES.indexOf(letter) / (SHADES.length - 1)) * most));
  return heatMap(rows, columns, values, "Largest absolute error by place in the tensor, leading axes folded into rows");
}

// left − right = left's rounding + meaning + inherited + right's rounding; null where a term was not computed.
function termsTable([left, meaning, inherited, right]) {
  const own = (value) => (value === null ? "not computed" : `${format(value)} of what is allowed${value > 1 ? ": beyond it" : ""}`);
  const relative = (value) => (value === null ? "not computed" : value === 0 ? "0: they mean the same" : `${format(value)} relative`);
  return el("table", { class: "facts terms" }, el("caption", {}, "The difference, taken apart in float64"), el("tbody", {}, [
    ["rounding of the left call", own(left)],
    ["meaning: the two calls on the same inputs", relative(meaning)],
    ["inherited: from inputs that differ", inherited === null ? "not computed: the rest" : `${format(inherited)} relative`],
    ["rounding of the right call", own(right)],
  ].map(([name, text]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text)))));
}

// `heat` is a promise: pictures come when a tensor is opened.
function measurementParts(measurement, index, heat) {
  const [metrics, counts, [rtol, atol], bins, worst, pictured] = measurement;
  const picture = el("div", {});
  if (pictured) heat().then((found) => picture.replaceChildren(found ? errorHeat(found) : el("p", { class: "quiet" }, "The heat map of this tensor is not in this file.")));
  const named = (names, values) => names.map((name, at) => [METRIC_NAMES[name] || name, format(values[at])]);
  const close = (rows) => rows.map(([name, value]) => [name === METRIC_NAMES.close ? `${name} (rtol ${format(rtol)}, atol ${format(atol)})` : name, value]);
  return [
    worst && el("p", { class: "worst" }, "Worst element ", el("code", {}, `[${worst[0].join(", ")}]`), ": left ", el("code", {}, String(worst[1])),
      ", right ", el("code", {}, String(worst[2]))),
    bins && errorHistogram(bins, index.edges),
    pictured ? picture : null,
    el("div", { class: "columns" }, facts(close(named(index.metrics, metrics))), facts(named(index.counts, counts))),
  ];
}

// A kept tensor's own values, asked of the server.
function valuesButton(side, step, rank, identity) {
  const place = el("div", { class: "values" });
  const button = el("button", { type: "button", class: "small" }, side ? `Values, ${side}` : "Values");
  button.addEventListener("click", async () => {
    button.disabled = true;
    place.replaceChildren(el("p", { class: "quiet" }, "reading …"));
    try {
      const found = await fetched(`data/tensor?side=${side || "left"}&step=${step}&rank=${rank}&id=${identity}`);
      place.replaceChildren(...valueParts(found));
    } catch (error) {
      button.disabled = false;
      place.replaceChildren(el("p", { class: "problem" }, error.message));
    }
  });
  return el("div", {}, button, place);
}

function valueParts(found) {
  const { spec, first, counts, edges, heat, more } = found;
  const bars = counts.map((value, at) => ({ count: value, label: `${format(edges[at])} to ${format(edges[at + 1])}`, short: "", colour: "var(--accent)" }));
  return [
    el("p", {}, el("code", {}, spec), ` first ${first.length} values: `, el("code", { class: "wrap" }, first.map(String).join(", ") + (more ? ", …" : ""))),
    counts.length ? histogram(bars, `Values from ${format(edges[0])} to ${format(edges[edges.length - 1])}, counts on a logarithmic scale`) : null,
    heat ? heatMap(heat[0], heat[1], heat[2], "Value of the largest magnitude by place in the tensor: red above zero, blue below", { signed: true }) : null,
  ].filter(Boolean);
}

// The whole execution: one column for each row, forward above backward, coloured by score. Where there are more rows than
// pixels, the upper strip shows the worst of each pixel, and a lens below it shows the rows one by one. What is worse is taller, and
// where a difference arises there is a diamond: nobody has to tell colours apart.

class Ribbon {
  constructor(rows, describe, open) {
    Object.assign(this, { rows, describe, open });
    this.overview = byId("overview");
    this.lens = byId("lens");
    this.middle = 0;
    this.selected = -1;
    this.marks = [];
    const { step } = rows.columns;
    this.steps = [];
    for (let row = 0; row < rows.length; row++) if (!row || step[row] !== step[row - 1]) this.steps.push(row);
    if (this.steps.length < 2) this.steps = []; // one step needs no name
    const here = (canvas, event) => event.clientX - canvas.getBoundingClientRect().left;
    this.overview.addEventListener("click", (event) => this.pick(this.rowInOverview(here(this.overview, event))));
    this.lens.addEventListener("click", (event) => this.pick(this.rowInLens(here(this.lens, event))));
    for (const [canvas, find] of [[this.overview, "rowInOverview"], [this.lens, "rowInLens"]]) {
      canvas.addEventListener("mousemove", (event) => {
        const row = this[find](here(canvas, event));
        this.hover(row, event);
        if (canvas === this.overview && this.crowded && row >= 0) this.look(row);
      });
      canvas.addEventListener("mouseleave", () => {
        byId("hover").hidden = true;
        if (this.selected >= 0) this.look(this.selected);
      });
    }
    this.overview.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -100, PageDown: 100 }[event.key];
      const target = { Home: 0, End: rows.length - 1 }[event.key] ?? (step && this.selected + step);
      if (target === undefined) return;
      event.preventDefault();
      this.pick(clamp(target, 0, rows.length - 1), true);
    });
    new ResizeObserver(() => {
      this.width = 0;
      this.draw();
    }).observe(this.overview.parentElement);
  }

  get crowded() {
    return this.rows.length * 4 > this.width;
  }

  pick(row, keepFocus) {
    if (row < 0) return;
    this.open(row);
    if (keepFocus) this.overview.focus({ preventScroll: true });
  }

  select(row) {
    this.selected = row;
    this.announce();
    if (row >= 0) this.middle = row;
    this.draw();
  }

  announce() {
    const { selected, rows } = this;
    const facts = { valuemin: 0, valuemax: Math.max(0, rows.length - 1), valuenow: Math.max(0, selected), valuetext: selected >= 0 ? this.describe(selected).join(", ") : "none" };
    for (const [name, value] of Object.entries(facts)) this.overview.setAttribute(`aria-${name}`, value);
  }

  look(row) {
    this.middle = row;
    this.drawLens();
    this.drawOverview();
  }

  // The rows of one pixel: those that the filters keep before those that they do not, then the worst.
  rowInOverview(x) {
    const { rows } = this;
    if (x < 0 || x >= this.width) return -1;
    if (!this.crowded) {
      const row = Math.floor(x / this.cell);
      return row < rows.length ? row : -1;
    }
    const [from, to] = this.bucket(Math.floor(x));
    let best = from;
    let worst = -1;
    for (let row = from; row < to; row++) {
      const badness = rows.keep[row] * 10000 + this.badness(row);
      if (badness > worst) [best, worst] = [row, badness];
    }
    return best;
  }

  badness(row) {
    const { columns, worst } = this.rows;
    const arises = columns.flags[row] & (FLAGS.forward | FLAGS.backward) ? 6000 : 0;
    return Math.max(arises, SEVERITY[worst[row]] * 1001 + Math.max(columns.forward_score[row], columns.backward_score[row]));
  }

  rowInLens(x) {
    const row = this.lensFrom + Math.floor(x / LENS_CELL);
    return x >= 0 && row < this.rows.length ? row : -1;
  }

  get lensFrom() {
    const held = Math.floor(this.width / LENS_CELL);
    return clamp(this.middle - Math.floor(held / 2), 0, Math.max(0, this.rows.length - held));
  }

  bucket(pixel) {
    const share = this.rows.length / this.width;
    return [Math.floor(pixel * share), Math.max(Math.floor(pixel * share) + 1, Math.floor((pixel + 1) * share))];
  }

  hover(row, event) {
    const box = byId("hover");
    box.hidden = row < 0;
    if (row < 0) return;
    box.replaceChildren(...this.describe(row).map((line, at) => el("div", at ? { class: "quiet" } : {}, line)));
    const edge = byId("ribbon").getBoundingClientRect();
    box.style.left = `${clamp(event.clientX - edge.left + 12, 0, Math.max(0, edge.width - box.offsetWidth))}px`;
    box.style.top = `${event.clientY - edge.top + 18}px`;
  }

  draw() {
    // Asking for it makes the browser lay out the whole page, table and all: only when it may have changed.
    this.width ||= Math.max(1, Math.floor(this.overview.parentElement.clientWidth));
    this.cell = Math.min(18, this.width / Math.max(1, this.rows.length));
    byId("lens-strip").hidden = !this.crowded;
    this.announce();
    this.drawOverview();
    this.drawLens();
  }

  start(canvas) {
    const sharp = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(this.width * sharp), Math.round(STRIP * sharp)];
    const pen = canvas.getContext("2d");
    if (canvas.width !== width || canvas.height !== height) {
      [canvas.width, canvas.height] = [width, height];
      Object.assign(canvas.style, { width: `${this.width}px`, height: `${STRIP}px` });
      pen.font = "10px sans-serif"; // here only: to find the font, the browser lays out the page
    }
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.clearRect(0, 0, this.width, STRIP);
    return pen;
  }

  drawOverview() {
    const pen = this.start(this.overview);
    if (!this.crowded) {
      for (let row = 0; row < this.rows.length; row++) this.drawCell(pen, row, row * this.cell, this.cell);
      this.drawMarks(pen, (row) => (row + 0.5) * this.cell, (row) => row * this.cell, this.cell);
      return;
    }
    const { columns, keep } = this.rows;
    for (const band of BANDS) {
      const outcomes = columns[band.name];
      const scores = columns[`${band.name}_score`];
      const share = this.rows.length / this.width;
      for (let pixel = 0; pixel < this.width; pixel++) {
        const from = Math.floor(pixel * share);
        const to = Math.max(from + 1, Math.floor((pixel + 1) * share));
        let best = from;
        let worst = -1;
        for (let row = from; row < to; row++) {
          const badness = keep[row] * 10000 + SEVERITY[outcomes[row]] * 1001 + scores[row];
          if (badness > worst) {
            best = row;
            worst = badness;
          }
        }
        pen.globalAlpha = keep[best] ? 1 : 0.18;
        this.fill(pen, band, outcomes[best], scores[best], pixel, 1);
      }
    }
    pen.globalAlpha = 1;
    const share = this.width / this.rows.length;
    this.drawMarks(pen, (row) => (row + 0.5) * share, (row) => row * share, Math.max(2, share));
    const held = Math.floor(this.width / LENS_CELL);
    pen.strokeStyle = greys.line;
    pen.strokeRect(this.lensFrom * share + 0.5, BANDS[0].top - 2.5, Math.max(3, held * share), STRIP - BANDS[0].top + 2);
  }

  drawLens() {
    if (!this.crowded) return;
    const pen = this.start(this.lens);
    const from = this.lensFrom;
    const to = Math.min(this.rows.length, from + Math.ceil(this.width / LENS_CELL));
    for (let row = from; row < to; row++) this.drawCell(pen, row, (row - from) * LENS_CELL, LENS_CELL);
    this.drawMarks(pen, (row) => (row - from + 0.5) * LENS_CELL, (row) => (row - from) * LENS_CELL, LENS_CELL);
  }

  fill(pen, band, outcome, score, x, width) {
    const height = Math.round(band.height * HEIGHTS[outcome]);
    pen.fillStyle = colour(outcome, score);
    pen.fillRect(x, band.top + band.height - height, width, height);
  }

  diamond(pen, x, y, size) {
    pen.fillStyle = greys.line;
    pen.beginPath();
    for (const [dx, dy] of [[0, -size], [size, 0], [0, size], [-size, 0]]) pen.lineTo(x + dx, y + dy);
    pen.fill();
  }

  drawCell(pen, row, x, width) {
    const { columns, keep } = this.rows;
    pen.globalAlpha = keep[row] ? 1 : 0.18;
    for (const band of BANDS) {
      this.fill(pen, band, columns[band.name][row], columns[`${band.name}_score`][row], x, width > 3 ? width - 1 : width);
      if (width >= 5 && columns.flags[row] & FLAGS[band.name]) this.diamond(pen, x + (width - 1) / 2, band.top + band.height / 2, Math.min(4, width / 2 - 1));
    }
    pen.globalAlpha = 1;
  }

  // A line where a step begins; a triangle where the runs part; a frame round the row that is open.
  drawMarks(pen, middle, left, width) {
    pen.fillStyle = greys.line;
    let free = -Infinity;
    for (const row of this.steps) {
      const x = left(row);
      if (x < free || x > this.width) continue;
      const label = `step ${this.rows.columns.step[row]}`;
      free = x + 6 * label.length + 14;
      pen.globalAlpha = 0.55;
      if (x >= 0) pen.fillRect(x - (row ? 1 : 0), 0, 1, BANDS[0].top);
      if (x >= 0) pen.fillText(label, x + 3, 9);
      pen.globalAlpha = 1;
    }
    for (const row of this.marks) {
      const x = middle(row);
      pen.beginPath();
      pen.moveTo(x - 5, 0);
      pen.lineTo(x + 5, 0);
      pen.lineTo(x, 8);
      pen.fill();
    }
    if (this.selected < 0) return;
    pen.strokeStyle = greys.line;
    pen.lineWidth = 2;
    pen.strokeRect(left(this.selected) - 1, BANDS[0].top - 1, Math.max(3, width + 1), STRIP - BANDS[0].top);
    pen.lineWidth = 1;
  }
}

const HEIGHTS = [0.45, 0.6, 0.75, 1, 0.2]; // of a band: same, rounding, unknown, different, nothing there
const LENS_CELL = 9;
const STRIP = 54;
const BANDS = [{ name: "forward", top: 11, height: 20 }, { name: "backward", top: 32, height: 20 }];

// All rows, by columns, and those of them that are shown: filters, search, order.

const NOTHING = 4; // the outcome where there was nothing to compare
const UNKNOWN = 2;
const DIFFERENT = 3;
const FLAGS = { forward: 1, backward: 2, settings: 4 };

const isSmall = (value) => Number.isInteger(value) && Math.abs(value) < 2 ** 31;

class Rows {
  constructor(columns, words, searched) {
    Object.assign(this, { columns, words, searched });
    for (const [name, list] of Object.entries(columns)) {
      if (list.every(isSmall)) columns[name] = Int32Array.from(list); // several times as fast to run through
    }
    this.length = columns.step.length;
    this.view = Uint32Array.from({ length: this.length }, (_, row) => row);
    this.text = null;
    this.ranks = null;
    this.keep = new Uint8Array(this.length).fill(1);
    if (columns.forward) {
      this.worst = Uint8Array.from(columns.forward, (forward, row) => worse(forward, columns.backward[row]));
    }
    if (columns.position) {
      let position = 0;
      this.position = Uint32Array.from(columns.position, (step) => (position += step));
    }
  }

  word(column, row) {
    return this.words[this.columns[column][row]];
  }

  // Which words have `term` in them. Each text is looked at once, however many rows have it, and all of them in one go.
  wordsWith(term) {
    this.prepare();
    const hit = new Uint8Array(this.words.length);
    let word = 0;
    for (let at = this.text.indexOf(term); at >= 0; at = this.text.indexOf(term, this.starts[word])) {
      while (this.starts[word + 1] <= at) word++;
      hit[word++] = 1; // on with the next word
      if (word === this.words.length) break;
    }
    return hit;
  }

  // The text that is searched, made once.
  prepare() {
    if (this.text === null) {
      const lower = this.words.map((word) => word.toLowerCase().replaceAll("\n", " "));
      this.text = lower.join("\n");
      this.starts = new Uint32Array(lower.length + 1);
      lower.forEach((word, at) => (this.starts[at + 1] = this.starts[at] + word.length + 1));
    }
  }

  filter(wanted) {
    const { columns, keep, length } = this;
    keep.fill(1);
    for (const term of wanted.query.toLowerCase().split(/\s+/).filter(Boolean)) {
      const hit = this.wordsWith(term);
      const lists = this.searched.map((name) => columns[name]);
      for (let row = 0; row < length; row++) {
        if (!keep[row]) continue;
        let found = 0;
        for (let at = 0; at < lists.length && !found; at++) found = hit[lists[at][row]];
        keep[row] = found;
      }
    }
    if (wanted.module) {
      const { column, path } = wanted.module;
      const hit = Uint8Array.from(this.words, (word) => (word === path || word.startsWith(`${path}.`) ? 1 : 0));
      const list = columns[column];
      if (list) for (let row = 0; row < length; row++) keep[row] &= hit[list[row]];
    }
    for (const name of ["kind", "phase", "step", "rank"]) {
      const value = wanted[name];
      if (value === null) continue;
      const list = columns[name];
      for (let row = 0; row < length; row++) if (list[row] !== value) keep[row] = 0;
    }
    if (this.worst && wanted.outcomes.size) {
      for (let row = 0; row < length; row++) if (!wanted.outcomes.has(this.worst[row])) keep[row] = 0;
    }
    if (this.worst && wanted.arises) {
      const both = FLAGS.forward | FLAGS.backward;
      for (let row = 0; row < length; row++) if (!(columns.flags[row] & both)) keep[row] = 0;
    }
    let size = 0;
    for (let row = 0; row < length; row++) size += keep[row];
    const view = new Uint32Array(size);
    for (let row = 0, at = 0; row < length; row++) if (keep[row]) view[at++] = row;
    this.view = view;
  }

  sort(key, descending) {
    const keys = this.keys(key);
    const sign = descending ? -1 : 1;
    this.view.sort((a, b) => sign * (keys[a] - keys[b]) || a - b);
  }

  keys(key) {
    if (key.words) {
      if (!this.ranks) {
        const order = this.words.map((_, at) => at).sort((a, b) => (this.words[a] < this.words[b] ? -1 : 1));
        this.ranks = new Uint32Array(order.length);
        order.forEach((word, rank) => (this.ranks[word] = rank));
      }
      return Float64Array.from(this.columns[key.column], (word) => this.ranks[word]);
    }
    return Float64Array.from({ length: this.length }, (_, row) => key.number(row));
  }
}

// Numbers that are missing sort before all others, those that are not finite after them.
function sortable(value) {
  if (typeof value === "number") return value;
  if (value === null || value === undefined) return -Number.MAX_VALUE;
  const parsed = Number(value); // an integer that is too large for a number comes as a text
  return Number.isNaN(parsed) ? (value === "-inf" ? -1e300 : 1e300) : parsed;
}

// For pictures: what is known before what is not, and of that the worst.
const SEVERITY = [2, 3, 1, 4, 0];

function worse(forward, backward) {
  if (forward === NOTHING && backward === NOTHING) return UNKNOWN;
  if (forward === NOTHING) return backward;
  return backward === NOTHING ? forward : Math.max(forward, backward);
}

// The theme, and the one scale of colours that ribbon, trees, chips and heat maps share.

const SCALE = []; // 0 … 1000: from the same to as different as can be
let greys = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  const stops = [[0, "--same"], [1, "--rounding-low"], [500, "--rounding-high"], [501, "--different-low"], [1000, "--different"]];
  const colours = stops.map(([at, name]) => [at, parse(read(name))]);
  for (let score = 0; score <= 1000; score++) {
    const next = colours.findIndex(([at]) => at >= score);
    const [high, above] = colours[next];
    const [low, below] = colours[Math.max(0, next - 1)];
    const share = high === low ? 0 : (score - low) / (high - low);
    SCALE[score] = `rgb(${below.map((value, at) => Math.round(value + share * (above[at] - value))).join(" ")})`;
  }
  greys = { unknown: read("--unknown"), nothing: read("--nothing"), line: read("--ink"), paper: read("--surface") };
}

const parse = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function colour(outcome, score) {
  if (outcome === NOTHING) return greys.nothing;
  return outcome === UNKNOWN ? greys.unknown : SCALE[score];
}

// The meaning of a colour, once more as a sign: same, rounding, unknown, different, nothing there (of a trace: finite, –, unknown, not finite);
// the last where a difference arises.
const SIGNS_OF = { comparison: ["=", "≈", "?", "≠", "·"], trace: ["✓", "", "?", "!", "·"] };
let SIGNS = SIGNS_OF.comparison;
const ARISES = "◆";

// A sign on its colour. It says nothing that the words beside it do not say.
function mark(outcome, score, arises) {
  const made = el("span", { class: arises ? "mark arises" : "mark", "aria-hidden": "true" }, arises ? ARISES : SIGNS[outcome]);
  paint(made, outcome, score);
  return made;
}

function paint(made, outcome, score) {
  const background = colour(outcome, score);
  const [red, green, blue] = (background.startsWith("#") ? parse(background) : background.match(/\d+/g).map(Number)).map((value) => {
    const share = value / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  Object.assign(made.style, { background, color: light > 0.179 ? "#000000" : "#ffffff" }); // the one with the greater contrast
}

const THEMES = ["system", "dark", "light"];

function startTheme(changed) {
  const button = byId("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let theme = "system";
  try {
    theme = localStorage.getItem("twintrace-theme") || theme;
  } catch { /* a file may have no storage: the choice then lasts as long as the page */ }
  const apply = () => {
    if (!THEMES.includes(theme)) theme = "system";
    const dark = theme === "dark" || (theme === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = { system: "◐ system", dark: "● dark", light: "○ light" }[theme];
    readColours();
    changed();
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try {
      localStorage.setItem("twintrace-theme", theme);
    } catch { /* as above */ }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

// Source lines: copied, or opened in an editor. Which editor is chosen once, and remembered by the browser.

const EDITORS = {
  "VS Code": "vscode://file{path}:{line}",
  "Cursor": "cursor://file{path}:{line}",
  "Windsurf": "windsurf://file{path}:{line}",
  "Zed": "zed://file{path}:{line}",
  "PyCharm": "pycharm://open?file={path}&line={line}",
  "IntelliJ IDEA": "idea://open?file={path}&line={line}",
};
const OWN = "another";
const STORED = "twintrace-editor";
let chosenEditor = null;

function editorPattern() {
  if (chosenEditor === null) {
    try {
      chosenEditor = localStorage.getItem(STORED) || "VS Code";
    } catch {
      chosenEditor = "VS Code"; // a file may have no storage
    }
  }
  return EDITORS[chosenEditor] || chosenEditor;
}

// The address of a line in the editor; null if there can be none: a path that leads nowhere by itself, a pattern that would run a script.
function editorLink(file, line, pattern = editorPattern()) {
  const path = file.replaceAll("\\", "/");
  const own = !Object.values(EDITORS).includes(pattern);
  if (!/^([a-z]:)?\//i.test(path) && !own) return null;
  if (!/^[a-z][a-z0-9+.-]*:/i.test(pattern) || /^(javascript|data|vbscript|blob):/i.test(pattern)) return null;
  const rooted = /^[a-z]:\//i.test(path) ? `/${path}` : path;
  const safe = encodeURI(rooted.isWellFormed?.() === false ? rooted.replace(/[\ud800-\udfff]/g, "") : rooted).replace(/[?#&]/g, encodeURIComponent);
  return pattern.replaceAll("{path}", () => safe).replaceAll("{line}", () => String(line));
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // no permission, or a browser that gives none to files
    const field = el("textarea", { style: { position: "fixed", opacity: "0" } }, text);
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

function copyIcon() {
  const sheet = (x, y) => svg("rect", { x, y, width: 8, height: 9, rx: 1.5, fill: "none", stroke: "currentColor", "stroke-width": 1.3 });
  return svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" }, sheet(1.5, 3.5), svg("path", { d: "M4.5 1.5h6a1.5 1.5 0 0 1 1.5 1.5v7.5", fill: "none", stroke: "currentColor", "stroke-width": 1.3 }));
}

function copyButton(text) {
  const button = el("button", { type: "button", class: "copy", title: `Copy ${text}`, "aria-label": `Copy ${text}` }, copyIcon());
  button.addEventListener("click", async () => {
    await copyText(text);
    button.replaceChildren("✓");
    setTimeout(() => button.replaceChildren(copyIcon()), 1200);
  });
  return button;
}

// `model.py:21`, as a link to the editor, and a button that copies the whole path.
function sourceLine(file, line, label) {
  const address = editorLink(file, line);
  const link = el(address ? "a" : "span", { title: file, "data-file": file, "data-line": line, href: address, class: "source" }, label || `${file.split(/[\\/]/).pop()}:${line}`);
  return [link, copyButton(`${file}:${line}`)];
}

// The choice of the editor, above the stacks of a pair.
function editorChoice() {
  const own = !EDITORS[chosenEditor ?? (editorPattern(), chosenEditor)];
  const select = el("select", { "aria-label": "Editor that source lines open in" }, [...Object.keys(EDITORS), OWN].map((name) => el("option", { value: name, selected: name === (own ? OWN : chosenEditor) }, name === OWN ? "another …" : name)));
  const input = el("input", { type: "text", "aria-label": "Pattern of the editor's links", spellcheck: "false", placeholder: "vscode://vscode-remote/ssh-remote+host{path}:{line}", value: own ? chosenEditor : null, hidden: !own });
  const choose = (pattern) => {
    chosenEditor = pattern;
    try {
      localStorage.setItem(STORED, pattern);
    } catch { /* it lasts as long as the page */ }
    relink();
  };
  select.addEventListener("change", () => {
    input.hidden = select.value !== OWN;
    if (select.value !== OWN) choose(select.value);
    else input.focus(), input.value && choose(input.value);
  });
  input.addEventListener("change", () => choose(input.value.trim() || "VS Code"));
  return el("div", { class: "editor" }, "lines open in", select, input);
}

// All lines on the page lead to the editor that was chosen; in the verdict, which is there without a script, they become links.
function relink() {
  for (const place of document.querySelectorAll("#headline .place[data-file]")) {
    const { file, line } = place.dataset;
    const label = place.dataset.label ?? (place.dataset.label = place.textContent);
    place.replaceChildren(...sourceLine(file, Number(line), label));
  }
  for (const link of document.querySelectorAll("#details .source")) {
    link.replaceWith(sourceLine(link.dataset.file, Number(link.dataset.line), link.textContent)[0]);
  }
}

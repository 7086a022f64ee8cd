// Where the data comes from: blocks inside this file, or the server of `twintrace view`.

const PAGE_FACTS = document.documentElement.dataset;
const SERVED = PAGE_FACTS.source === "served";
const HELD = Number(PAGE_FACTS.held); // pages of tensors, and of heat maps, that are here
const PICTURED = Number(PAGE_FACTS.pictured);
const loaded = new Map();

function load(name) {
  if (!loaded.has(name)) {
    const wanted = SERVED ? fetched(`data/${name}`) : unpacked(name);
    wanted.catch(() => loaded.delete(name)); // asked again, it may come
    loaded.set(name, wanted);
  }
  return loaded.get(name);
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function unpacked(name) {
  const element = byId(`data-${name}`);
  if (!element) throw new Error(`This file has no data called ${name}: it is not complete.`);
  const text = atob(element.textContent);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const canUnpack = () => SERVED || typeof DecompressionStream === "function";

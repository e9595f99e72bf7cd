// Makes and changes what is shown. All text goes in as text: nothing here, and nothing elsewhere, reads markup.

const SVG = "http://www.w3.org/2000/svg";
const HANDLERS = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown"];

/** An element: `h("p", {class: "dim", onclick: f}, "text", child, null, [more])`. False and null are left out. */
export function h(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for SVG. */
export function s(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (HANDLERS.includes(name)) element[name] = value;
    else element.setAttribute(name === "key" ? "data-key" : name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Make `place` hold these, changing as little as can be: focus, scrolling and what is selected stay. */
export function show(place, ...children) {
  const fresh = document.createElement("div");
  append(fresh, children);
  morphChildren(place, fresh);
}

function keyOf(node) {
  return node?.dataset?.key;
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child) !== undefined) keyed.set(keyOf(child), child);
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const key = keyOf(next);
    const match = key === undefined ? (keyOf(at) === undefined ? at : null) : keyed.get(key);
    if (!match) {
      old.insertBefore(next, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    morph(match, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  // Whether details are open, and what was typed, is the viewer's.
  const own = old.nodeName === "DETAILS" ? ["open"] : ["INPUT", "SELECT"].includes(old.nodeName) ? ["value", "checked"] : [];
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !own.includes(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !own.includes(name)) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  morphChildren(old, fresh);
}

/** A table that scrolls by itself where it is too wide. Columns are names, or [name, "number"]. */
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "dim" }, empty ?? "Nothing.");
  return h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map((column) =>
        h("th", { scope: "col", class: Array.isArray(column) ? column[1] : null }, Array.isArray(column) ? column[0] : column)))),
      h("tbody", null, rows.map((row) =>
        h("tr", { key: row.key }, row.cells.map((cell, number) => {
          const kind = Array.isArray(columns[number]) ? columns[number][1] : null;
          return h("td", { class: kind }, cell);
        })))),
    ),
  );
}

/** Numbers at a glance: [[name, value, what it is beside], ...]. */
export function tiles(all) {
  return h("dl", { class: "tiles" }, all.map(([name, value, beside]) =>
    h("div", { key: name }, h("dt", null, name), h("dd", null, value, beside ? h("small", null, beside) : null))));
}

export function badge(text, kind) {
  return h("span", { class: kind ? `badge ${kind}` : "badge" }, text);
}

export function facts(all) {
  return h("dl", { class: "facts" }, all.filter(Boolean).flatMap(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

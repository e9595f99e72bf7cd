// Makes and changes what is shown. All text goes in as text: nothing here, and nothing elsewhere, reads markup.

import { printable } from "./format.js";

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
    else element.setAttribute(name === "key" ? "data-key" : name, value === true ? "" : name === "aria-label" ? printable(String(value)) : String(value));
  }
  append(element, children);
  return element;
}

/** Names are shown with control characters escaped; logs have lines. */
function shown(text, element) {
  return element.nodeName === "PRE" ? text.split(/([\n\t])/).map((part, number) => (number % 2 ? part : printable(part))).join("") : printable(text);
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(shown(String(child), element)));
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

const PAGE_ROWS = 50;
/** Shorter ones are seen at a glance. */
const ROWS_MIN = 10;
const SHEETS_MAX = 50;
/** What the viewer filtered, sorted and turned to, by view and caption: live views are drawn again and again. */
const sheets = new Map();

function sheetOf(caption) {
  const key = `${location.hash} ${caption}`;
  if (!sheets.has(key)) sheets.set(key, { filter: "", column: null, down: false, page: 0 });
  if (sheets.size > SHEETS_MAX) sheets.delete(sheets.keys().next().value);
  return sheets.get(key);
}

/** What is compared and filtered: `row.values`, where cells are numbers made readable, else the cells' text. */
function valueOf(row, column) {
  const value = row.values?.[column] ?? row.cells?.[column] ?? "";
  return value instanceof Node ? value.textContent : value;
}

function compared(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

/** Rows of one page, filtered and sorted as the viewer wants, with the controls for it; `build` draws them. */
export function sheet(caption, names, rows, build) {
  if (rows.length <= ROWS_MIN) return build(rows, null);
  const state = sheetOf(caption);
  const place = h("div", { class: "sheet", "data-sheet": caption });
  const change = (values) => {
    Object.assign(state, values);
    const shownPlace = [...document.querySelectorAll("[data-sheet]")].find((each) => each.dataset.sheet === caption);
    if (shownPlace) show(shownPlace, contents());
  };
  const contents = () => {
    const wanted = state.filter.toLowerCase();
    const found = wanted ? rows.filter((row) => names.some((_, column) => String(valueOf(row, column)).toLowerCase().includes(wanted))) : [...rows];
    if (state.column !== null) found.sort((a, b) => (state.down ? -1 : 1) * compared(valueOf(a, state.column), valueOf(b, state.column)));
    const pages = Math.max(1, Math.ceil(found.length / PAGE_ROWS));
    state.page = Math.min(state.page, pages - 1);
    const first = state.page * PAGE_ROWS;
    const sort = { column: state.column, down: state.down, by: (column) => change({ column, down: state.column === column && !state.down, page: 0 }) };
    return [
      h("div", { class: "row", key: "controls" },
        h("input", { type: "search", "aria-label": `Filter: ${caption}`, placeholder: "Filter", value: state.filter, oninput: (event) => change({ filter: event.target.value, page: 0 }) }),
        h("span", { class: "dim", role: "status" }, found.length ? `${first + 1} to ${Math.min(first + PAGE_ROWS, found.length)} of ${found.length}${wanted ? ` that match, of ${rows.length}` : ""}` : `none of ${rows.length} matches`),
        pages > 1 ? [
          h("button", { type: "button", disabled: state.page === 0, onclick: () => change({ page: state.page - 1 }) }, "Previous"),
          h("button", { type: "button", disabled: state.page === pages - 1, onclick: () => change({ page: state.page + 1 }) }, "Next")] : null),
      h("div", { key: "rows" }, build(found.slice(first, first + PAGE_ROWS), sort)),
    ];
  };
  append(place, contents());
  return place;
}

/** A table that scrolls by itself where it is too wide. Columns are names, or [name, "number"]. */
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "dim" }, empty ?? "Nothing.");
  const names = columns.map((column) => (Array.isArray(column) ? column[0] : column));
  const kinds = columns.map((column) => (Array.isArray(column) ? column[1] : null));
  return sheet(caption, names, rows, (shownRows, sort) => h(
    "div",
    { class: "wide", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", null, caption),
      h("thead", null, h("tr", null, names.map((name, number) => heading(name, kinds[number], number, sort)))),
      h("tbody", null, shownRows.map((row) =>
        h("tr", { key: row.key }, row.cells.map((cell, number) => h("td", { class: kinds[number] }, cell))))),
    ),
  ));
}

function heading(name, kind, number, sort) {
  if (!sort || !name) return h("th", { scope: "col", class: kind }, name);
  const sorted = sort.column === number;
  return h("th", { scope: "col", class: kind, "aria-sort": sorted ? (sort.down ? "descending" : "ascending") : null },
    h("button", { type: "button", class: "quiet", onclick: () => sort.by(number) }, name, sorted ? (sort.down ? " \u2193" : " \u2191") : null));
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

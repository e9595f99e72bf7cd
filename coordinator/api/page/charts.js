// Pictures in SVG. Each has its meaning in words, in its label or in a table beside it.

import { h, s } from "./dom.js";
import { seconds } from "./format.js";

/** How much of a whole is taken. */
export function meter(part, whole, label) {
  const share = whole ? Math.min(1, part / whole) : 0;
  const kind = share > 0.95 ? "bar bar-bad" : share > 0.85 ? "bar bar-warn" : "bar";
  return s("svg", { class: "meter", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "bar-back", width: 100, height: 6, rx: 2 }), s("rect", { class: kind, width: (100 * share).toFixed(2), height: 6, rx: 2 }));
}

/** Bars for values in their order: [[label, value], ...]. */
export function bars(title, values, format) {
  const most = Math.max(...values.map(([, value]) => value), 1e-9);
  const width = 640;
  const step = width / Math.max(1, values.length);
  return h("figure", null,
    s("svg", { viewBox: `0 0 ${width} 130`, role: "img", "aria-label": `${title}: ${values.length} values, the most is ${format(most)}` },
      values.map(([label, value], number) => {
        const height = Math.max(1, (90 * value) / most);
        return s("rect", { class: "bar", x: number * step + 1, y: 100 - height, width: Math.max(1, step - 2), height },
          s("title", null, `${label}: ${format(value)}`));
      }),
      s("line", { class: "axis", x1: 0, x2: width, y1: 100, y2: 100 }),
      values.length ? s("text", { class: "dim", x: 0, y: 118 }, values[0][0]) : null,
      values.length > 1 ? s("text", { class: "dim", x: width, y: 118, "text-anchor": "end" }, values.at(-1)[0]) : null),
    h("figcaption", { class: "dim" }, `${title}; the most is ${format(most)}`));
}

/** Rows of spans over time: `rows` are [name, [{from, to, kind, title}, ...]], both in the units of `range`. */
export function timeline(title, rows, [begin, end], label) {
  const left = 130;
  const width = 900;
  const x = (at) => left + ((width - left) * (at - begin)) / Math.max(1e-9, end - begin);
  const height = 22 * rows.length + 24;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => begin + share * (end - begin));
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": title },
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title },
      ticks.map((tick) => s("line", { class: "axis", x1: x(tick), x2: x(tick), y1: 0, y2: height - 18 })),
      rows.map(([name, spans], number) => [
        s("text", { x: 0, y: 22 * number + 15 }, name.length > 18 ? `${name.slice(0, 17)}\u2026` : name),
        spans.map((span) => s("rect", {
          class: span.kind ?? "bar", x: x(Math.max(begin, span.from)), y: 22 * number + 4,
          width: Math.max(1.5, x(Math.min(end, span.to)) - x(Math.max(begin, span.from)) - 0.5), height: 15, rx: 2,
        }, s("title", null, span.title))),
      ]),
      ticks.map((tick, number) => s("text", { class: "dim", x: x(tick), y: height - 4, "text-anchor": number === 4 ? "end" : number ? "middle" : "start" }, label(tick)))));
}

/** The network as a tree, with what is on its links now. */
export function topology(network, withRoom) {
  const children = new Map();
  const links = new Map(network.links.map((link) => [`${link.a} ${link.b}`, link]));
  const between = (a, b) => links.get(`${a} ${b}`) ?? links.get(`${b} ${a}`);
  const place = (parent, name) => children.set(parent, [...(children.get(parent) ?? []), name]);
  const servers = new Map(network.servers.map((each) => [each.server, each]));
  const seen = new Set([network.root]);
  const queue = [network.root];
  const neighbours = new Map();
  for (const { a, b } of network.links) {
    neighbours.set(a, [...(neighbours.get(a) ?? []), b]);
    neighbours.set(b, [...(neighbours.get(b) ?? []), a]);
  }
  while (queue.length) {
    const at = queue.shift();
    for (const next of neighbours.get(at) ?? []) {
      if (seen.has(next)) continue;
      seen.add(next);
      place(at, next);
      queue.push(next);
    }
  }
  const leaves = (name) => (children.get(name) ?? []).reduce((total, each) => total + leaves(each), 0) || 1;
  const depth = (name) => 1 + Math.max(0, ...(children.get(name) ?? []).map(depth));
  const column = 140;
  const width = Math.max(360, leaves(network.root) * column);
  const height = depth(network.root) * 92 - 40;
  const drawn = [];
  const walk = (name, from, level) => {
    const span = leaves(name) * column;
    const x = from + span / 2;
    const y = level * 92 + 24;
    let at = from;
    for (const child of children.get(name) ?? []) {
      const childX = at + (leaves(child) * column) / 2;
      const link = between(name, child);
      const load = link.streams_a_to_b + link.streams_b_to_a;
      const full = network.described && Math.max(link.streams_a_to_b, link.streams_b_to_a) >= link.capacity_streams;
      const down = link.a === name ? [link.streams_a_to_b, link.streams_b_to_a] : [link.streams_b_to_a, link.streams_a_to_b];
      drawn.push(s("line", { class: `link${full ? " full" : load ? " some" : ""}`, x1: x, y1: y + 14, x2: childX, y2: y + 78 }));
      drawn.push(s("text", { class: "dim halo", x: childX + (x - childX) * 0.3, y: y + 58, "text-anchor": "middle" },
        `\u2193${down[0]} \u2191${down[1]}${network.described ? ` of ${link.capacity_streams}` : ""}`,
        s("title", null, `${name} - ${child}: ${down[0]} chunks towards ${child}, ${down[1]} back${network.described ? `; it carries ${link.capacity_streams} each way` : ""}`)));
      walk(child, at, level + 1);
      at += leaves(child) * column;
    }
    const server = servers.get(name);
    drawn.push(s("rect", { class: "box", x: x - 62, y: y - 16, width: 124, height: 32, rx: 6 }));
    drawn.push(s("text", { x, y: server ? y - 2 : y + 4, "text-anchor": "middle" }, name.length > 18 ? `${name.slice(0, 17)}\u2026` : name, s("title", null, name)));
    if (server) drawn.push(s("text", { class: "dim", x, y: y + 12, "text-anchor": "middle" }, `${server.streams} ${server.streams === 1 ? "chunk" : "chunks"}, ${withRoom.has(name) ? "has room" : "is full"}`));
  };
  walk(network.root, 0, 0);
  const loaded = network.links.filter((link) => link.streams_a_to_b + link.streams_b_to_a);
  const words = `The network: ${network.racks.length} racks, ${network.servers.length} datanodes; ${loaded.length} of ${network.links.length} links have chunks on their way`;
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Topology" },
    s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words }, drawn));
}

/** A time before now, for an axis. */
export function ago(at) {
  return at <= -0.5 ? `${seconds(-at)} ago` : "now";
}

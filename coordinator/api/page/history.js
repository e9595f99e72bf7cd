// The last day of the cluster: throughput, latency and space.

import { h, s } from "./dom.js";
import { milliseconds, moment, size } from "./format.js";

const WIDTH = 320;
const HEIGHT = 70;

/** One line over time, with its last and greatest value in words. A minute without a value is a gap. */
function line(title, samples, valueOf, format, ceiling) {
  const values = samples.map(valueOf);
  const known = values.filter((value) => value !== null);
  const most = Math.max(ceiling ?? 0, ...known, 1e-9);
  const x = (number) => ((WIDTH * number) / Math.max(1, samples.length - 1)).toFixed(1);
  const points = values.map((value, number) => (value === null ? null : `${x(number)},${(HEIGHT - (HEIGHT * value) / most).toFixed(1)}`));
  const parts = points.reduce((all, point) => {
    if (point === null) all.push([]);
    else all.at(-1).push(point);
    return all;
  }, [[]]).filter((part) => part.length);
  const words = known.length ? `now ${format(values.at(-1) ?? known.at(-1))}, at most ${format(Math.max(...known))}` : "nothing yet";
  return h("figure", { key: title, "data-history": title },
    s("svg", { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, role: "img", "aria-label": `${title}: ${words}` },
      s("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
      parts.map((part) => (part.length > 1 ? s("polyline", { class: "line", points: part.join(" ") })
        : s("circle", { class: "bar", cx: part[0].split(",")[0], cy: part[0].split(",")[1], r: 2 })))),
    h("figcaption", { class: "dim" }, h("strong", null, title), `: ${words}`));
}

export function lastDay(history) {
  const samples = history?.samples ?? [];
  return h("section", { key: "history", "aria-labelledby": "history" }, h("h2", { id: "history" }, "The last day"),
    samples.length ? [
      h("p", { class: "dim" }, `Since ${moment(samples[0].at_ms)}, a value a minute; it begins anew when the coordinator does.`),
      h("div", { class: "racks" },
        line("Written", samples, (each) => each.bytes_per_s, (value) => `${size(value)}/s`),
        line("Changes of names", samples, (each) => each.changes_per_s, (value) => `${value.toFixed(1)}/s`),
        line("A commit takes", samples, (each) => each.commit_ms, milliseconds),
        line("Space used", samples, (each) => each.used_bytes, size, samples.at(-1).capacity_bytes)),
    ] : h("p", { class: "dim" }, "The first value comes a minute after the coordinator's start."));
}

// Numbers for people, in the manner of `peacefs report`.

// With the zone: people of several zones look at one cluster.
const MOMENT = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" };
// Controls, separators of lines, and what reorders the text around it, as commands escape them.
const UNPRINTABLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const ESCAPES = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };

export function printable(text) {
  return text.replace(UNPRINTABLE, (each) => ESCAPES[each] ?? `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function size(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${UNITS[unit]}`;
}

export function percent(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(1)} %` : "0 %";
}

export function seconds(s) {
  if (s === null || s === undefined) return "unknown";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

export function milliseconds(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : seconds(ms / 1000);
}

export function moment(ms) {
  return ms ? new Date(ms).toLocaleString(undefined, MOMENT) : "never";
}

export function count(number, one, many) {
  return `${number} ${number === 1 ? one : (many ?? `${one}s`)}`;
}

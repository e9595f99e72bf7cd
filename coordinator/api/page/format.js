// Numbers for people, in the manner of `peacefs report`.

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
  return ms ? new Date(ms).toLocaleString() : "never";
}

export function count(number, one, many) {
  return `${number} ${number === 1 ? one : (many ?? `${one}s`)}`;
}

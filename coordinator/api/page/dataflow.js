// What the program of a dataflow reports: its graph as a table, checkpoints, recoveries, rows.

import { h, table } from "./dom.js";
import { milliseconds, percent, size } from "./format.js";

export function figures(report) {
  const { dataflow, name } = report;
  const ends = [...dataflow.sources.map((each) => ["source", each]), ...dataflow.sinks.map((each) => ["sink", each])];
  const late = Object.entries(dataflow.late_rows);
  return h("div", null,
    table(`Units of ${name}`, ["Unit", "Reads", "On", ["Checkpoints", "number"], ["The last wrote", "number"], ["in", "number"], ["Recoveries", "number"], ["The last took", "number"]],
      dataflow.units.map((unit) => ({
        key: unit.name,
        cells: [
          unit.name, unit.reads.join(", "), unit.node || "nowhere", unit.checkpoints, size(unit.checkpoint_bytes), milliseconds(unit.stored_ms),
          unit.recoveries, unit.recoveries ? milliseconds(unit.recovery_ms) : "",
        ],
      }))),
    table(`Rows of ${name}`, ["", "Name", ["Rows", "number"], ["A second", "number"], ["Waits for room", "number"]],
      ends.map(([kind, each]) => ({
        key: `${kind} ${each.name}`,
        cells: [kind, each.name, each.rows, Math.round(each.rows_per_second), kind === "source" ? percent(each.waiting, 1) : ""],
      }))),
    late.length ? h("p", null, `Late rows that were left out: ${late.map(([operator, rows]) => `${rows} by ${operator}`).join(", ")}.`) : null);
}

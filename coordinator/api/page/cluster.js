// Racks, datanodes and disks; alerts in words; repairs; coordinators.

import { actions } from "./actions.js";
import { badge, h, show, table, tiles } from "./dom.js";
import { count, percent, seconds, size } from "./format.js";
import { meter } from "./charts.js";
import { lastDay } from "./history.js";
import { ask, session } from "./session.js";

const LEVELS = { critical: "Critical", warning: "Warning", notice: "Notice" };

const HISTORY_MS = 60_000;

export function open(shell) {
  let view = null;
  let history = null;
  const draw = () => { if (view) show(shell.main, page(view, history)); };
  const abort = new AbortController();
  const recall = async () => {
    if (document.visibilityState === "hidden") return;
    try {
      history = await ask("/v1/history", {}, { signal: abort.signal });
      draw();
    } catch {
      // The live view says what is wrong.
    }
  };
  const timer = setInterval(recall, HISTORY_MS);
  shell.follow("cluster", (now) => {
    const isFirst = view === null;
    view = now;
    draw();
    if (isFirst) recall();
  });
  return () => {
    clearInterval(timer);
    abort.abort();
  };
}

function page({ status, alerts, repair, streams }, history) {
  const living = status.datanodes.filter((each) => each.state !== "dead");
  const sum = (key) => living.reduce((total, each) => total + each[key], 0);
  const alive = status.datanodes.filter((each) => each.state === "alive").length;
  return [
    h("h1", { key: "title" }, "Cluster"),
    tiles([
      ["State", status.ready ? "ready" : "waiting", `epoch ${status.epoch}`],
      ["Datanodes alive", `${alive} of ${status.datanodes.length}`],
      ["Used", size(sum("used_bytes")), `${percent(sum("used_bytes"), sum("capacity_bytes"))} of ${size(sum("capacity_bytes"))}`],
      ["Chunks", status.chunks.total],
      ["Lacking replicas", status.chunks.under_replicated, `${status.chunks.missing} missing`],
      ["Metadata's disk", size(status.metadata_room_bytes), "left"],
    ]),
    h("section", { key: "alerts", "aria-labelledby": "alerts" }, h("h2", { id: "alerts" }, "Alerts"),
      h("div", { role: "status" }, alerts.length
        ? h("ul", { class: "alerts" }, alerts.map((alert) =>
          h("li", { class: alert.level, key: `${alert.level} ${alert.text}` },
            h("p", null, h("strong", null, `${LEVELS[alert.level]}: `), alert.text), h("p", null, alert.advice))))
        : h("p", null, "None: all is well."))),
    repairs(repair),
    h("section", { key: "racks", "aria-labelledby": "racks" }, h("h2", { id: "racks" }, "Racks"), racks(status.datanodes, streams)),
    lastDay(history),
    coordinators(status.failover),
  ];
}

function repairs({ left, done, per_second, left_s, copies }) {
  if (!left && !copies.length && !done) return h("section", { key: "repair", hidden: true });
  const all = left + done;
  const words = left
    ? `${done} of ${count(all, "chunk")} have their replicas back; ${left} to go at ${per_second} a second, ${left_s === null ? "for an unknown time" : `about ${seconds(left_s)}`}.`
    : `The last repair is done: ${count(done, "replica was", "replicas were")} made again.`;
  return h("section", { key: "repair", "aria-labelledby": "repair" }, h("h2", { id: "repair" }, "Repair"),
    h("p", { id: "repair-words" }, words),
    h("progress", { max: Math.max(1, all), value: left ? done : Math.max(1, all), "aria-labelledby": "repair-words" }),
    copies.length ? table("Copies under way", ["Chunk", "From", "To", ["Size", "number"], ["Since", "number"]],
      copies.map((copy) => ({
        key: copy.chunk,
        cells: [h("a", { href: `#/files/?chunk=${copy.chunk}` }, copy.chunk), copy.source, copy.target, size(copy.bytes), seconds(copy.since_s)],
      }))) : null);
}

function racks(datanodes, streams) {
  if (!datanodes.length) return h("p", { class: "dim" }, "No datanode has registered.");
  const byRack = new Map();
  for (const each of datanodes) byRack.set(each.rack, [...(byRack.get(each.rack) ?? []), each]);
  return h("div", { class: "racks" }, [...byRack].sort(([a], [b]) => a.localeCompare(b)).map(([rack, there]) =>
    h("div", { class: "rack", key: rack }, h("h3", null, `Rack ${rack}`), there.map((each) => datanode(each, streams[each.node] ?? 0)))));
}

const KINDS = { alive: "good", suspect: "warn", dead: "bad" };

function datanode(node, streams) {
  const slow = node.slow_reasons.map((found) => h("div", { key: found.part, class: "slow" },
    h("p", null, badge("slow", "warn"), ` ${found.part === "hop" ? "as a hop of pipelines" : "at its disk"}: ${found.seconds.toFixed(3)} s a MiB over ${count(found.chunks, "chunk")}; `,
      `the median of ${count(found.compared, "datanode")} is ${found.median.toFixed(3)}`),
    h("p", null, found.reason),
    h("p", null, h("strong", null, "To do: "), found.advice),
    h("p", { class: "dim" }, `${found.part === "hop" ? `Measured by ${found.measured_by.join(", ")}` : "As it measured itself"}; slow for ${seconds(found.since_s)}, last measured ${seconds(found.found_s)} ago`)));
  return h("div", { class: "card", key: node.node, "data-node": node.node },
    h("div", { class: "row" }, h("strong", null, node.node), badge(node.state, KINDS[node.state]),
      node.service === "in service" ? null : badge(node.service, "warn"),
      h("span", { class: "dim end" }, node.host ? `${node.host}:${node.data_port}` : "")),
    meter(node.used_bytes, node.capacity_bytes, `${percent(node.used_bytes, node.capacity_bytes)} of ${node.node} used`),
    h("p", { class: "dim" }, `${size(node.used_bytes)} of ${size(node.capacity_bytes)}, ${size(node.available_bytes)} free; `,
      `${count(node.replicas, "replica")}, ${count(streams, "chunk")} on the way`),
    node.silent_s ? h("p", null, `Its last heartbeat came ${seconds(node.silent_s)} ago`) : null,
    node.to_drain ? h("p", null, `${count(node.to_drain, "chunk")} still to be copied before it may leave`) : null,
    slow,
    node.disks.length ? h("details", null, h("summary", null, count(node.disks.length, "disk")), h("ul", null, node.disks.map((disk) =>
      h("li", { key: disk.directory }, h("span", { class: "mono" }, disk.directory), " ",
        badge(disk.state, disk.state === "working" ? "good" : "bad"), ` ${size(disk.used_bytes)} of ${size(disk.capacity_bytes)}, ${count(disk.replicas, "replica")}`,
        disk.fault ? h("span", { class: "error" }, ` ${disk.fault}`) : null)))) : null,
    session.told?.administers ? decisions(node) : null);
}

const MAINTENANCE_HOURS = 4;

/** What an administrator may decide of a datanode, as `peacefs datanodes` does. */
function decisions({ node, service }) {
  const decide = async (verb, parameters = {}) => `${node}: ${(await ask(`/v1/datanodes/${encodeURIComponent(node)}/${verb}`, parameters, { method: "POST" })).service}`;
  return actions(`Decide of ${node}`, [
    service === "in service" && {
      key: `decommission ${node}`, label: "Decommission", yes: `Decommission ${node}`,
      question: `${node} gets no new chunks, and all that it holds is copied to others. To undo it, take it into service again.`,
      run: () => decide("decommission"),
    },
    service === "in service" && {
      key: `maintenance ${node}`, label: "Maintenance", yes: `Put ${node} into maintenance`,
      question: `${node} gets no new chunks, and may be away for some hours: what it holds is not copied meanwhile.`,
      fields: [{ name: "hours", label: "Hours", type: "number", min: "0.1", step: "any", value: MAINTENANCE_HOURS }],
      run: ({ hours }) => decide("maintenance", { hours }),
    },
    service !== "in service" && {
      key: `recommission ${node}`, label: "Take into service", yes: `Take ${node} into service`,
      question: `${node} gets new chunks again.`, run: () => decide("recommission"),
    },
  ]);
}

function coordinators(failover) {
  if (!failover) return h("section", { key: "coordinators", hidden: true });
  return h("section", { key: "coordinators", "aria-labelledby": "coordinators" }, h("h2", { id: "coordinators" }, "Coordinators"),
    h("p", { class: "dim" }, `The journal has ${size(failover.journal_bytes)}, up to entry ${failover.journal_entries}.`),
    table("Coordinators that share the journal", ["Address", "Part", ["Entries behind", "number"], "May take over"],
      failover.coordinators.map((each) => ({
        key: each.address,
        cells: [each.address, each.leads ? badge("leader", "good") : badge("standby"), each.lag, each.leads ? "leads" : each.is_warm ? "yes" : "not yet"],
      })), "None has stated itself yet."));
}

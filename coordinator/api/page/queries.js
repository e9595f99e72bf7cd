// Supervised queries, the agents that run them, and what drivers report.

import { actions } from "./actions.js";
import { figures } from "./dataflow.js";
import { badge, h, sheet, show, table } from "./dom.js";
import { count, milliseconds, moment, seconds } from "./format.js";
import { ask } from "./session.js";

const PHASES = { running: "good", failed: "bad", waiting: "warn", starting: "warn", stopping: "warn" };

export function open(shell) {
  // What was asked for stays, while everything around it changes.
  const logs = new Map();
  let view = null;
  const draw = () => show(shell.main, h("h1", { key: "title" }, "Supervised queries"), page(view, logs, look));
  const look = async (name) => {
    logs.set(name, "The agent is asked for it.");
    draw();
    try {
      const log = await ask(`/v1/queries/${encodeURIComponent(name)}/log`);
      logs.set(name, `Run ${log.run} on ${log.agent}:\n${log.text}`);
    } catch (error) {
      logs.set(name, error.message);
    }
    draw();
  };
  shell.follow("queries", (now) => {
    view = now;
    draw();
  });
}

function page({ supervised, reports }, logs, look) {
  return [
    h("section", { key: "queries" }, h("h2", null, "Queries"), supervised.queries.length ? cards(supervised.queries, reports, logs, look)
      : h("p", { class: "dim" }, "None is registered. ", h("code", null, "peacefs supervise -- COMMAND"), " registers one.")),
    h("section", { key: "agents" }, h("h2", null, "Agents"), table("Agents that are alive", ["Agent", "Host", "Rack", "May start", ["Runs", "number"], ["Heard", "number"]],
      supervised.agents.map((agent) => ({
        key: agent.name,
        cells: [agent.name, agent.host, agent.rack, agent.commands.join(", "), `${agent.runs} of ${agent.runs_max}`, `${seconds(agent.heard_s_ago)} ago`],
      })), "No agent is alive: nothing is started.")),
  ];
}

const SORTS = ["Name", "Phase", "Changed", "User", "Agent", "Checkpoint"];

function cards(queries, reports, logs, look) {
  const rows = queries.map((query) => ({ query, values: [query.name, query.phase, query.changed_ms, query.user, query.agent, query.checkpoint] }));
  return sheet("Queries", SORTS, rows, (shown, sort) => [
    sort ? h("div", { class: "row", role: "group", "aria-label": "Sort queries", key: "sort" }, SORTS.slice(0, 3).map((name, column) =>
      h("button", { type: "button", class: "quiet", "aria-pressed": sort.column === column ? "true" : "false", onclick: () => sort.by(column) }, `By ${name.toLowerCase()}`,
        sort.column === column ? (sort.down ? " \u2193" : " \u2191") : null))) : null,
    h("div", { class: "racks", key: "cards" }, shown.map(({ query }) => card(query, reports, logs, look))),
  ]);
}

function card(query, reports, logs, look) {
  const report = reports.find((each) => query.location && each.location === query.location);
  return h("div", { class: "card", key: query.name, "data-query": query.name },
    h("div", { class: "row" }, h("h3", null, query.name), badge(query.phase, PHASES[query.phase]), h("span", { class: "dim end" }, query.user)),
    h("p", null, query.agent ? `On ${query.agent}, run ${query.run}, since ${moment(query.changed_ms)}` : `Since ${moment(query.changed_ms)}`),
    query.reason ? h("p", null, `Because: ${query.reason}`) : null,
    h("p", { class: "dim" }, `${count(query.restarts, "restart")} of ${query.restarts_max} allowed; it may run on ${query.nodes.length ? query.nodes.join(", ") : "any agent"}.`),
    h("p", { class: "mono" }, query.command.join(" ")),
    query.checkpoint ? h("p", null, h("a", { href: `#/checkpoints${query.checkpoint.split("/").map(encodeURIComponent).join("/")}` }, query.checkpoint)) : null,
    report ? lastBatch(report) : null,
    report?.dataflow ? figures(report) : null,
    query.run ? h("p", null, h("button", { type: "button", onclick: () => look(query.name) }, logs.has(query.name) ? "Look at the log again" : "Look at its log")) : null,
    decisions(query),
    logs.has(query.name) ? h("pre", { tabindex: "0", role: "region", "aria-label": `Log of ${query.name}` }, logs.get(query.name)) : null);
}

const OVER = ["ended", "stopped", "failed"];
const STOP_LOOK_MS = 500;
const STOP_LOOKS_MAX = 240;

/** What the query's user, or a superuser, may do with it, as `peacefs supervise` does. */
function decisions(query) {
  const place = `/v1/queries/${encodeURIComponent(query.name)}`;
  const stop = () => ask(`${place}/stop`, {}, { method: "POST" });
  const start = () => ask("/v1/queries", {}, {
    method: "POST",
    body: {
      name: query.name, user: query.user, command: query.command, checkpoint: query.checkpoint, nodes: query.nodes,
      restarts_max: query.restarts_max, standby: Boolean(query.standby),
    },
  });
  const restart = async () => {
    await stop();
    for (let looks = 0; !OVER.includes((await ask(place)).phase); looks += 1) {
      if (looks === STOP_LOOKS_MAX) throw new Error(`${query.name} is told to stop, and has not stopped within two minutes; start it when it has.`);
      await new Promise((done) => { setTimeout(done, STOP_LOOK_MS); });
    }
    await start();
    return `${query.name} was stopped, and is to be started again.`;
  };
  const isOver = OVER.includes(query.phase);
  return actions(`Decide of ${query.name}`, [
    isOver && {
      key: `start ${query.name}`, label: "Start", yes: `Start ${query.name}`,
      question: `${query.name} goes on from its checkpoint, with the command above.`,
      run: async () => { await start(); return `${query.name} is to be started.`; },
    },
    isOver && {
      key: `forget ${query.name}`, label: "Forget", yes: `Forget ${query.name}`,
      question: `${query.name} is no longer listed. Its checkpoint stays.`,
      run: async () => { await ask(place, {}, { method: "DELETE" }); return `${query.name} is forgotten.`; },
    },
    !isOver && query.phase !== "stopping" && {
      key: `stop ${query.name}`, label: "Stop", yes: `Stop ${query.name}`,
      question: `The driver of ${query.name} is ended. It can be started again, from its checkpoint.`,
      run: async () => { await stop(); return `${query.name} is told to stop.`; },
    },
    !isOver && query.phase !== "stopping" && {
      key: `restart ${query.name}`, label: "Restart", yes: `Restart ${query.name}`,
      question: `The driver of ${query.name} is ended, and another is started from its checkpoint.`, run: restart,
    },
  ]);
}

/** What a driver said last. */
export function lastBatch(report) {
  const batch = report.last_batch;
  const state = report.state === "failed" ? `failed: ${report.error}` : report.state;
  return h("div", null,
    h("p", null, `The driver (process ${report.pid} on ${report.host}) says: ${state}, at ${moment(report.reported_ms)}.`),
    batch ? h("p", { class: "dim" }, `Batch ${batch.batch}: ${batch.rows} rows, ${Math.round(batch.rows_per_second)} a second, in ${milliseconds(batch.durations_ms.triggerExecution ?? 0)}; `
      + `writing the checkpoint took ${milliseconds(batch.offsets_ms + batch.commits_ms + batch.state_ms)}.`) : null);
}

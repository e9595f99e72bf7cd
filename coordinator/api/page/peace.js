// The scheduler: the network's load, who writes to whom, what waits and why, the last minutes, and dry runs.

import { badge, h, show, table, tiles } from "./dom.js";
import { count, seconds, size } from "./format.js";
import { ago, bars, timeline, topology } from "./charts.js";
import { ask, Refused } from "./session.js";

// Each policy, and what it does.
const POLICIES = {
  random: "Every chunk at once, at random nodes, as HDFS does. Chunks share disks and links, so all end late.",
  paper: "Algorithm 1 of the SGuard paper: steps, with one path for each replica. A step waits for its slowest chunks.",
  "paper-3": "Algorithm 1 with three chunks at a time across racks: fewer chunks share the links.",
  "paper-5": "Algorithm 1 with five chunks at a time across racks: more chunks at once, each slower.",
  flow: "Steps like Algorithm 1, each planned as a whole by minimum cost flow.",
  express: "The default: a chunk starts as soon as its whole pipeline has room; the set with the fewest remaining bytes is first.",
  timely: "Like express, but bulk writes come last and small checkpoints pass. All writers here are equally urgent, so it plans as express.",
};
const USUAL = ["random", "paper", "flow", "express", "timely"];

export function open(shell) {
  const live = h("div", { id: "peace" });
  const plans = h("div", { id: "plans" });
  const abort = new AbortController();
  let view = null;
  show(shell.main, h("h1", { key: "title" }, "Peace"));
  shell.main.append(live, dryRun(plans, () => view, shell, abort.signal), plans);
  shell.follow("peace", (now) => {
    view = now;
    show(live, page(now));
  });
  return () => abort.abort();
}

function page({ schedule, network, with_room, waiting, spans, span_s, recurrences }) {
  const times = schedule.waiting_times;
  return [
    tiles([
      ["Policy", schedule.policy],
      ["Being written", count(schedule.grants_in_flight, "chunk"), `${schedule.granted_total} granted so far`],
      ["Waiting", count(schedule.chunks_waiting, "chunk"), `of ${count(schedule.sets_waiting, "write set")}`],
      ["Wait", seconds(times.median_s), `median; 95 % below ${seconds(times.p95_s)}`],
      ["A chunk takes", seconds(times.chunk_s)],
      ["Too small to wait", count(schedule.fast_lane_chunks_total, "chunk"), size(schedule.fast_lane_bytes_total)],
    ]),
    h("section", { key: "network", "aria-labelledby": "network" }, h("h2", { id: "network" }, "Links now"),
      h("p", { class: "dim" }, "Chunks on their way over each link, \u2193 away from the root and \u2191 towards it. "
        + (network.described ? "The network, and what each link carries, is that of the topology file." : "Nobody has described the network: racks hang below one root, and links are taken for ample.")),
      network.servers.length ? topology(network, new Set(with_room)) : h("p", null, "No datanode is alive.")),
    h("section", { key: "grants" }, h("h2", null, "Being written"), table("Who writes to whom",
      [["Write set", "name"], "From", "Through", ["Size", "number"], ["Waited", "number"], ["Since", "number"], ["Done in about", "number"]],
      schedule.grants.map((grant) => ({
        key: `${grant.epoch} ${grant.number} ${grant.chunk}`,
        cells: [grant.root ?? grant.write_set, grant.writer ?? "outside", grant.pipeline.join(" \u2192 "), size(grant.bytes), seconds(grant.waited_s), seconds(grant.granted_s_ago),
          grant.idle ? badge("its writer stalls", "warn") : seconds(Math.max(0, times.chunk_s - grant.granted_s_ago))],
      })), "No large chunk is being written.")),
    h("section", { key: "waiting" }, h("h2", null, "Waiting"), table("What waits, and why",
      [["Write set", "name"], "From", ["Chunks", "number"], ["Size", "number"], ["For", "number"], ["Starts in", "number"], ["Done in", "number"], "Because"],
      schedule.queue.map((queued, number) => ({
        key: queued.write_set,
        cells: [queued.root ?? queued.write_set, queued.writer ?? queued.host ?? "outside", queued.chunks_waiting, size(queued.bytes_waiting), seconds(queued.age_s),
          seconds(queued.expected_start_s), seconds(waiting[number]?.expected_end_s), waiting[number]?.why ?? ""],
      })), "Nothing waits.")),
    h("section", { key: "recurrences" }, h("h2", null, "What comes back"), table("Writes that come back, and when",
      [["Root", "name"], "Class", ["Every", "number"], ["Next in", "number"], ["Spread", "number"], ["Size", "number"], ["Takes", "number"], ["Times", "number"]],
      recurrences.recurrences.map((each) => ({
        key: `${each.root} ${each.write_class}`,
        cells: [each.root, each.write_class, seconds(each.period_s), seconds(each.next_in_s), seconds(each.spread_s), size(each.bytes), seconds(each.duration_s), each.occurrences],
      })), "Nothing has come back regularly.")),
    h("section", { key: "line" }, h("h2", null, "The last minutes"), lastMinutes(network, spans, span_s)),
  ];
}

function lastMinutes(network, spans, span_s) {
  const names = new Set([...network.servers.map((each) => each.server), ...spans.flatMap((each) => each.nodes)]);
  if (!spans.length) return h("p", { class: "dim" }, "No large chunk was written in the last minutes.");
  // No more than there is to see: a burst fills the picture.
  const span = Math.min(span_s, Math.max(20, ...spans.map((each) => each.from_s)));
  const rows = [...names].sort().map((name) => [name, spans.filter((each) => each.nodes.includes(name)).map((each) => ({
    from: -each.from_s,
    to: each.to_s === null ? 0 : -each.to_s,
    kind: each.to_s === null ? "bar-warn" : each.bytes ? "bar" : "bar-bad",
    title: `${each.write_set}, grant ${each.number}: ${each.to_s === null ? "under way" : `${size(each.bytes)} in ${seconds(each.from_s - each.to_s)}`}, through ${each.nodes.join(", ")}`,
  }))]);
  return [
    loadOfAMinute(spans),
    h("p", { class: "dim" }, "Each bar is a grant: blue when it was written, amber while it is, red when nothing came of it."),
    timeline(`Grants of each datanode in the last ${seconds(span)}`, rows, [-span, 0], ago),
  ];
}

// The bytes of large chunks in each two seconds of the last minute, if each chunk was written at an even rate.
function loadOfAMinute(spans) {
  const step = 2;
  const loads = Array.from({ length: 60 / step }, (_, number) => {
    const begin = -60 + number * step;
    const bytes = spans.reduce((sum, each) => {
      const to = each.to_s === null ? 0 : -each.to_s;
      const shared = Math.min(to, begin + step) - Math.max(-each.from_s, begin);
      return shared > 0 && each.to_s !== null ? sum + (each.bytes * shared) / Math.max(0.1, to + each.from_s) : sum;
    }, 0);
    return [ago(begin), bytes / step];
  });
  return bars("Large chunks written per second, over the last minute", loads, (value) => `${size(value)} a second`);
}

// -- dry runs ------------------------------------------------------------------------------------

function dryRun(plans, view, shell, signal) {
  const number = (name, words, value, max) =>
    h("label", null, words, h("input", { name, type: "number", min: "1", max, value, required: true }));
  const submitted = async (event) => {
    event.preventDefault();
    const { elements } = event.target;
    const chosen = Object.keys(POLICIES).filter((policy) => elements[policy].checked);
    const values = Object.fromEntries(["writers", "chunks", "replication"].map((name) => [name, Number(elements[name].value)]));
    const button = elements.plan;
    button.disabled = true;
    try {
      await run(plans, view(), chosen, values, elements.place.value, signal);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error instanceof Refused && error.status === 401) shell.login(error.message);
      else show(plans, h("p", { class: "error", role: "alert" }, error.message));
    } finally {
      button.disabled = false;
    }
  };
  return h("section", { "aria-labelledby": "dry" }, h("h2", { id: "dry" }, "Dry run"),
    h("p", { class: "dim" }, "Where each policy would place the chunks of some writers in this cluster if it were idle, and when. Nothing is reserved."),
    h("form", { class: "plain", onsubmit: submitted },
      h("fieldset", null, h("legend", null, "Policies"), Object.keys(POLICIES).map((policy) =>
        h("label", null, h("input", { type: "checkbox", name: policy, checked: USUAL.includes(policy) }), policy))),
      number("writers", "Writers", "4", "64"), number("chunks", "Chunks of 64 MiB each", "4", "64"), number("replication", "Replicas", "3", "16"),
      h("label", null, "Writers are", h("select", { name: "place" }, h("option", { value: "on" }, "on datanodes"), h("option", { value: "outside" }, "outside"))),
      h("button", { name: "plan" }, "Plan")));
}

async function run(plans, view, chosen, { writers, chunks, replication }, place, signal) {
  const servers = (view?.network.servers ?? []).map((each) => each.server);
  const requests = Array.from({ length: writers }, (_, each) => ({
    writer: place === "on" && servers.length ? servers[each % servers.length] : null, replication, chunks,
  }));
  const results = [];
  const draw = (under) => show(plans, h("section", { "aria-labelledby": "planned" }, h("h2", { id: "planned" }, "Plans side by side"),
    h("p", { role: "status" }, under ? `Planning with ${under}.` : `${count(results.length, "policy", "policies")} compared.`),
    table("How long each would take", ["Policy", ["First writer done", "number"], ["Mean of writers", "number"], ["Last writer done", "number"], ["Without a place", "number"], "What it does"], results.map(({ policy, plan, error }) => {
      const done = plan ? ends(plan) : [];
      return {
        key: policy,
        cells: [policy, done.length ? seconds(Math.min(...done)) : "", done.length ? seconds(done.reduce((sum, each) => sum + each, 0) / done.length) : "", plan ? seconds(end(plan)) : "",
          plan?.unplaced.length ?? "", error ?? POLICIES[policy]],
      };
    }), "Nothing yet."),
    results.filter(({ plan }) => plan?.assignments.length).map(({ policy, plan }) => drawn(policy, plan, servers, Math.max(...results.map((each) => (each.plan ? end(each.plan) : 0)))))));
  for (const policy of chosen) {
    draw(policy);
    try {
      results.push({ policy, plan: await ask("/v1/plan", {}, { method: "POST", body: { policy, requests }, signal }) });
    } catch (error) {
      if (!(error instanceof Refused) || error.status === 401) throw error;
      results.push({ policy, error: error.message });
    }
  }
  draw(null);
}

// When each writer has written its last chunk.
function ends(plan) {
  const done = new Map();
  for (const each of plan.assignments) done.set(each.request, Math.max(done.get(each.request) ?? 0, each.end_s));
  return [...done.values()];
}

function end(plan) {
  return Math.max(0, ...plan.assignments.map((each) => each.end_s));
}

function drawn(policy, plan, servers, until) {
  const names = [...new Set([...servers, ...plan.assignments.flatMap((each) => each.pipeline)])].sort();
  const rows = names.map((name) => [name, plan.assignments.filter((each) => each.pipeline.includes(name)).map((each) => ({
    from: each.start_s, to: each.end_s,
    kind: each.request % 2 ? "bar-idle" : "bar",
    title: `writer ${each.request + 1}, chunk ${each.chunk + 1}: ${each.pipeline.join(" \u2192 ")}, ${seconds(each.start_s)} to ${seconds(each.end_s)}`,
  }))]);
  return h("div", { key: policy, "data-plan": policy }, h("h3", null, `${policy}: ${seconds(end(plan))}`), timeline(`Chunks at each datanode by ${policy}`, rows, [0, until], seconds));
}

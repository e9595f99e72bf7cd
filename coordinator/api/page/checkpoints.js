// Checkpoints of queries: how they go, and one opened to its batches and files.

import { badge, facts, h, show, table } from "./dom.js";
import { count, milliseconds, moment, size } from "./format.js";
import { bars } from "./charts.js";
import { ask, Refused } from "./session.js";
import { lastBatch } from "./queries.js";

export function open(shell, fragment) {
  const path = fragment && fragment !== "/" ? fragment : "";
  const place = h("div", { id: "checkpoints" });
  const now = h("div", { id: "now" });
  const abort = new AbortController();
  shell.main.append(place, now);
  shell.follow("queries", ({ reports }) => show(now, driver(reports, path)));
  const failed = (error) => {
    if (error.name === "AbortError") return;
    if (error instanceof Refused && error.status === 401) shell.login(error.message);
    else show(place, h("h1", null, path || "Checkpoints"), h("p", { class: "error", role: "alert" }, error.message), again());
  };
  const look = () => {
    show(place, h("h1", null, path || "Checkpoints"), h("p", { role: "status" }, "Reading the checkpoints' files."));
    (path ? one(path, place, abort.signal, again) : all(place, abort.signal, again)).catch(failed);
  };
  const again = () => h("p", null, h("button", { type: "button", onclick: look }, "Look again"));
  look();
  return () => abort.abort();
}

function link(path) {
  return `#/checkpoints${path.split("/").map(encodeURIComponent).join("/")}`;
}

function filesLink(path) {
  return `#/files${path.split("/").map(encodeURIComponent).join("/")}`;
}

function driver(reports, path) {
  const shown = reports.filter((each) => !path || each.location.replace(/\/\.run-[0-9a-f-]+/, "") === path);
  if (!shown.length) return h("section", { hidden: true });
  return h("section", null, h("h2", null, "What drivers say now"), shown.map((report) =>
    h("div", { key: report.location }, h("h3", null, report.name || report.location), lastBatch(report))));
}

/** Batches a minute, from when the last ones were committed. */
function perMinute(batches) {
  const times = batches.map((each) => each.committed_ms).filter(Boolean);
  if (times.length < 2) return null;
  return (60_000 * (times.length - 1)) / Math.max(1, times.at(-1) - times[0]);
}

async function all(place, signal, again) {
  const whole = { path: "/", partial: true };
  const { checkpoints } = await ask("/v1/checkpoints", whole, { signal });
  const { units } = await ask("/v1/checkpoints/units", whole, { signal });
  const { families } = await ask("/v1/checkpoints/ancestry", { path: "/" }, { signal });
  // Forks, and what rollbacks kept, have the query's id in common, also those that nothing was recorded of.
  const relatives = (each) => checkpoints.filter((other) => other.query && other.query === each.query && other.root !== each.root).length;
  show(place, h("h1", null, "Checkpoints"), again(), h("section", null, table("Checkpoints of Spark queries",
    [["Checkpoint", "name"], ["Planned", "number"], ["Committed", "number"], ["Last batches took", "number"], ["Size", "number"], "Written", "Run", ["Of the same query", "number"]],
    checkpoints.map((each) => ({
      key: each.root,
      values: [each.root, each.planned ?? -1, each.committed ?? -1, each.durations_ms.length ? each.durations_ms.reduce((a, b) => a + b, 0) / each.durations_ms.length : -1,
        each.bytes, each.modified_ms, each.run?.run ?? "", relatives(each)],
      cells: [h("a", { href: link(each.root) }, each.root), each.planned ?? "none", each.committed ?? "none",
        each.durations_ms.some(Boolean) ? milliseconds(each.durations_ms.reduce((a, b) => a + b, 0) / each.durations_ms.length) : "", size(each.bytes), moment(each.modified_ms),
        each.run ? `${each.run.run}${each.run.host ? ` on ${each.run.host}` : ""}${each.run.ended_ms ? " (over)" : ""}` : "none",
        relatives(each) ? count(relatives(each), "other") : "none"],
    })), "There are none that you may list."),
    h("p", { class: "dim" }, "Directories that you may not list are left out.")),
  families.length ? h("section", { "aria-labelledby": "ancestry" }, h("h2", { id: "ancestry" }, "Made of each other"),
    h("p", { class: "dim" }, "Forks, rollbacks, imports and copies, each below what it was made of."),
    families.map((family) => tree(family.members))) : null,
  units.length ? h("section", null, unitsTable(units)) : null);
}

function unitsTable(units) {
  return table("Units of dataflows, and programs with state in pages",
    [["Checkpoint", "name"], "Query", "Unit", "Technique", ["Begins with", "number"], ["Pages", "number"], ["Size", "number"], "Written"],
    units.map((each) => ({
      key: `${each.root} ${each.unit}`,
      values: [each.root, each.query ?? "", each.unit, each.technique ?? "", each.sequence ?? -1, each.pages, each.bytes, each.modified_ms],
      cells: [h("a", { href: filesLink(each.root) }, each.root), each.query ?? "", each.unit, each.technique ?? "", each.sequence ?? "nothing", each.pages, size(each.bytes), moment(each.modified_ms)],
    })));
}

/** Where no query of Spark's has a checkpoint: units of a dataflow, or nothing yet. */
function showUnits(path, units, place, again) {
  show(place, h("nav", { "aria-label": "Path" }, h("ol", { class: "crumbs" }, h("li", null, h("a", { href: "#/checkpoints" }, "Checkpoints")))),
    h("h1", null, path), again(),
    h("section", null, units.length ? unitsTable(units) : h("p", null, "It has no checkpoint yet, neither of a query of Spark's nor of a dataflow.")),
    h("p", null, h("a", { href: filesLink(path) }, "Its files")));
}

const DEPTH_MAX = 12;

/** A family as lists in lists. Its members come from the top down, each with its depth. `here` is not a link. */
function tree(members, here) {
  const top = h("ul", { class: "tree", "aria-label": `Made of ${members[0].path || "a checkpoint that is gone"}` });
  const lists = [top];
  for (const member of members) {
    const depth = Math.min(member.depth, DEPTH_MAX);
    if (!lists[depth]) {
      lists[depth] = h("ul");
      lists[depth - 1].lastChild.append(lists[depth]);
    }
    lists.length = depth + 1;
    lists[depth].append(h("li", null, relative(member, here)));
  }
  return top;
}

const PRESENCE = { gone: "gone", replaced: "gone; another checkpoint is there now" };

function relative({ path, presence, committed, made, damaged, lacks_older }, here) {
  const name = path || "a checkpoint";
  return h("div", { class: "row" },
    made ? badge(made.kind, "calm") : null,
    path === here ? h("strong", { "aria-current": "page" }, name) : presence === "here" ? h("a", { href: link(path) }, name) : h("span", null, name),
    presence === "here" ? null : badge(PRESENCE[presence], "warn"),
    damaged ? badge("its record of where it came from is damaged", "bad") : null,
    h("span", { class: "dim" }, [
      made ? step(made) : null,
      presence === "here" ? (committed === null ? "no batch is done" : `batch ${committed} is the latest`) : null,
      lacks_older ? "older steps were dropped" : null,
    ].filter(Boolean).join("; ")));
}

/** How and when something was made, and by whom; fields that are as if not said do not come. */
function step({ kind, source, batch, before, at_ms, user }) {
  const how = {
    fork: batch === undefined ? "" : `at batch ${batch}`,
    rollback: `from batch ${before} to ${batch}`,
    repartition: `by batch ${batch}`,
    import: `of ${source}`,
  }[kind];
  return [how, at_ms ? moment(at_ms) : "", user ? `by ${user}` : ""].filter(Boolean).join(", ");
}

async function one(path, place, signal, again) {
  let checkpoint;
  try {
    checkpoint = await ask("/v1/checkpoints/show", { path }, { signal });
  } catch (error) {
    // 404 as well: a query that is supervised may not have begun.
    if (!(error instanceof Refused) || ![400, 404].includes(error.status)) throw error;
    const { units } = error.status === 404 ? { units: [] } : await ask("/v1/checkpoints/units", { path, partial: true }, { signal });
    showUnits(path, units, place, again);
    return;
  }
  const { batches } = await ask("/v1/checkpoints/batches", { path }, { signal });
  const rate = perMinute(batches);
  const opened = h("div", { id: "batch" });
  const verdict = h("div", { id: "verdict" });
  const verify = async (event) => {
    event.target.disabled = true;
    show(verdict, h("p", { role: "status" }, "Reading all that a start would read."));
    try {
      show(verdict, judged(await ask("/v1/checkpoints/verify", { path }, { signal })));
    } catch (error) {
      if (error.name !== "AbortError") show(verdict, h("p", { class: "error", role: "alert" }, error.message));
    } finally {
      event.target.disabled = false;
    }
  };
  const done = batches.filter((each) => each.committed_ms);
  const family = h("div", { id: "family" });
  show(place, h("nav", { "aria-label": "Path" }, h("ol", { class: "crumbs" }, h("li", null, h("a", { href: "#/checkpoints" }, "Checkpoints")))),
    h("h1", null, path), again(),
    facts([
      ["Query", checkpoint.query ?? "unknown"],
      ["Last planned batch", checkpoint.planned ?? "none"],
      ["Last restorable batch", checkpoint.committed ?? "none"],
      ["Oldest that is kept", checkpoint.oldest ?? "none"],
      ["Batches a minute", rate === null ? "unknown" : rate.toFixed(1)],
      ["State", checkpoint.operators.length ? checkpoint.operators.map((each) => `${each.name ?? "unknown operator"}: ${count(each.partitions, "partition")}, ${size(each.bytes)}`).join("; ") : "none"],
      ["Size", `${size(checkpoint.bytes)} in ${count(checkpoint.files, "file")}`],
      checkpoint.run ? ["Run", `${checkpoint.run.run} by ${checkpoint.run.user}${checkpoint.run.host ? ` on ${checkpoint.run.host}` : ""}, since ${moment(checkpoint.run.since_ms)}${checkpoint.run.ended_ms ? ", over" : ""}`] : null,
      ["Files", h("a", { href: filesLink(path) }, path)],
    ]),
    family,
    h("section", null, h("h2", null, "Verify"), h("p", { class: "dim" }, "Reads the checkpoint as a start of the query would, and says whether it would go on."),
      h("button", { type: "button", onclick: verify }, "Verify"), verdict),
    h("section", null, h("h2", null, "Batches"),
      done.length ? [bars("How long batches took", done.map((each) => [String(each.batch), Math.max(0, each.committed_ms - each.planned_ms)]), milliseconds),
        bars("State that batches wrote", done.map((each) => [String(each.batch), each.state_bytes]), size)] : null,
      table("The latest batches", [["Batch", "number"], "Planned", "Committed", ["Took", "number"], ["State written", "number"], ["Files", "number"]], [...batches].reverse().map((each) => ({
        key: String(each.batch),
        values: [each.batch, each.planned_ms, each.committed_ms ?? -1, each.committed_ms ? each.committed_ms - each.planned_ms : -1, each.state_bytes, each.files.length],
        cells: [h("button", { type: "button", class: "quiet", onclick: () => { show(opened, batchFiles(path, each)); opened.querySelector("h3").focus(); } }, each.batch), moment(each.planned_ms),
          each.committed_ms ? moment(each.committed_ms) : "not yet", each.committed_ms ? milliseconds(Math.max(0, each.committed_ms - each.planned_ms)) : "", size(each.state_bytes), each.files.length],
      })), "No batch was planned."), opened));
  try {
    const { families } = await ask("/v1/checkpoints/ancestry", { path: "/" }, { signal });
    const own = families.find(({ members }) => members.some((each) => each.path === path && each.presence === "here"));
    if (own) show(family, h("section", null, h("h2", null, "Made of each other"), tree(own.members, path)));
  } catch (error) {
    // The checkpoint is shown all the same.
    if (error.name !== "AbortError") show(family, h("p", { class: "error", role: "alert" }, error.message));
  }
}

function batchFiles(root, batch) {
  return [h("h3", { tabindex: "-1" }, `Files of batch ${batch.batch}`), table(`Files of batch ${batch.batch}`, [["File", "name"], ["Size", "number"]], batch.files.map((file) => ({
    key: file.path, cells: [h("a", { href: filesLink(`${root}/${file.path}`) }, file.path), size(file.bytes)],
  })))];
}

function judged(verdict) {
  return [
    h("p", null, verdict.restarts ? badge("it restarts", "good") : badge("it does not restart", "bad"),
      ` ${verdict.goes_on_with === null ? "" : `It would go on with batch ${verdict.goes_on_with}. `}`,
      verdict.last_good === null ? "No batch could be restored." : `The last batch that can be restored is ${verdict.last_good}.`),
    table("Findings", [["File", "name"], "Fault", "Why", "Stops a start"], verdict.findings.map((each) => ({
      key: `${each.path} ${each.reason}`, cells: [each.path, each.fault, each.reason, each.stops ? "yes" : "no"],
    })), `None in ${count(verdict.files_read, "file")}, ${size(verdict.bytes_read)}.`),
    verdict.notes.length ? h("ul", null, verdict.notes.map((note) => h("li", { key: note.path + note.reason }, `${note.path}: ${note.reason}`))) : null,
    verdict.repair ? h("p", null, `To mend it: ${verdict.repair.reason}`) : null,
  ];
}

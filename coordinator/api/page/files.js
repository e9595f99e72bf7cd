// Directories, files with their chunks and replicas on the racks, and what is known of a chunk.

import { badge, facts, h, show, table } from "./dom.js";
import { count, moment, seconds, size } from "./format.js";
import { ask, Refused, session, visit, webhdfs } from "./session.js";

const GOOD = ["live", "unconfirmed"];

export function open(shell, fragment, query) {
  const path = fragment || "/";
  const place = h("div", { id: "files" });
  const chunkPlace = h("div", { id: "chunk" });
  const abort = new AbortController();
  shell.main.append(place, chunkPlace);
  // Keeps the header true, and says when the coordinator has gone.
  shell.follow("cluster", () => {});
  const failed = (where) => (error) => {
    if (error.name === "AbortError") return;
    if (error instanceof Refused && error.status === 401) shell.login(error.message);
    else show(where, crumbs(path), h("p", { class: "error", role: "alert" }, error.message));
  };
  const explain = (chunk) => ask(`/v1/chunks/${encodeURIComponent(chunk)}`, {}, { signal: abort.signal }).then((known) => {
    show(chunkPlace, explained(known));
    chunkPlace.querySelector("h2").focus();
  }).catch(failed(chunkPlace));
  if (query.has("chunk")) explain(query.get("chunk"));
  load(path, place, explain, abort.signal).catch(failed(place));
  return () => abort.abort();
}

function link(path) {
  return `#/files${path.split("/").map(encodeURIComponent).join("/")}`;
}

function join(path, name) {
  return path === "/" ? `/${name}` : `${path}/${name}`;
}

function crumbs(path) {
  const parts = path.split("/").filter(Boolean);
  return h("nav", { "aria-label": "Path" }, h("ol", { class: "crumbs" },
    h("li", null, h("a", { href: "#/files/" }, "root")),
    parts.map((part, number) => h("li", null, h("a", { href: link(`/${parts.slice(0, number + 1).join("/")}`) }, part)))));
}

async function load(path, place, explain, signal) {
  const status = (await ask(webhdfs(path), { op: "GETFILESTATUS" }, { signal })).FileStatus;
  if (status.type === "DIRECTORY") await loadDirectory(path, status, place, signal);
  else await loadFile(path, status, place, explain, signal);
}

async function loadDirectory(path, status, place, signal) {
  let entries = [];
  let remaining = 0;
  const more = async () => {
    const after = entries.length ? { startAfter: entries.at(-1).pathSuffix } : {};
    const answer = (await ask(webhdfs(path), { op: "LISTSTATUS_BATCH", ...after }, { signal })).DirectoryListing;
    entries = [...entries, ...answer.partialListing.FileStatuses.FileStatus];
    remaining = answer.remainingEntries;
    draw();
  };
  let summary = null;
  const draw = () => show(place, crumbs(path), h("h1", null, path),
    summary ? facts([
      ["Holds", `${count(summary.directoryCount, "directory", "directories")}, ${count(summary.fileCount, "file")}, ${size(summary.length)}; ${size(summary.spaceConsumed)} with replicas`],
      ["Quota of names", summary.quota < 0 ? "none" : `${summary.directoryCount + summary.fileCount} of ${summary.quota}`],
      ["Quota of space", summary.spaceQuota < 0 ? "none" : `${size(summary.spaceConsumed)} of ${size(summary.spaceQuota)}`],
      ["Owner", `${status.owner}:${status.group}, ${status.permission}`],
    ]) : h("button", { type: "button", onclick: measure }, "Measure it, with its quotas"),
    table(`Names in ${path}`, [["Name", "name"], ["Size", "number"], ["Replicas", "number"], "Owner", "Permission", "Modified"], entries.map((each) => {
      const target = join(path, each.pathSuffix);
      const directory = each.type === "DIRECTORY";
      return {
        key: each.pathSuffix,
        values: [each.pathSuffix, directory ? -1 : each.length, directory ? -1 : each.replication, each.owner, each.permission, each.modificationTime],
        cells: [h("a", { href: link(target) }, each.pathSuffix + (directory ? "/" : "")), directory ? "" : size(each.length),
          directory ? "" : each.replication, each.owner, each.permission, moment(each.modificationTime)],
      };
    }), "It is empty."),
    remaining ? h("button", { type: "button", onclick: more }, `Show more of the other ${remaining}`) : null);
  const measure = async () => {
    try {
      summary = (await ask(webhdfs(path), { op: "GETCONTENTSUMMARY" }, { signal })).ContentSummary;
      draw();
    } catch (error) {
      if (error.name !== "AbortError") show(place, crumbs(path), h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  await more();
}

async function loadFile(path, status, place, explain, signal) {
  const file = await ask("/v1/files/chunks", { path }, { signal });
  const said = h("p", { class: "error", role: "alert" });
  const draw = () => show(place, crumbs(path), h("h1", null, path), facts([
    ["Length", `${size(status.length)} (${status.length} bytes)`],
    ["Replication", status.replication],
    ["Owner", `${status.owner}:${status.group}, ${status.permission}`],
    ["Modified", moment(status.modificationTime)],
  ]),
  h("p", null, h("button", { type: "button", onclick: () => download(path).catch((error) => { said.textContent = error.message; }) }, "Download")), said,
  map(file.chunks),
  table(`${count(file.count, "chunk")} of ${path}`, ["Chunk", ["Offset", "number"], ["Length", "number"], "Replicas"], file.chunks.map((chunk) => ({
    key: chunk.chunk,
    cells: [h("button", { type: "button", class: "quiet mono", onclick: () => explain(chunk.chunk) }, chunk.chunk), chunk.offset, size(chunk.length),
      h("ul", { class: "chips" }, chunk.replicas.map((replica) => h("li", { key: replica.node }, chip(replica))))],
  })), "It is empty: it has no chunks."),
  file.first + file.chunks.length < file.count ? h("button", { type: "button", onclick: more }, "Show more chunks") : null);
  const more = async () => {
    const next = await ask("/v1/files/chunks", { path, first: file.chunks.length }, { signal });
    file.chunks.push(...next.chunks);
    draw();
  };
  draw();
}

function kind(replica) {
  if (replica.datanode !== "alive") return "bad";
  return GOOD.includes(replica.state) ? "good" : "warn";
}

function chip(replica) {
  return badge(`${replica.node} ${replica.datanode === "alive" ? replica.state : replica.datanode}`, kind(replica));
}

/** Which datanodes hold how much of the file, rack by rack. */
function map(chunks) {
  const racks = new Map();
  for (const chunk of chunks) for (const replica of chunk.replicas) {
    const nodes = racks.get(replica.rack) ?? new Map();
    const held = nodes.get(replica.node) ?? { replicas: 0, bytes: 0, worst: "good" };
    held.replicas += 1;
    held.bytes += chunk.length;
    if (kind(replica) !== "good") held.worst = kind(replica);
    nodes.set(replica.node, held);
    racks.set(replica.rack, nodes);
  }
  if (!racks.size) return null;
  return h("section", { "aria-labelledby": "map" }, h("h2", { id: "map" }, "On the racks"),
    h("div", { class: "racks" }, [...racks].sort(([a], [b]) => a.localeCompare(b)).map(([rack, nodes]) =>
      h("div", { class: "rack", key: rack }, h("h3", null, `Rack ${rack || "unknown"}`), [...nodes].sort(([a], [b]) => a.localeCompare(b)).map(([node, held]) =>
        h("div", { class: "card row", key: node }, h("strong", null, node), badge(count(held.replicas, "replica"), held.worst), h("span", { class: "dim end" }, size(held.bytes))))))));
}

function explained(known) {
  return h("section", { "aria-labelledby": "explained", key: "explained" }, h("h2", { id: "explained", tabindex: "-1" }, `Chunk ${known.chunk}`),
    facts([
      ["It is", known.standing],
      known.length === null ? null : ["Length", size(known.length)],
      known.replication === null ? null : ["Wanted", count(known.replication, "replica")],
      ["Files", known.files.length ? h("ul", null, known.files.map((file) => h("li", { key: file }, h("a", { href: link(file) }, file))), known.more_files ? h("li", null, "and more") : null) : "none"],
      known.findings.length ? ["Findings", known.findings.join(", ")] : null,
    ]),
    table("Replicas", ["Datanode", "State", "Because", ["Since", "number"]], known.replicas.map((each) => ({
      key: each.node, cells: [`${each.node} (${each.datanode})`, badge(each.state, GOOD.includes(each.state) ? "good" : "warn"), each.because, each.since_s === null ? "" : seconds(each.since_s)],
    })), "No datanode has one."),
    known.pending.length ? h("ul", null, known.pending.map((each) => h("li", { key: each.text }, each.text))) : null,
    table("What happened, as far as it is remembered", [["Ago", "number"], "Datanode", "Event"], known.history.map((each, number) => ({
      key: String(number), cells: [seconds(each.ago_s), each.node, each.text],
    })), "Nothing is remembered."));
}

/** A visit of the file's URL. Where there are tokens a delegation token goes along: a visit has no headers. */
async function download(path) {
  const parameters = { op: "OPEN" };
  if (session.token) {
    const answer = await ask(webhdfs("/"), { op: "GETDELEGATIONTOKEN" });
    parameters.delegation = answer.Token.urlString;
  }
  const anchor = h("a", { href: visit(webhdfs(path), parameters), download: path.split("/").at(-1) });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
}

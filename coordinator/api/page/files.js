// Directories, files with their chunks and replicas on the racks, and what is known of a chunk.

import { actions } from "./actions.js";
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
    decisions(path, status, again),
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
  const again = () => {
    entries = [];
    return more();
  };
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
  decisions(path, status),
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

const TRASH = /^\/user\/([^/]+)\/\.Trash\/(Current|\d{12}(?:-\d+)?)(\/.+)$/;

/** Send a file to a directory, which the coordinator passes on; then show the directory `again`. */
async function upload(path, file, again) {
  const target = join(path, file.name);
  await ask(webhdfs(target), { op: "CREATE", data: "true", overwrite: "false" }, { method: "PUT", file });
  await again();
  return `${target} is there: ${size(file.size)}.`;
}

const change = (path, parameters, method = "PUT") => ask(webhdfs(path), parameters, { method });

function parentOf(path) {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

/** Rename, and never into what is there. */
const rename = (path, destination) => change(path, { op: "RENAME", destination, renameoptions: "NONE" });

/**
 * What may be done with a file or directory. Whether the viewer has the right is the coordinator's to say. `again`
 * lists a directory anew.
 */
function decisions(path, status, again) {
  const isDirectory = status.type === "DIRECTORY";
  const what = isDirectory ? `${path} and all that is in it` : path;
  const [, , , original] = TRASH.exec(path) ?? [];
  const isTrash = /^\/user\/[^/]+\/\.Trash(\/|$)/.test(path);
  const leave = (target, words) => {
    location.hash = link(target);
    return words;
  };
  return actions(`Decide of ${path}`, [
    isDirectory && !isTrash && {
      key: `upload ${path}`, label: "Upload a file", yes: "Upload it",
      question: `A file goes to ${path} under its own name. What is there is not replaced. Other programs see it when all of it has arrived; leave this page open until then.`,
      fields: [{ name: "file", label: "File", type: "file" }],
      run: ({ file }) => upload(path, file, again),
    },
    path !== "/" && !isTrash && {
      key: `trash ${path}`, label: "Delete", yes: `Delete ${path}`,
      question: `${what} goes to your trash, and can be put back from there. Where the cluster has no trash, nothing is deleted.`,
      run: async () => leave(await moveToTrash(path), "It is in the trash."),
    },
    path !== "/" && {
      key: `delete ${path}`, label: "Delete for good", yes: `Delete ${path} for good`,
      question: `${what} is deleted at once. This cannot be undone. Enter the name to show that you mean it.`,
      fields: [{ name: "name", label: `Name: ${path.slice(path.lastIndexOf("/") + 1)}`, type: "text", autocomplete: "off" }],
      run: async ({ name }) => {
        if (name !== path.slice(path.lastIndexOf("/") + 1)) throw new Error("Nothing is deleted: that is another name.");
        if (!(await change(path, { op: "DELETE", recursive: "true" }, "DELETE")).boolean) throw new Error(`${path} is not there any more.`);
        return leave(parentOf(path), "It is deleted.");
      },
    },
    original && {
      key: `restore ${path}`, label: "Put back", yes: `Put it back to ${original}`,
      question: `${what} goes back to ${original}.`,
      run: async () => {
        await change(parentOf(original), { op: "MKDIRS" });
        await rename(path, original);
        return leave(original, "It is back.");
      },
    },
    isDirectory && session.told?.superuser && {
      key: `quota ${path}`, label: "Change quotas", yes: `Set the quotas of ${path}`,
      question: "A quota that is left empty stays as it is, and -1 removes one. Space counts each replica.",
      fields: [{ name: "names", label: "Names", type: "number", min: "-1", required: false }, { name: "space", label: "Bytes", type: "number", min: "-1", required: false }],
      run: async ({ names, space }) => {
        if (!names && !space) throw new Error("Nothing is changed: no quota was entered.");
        await change(path, { op: "SETQUOTA", ...(names && { namespacequota: names }), ...(space && { storagespacequota: space }) });
        return "The quotas are set; measure it to see them.";
      },
    },
  ]);
}

/** Move a path to the trash, as `peacefs rm` does; return where it is now. */
async function moveToTrash(path) {
  const { FsServerDefaults: defaults } = await ask(webhdfs("/"), { op: "GETSERVERDEFAULTS" });
  if (!defaults.trashInterval) throw new Error("This cluster has no trash (--trash-minutes of the coordinator): nothing is deleted.");
  const trash = (await ask(webhdfs("/"), { op: "GETTRASHROOT" })).Path;
  if (trash.startsWith(`${path}/`)) throw new Error(`${path} contains the trash.`);
  const wanted = `${trash}/Current${path}`;
  // Only the trash is private: a home that is made here has the default permission.
  await change(parentOf(trash), { op: "MKDIRS" });
  await change(parentOf(wanted), { op: "MKDIRS", permission: "700" });
  try {
    await rename(path, wanted);
    return wanted;
  } catch (error) {
    if (!(error instanceof Refused) || !/exist/i.test(error.message)) throw error;
    const other = `${wanted}${Date.now()}`;
    await rename(path, other);
    return other;
  }
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

// Begins: the views by their names after the #, who looks, and how the connection fares.

import { forgetActions } from "./actions.js";
import { h, show } from "./dom.js";
import { Live, session } from "./session.js";
import * as cluster from "./cluster.js";
import * as files from "./files.js";
import * as peace from "./peace.js";
import * as checkpoints from "./checkpoints.js";
import * as queries from "./queries.js";

const VIEWS = { cluster, files, peace, checkpoints, queries };
const NAMES = { cluster: "Cluster", files: "Files", peace: "Peace", checkpoints: "Checkpoints", queries: "Queries" };

const main = document.getElementById("main");
let opened = null;
let live = null;

/** The view's name, path and query: `#/files/a/b?chunk=1-2` is ["files", "/a/b", "chunk=1-2"]. */
function route() {
  const [, name, raw, query] = /^#\/([a-z]+)([^?]*)(?:\?(.*))?$/.exec(location.hash) ?? [];
  let path = raw ?? "";
  try {
    path = decodeURIComponent(path);
  } catch {
    // As it was typed.
  }
  return VIEWS[name] ? [name, path, new URLSearchParams(query)] : ["cluster", "", new URLSearchParams()];
}

function connection(state, words) {
  const place = document.getElementById("connection");
  if (place.dataset.state !== state) place.dataset.state = state;
  if (place.textContent !== words) place.textContent = words;
}

function header() {
  const [name] = route();
  show(document.getElementById("views"), h("ul", null, Object.entries(NAMES).map(([each, words]) =>
    h("li", null, h("a", { href: `#/${each}`, "aria-current": each === name ? "page" : null }, words)))));
  const told = session.told;
  const who = document.getElementById("who");
  if (!told) show(who);
  else if (told.authentication !== "simple") {
    show(who, `${told.user}${told.administrator ? " (administrator)" : ""} `,
      h("button", { type: "button", class: "quiet", onclick: () => { session.token = ""; session.told = null; start(); } }, "forget the token"));
  } else {
    const changed = (event) => {
      event.preventDefault();
      session.user = event.target.elements.user.value.trim();
      start();
    };
    show(who, h("form", { onsubmit: changed }, h("label", { for: "user" }, "User"),
      h("input", { id: "user", name: "user", value: session.user, placeholder: told.user, size: "12", autocomplete: "username" }),
      h("button", null, "Use")));
  }
  const banner = document.getElementById("banner");
  if (told && !told.leads) {
    const leader = told.leader
      ? ["Another one leads: ", h("a", { href: `${location.protocol}//${told.leader}/ui/` }, told.leader)]
      : ["Nobody leads at this moment."];
    show(banner, h("p", { class: "banner", role: "alert" }, "This coordinator stands by, and shows what it knows. ", leader));
  } else show(banner);
}

function login(words) {
  connection("refused", "not signed in");
  const entered = (event) => {
    event.preventDefault();
    session.token = event.target.elements.token.value.trim();
    start();
  };
  show(main, h("section", { class: "login", key: "login" }, h("h1", null, "A token, please"),
    h("p", null, words),
    h("p", { class: "dim" }, "Whoever runs the coordinator makes one: ", h("code", null, "peacefs token create USER"),
      ". It is kept in this tab until that is closed, and sent to this coordinator alone."),
    h("form", { class: "plain", onsubmit: entered },
      h("label", { for: "token" }, "Token", h("input", { id: "token", name: "token", type: "password", autocomplete: "off", required: true })),
      h("button", null, "Enter"))));
  document.getElementById("token").focus();
}

/** What views are given: how to follow something that changes, and where to show it. */
const shell = {
  main,
  login,
  follow(view, onView) {
    live?.stop();
    live = new Live(view, {
      onView: (data) => { header(); onView(data); },
      onState: (state, words) => {
        if (state === "login") login(words);
        else connection(state, words);
        if (state === "refused") show(document.getElementById("banner"), h("p", { class: "banner", role: "alert" }, words));
      },
    });
  },
};

function start() {
  const [name, path, query] = route();
  opened?.();
  forgetActions();
  live?.stop();
  live = null;
  header();
  connection("waiting", "connecting");
  document.title = `${NAMES[name]} - peacefs`;
  show(main);
  opened = VIEWS[name].open(shell, path, query) ?? null;
}

window.addEventListener("hashchange", () => {
  start();
  main.focus();
});
start();

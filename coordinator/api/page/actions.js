// What a viewer may do: a button, a question, and the coordinator's answer in words. Nothing happens without a yes.

import { h, show } from "./dom.js";

/** What is asked, under way or answered, by action: views are drawn again and again. */
const states = new Map();

/** Forget what was asked and answered, as another view is opened. */
export function forgetActions() {
  states.clear();
}

/**
 * A button that asks before it acts. `run` gets the values of `fields`, and returns words that say what was done.
 * A field is {name, label, type, value}; other attributes go to its input.
 */
export function action({ key, label, question, yes, fields = [], run }) {
  const place = h("div", { class: "action", key: `action ${key}`, "data-action": key });
  const change = (state, focus) => {
    states.set(key, state);
    const shown = [...document.querySelectorAll("[data-action]")].find((each) => each.dataset.action === key);
    if (!shown) return;
    show(shown, contents());
    if (focus) shown.querySelector(focus)?.focus();
  };
  const act = async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.target));
    change({ isBusy: true, said: `${label}: under way` });
    try {
      change({ said: await run(values) }, "button");
    } catch (error) {
      change({ said: error.message, hasFailed: true }, "button");
    }
  };
  const cancelled = () => change({}, "button");
  const contents = () => {
    const { asks, isBusy, said, hasFailed } = states.get(key) ?? {};
    if (!asks) {
      return [
        h("button", { key: "begin", type: "button", disabled: isBusy, onclick: () => change({ asks: true }, fields.length ? "input" : "[data-key=yes]") }, label),
        said ? h("p", { key: "said", class: hasFailed ? "error" : "dim", role: hasFailed ? "alert" : "status" }, said) : null,
      ];
    }
    const escaped = (event) => {
      if (event.key === "Escape") cancelled();
    };
    return h("form", { key: "ask", class: "plain confirm", "aria-label": label, onsubmit: act, onkeydown: escaped },
      h("p", null, question),
      fields.map(({ label: words, ...input }) => h("label", { key: input.name }, words, h("input", { required: true, ...input }))),
      h("button", { key: "yes" }, yes ?? label),
      h("button", { key: "no", type: "button", class: "quiet", onclick: cancelled }, "Cancel"));
  };
  show(place, contents());
  return place;
}

/** Actions side by side; null if there are none. */
export function actions(label, all) {
  const offered = all.filter(Boolean);
  return offered.length ? h("div", { class: "row actions", key: `actions ${label}`, role: "group", "aria-label": label }, offered.map(action)) : null;
}

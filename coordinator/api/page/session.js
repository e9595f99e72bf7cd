// Who asks, and how the coordinator is asked. The token stays in this tab, and goes nowhere but into the header.

const SILENCE_MS = 25_000;
const PAUSE_MS_MAX = 15_000;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const session = {
  /** What the coordinator said of who looks; null before it answered. */
  told: null,
  get token() { return sessionStorage.getItem("peacefs-token") ?? ""; },
  set token(value) { sessionStorage.setItem("peacefs-token", value); },
  /** A name that is believed, where there are no tokens. */
  get user() { return sessionStorage.getItem("peacefs-user") ?? ""; },
  set user(value) { sessionStorage.setItem("peacefs-user", value); },
};

function headers(changes) {
  const all = {};
  if (session.token) all.Authorization = `Bearer ${session.token}`;
  if (changes) all["X-XSRF-HEADER"] = "peacefs";
  return all;
}

function url(path, parameters) {
  const query = new URLSearchParams(parameters);
  if (session.user && !session.token) query.set(path.startsWith("/webhdfs/") ? "user.name" : "user", session.user);
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** The path of a file below WebHDFS. */
export function webhdfs(path) {
  return `/webhdfs/v1${path.split("/").map(encodeURIComponent).join("/")}`;
}

/** A URL to visit, for downloads. */
export function visit(path, parameters) {
  return url(path, parameters);
}

async function refusal(answer) {
  let message = `${answer.status} ${answer.statusText}`;
  try {
    message = (await answer.json()).RemoteException.message;
  } catch {
    // Not one of ours: the status has to do.
  }
  return new Refused(answer.status, message);
}

/** The JSON of an answer; null where it has none. A `file` is sent as it is. Throws Refused with the coordinator's words. */
export async function ask(path, parameters = {}, { method = "GET", body, file, signal } = {}) {
  const options = { method, headers: headers(method !== "GET"), signal, cache: "no-store" };
  if (file) {
    options.body = file;
    options.headers["Content-Type"] = "application/octet-stream";
  } else if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(url(path, parameters), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The coordinator does not answer. Is it running?");
  }
  if (!answer.ok) throw await refusal(answer);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** A view that stays up to date until `stop`. Nothing is asked while the page is hidden. */
export class Live {
  constructor(view, { onView, onState }) {
    this.view = view;
    this.onView = onView;
    this.onState = onState;
    this.stopped = false;
    this.abort = new AbortController();
    this.wake = () => {};
    this.onVisible = () => {
      if (document.visibilityState === "hidden") this.abort.abort();
      this.wake();
    };
    document.addEventListener("visibilitychange", this.onVisible);
    window.addEventListener("online", this.onVisible);
    this.run();
  }

  stop() {
    this.stopped = true;
    this.abort.abort();
    this.wake();
    document.removeEventListener("visibilitychange", this.onVisible);
    window.removeEventListener("online", this.onVisible);
  }

  async run() {
    let pause = 500;
    while (!this.stopped) {
      if (document.visibilityState === "hidden") {
        this.onState("paused", "paused");
        await new Promise((done) => { this.wake = done; });
        continue;
      }
      this.abort = new AbortController();
      let goesOn = false;
      try {
        goesOn = await this.stream();
        if (goesOn) pause = 500;
      } catch (error) {
        if (this.stopped) return;
        if (error instanceof Refused) {
          this.onState(error.status === 401 ? "login" : "refused", error.message);
          if (error.status === 401) return;
        }
      }
      if (this.stopped || goesOn || document.visibilityState === "hidden") continue;
      this.onState("waiting", "reconnecting");
      await new Promise((done) => {
        this.wake = done;
        setTimeout(done, pause);
      });
      pause = Math.min(2 * pause, PAUSE_MS_MAX);
    }
  }

  /** Until the stream ends; whether it is to be asked for again at once. */
  async stream() {
    const answer = await fetch(url(`/v1/live/${this.view}`), {
      headers: headers(false), signal: this.abort.signal, cache: "no-store",
    });
    if (!answer.ok) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    let timer = 0;
    const heard = () => {
      // A browser that slept, or a wire that was cut, brings no error: silence does.
      clearTimeout(timer);
      timer = setTimeout(() => this.abort.abort(), SILENCE_MS);
    };
    heard();
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return false;
        heard();
        text += value;
        for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
          const event = parse(text.slice(0, end));
          text = text.slice(end + 2);
          if (event && this.take(event)) return true;
        }
      }
    } finally {
      clearTimeout(timer);
      reader.cancel().catch(() => {});
    }
  }

  take({ name, data }) {
    if (this.stopped) return false;
    if (name === "session") session.told = data;
    else if (name === "view") {
      this.onState("live", "live");
      this.onView(data);
    } else if (name === "refused") throw new Refused(400, data.RemoteException.message);
    return name === "again";
  }
}

function parse(text) {
  let name = "";
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return name ? { name, data: JSON.parse(data) } : null;
}

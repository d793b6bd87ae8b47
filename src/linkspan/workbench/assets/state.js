// What the page knows, and how it asks. The key comes once, in the fragment, and is sent as a header, which other origins cannot.

import { fromJson, toJson } from "./json.js";

const KEY = "linkspan-bench";

export const state = { status: "connecting", lists: {}, exchanges: new Map(), questions: new Map(), chosen: null, shown: null, compared: null, changes: [] };
const hearers = [];
const SHOWN_LATER = new Set(["log", "message", "http", "status", "changed"]);
let last = 0; // the number of the event that was taken last
let known = 0; // up to this one, events are in the state already: only what is listed as it happened is shown of them

export const onEvent = (hear) => hearers.push(hear);

export function takeToken() {
  const found = /^#t=([\w-]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) !== null;
}

const headers = () => ({ "Linkspan-Bench": sessionStorage.getItem(KEY) });

export async function ask(path, body) {
  const options = body === undefined ? { headers: headers() } : { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: toJson(body) };
  const answer = await fetch(`/api/${path}`, options);
  const found = await answer.text().then(fromJson).catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(found.error ?? (answer.status === 403 ? "This page belongs to another run: open the address that the terminal shows." : `HTTP ${answer.status}`)), { status: answer.status });
  return found;
}

export async function textOf(path) {
  const answer = await fetch(`/api/${path}`, { headers: headers() });
  return await answer.text();
}

export const wholeResult = (id) => textOf(`result?id=${id}`);

export async function refresh() {
  const found = await ask("state");
  known = found.last;
  Object.assign(state, found, {
    exchanges: new Map(found.exchanges.map((each) => [each.id, each])),
    questions: new Map(found.questions.map((each) => [each.id, each])),
  });
  hearers.forEach((hear) => hear({ type: "refreshed" }));
}

const knows = {
  status: (event) => Object.assign(state, { status: event.status, problem: event.text ? { text: event.text } : null, waiting: event.waiting ?? null }),
  exchange: ({ exchange }) => state.exchanges.set(exchange.id, exchange),
  question: ({ question }) => state.questions.set(question.id, question),
  answered: ({ id }) => state.questions.delete(id),
};

// Follow what happens. A stream that ends is opened again from where it was; what was missed meanwhile is asked for.

export async function follow() {
  for (;;) {
    try {
      const answer = await fetch(`/api/events?after=${last}`, { headers: headers() });
      if (answer.status === 403) return lost();
      await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
    } catch {
      state.status = "gone";
      hearers.forEach((hear) => hear({ type: "status" }));
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

const lost = () => ((state.status = "lost"), hearers.forEach((hear) => hear({ type: "status" })));

async function read(reader) {
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    if (state.status === "gone") await refresh();
    for (const line of lines.filter(Boolean)) await take(fromJson(line));
  }
}

async function take(event) {
  if (event.n <= last) return;
  const missed = last && event.n > last + 1;
  last = event.n;
  if (event.n <= known) return SHOWN_LATER.has(event.type) ? hearers.forEach((hear) => hear({ ...event, past: true })) : undefined;
  if (event.type === "state" || missed) return refresh();
  knows[event.type]?.(event);
  hearers.forEach((hear) => hear(event));
}

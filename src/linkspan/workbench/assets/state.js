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

export const OVER = { gone: "linkspan dev has ended: start it again, and this window goes on.", lost: "This window is over: open the address that the terminal shows." };

export async function ask(path, body) {
  if (OVER[state.status]) throw new Error(OVER[state.status]); // who listens there now may not see the key
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

// Whoever listens at this address proves that it knows the key before it gets it: at first, and after each end of the stream,
// since linkspan dev may have been started again, or another program instead. undefined: nothing listens.

let run; // of the process that was followed last

async function proven() {
  const nonce = [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
  const answer = await fetch(`/api/alive?nonce=${nonce}`).catch(() => undefined);
  if (!answer) return undefined;
  const found = answer.ok ? await answer.text().then(fromJson).catch(() => ({})) : {};
  const bytes = (text) => new TextEncoder().encode(text);
  const proof = new Uint8Array((String(found.proof).match(/[0-9a-f]{2}/g) ?? []).map((each) => parseInt(each, 16)));
  const key = await crypto.subtle.importKey("raw", bytes(sessionStorage.getItem(KEY)), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  return (await crypto.subtle.verify("HMAC", key, proof, bytes(`${nonce} ${location.host}`))) && found.run;
}

const stand = (status) => ((state.status = status), hearers.forEach((hear) => hear({ type: "status" })));

// Follow what happens. A stream that ends is opened again from where it was; that of another process, from its beginning.

export async function follow(began) {
  for (;;) {
    const found = await proven();
    if (found === false) return stand("lost");
    if (found) {
      state.status = "connecting";
      if (run && run !== found) begin();
      run = found;
      stand(await stream(began).catch(() => "gone"));
      began = undefined;
    } else if (state.status !== "gone") stand("gone");
    await new Promise((done) => setTimeout(done, 1000));
  }
}

async function stream(began) {
  await refresh();
  began?.();
  const answer = await fetch(`/api/events?after=${last}`, { headers: headers() });
  if (answer.status === 429) return "crowded";
  await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
  return "gone";
}

// Another process counts its events and calls anew.

function begin() {
  [last, known, state.shown, state.compared] = [0, 0, null, null];
  hearers.forEach((hear) => hear({ type: "anew", at: Date.now() / 1000 }));
}

async function read(reader) {
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
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

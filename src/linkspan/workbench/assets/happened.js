// The right pane: the log, the messages, the hops of HTTP, and the calls of this day and earlier ones.

import { folded, make, pretty } from "./elements.js";
import { toJson } from "./json.js";
import { named } from "./compare.js";
import { ask, state, textOf } from "./state.js";
import { compare, edit, repetitions } from "./work.js";

const MOST = 500;
const MOST_LINES = 2000; // of entries that have several
const PAUSE = 50; // milliseconds between what is drawn
const pane = document.getElementById("happened");
const TABS = ["Log", "Messages", "HTTP", "History"];
let current = "Log";
let picked = null;
const panels = Object.fromEntries(TABS.map((name) => [name, make("div", { className: "panel", role: "tabpanel", id: `panel-${name}`, tabIndex: 0, hidden: name !== current })]));
const only = make("input", { type: "checkbox" });
const mine = make("label", {}, only, " only this call");
const words = make("input", { type: "search", placeholder: "Filter", ariaLabel: "Filter what happened", oninput: () => sift() });
const buttons = TABS.map((name) => make("button", { type: "button", role: "tab", id: `tab-${name}`, textContent: name, onclick: () => open(name) }));
const tabs = make("div", { className: "tabs", role: "tablist", ariaLabel: "What happened" }, ...buttons);
const keep = make("button", { type: "button", className: "small", textContent: "Save transcript", title: "Save the log and the messages as a transcript, without secrets; of the history, the calls", onclick: () => save() });
const clear = make("button", { type: "button", className: "small", textContent: "Clear", title: "Empty this list on this page", onclick: () => empty(current) });
pane.append(tabs, make("div", { className: "sieve" }, words, mine, clear, keep), ...Object.values(panels));
only.onchange = () => sift();
TABS.forEach((name) => panels[name].setAttribute("aria-labelledby", `tab-${name}`));
tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) (open(TABS[(TABS.indexOf(current) + step + TABS.length) % TABS.length]), buttons[TABS.indexOf(current)].focus());
});

function open(name) {
  current = name;
  clear.hidden = mine.hidden = name === "History"; // its calls are forgotten, not hidden
  keep.textContent = name === "History" ? "Save calls" : "Save transcript";
  if (name === "History") drawHistory();
  TABS.forEach((each, n) => {
    panels[each].hidden = each !== name;
    buttons[n].setAttribute("aria-selected", String(each === name));
    buttons[n].tabIndex = each === name ? 0 : -1;
    buttons[n].setAttribute("aria-controls", `panel-${each}`);
  });
  if (drawn[name]?.follows) panels[name].scrollTop = panels[name].scrollHeight;
}

export function drawHappened() {
  open(current);
  if (current !== "History") drawHistory();
}

const time = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

// What happens is drawn a few times a second, however much of it there is, and of each list the newest part. What has scrolled
// out of it is counted. A list follows what is new while the person looks at its end, also behind another tab.

const drawn = Object.fromEntries(TABS.slice(0, 3).map((name) => [name, { queue: [], rows: [], lines: 0, left: 0, follows: true, note: make("p", { className: "quiet" }) }]));
let soon = 0;

function add(name, entry) {
  const { queue } = drawn[name];
  queue.push(entry);
  if (queue.length > 2 * MOST) drawn[name].left += queue.splice(0, queue.length - MOST).length;
  soon ||= setTimeout(() => ((soon = 0), Object.keys(drawn).forEach(flush)), PAUSE);
}

function flush(name) {
  const [list, panel] = [drawn[name], panels[name]];
  if (!list.queue.length) return;
  const entries = list.queue.splice(0);
  const fresh = entries.slice(-MOST);
  for (const each of fresh) {
    each.node = each.draw();
    each.node.hidden = !fits(each);
    list.lines += each.lines ?? 1;
  }
  panel.append(...fresh.map((each) => each.node));
  list.rows.push(...fresh);
  list.left += entries.length - fresh.length;
  while (list.rows.length > MOST || (list.lines > MOST_LINES && list.rows.length > 1)) {
    const gone = list.rows.shift();
    gone.node.remove();
    list.lines -= gone.lines ?? 1;
    list.left += 1;
  }
  if (list.left) {
    list.note.textContent = `${list.left.toLocaleString()} earlier entries are not drawn: Save writes those that the workbench still has.`;
    panel.prepend(list.note);
  }
  if (list.follows) panel.scrollTop = panel.scrollHeight;
}

function empty(name) {
  Object.assign(drawn[name], { queue: [], rows: [], lines: 0, left: 0, follows: true });
  panels[name].replaceChildren();
}

function look(name) {
  const panel = panels[name];
  if (panel.clientHeight) drawn[name].follows = panel.scrollTop + panel.clientHeight >= panel.scrollHeight - 40;
}

for (const name of Object.keys(drawn)) {
  panels[name].addEventListener("scroll", () => look(name));
  panels[name].addEventListener("toggle", () => look(name), true);
}

// The inside of an entry is made when it is opened.

function opened(className, summary, inside) {
  const node = make("details", { className }, summary);
  node.addEventListener("toggle", () => node.open && node.children.length === 1 && node.append(...inside()));
  return node;
}

// "Only this call": what belongs to it, and of a log, which does not say so, what was written meanwhile.

function fits(entry) {
  if (words.value && !(entry.text ??= entry.words().toLowerCase()).includes(words.value.toLowerCase())) return false;
  const shown = state.exchanges.get(state.shown);
  if (!only.checked || !shown) return true;
  if (entry.exchange) return entry.exchange === shown.id;
  return entry.at >= shown.began - 0.05 && (shown.state === "running" || entry.at <= shown.began + shown.ms / 1000 + 0.5);
}

function sift() {
  if (current === "History") drawHistory();
  for (const { rows } of Object.values(drawn)) for (const each of rows) each.node.hidden = !fits(each);
}

// A file for a report, or to play again.

async function save() {
  const [path, download] = current === "History" ? ["calls", "calls.jsonl"] : ["transcript", "dev.transcript"];
  const link = make("a", { href: URL.createObjectURL(new Blob([await textOf(path)], { type: "text/plain" })), download });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const pending = new Map();
const quiet = (words) => make("span", { className: "quiet", textContent: words });

function line(at, bad, words, draw, lines = 1) {
  const className = bad ? "line bad" : "line";
  add("Log", { at, lines, words: () => words, draw: () => make("div", { className }, ...draw()) });
}

// Of a text that fills the list by itself, the end is shown.

function ending(text) {
  const lines = text.trimEnd().split("\n");
  const left = lines.length - MOST_LINES / 4;
  return left <= 0 ? [lines.join("\n"), lines.length] : [`(${left.toLocaleString()} lines before these are not drawn: Save writes them)\n${lines.slice(left).join("\n")}`, MOST_LINES / 4];
}

function messageNode(entry) {
  const { event, answer } = entry;
  const { method, params, id } = event.message;
  const arrow = (each) => (each.side === "client" ? "→" : "←");
  const bytes = `${(answer ?? event).bytes.toLocaleString()} bytes`;
  const inside = () => [make("b", { textContent: `${arrow(event)} ${id === undefined ? "notification" : "request"}` }), pretty(event.message), ...(entry.answer ? answered(entry.answer) : [])];
  const answered = (each) => [make("b", { textContent: `${arrow(each)} ${each.message.error ? "error" : "result"}` }), pretty(each.message)];
  const summary = make("summary", {}, quiet(time(event.at)), ` ${arrow(event)} `, make("code", { textContent: method ?? "response" }), ` ${params?.name ?? params?.uri ?? ""} `,
    make("span", { className: "facts quiet", textContent: answer ? `${answer.ms} ms · ${bytes}` : bytes }));
  const failed = answer && (answer.message.error || answer.message.result?.isError);
  const node = opened(failed ? "line bad" : "line", summary, inside);
  node.open = entry.node?.open ?? false;
  return node;
}

const hears = {
  log: (event) => {
    const level = event.level?.toUpperCase() ?? "";
    const head = `${time(event.at)} ${event.source}${event.logger ? ` ${event.logger}` : ""} ${level} `;
    const [text, lines] = ending(event.text);
    const report = () => (event.traceback ? [make("pre", { className: "report", tabIndex: 0, textContent: event.traceback })] : []);
    line(event.at, /ERROR|CRITICAL|ALERT|EMERGENCY/.test(level), `${head}${event.text}${event.traceback ?? ""}`, () => [quiet(head), make("span", { className: "words", textContent: text }), ...report()], lines);
  },
  status: (event) => {
    if (!event.status) return;
    const words = [event.status, event.why, event.ms && `${event.ms} ms`, event.text ?? event.waiting?.text].filter(Boolean).join(" · ");
    line(event.at, event.status === "broken", words, () => [quiet(`${time(event.at)} server `), make("b", { className: "words", textContent: words })]);
  },
  anew: (event) => {
    pending.clear();
    picked = null;
    for (const { rows, queue } of Object.values(drawn)) for (const each of [...rows, ...queue]) each.exchange = undefined;
    line(event.at, false, "linkspan dev", () => [quiet(`${time(event.at)} `), make("b", { textContent: "linkspan dev was started again: its calls are counted anew" })]);
  },
  changed: (event) => line(event.at, false, event.uri, () => [quiet(`${time(event.at)} resource `), make("b", { textContent: `${event.uri} has changed` })]),
  message: (event) => {
    const { method, id } = event.message;
    const key = toJson([event.connection, method ? event.side : event.side === "client" ? "server" : "client", id]);
    const asked = method ? undefined : pending.get(key);
    if (asked) {
      pending.delete(key);
      [asked.answer, asked.text] = [event, undefined];
      if (!asked.node) return;
      const before = asked.node;
      asked.node = messageNode(asked);
      asked.node.hidden = before.hidden;
      before.replaceWith(asked.node);
      return;
    }
    const entry = { at: event.at, exchange: event.exchange, event, words: () => toJson([event.message, entry.answer?.message]), draw: () => messageNode(entry) };
    if (method && id !== undefined) pending.set(key, entry);
    if (pending.size > MOST) pending.delete(pending.keys().next().value);
    add("Messages", entry);
  },
  http: (event) => {
    const lines = (headers) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n");
    const summary = () => make("summary", {}, quiet(time(event.at)), ` ${event.method} `, make("code", { textContent: event.url }), ` ${event.status || event.problem} `, quiet(`${Math.round(event.seconds * 1000)} ms ${event.sent["mcp-method"] ?? ""}`));
    const inside = () => [make("b", { textContent: "sent" }), pretty(lines(event.sent)), make("b", { textContent: "received" }), pretty(lines(event.received))];
    add("HTTP", { at: event.at, words: () => toJson(event), draw: () => opened(!event.status || event.status >= 400 ? "line bad" : "line", summary(), inside) });
  },
  exchange: () => drawHistory(),
};

export function hear(event) {
  hears[event.type]?.(event);
}

// The history: each call can be made again, changed first, or compared with another.

function drawHistory() {
  const focused = document.activeElement?.dataset.key;
  const first = state.exchanges.get(picked);
  const wanted = words.value.toLowerCase();
  const has = (each) => `${each.name} ${toJson(each.arguments)} ${each.is_error ? "error" : each.state} ${each.error?.problem ?? ""} ${each.revision}`.toLowerCase().includes(wanted);
  const rows = [...state.exchanges.values()].reverse().filter(has).slice(0, 200).map((each) => {
    const failed = each.is_error || each.state === "error";
    const given = toJson(each.arguments);
    const pick = make("button", { type: "button", className: "small", textContent: first === each ? "Do not compare" : first ? `Compare with ${named(first)}` : "Compare …", onclick: () => pickOf(each) });
    const acts = [...repetitions(each), make("button", { type: "button", className: "small", textContent: "Edit", onclick: () => edit(each) }), pick];
    acts.forEach((act, n) => (act.dataset.key = `${each.id}/${act === pick ? "pick" : n}`));
    return make("div", { className: failed ? "line bad" : "line" }, make("button", { type: "button", className: "row", dataset: { key: `${each.id}` }, onclick: () => ((state.shown = each.id), (state.compared = null), edit(each), (state.shown = each.id), document.dispatchEvent(new Event("chosen"))) },
      quiet(`#${each.id} ${time(each.began)} `), make("code", { textContent: each.name.slice(0, 120) }), make("span", { className: "cost quiet", textContent: each.state === "running" ? "running" : `${each.ms} ms` }), make("span", { className: "brief quiet", textContent: given === "{}" ? "" : given.slice(0, 160) })),
      make("div", { className: "acts" }, ...acts));
  });
  const forget = make("button", { type: "button", className: "small", textContent: "Forget all", onclick: () => confirm("Forget these calls, and those of earlier days?") && ask("forget", {}) });
  const none = wanted && state.exchanges.size ? "No call fits the filter." : "Calls are listed here, those of earlier days too.";
  panels.History.replaceChildren(...(rows.length ? [...rows, make("div", { className: "buttons" }, forget)] : [quiet(none)]));
  if (focused) panels.History.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

function pickOf({ id }) {
  const first = state.exchanges.has(picked) ? picked : null;
  if (first && first !== id) compare(first, id);
  picked = first ? null : id;
  drawHistory();
}

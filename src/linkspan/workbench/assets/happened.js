// The right pane: the log, the messages, the hops of HTTP, and the calls of this day and earlier ones.

import { folded, make, pretty } from "./elements.js";
import { toJson } from "./json.js";
import { ask, state, textOf } from "./state.js";
import { compare, edit, replay } from "./work.js";

const MOST = 500;
const pane = document.getElementById("happened");
const TABS = ["Log", "Messages", "HTTP", "History"];
let current = "Log";
let picked = null;
const panels = Object.fromEntries(TABS.map((name) => [name, make("div", { className: "panel", role: "tabpanel", id: `panel-${name}`, tabIndex: 0, hidden: name !== current })]));
const only = make("input", { type: "checkbox" });
const words = make("input", { type: "search", placeholder: "Filter", ariaLabel: "Filter what happened", oninput: () => sift() });
const buttons = TABS.map((name) => make("button", { type: "button", role: "tab", id: `tab-${name}`, textContent: name, onclick: () => open(name) }));
const tabs = make("div", { className: "tabs", role: "tablist", ariaLabel: "What happened" }, ...buttons);
const keep = make("button", { type: "button", className: "small", textContent: "Save", title: "Save the log and the messages as a transcript, without secrets; of the history, the calls", onclick: () => save() });
const clear = make("button", { type: "button", className: "small", textContent: "Clear", title: "Empty this list on this page", onclick: () => panels[current].replaceChildren() });
pane.append(tabs, make("div", { className: "sieve" }, words, make("label", {}, only, " only this call"), clear, keep), ...Object.values(panels));
only.onchange = () => sift();
TABS.forEach((name) => panels[name].setAttribute("aria-labelledby", `tab-${name}`));
tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step) (open(TABS[(TABS.indexOf(current) + step + TABS.length) % TABS.length]), buttons[TABS.indexOf(current)].focus());
});

function open(name) {
  current = name;
  clear.hidden = name === "History"; // its calls are forgotten, not hidden
  TABS.forEach((each, n) => {
    panels[each].hidden = each !== name;
    buttons[n].setAttribute("aria-selected", String(each === name));
    buttons[n].tabIndex = each === name ? 0 : -1;
    buttons[n].setAttribute("aria-controls", `panel-${each}`);
  });
}

export function drawHappened() {
  open(current);
  drawHistory();
}

const time = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

function add(name, node, at, exchange) {
  const panel = panels[name];
  const follows = panel.scrollTop + panel.clientHeight >= panel.scrollHeight - 40;
  Object.assign(node.dataset, { at, exchange: exchange ?? "" });
  panel.append(node);
  while (panel.children.length > MOST) panel.firstChild.remove();
  node.hidden = !fits(node);
  if (follows) panel.scrollTop = panel.scrollHeight;
}

// "Only this call": what belongs to it, and of a log, which does not say so, what was written meanwhile.

function fits(node) {
  if (words.value && !node.textContent.toLowerCase().includes(words.value.toLowerCase())) return false;
  const shown = state.exchanges.get(state.shown);
  if (!only.checked || !shown) return true;
  if (node.dataset.exchange) return Number(node.dataset.exchange) === shown.id;
  const at = Number(node.dataset.at);
  return at >= shown.began - 0.05 && (shown.state === "running" || at <= shown.began + shown.ms / 1000 + 0.5);
}

function sift() {
  for (const name of TABS.slice(0, 3)) for (const each of panels[name].children) each.hidden = !fits(each);
}

// A file for a report, or to play again.

async function save() {
  const [path, download] = current === "History" ? ["calls", "calls.jsonl"] : ["transcript", "dev.transcript"];
  const link = make("a", { href: URL.createObjectURL(new Blob([await textOf(path)], { type: "text/plain" })), download });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const pending = new Map();
const hears = {
  log: (event) => {
    const level = event.level?.toUpperCase() ?? "";
    const bad = /ERROR|CRITICAL|ALERT|EMERGENCY/.test(level);
    const head = make("span", { className: "quiet", textContent: `${time(event.at)} ${event.source}${event.logger ? ` ${event.logger}` : ""} ${level} ` });
    add("Log", make("div", { className: bad ? "line bad" : "line" }, head, make("span", { className: "words", textContent: event.text.trimEnd() }), event.traceback ? make("pre", { className: "report", tabIndex: 0, textContent: event.traceback }) : ""), event.at);
  },
  status: (event) => event.status && add("Log", make("div", { className: event.status === "broken" ? "line bad" : "line" }, make("span", { className: "quiet", textContent: `${time(event.at)} server ` }), make("b", { className: "words", textContent: [event.status, event.why, event.ms && `${event.ms} ms`, event.text].filter(Boolean).join(" · ") })), event.at),
  changed: (event) => add("Log", make("div", { className: "line" }, make("span", { className: "quiet", textContent: `${time(event.at)} resource ` }), make("b", { textContent: `${event.uri} has changed` })), event.at),
  junk: (event) => add("Messages", make("div", { className: "line bad", textContent: `${event.side}: not a message: ${event.text}` }), event.at),
  message: (event) => {
    const { method, params, id, result, error } = event.message;
    const key = toJson([event.connection, event.message.method ? event.side : event.side === "client" ? "server" : "client", id]);
    const arrow = event.side === "client" ? "→" : "←";
    const row = pending.get(key);
    if (!event.message.method && row) {
      pending.delete(key);
      row.querySelector(".facts").textContent = `${event.ms} ms · ${event.bytes.toLocaleString()} bytes`;
      row.classList.toggle("bad", Boolean(error || result?.isError));
      row.append(make("b", { textContent: `${arrow} ${error ? "error" : "result"}` }), pretty(event.message));
      return;
    }
    const about = params?.name ?? params?.uri ?? "";
    const node = make("details", { className: "line" }, make("summary", {}, make("span", { className: "quiet", textContent: time(event.at) }), ` ${arrow} `, make("code", { textContent: method ?? "response" }), ` ${about} `, make("span", { className: "facts quiet", textContent: `${event.bytes.toLocaleString()} bytes` })), make("b", { textContent: `${arrow} ${id === undefined ? "notification" : "request"}` }), pretty(event.message));
    if (method && id !== undefined) pending.set(key, node);
    if (pending.size > MOST) pending.delete(pending.keys().next().value);
    add("Messages", node, event.at, event.exchange);
  },
  http: (event) => {
    const lines = (headers) => Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n");
    const bad = !event.status || event.status >= 400;
    add("HTTP", make("details", { className: bad ? "line bad" : "line" }, make("summary", {}, make("span", { className: "quiet", textContent: time(event.at) }), ` ${event.method} `, make("code", { textContent: event.url }), ` ${event.status || event.problem} `, make("span", { className: "quiet", textContent: `${Math.round(event.seconds * 1000)} ms ${event.sent["mcp-method"] ?? ""}` })),
      make("b", { textContent: "sent" }), pretty(lines(event.sent)), make("b", { textContent: "received" }), pretty(lines(event.received))), event.at);
  },
  exchange: () => drawHistory(),
};

export function hear(event) {
  hears[event.type]?.(event);
}

// The history: each call can be made again, changed first, or compared with another.

function drawHistory() {
  const rows = [...state.exchanges.values()].reverse().slice(0, 200).map((each) => {
    const failed = each.is_error || each.state === "error";
    const given = toJson(each.arguments);
    const pick = make("button", { type: "button", className: "small", textContent: picked === each.id ? "Compare with …" : picked ? "Compare" : "Compare …", onclick: () => pickOf(each) });
    return make("div", { className: failed ? "line bad" : "line" }, make("button", { type: "button", className: "row", onclick: () => ((state.shown = each.id), (state.compared = null), edit(each), (state.shown = each.id), document.dispatchEvent(new Event("chosen"))) },
      make("span", { className: "quiet", textContent: `${time(each.began)} ` }), make("code", { textContent: each.name.slice(0, 120) }), make("span", { className: "cost quiet", textContent: each.state === "running" ? "running" : `${each.ms} ms` }), make("span", { className: "brief quiet", textContent: given === "{}" ? "" : given.slice(0, 160) })),
      make("div", { className: "acts" }, make("button", { type: "button", className: "small", textContent: "Again", onclick: () => replay(each) }), make("button", { type: "button", className: "small", textContent: "Edit", onclick: () => edit(each) }), pick));
  });
  const forget = make("button", { type: "button", className: "small", textContent: "Forget all", onclick: () => confirm("Forget these calls, and those of earlier days?") && ask("forget", {}) });
  panels.History.replaceChildren(...(rows.length ? [...rows, make("div", { className: "buttons" }, forget)] : [make("p", { className: "quiet", textContent: "Calls are listed here, those of earlier days too." })]));
}

function pickOf({ id }) {
  if (picked && picked !== id) compare(picked, id);
  picked = picked ? null : id;
  drawHistory();
}

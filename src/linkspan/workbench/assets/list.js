// The left pane: what the server offers, what that costs a model to read, and what the last restart has changed.

import { make } from "./elements.js";
import { ask, state } from "./state.js";

const KINDS = { tools: ["Tools", "name"], resources: ["Resources", "uri"], templates: ["Templates", "uriTemplate"], prompts: ["Prompts", "name"] };
const MOST = 200;
const list = document.getElementById("list");
const field = make("input", { type: "search", placeholder: "Filter (press /)", ariaLabel: "Filter", oninput: () => draw() });
const found = make("p", { className: "quiet", role: "status" });
const rows = make("div");
const about = make("div");
list.append(field, found, about, rows);

export const focusFilter = () => field.focus();

export function itemOf(kind, name) {
  return (state.lists[kind] ?? []).find((each) => each[KINDS[kind]?.[1]] === name);
}

export function choose(kind, name, say = true) {
  if (!KINDS[kind]) return;
  state.chosen = { kind, name };
  state.shown = null;
  if (say) history.replaceState(null, "", `#/${kind}/${encodeURIComponent(name)}`);
  document.dispatchEvent(new Event("chosen"));
}

export function drawList() {
  const open = about.querySelector("details")?.open ?? false;
  const own = state.changes.find((each) => each.kind === "server");
  const instructions = state.instructions ? make("details", { open }, make("summary", {}, own ? mark(own) : "", " Instructions"), make("p", { className: "words", dir: "auto", textContent: state.instructions })) : "";
  about.replaceChildren(instructions, ...Object.entries(state.problems ?? {}).map(([kind, words]) => make("p", { className: "bad", textContent: `${kind}: ${words}` })), ...gone());
  draw();
}

const mark = (change) => make("b", { className: `mark ${change.mark === "+" ? "plus" : "other"}`, title: change.what.join("; "), textContent: change.mark });

const gone = () => state.changes.filter((each) => each.mark === "-").map((each) => make("p", { className: "quiet" }, make("b", { className: "mark minus", textContent: "−" }), ` ${each.name} is gone`));

function draw() {
  const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const total = Object.values(state.tokens ?? {}).flat().reduce((sum, each) => sum + each, 0) || 1;
  let [shown, all, count] = [0, 0, 0];
  const sections = Object.entries(KINDS).map(([kind, [title, key]]) => {
    const items = (state.lists[kind] ?? []).map((item, n) => ({ item, tokens: state.tokens?.[kind]?.[n] ?? 0 }));
    all += items.length;
    const fit = items.filter(({ item }) => wanted.every((word) => `${item[key]} ${item.title ?? ""} ${item.description ?? ""}`.toLowerCase().includes(word)));
    count += fit.length;
    const drawn = fit.slice(0, Math.max(0, MOST - shown));
    shown += drawn.length;
    if (!fit.length) return "";
    return make("section", {}, make("h2", {}, `${title} `, make("span", { className: "quiet", textContent: String(items.length) })),
      make("ul", { className: "rows" }, ...drawn.map((each) => row(kind, key, each, total))));
  });
  found.textContent = wanted.length ? `${count} found` : count > shown ? `${shown} of ${all} are shown: filter to find the others` : "";
  rows.replaceChildren(...sections, all || state.status !== "ready" ? "" : make("p", { className: "quiet", textContent: "Nothing is offered here yet." }));
}

function row(kind, key, { item, tokens }, total) {
  const name = String(item[key]);
  const chosen = state.chosen?.kind === kind && state.chosen.name === name;
  const change = state.changes.find((each) => each.kind === kind && each.name === name && each.mark !== "-");
  const advice = kind === "tools" ? state.advice?.[name] : undefined;
  const dot = advice ? make("span", { className: `dot ${advice[0].level}`, role: "img", ariaLabel: `${advice.length} remarks`, title: advice.map((each) => `${each.code} ${each.words}`).join("\n"), textContent: "●" }) : "";
  const share = Math.round((100 * tokens) / total);
  const words = make("button", { type: "button", className: "row", ariaCurrent: chosen ? "true" : "false", onclick: () => choose(kind, name) },
    change ? mark(change) : "", make("code", { textContent: name.slice(0, 200) }), make("span", { className: "cost quiet", title: `about ${tokens} tokens, ${share} % of all`, textContent: `~${tokens}` }), dot,
    make("span", { className: "brief quiet", dir: "auto", textContent: String(item.title ?? item.annotations?.title ?? item.description ?? "").split("\n")[0].slice(0, 140) }));
  return make("li", {}, words);
}

export const subscribe = (uri, on) => ask("subscribe", { uri, on });

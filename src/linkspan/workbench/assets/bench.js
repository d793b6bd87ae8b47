// The page of the workbench: its parts, and the line on top. The Python process speaks with the server; this only shows.

import { make, pretty } from "./elements.js";
import { OVER, ask, follow, onEvent, state, takeToken } from "./state.js";
import { choose, drawList, focusFilter } from "./list.js";
import { drawWork } from "./work.js";
import { drawHappened, hear } from "./happened.js";

const WORDS = { connecting: "connecting …", ready: "connected", failing: "connected, and failing", broken: "not running", gone: "linkspan dev has ended", lost: "this window is over", crowded: "too many windows are open" };
const top = document.getElementById("top");

function pane(name) {
  document.body.dataset.pane = name;
  top.querySelectorAll("nav button").forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.pane === name)));
}

function drawTop() {
  const { server, target, revision, problem, waiting } = state;
  const status = state.status === "ready" && problem ? "failing" : state.status;
  const name = server?.title || server?.name || target?.name || "Linkspan workbench";
  document.title = `${name} · Linkspan workbench`;
  const facts = [server?.version, revision, state.tokens && `~${Object.values(state.tokens).flat().reduce((sum, each) => sum + each, 0).toLocaleString()} tokens`].filter(Boolean);
  const restart = make("button", { type: "button", textContent: "Restart", title: "Start the server anew", onclick: () => ask("restart", {}) });
  const tabs = [["list", "Offers"], ["work", "Call"], ["happened", "Happened"]].map(([key, words]) =>
    make("button", { type: "button", textContent: words, dataset: { pane: key }, onclick: () => pane(key), ariaPressed: String(document.body.dataset.pane === key) }));
  top.replaceChildren(
    make("h1", { textContent: name, dir: "auto" }),
    make("span", { className: "quiet", textContent: facts.join(" · ") }),
    make("span", { className: `state ${status}`, role: "status", textContent: WORDS[status] ?? status }),
    make("code", { className: "quiet target", textContent: target?.shown ?? "" }),
    restart, connection(), declared(), make("nav", { ariaLabel: "Panes" }, ...tabs),
  );
  if (state.login) top.append(login(state.login));
  const note = OVER[status] ? { text: OVER[status] } : status === "connecting" ? waiting : ["broken", "failing"].includes(status) && problem;
  if (note) top.append(make("pre", { className: note === problem ? "bad problem" : "problem", role: note === problem ? "alert" : "status", tabIndex: 0, textContent: [note.text, note.then].filter(Boolean).join("\n\n") }));
}

// A login is made in a window of its own; what comes of it stays with the Python process.

function login({ url, host, reminder }) {
  const open = /^https?:/.test(url) ? make("a", { href: url, target: "_blank", rel: "noopener noreferrer", textContent: "Open the login page" }) : make("code", { textContent: url });
  return make("p", { className: "login", role: "status" }, `The server wants a login at ${host}. `, open,
    make("span", { className: "quiet", textContent: ` Your browser may show it already. The token stays in the process of linkspan dev. ${reminder}` }));
}

// What was agreed on: what the server announces of itself, and what it can do.

function connection() {
  const { server, capabilities, revision, revisions, seconds } = state;
  if (!revision) return "";
  const about = { server, capabilities, revision, "revisions of this client": revisions, "started in ms": Math.round(seconds * 1000) };
  return make("details", { className: "menu" }, make("summary", { textContent: "Connection" }), make("div", {}, pretty(about)));
}

// What is declared to the server: taking something away shows how it does without.

function declared() {
  const found = state.declared ?? {};
  const names = { elicitation: "Elicitation", sampling: "Sampling", roots: `Roots (${(state.roots ?? []).length})`, views: "Views of tools" };
  const box = (key) => {
    const node = make("input", { type: "checkbox", checked: found[key], disabled: key === "roots" && !state.roots?.length });
    node.onchange = () => ask("declare", { ...state.declared, [key]: node.checked });
    return make("label", {}, node, ` ${names[key]}`);
  };
  return make("details", { className: "menu" }, make("summary", { textContent: "Declared" }), make("div", {}, ...Object.keys(names).map(box),
    make("p", { className: "quiet", textContent: "What the client declares to the server. A change starts it anew. Directories for roots come from the command line." })));
}

function fromHash() {
  const [, kind, name] = /^#\/(\w+)\/(.+)$/.exec(location.hash) ?? [];
  if (kind) choose(kind, decodeURIComponent(name), false);
}

document.addEventListener("chosen", () => (pane("work"), drawList(), drawWork()));
document.addEventListener("shown", () => pane("work"));
window.addEventListener("hashchange", fromHash);
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
  event.preventDefault();
  pane("list");
  focusFilter();
});

onEvent((event) => {
  if (event.type === "refreshed") (drawTop(), drawList(), drawWork(true), drawHappened());
  else if (event.type === "status" && !event.past) drawTop();
  else if (["exchange", "question", "answered", "progress"].includes(event.type)) drawWork(false, event);
  hear(event);
});

if (takeToken()) {
  drawHappened();
  follow(fromHash);
} else top.append(make("p", { className: "bad", role: "alert", textContent: "Open the address that the terminal shows: it holds a key." }));

// The view of a tool, below the result of its call: the frame and its buttons. What the frame says is read in the Python process.

import { make } from "./elements.js";
import { rounded } from "./json.js";
import { itemOf } from "./list.js";
import { show } from "./view.js";
import { ask, state } from "./state.js";

const LAST_WORDS = 2000; // milliseconds in which a view may save what it has
export const place = make("section", { ariaLabel: "View", hidden: true });
let theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
let current;

export const viewUri = (item) => item?._meta?.ui?.resourceUri ?? item?._meta?.["ui/resourceUri"];

// A view belongs to one call and one start of the server: after a restart it is shown anew, as its author has changed it.

export function drawView(exchange) {
  const uri = exchange?.kind === "tool" && exchange.state === "done" ? viewUri(itemOf("tools", exchange.name)) : undefined;
  const key = uri && `${exchange.id}/${state.generation}`;
  if (uri && state.status !== "ready") return;
  if (current?.key === key) return;
  if (current) end(current);
  current = key && open(key, exchange.id, uri);
  place.hidden = !current;
}

function open(key, id, uri) {
  const frame = make("div", { className: "view" });
  const told = make("p", { className: "quiet", role: "status", textContent: "Reading the view …" });
  const again = make("button", { type: "button", className: "small", textContent: "Reload the view", onclick: () => ((current = undefined), end(made), drawView(state.exchanges.get(id))) });
  const other = make("button", { type: "button", className: "small" });
  const named = () => (other.textContent = theme === "dark" ? "Light theme" : "Dark theme");
  const node = make("div", {}, make("h2", {}, "View ", make("code", { className: "quiet", textContent: uri })), make("div", { className: "buttons" }, again, other), told, frame);
  const made = { key, node };
  const post = (messages) => messages.forEach((each) => made.frame?.post(rounded(each)));
  other.onclick = async () => {
    theme = theme === "dark" ? "light" : "dark";
    named();
    post((await ask("view-theme", { name: made.name, theme })).messages);
  };
  named();
  place.append(node);
  const send = async (text) => {
    const { messages, closed } = await ask("view-says", { name: made.name, text });
    if (closed && !made.ended) (made.frame.close(), (told.textContent = "The view has ended."));
    return rounded(messages);
  };
  ask("view", { id, theme }).then(({ name, allow }) => {
    [made.name, told.textContent] = [name, ""];
    if (made.ended) return close(made);
    made.frame = show(frame, `http://${name}:${location.port}/`, allow, send);
  }, (error) => Object.assign(told, { className: "bad", textContent: error.message }));
  return made;
}

async function end(view) {
  [view.ended, view.node.hidden] = [true, true];
  if (!view.frame) return view.node.remove();
  setTimeout(() => close(view), LAST_WORDS);
  const { messages } = await ask("view-end", { name: view.name }).catch(() => ({ messages: [] }));
  messages.forEach((each) => view.frame.post(rounded(each)));
}

function close(view) {
  view.frame?.close();
  view.node.remove();
  ask("view-close", { name: view.name }).catch(() => {});
}

// The middle pane: the form of what was chosen, what the server asks, and the result. What was typed stays when the list changes.

import { folded, isObject, make, pretty } from "./elements.js";
import { comparison, named } from "./compare.js";
import { toJson } from "./json.js";
import { field, jsonSwitch, mistake, questionForm, rowsOf, sendOnEnter, warned } from "./forms.js";
import { showContent, turn, view } from "./results.js";
import { itemOf, subscribe } from "./list.js";
import { drawView, place } from "./views.js";
import { ask, state, wholeResult } from "./state.js";

const CALL = { tools: ["tool", "Call"], resources: ["resource", "Read"], templates: ["resource", "Read"], prompts: ["prompt", "Get"] };
const REDACTED = "[redacted]";
const work = make("div");
const forms = new Map();
const asked = make("div", { className: "questions" });
const out = make("div", { className: "out" });
out.setAttribute("role", "status");
out.setAttribute("aria-live", "polite");
document.getElementById("work").append(work, place); // the frame of a view would load again if it were moved

export function drawWork(refreshed = false, event) {
  drawQuestions();
  if (event?.type === "progress") return progress(event);
  if (event?.type === "exchange") return event.exchange.id === state.shown || event.exchange.id === state.compared ? drawResult() : undefined;
  if (event) return state.exchanges.get(state.shown)?.state === "running" ? drawResult() : undefined; // a question, or an answer
  const { chosen } = state;
  if (!chosen) return work.replaceChildren(asked, make("p", { className: "quiet", textContent: "Choose something on the left. Tools can be called, resources read, prompts filled in." }), out);
  const item = itemOf(chosen.kind, chosen.name);
  if (!item) return work.replaceChildren(asked, make("p", { className: "quiet", textContent: state.status === "ready" ? `The server does not offer ${chosen.name}.` : "Waiting for the server." }), out);
  const made = formOf(chosen.kind, chosen.name, item);
  if (refreshed && made.node.isConnected) return drawResult();
  work.replaceChildren(asked, made.node, out);
  drawResult();
}

// A form is kept for each item, and made anew when its schema is another: with what was typed, as far as that fits.

function formOf(kind, name, item) {
  const key = toJson([kind, name]);
  const shape = toJson([item, state.changes.find((each) => each.kind === kind && each.name === name), state.advice?.[name]]);
  const old = forms.get(key);
  if (old?.shape === shape) return old;
  const made = { ...build(kind, name, item), shape };
  if (old) {
    try {
      made.json.write(old.json.read());
    } catch {}
    if (old.node.isConnected) old.node.replaceWith(made.node);
  }
  forms.set(key, made);
  return made;
}

function schemaOf(kind, item) {
  if (kind === "tools") return item.inputSchema ?? {};
  const names = kind === "prompts" ? (item.arguments ?? []).map((each) => [each.name, each]) : kind === "templates" ? variables(item.uriTemplate).map((each) => [each, {}]) : [];
  return { type: "object", properties: Object.fromEntries(names.map(([name, each]) => [name, { type: "string", description: each.description }])), required: names.filter(([, each]) => kind === "templates" || each.required).map(([name]) => name) };
}

const variables = (template) => [...template.matchAll(/\{[+#./;?&]?([^}]+)\}/g)].flatMap((each) => each[1].split(",").map((name) => name.replace(/[*:].*$/, "")));

// RFC 6570 as far as servers use it: the address stays visible, and can be changed before it is read.

function filled(template, given) {
  return template.replace(/\{([+#./;?&]?)([^}]+)\}/g, (_, operator, names) => {
    const parts = names.split(",").map((name) => name.replace(/[*:].*$/, "")).filter((name) => given[name] !== undefined && given[name] !== "");
    const code = (text) => (operator === "+" || operator === "#" ? encodeURI(text) : encodeURIComponent(text));
    if (!parts.length) return "";
    if (operator === "?" || operator === "&") return operator + parts.map((name) => `${name}=${code(given[name])}`).join("&");
    const first = { "#": "#", "/": "/", ".": ".", ";": ";" }[operator] ?? "";
    return first + parts.map((name) => code(given[name])).join({ "/": "/", ".": ".", ";": ";" }[operator] ?? ",");
  });
}

function build(kind, name, item) {
  const [what, verb] = CALL[kind];
  const schema = schemaOf(kind, item);
  const fields = Object.create(null);
  const rows = rowsOf(schema, schema, fields);
  const json = jsonSwitch(rows, fields);
  const problem = make("p", { className: "bad", role: "alert", hidden: true });
  const revision = make("select", { ariaLabel: "Revision" }, make("option", { value: "", textContent: "as negotiated" }),
    ...(state.revisions ?? []).map((each) => make("option", { value: each, textContent: each })), make("option", { value: "both", textContent: "both eras, and compare" }));
  const go = make("button", { type: "submit", textContent: verb });
  const anyway = make("button", { type: "button", textContent: "Send anyway", hidden: true });
  const form = make("form", { noValidate: true }, rows, ...json.nodes, problem, make("div", { className: "buttons" }, go, anyway, revision));
  const say = (words) => ((problem.textContent = words), (problem.hidden = !words));
  const send = async () => {
    say("");
    anyway.hidden = true;
    let given;
    try {
      given = json.read();
    } catch (error) {
      return say(json.problem() || error.message);
    }
    const wanted = { kind: what, name: kind === "templates" ? filled(item.uriTemplate, given) : name, arguments: kind === "resources" ? {} : given, template: kind === "templates" ? name : "" };
    await (revision.value === "both" ? compareEras(wanted, say) : call({ ...wanted, revision: revision.value }, say));
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    if (json.isJson() || form.checkValidity()) return json.isJson() || !warned(form, fields) ? send() : undefined;
    form.reportValidity();
    const bad = form.querySelector(":is(input, select, textarea):invalid");
    say(`${bad.closest("[data-name]")?.dataset.name ?? "A field"}: ${bad.validationMessage}`);
    anyway.hidden = false;
  };
  anyway.onclick = () => send();
  sendOnEnter(form, fields);
  if (kind !== "tools") completions(kind, name, fields);
  const buttons = kind === "resources" && state.capabilities?.resources?.subscribe ? [subscription(name)] : [];
  const hints = Object.entries({ readOnlyHint: "read-only", destructiveHint: "destructive", idempotentHint: "idempotent", openWorldHint: "open world" }).filter(([hint]) => item.annotations?.[hint] === true);
  const node = make("article", {}, make("h2", {}, make("code", { textContent: name.slice(0, 500) })),
    make("p", {}, ...hints.map(([, words]) => make("span", { className: "mark", textContent: words })), item.title ? make("span", { dir: "auto", textContent: ` ${item.title}` }) : ""),
    make("div", {}, long(item.description)), remarks(kind, name), form, ...buttons,
    folded("Definition", pretty(item)));
  return { node, json, say };
}

// What the last restart has changed of an item, and what the rules say of it.

function remarks(kind, name) {
  const change = state.changes.find((each) => each.kind === kind && each.name === name);
  const advice = kind === "tools" ? (state.advice?.[name] ?? []) : [];
  const lines = [...(change?.what ?? []).map((words) => [change.level, `since the last restart: ${words}`]), ...advice.map((each) => [each.level, `${each.code} ${each.words}`])];
  return lines.length ? make("ul", { className: "remarks" }, ...lines.map(([level, words]) => make("li", { className: level, textContent: words }))) : "";
}

function long(text) {
  if (typeof text !== "string") return "";
  const whole = text.length <= 1500;
  const words = make("p", { className: "words", dir: "auto", textContent: whole ? text : `${text.slice(0, 1500)} …` });
  return whole ? words : make("div", {}, words, folded("The whole description", pretty(text)));
}

function subscription(uri) {
  const button = make("button", { type: "button", className: "small" });
  const show = (on) => {
    button.textContent = on ? "Unsubscribe" : "Subscribe";
    button.onclick = () => subscribe(uri, !on).then(() => show(!on), (error) => button.after(make("p", { className: "bad", textContent: error.message })));
  };
  show((state.subscribed ?? []).includes(uri));
  return button;
}

// Values that the server suggests, as a person types.

function completions(kind, name, fields) {
  if (!state.capabilities?.completions) return;
  for (const [argument, { node }] of Object.entries(fields)) {
    const options = make("div", { className: "suggestions" });
    let timer;
    node.after(options);
    node.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const given = Object.fromEntries(Object.entries(fields).filter(([other]) => other !== argument).map(([other, each]) => [other, each.read()]).filter(([, value]) => value));
        const found = await ask("complete", { kind: kind === "prompts" ? "prompt" : "template", name, argument, value: node.value, given }).catch(() => ({ values: [] }));
        options.replaceChildren(...(found.values ?? []).slice(0, 12).map((value) => make("button", { type: "button", className: "small", textContent: value, onclick: () => ((node.value = value), options.replaceChildren(), node.focus()) })));
        if (found.report) options.append(make("p", { className: "bad", textContent: found.problem }), make("pre", { className: "report", tabIndex: 0, textContent: found.report }));
      }, 150);
    });
  }
}

// A call. What may change something is called twice only if the person says so.

export const call = (wanted, say) => begin("call", wanted, say);

async function begin(path, wanted, say = (words) => out.prepend(make("p", { className: "bad", textContent: words })), gone = say) {
  try {
    const { id } = await ask(path, wanted);
    [state.shown, state.compared] = [id, null];
    drawResult();
    document.dispatchEvent(new Event("shown"));
    return id;
  } catch (error) {
    if (error.status === 410) return void gone(error.message);
    if (error.status !== 409) return void say(error.message);
    return confirmed(error.message) ? begin(path, { ...wanted, confirmed: true }, say, gone) : undefined;
  }
}

const confirmed = (words) => confirm(`${words} Call it again?`);

async function compareEras(wanted, say) {
  const modern = state.revisions[0];
  const older = state.revisions[1];
  const first = await call({ ...wanted, revision: modern }, say);
  if (first === undefined) return;
  const second = await call({ ...wanted, revision: older, again: true }, say);
  if (second !== undefined) compare(first, second);
}

export function compare(one, other) {
  [state.shown, state.compared] = [one, other];
  drawResult();
  document.dispatchEvent(new Event("shown"));
}

// A call as it was. The process has its arguments; of an earlier day, without the secrets, so that the person gives them again.

export const replay = (exchange, same = false) => begin("again", { id: exchange.id, same_answers: same }, undefined, () => edit(exchange));

export const repetitions = (exchange) => [["Again", false], ...(exchange.answers?.length ? [["Again, same answers", true]] : [])].map(([words, same]) =>
  make("button", { type: "button", className: "small", textContent: words, onclick: () => replay(exchange, same) }));

export function edit(exchange) {
  const kind = { tool: "tools", prompt: "prompts", resource: exchange.template ? "templates" : "resources" }[exchange.kind];
  const name = exchange.template || exchange.name;
  state.chosen = { kind, name };
  document.dispatchEvent(new Event("chosen"));
  const made = forms.get(toJson([kind, name]));
  if (!made) return;
  const gone = [];
  made.json.write(withoutGone(exchange.arguments, gone));
  made.say(gone.length ? `Secrets are not kept: give ${gone.join(", ")} again.` : "");
  if (gone.length) made.node.querySelector(`[data-name="${CSS.escape(gone[0].split(".")[0])}"]`)?.querySelector("input, select, textarea")?.focus();
}

// Arguments without the members in which a secret was; `gone` gets their names.

function withoutGone(value, gone, path = "") {
  if (typeof value === "string" && value.includes(REDACTED)) return void gone.push(path);
  if (Array.isArray(value)) return value.map((each, n) => withoutGone(each, gone, `${path}.${n}`) ?? "");
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, withoutGone(each, gone, path ? `${path}.${name}` : name)]).filter(([, each]) => each !== undefined));
}

function progress({ exchange, progress, total, message }) {
  if (exchange !== state.shown) return;
  const bar = out.querySelector("progress");
  if (!bar) return;
  if (total) [bar.max, bar.value] = [total, progress];
  bar.nextElementSibling.textContent = [message, total ? `${progress} of ${total}` : progress].filter(Boolean).join(" · ");
}

const isChosen = ({ kind, name, template }) => state.chosen?.name === (template || name) && CALL[state.chosen.kind]?.[0] === kind;

function drawResult() {
  const one = state.exchanges.get(state.shown);
  const other = state.exchanges.get(state.compared);
  drawView(other ? undefined : one);
  if (!one) return out.replaceChildren();
  if (!other) return out.replaceChildren(isChosen(one) ? "" : make("h2", { textContent: named(one) }), ...resultOf(one));
  out.replaceChildren(...comparison(one, other, resultOf));
}

const ENDED = { done: ["good", "Done"], error: ["bad", "It failed"], stopped: ["quiet", "Stopped"] };

function resultOf(exchange) {
  const { id, state: ended, ms, bytes, tokens, report, error, result } = exchange;
  if (ended === "running") {
    const asks = [...state.questions.values()].some((each) => each.exchange === id);
    const told = make("p", { className: "quiet", textContent: asks ? "The call waits for your answer to the question above." : exchange.task ? `Task ${exchange.task.taskId}: ${exchange.task.status} ${exchange.task.statusMessage ?? ""}` : "Working …" });
    return [make("progress", { ariaLabel: "Progress", hidden: asks }), told, make("button", { type: "button", textContent: exchange.task ? "Cancel the task" : "Stop the call", onclick: () => ask("stop", { id }) })];
  }
  const [className, words] = ended === "done" && exchange.is_error ? ["bad", "The tool reports an error"] : ENDED[ended];
  const nodes = [make("p", { className, textContent: `${words}, after ${ms} ms${exchange.revision ? `, ${exchange.revision}` : ""}${bytes ? ` · ${bytes.toLocaleString()} bytes, ~${tokens.toLocaleString()} tokens` : ""}` })];
  if (report) nodes.push(make("h3", { textContent: "Only you see this: clients get the incident number" }), make("pre", { className: "report", tabIndex: 0, textContent: report }));
  if (error) nodes.push(make("p", { className: "words", textContent: error.problem ?? "" }), error.hint ? make("p", { className: "quiet", textContent: `Hint: ${error.hint}` }) : "", error.stderr ? make("pre", { tabIndex: 0, textContent: error.stderr }) : "");
  const content = make("div");
  if (exchange.beginning) content.append(make("p", { className: "quiet", textContent: "The beginning of a large result:" }), make("pre", { tabIndex: 0, textContent: exchange.beginning }), make("button", { type: "button", textContent: "Save all of it", onclick: () => save(id) }));
  else if (result) (showContent(result, content), content.append(folded("The result as it came", pretty(result))));
  const answers = (exchange.answers ?? []).map(({ message, action, content: values, text }) => ({ question: message, answer: action === "accept" ? (values ?? text ?? "done") : action }));
  if (answers.length) content.append(folded(`What you answered (${answers.length})`, view(answers)));
  return [...nodes, content, actions(exchange)];
}

async function save(id) {
  const link = make("a", { href: URL.createObjectURL(new Blob([await wholeResult(id)], { type: "application/json" })), download: `result-${id}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// The call as code, to be pasted elsewhere.

function actions(exchange) {
  const told = make("span", { className: "quiet", role: "status" });
  const shown = make("pre", { hidden: true, tabIndex: 0 });
  const copy = async (kind) => {
    const code = (await ask(`code?id=${exchange.id}`))[kind];
    if (!code) return (told.textContent = state.target?.url ? "The message of this call is not kept: call it again." : "A server on stdio has no URL for curl: copy the command.");
    [shown.textContent, shown.hidden] = [code, false];
    await navigator.clipboard.writeText(code).then(() => (told.textContent = "Copied"), () => (told.textContent = "Select and copy it below"));
  };
  const kinds = [["curl", "curl"], ["command", "command"], ["python", "Python"], ["pytest", "pytest"]];
  return make("div", {}, make("div", { className: "buttons" }, ...repetitions(exchange), make("span", { className: "quiet", textContent: "Copy as" }), ...kinds.map(([key, words]) => make("button", { type: "button", className: "small", textContent: words, onclick: () => copy(key) })), told), shown);
}

// Questions of the server, which wait until a person answers.

function drawQuestions() {
  const there = new Map([...asked.children].map((each) => [Number(each.dataset.id), each]));
  for (const [id, node] of there) if (!state.questions.has(id)) node.remove();
  for (const [id, question] of state.questions) {
    if (there.has(id)) continue;
    const end = (answer) => ask("answer", { id, ...answer }).catch(() => node.remove());
    const node = question.kind === "sampling" ? samplingForm(question) : questionForm(question.params, end, ...(question.kind === "view" ? ["The view asks", "Allow"] : []));
    node.dataset.id = id;
    asked.append(node);
    if (there.size === 0 && asked.children.length === 1) node.querySelector("input, select, textarea, a, button")?.focus();
  }
}

function samplingForm({ id, params }) {
  const text = make("textarea", { rows: 4, ariaLabel: "What the model says" });
  const problem = make("p", { className: "bad", role: "alert" });
  const end = (action) => ask("answer", { id, action, text: text.value });
  const draft = async () => {
    problem.textContent = "";
    await ask("draft", { id }).then((found) => (text.value = found.text), (error) => (problem.textContent = error.message));
  };
  const button = (words, act) => make("button", { type: "button", textContent: words, onclick: act });
  const messages = (params.messages ?? []).flatMap((each) => turn(each.role, each.content));
  return make("form", { className: "asked", onsubmit: (event) => (event.preventDefault(), end("accept")) },
    make("strong", { textContent: "The server asks for a model's answer: play the model" }), params.systemPrompt ? make("p", { className: "quiet words", textContent: params.systemPrompt }) : "",
    ...messages, text, problem, make("div", { className: "buttons" }, make("button", { type: "submit", textContent: "Answer" }), state.model ? button(`Let ${state.model} write`, draft) : "", button("Refuse", () => end("decline"))));
}

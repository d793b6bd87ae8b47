import { folded, isObject, make, pretty } from "./elements.js";
import { fromJson, toJson } from "./json.js";
import { attach, field, jsonSwitch, questionForm, sendOnEnter, warned } from "./forms.js";
import { showContent } from "./results.js";

// Makes a form of each item of the page, and a client of the newest revision of it: one POST for each request. What a person
// types, tokens too, and what was called is forgotten when the page is left.
const { version, product } = document.body.dataset;
const login = fromJson(document.body.dataset.login ?? "null");
const back = login && returned();
const here = (back?.pending.here ?? location.href).split("#")[0];
const META = "io.modelcontextprotocol/";
const ROUNDS = 25;
const MANY = 24;
const REMEMBERED = 50;
let requests = 0;

// The wire.

function headerValue(value) {
  const said = String(value);
  if (/^[\x20-\x7e]*$/.test(said) && said === said.trim() && !/^=\?base64\?.*\?=$/.test(said)) return said;
  return `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(said)))}?=`;
}

function* mirrored(schema, args) {
  for (const [name, each] of Object.entries(schema?.properties ?? {})) {
    const value = args?.[name];
    if (value === undefined || value === null) continue;
    if (typeof each?.["x-mcp-header"] === "string") yield [`Mcp-Param-${each["x-mcp-header"]}`, headerValue(value)];
    if (typeof value === "object") yield* mirrored(each, value);
  }
}

// The token and the headers of the person, for each request.

const given = {
  token: make("input", { type: "password", autocomplete: "off" }),
  headers: make("textarea", { rows: 2, spellcheck: false, placeholder: "X-Team: blue" }),
  client: make("input", { autocomplete: "off", spellcheck: false, placeholder: "empty: the page registers itself" }),
};
const notice = make("p");
notice.setAttribute("role", "status");

function* ownHeaders() {
  const token = given.token.value.trim();
  if (token) yield ["Authorization", /^\w+ /.test(token) ? token : `Bearer ${token}`];
  for (const line of given.headers.value.split("\n").filter((each) => each.trim())) {
    const at = line.indexOf(":");
    if (at < 1) throw new Error(`Write a header as "Name: value", not "${line}"`);
    yield [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }
}

// What is offered may depend on who asks, so the page is fetched again with the token and the headers. It is the text that this
// server writes for its own page; nothing in it can run, because the policy allows the script above only.

const written = globalThis.trustedTypes?.createPolicy("page", { createHTML: (text) => text }) ?? { createHTML: (text) => text };

async function reload() {
  const answer = await fetch(here, { headers: { Accept: "text/html", ...Object.fromEntries(ownHeaders()) } });
  const text = await answer.text();
  const fresh = answer.ok && new DOMParser().parseFromString(written.createHTML(text), "text/html").querySelector("main");
  if (!fresh && answer.headers.get("content-type")?.includes("html")) throw new Error("Give a token or a header first");
  if (!fresh) throw new Error(refusal(answer, text));
  const kept = document.getElementById("history");
  document.querySelector("main").replaceWith(fresh);
  start();
  if (kept) keepHistory(kept);
  const heading = document.querySelector(".sending ~ section h2") ?? document.querySelector("h1");
  heading.tabIndex = -1;
  heading.focus();
}

function refusal(answer, text) {
  const scope = /error="insufficient_scope".*scope="([^"]*)"/.exec(answer.headers.get("www-authenticate") ?? "")?.[1];
  if (scope && login) login.scopes = [...new Set([...login.scopes, ...scope.split(" ")])];
  let said = text.slice(0, 300) || answer.statusText;
  try {
    said = fromJson(text).error.message ?? said;
  } catch {}
  const entry = login?.issuer ? ". Log in again" : ". Give a token under “Token and headers”";
  return `HTTP ${answer.status}: ${said}${scope ? `. Log in again to get ${scope}` : answer.status === 401 ? entry : ""}`;
}

// Logging in where the server is protected: the code flow with PKCE. Only its beginning outlives the page, in this tab.

const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

async function readJson(url, options) {
  const { host } = new URL(url);
  const answer = await fetch(url, { redirect: "error", ...options }).catch(() => Promise.reject(new Error(`${host} does not answer pages of ${location.origin}: get a token in another way, and paste it`)));
  const found = await answer.text().then(fromJson).catch(() => null);
  if (!answer.ok || !isObject(found)) throw new Error(`${host}: ${found?.error_description ?? found?.error ?? `HTTP ${answer.status}${isObject(found) ? "" : " without a JSON object"}`}`);
  return found;
}

async function authorizationServer() {
  const { origin, pathname } = new URL(login.issuer);
  const path = pathname.replace(/\/$/, "");
  const openid = "/.well-known/openid-configuration";
  let problem;
  for (const place of [`${origin}/.well-known/oauth-authorization-server${path}`, `${origin}${openid}${path}`, `${origin}${path}${openid}`]) {
    const found = await readJson(place).catch((error) => void (problem ??= error));
    if (found && found.issuer !== login.issuer) throw new Error(`The metadata at ${place} name another issuer than ${login.issuer}`);
    if (found) return found;
  }
  throw problem;
}

async function register(server) {
  if (!server.registration_endpoint) throw new Error(`Register a public client at ${login.issuer} with the redirect URI ${here}, and give its id`);
  const about = { client_name: document.title, redirect_uris: [here], grant_types: ["authorization_code"], response_types: ["code"],
    token_endpoint_auth_method: "none", application_type: here.startsWith("https:") ? "web" : "native" };
  const found = await readJson(server.registration_endpoint, { method: "POST", headers: { "Content-Type": "application/json" }, body: toJson(about) });
  return found.client_id;
}

async function logIn() {
  if (!crypto.subtle) throw new Error("A login needs a page over https, or on this machine: get a token in another way, and paste it");
  const server = await authorizationServer();
  if (!server.code_challenge_methods_supported?.includes("S256")) throw new Error(`${login.issuer} does not support PKCE with S256, so a login there is not safe`);
  const target = new URL(server.authorization_endpoint);
  if (!["https:", new URL(login.issuer).protocol].includes(target.protocol)) throw new Error(`The authorization_endpoint of ${login.issuer} is not safe to open`);
  const client = given.client.value.trim() || (await register(server));
  const [state, verifier] = [random(), random()];
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
  const asked = { response_type: "code", client_id: client, redirect_uri: here, state, code_challenge: base64url(new Uint8Array(digest)),
    code_challenge_method: "S256", resource: login.resource, ...(login.scopes.length && { scope: login.scopes.join(" ") }) };
  for (const [name, value] of Object.entries(asked)) target.searchParams.set(name, value);
  sessionStorage.setItem("login", toJson({ here, state, verifier, client, scopes: login.scopes, endpoint: server.token_endpoint,
    named: server.authorization_response_iss_parameter_supported === true }));
  location.assign(target);
}

function returned() {
  const found = new URLSearchParams(location.search);
  const pending = fromJson(sessionStorage.getItem("login") ?? "null");
  if (!pending || found.get("state") !== pending.state) return;
  sessionStorage.removeItem("login");
  history.replaceState(null, "", pending.here);
  return { pending, found };
}

async function finish({ pending, found }) {
  if ((pending.named || found.has("iss")) && found.get("iss") !== login.issuer) throw new Error(`The answer does not come from ${login.issuer}, where the login began`);
  if (!found.get("code")) throw new Error(`The login failed: ${found.get("error_description") ?? found.get("error") ?? "there is no code"}`);
  given.client.value = pending.client;
  login.scopes = pending.scopes;
  const form = { grant_type: "authorization_code", code: found.get("code"), redirect_uri: pending.here, client_id: pending.client,
    code_verifier: pending.verifier, resource: login.resource };
  const tokens = await readJson(pending.endpoint, { method: "POST", body: new URLSearchParams(form) });
  if (tokens.token_type?.toLowerCase() !== "bearer") throw new Error(`${login.issuer} gave a token of type ${tokens.token_type}, which this page cannot send`);
  given.token.value = tokens.access_token;
  await reload();
}

async function report(work) {
  [notice.className, notice.textContent] = ["quiet", "Working …"];
  try {
    await work();
    notice.textContent = "";
  } catch (error) {
    [notice.className, notice.textContent] = ["bad", error.message];
  }
}

async function request(method, key, params, schema, hear, signal) {
  const id = ++requests;
  const meta = { progressToken: id, [`${META}protocolVersion`]: version, [`${META}clientCapabilities`]: { elicitation: { form: {}, url: {} } },
    [`${META}clientInfo`]: { name: "linkspan-page", version: product }, [`${META}logLevel`]: "info" };
  const message = { jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } };
  hear(message);
  const answer = await fetch(here, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream", "MCP-Protocol-Version": version,
      "Mcp-Method": method, ...(key && { "Mcp-Name": headerValue(params[key]) }), ...Object.fromEntries([...mirrored(schema, params.arguments), ...ownHeaders()]) },
    body: toJson(message),
  });
  const kind = answer.headers.get("content-type") ?? "";
  for await (const message of kind.startsWith("text/event-stream") ? events(answer.body) : whole(answer)) {
    hear(message);
    if (message.error) throw new Error(`${message.error.message} (${message.error.code})`);
    if (message.result) return message.result;
  }
  throw new Error(`The connection ended before the answer came (HTTP ${answer.status})`);
}

async function* whole(answer) {
  const body = await answer.text();
  if (answer.status === 401 || answer.status === 403) throw new Error(refusal(answer, body));
  try {
    yield fromJson(body);
  } catch {
    throw new Error(refusal(answer, body));
  }
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield fromJson(data.join("\n"));
    }
  }
}

// Questions in the middle of a call.

function ask({ method, params }, out, signal) {
  if (method !== "elicitation/create") throw new Error(`The server asks for ${method}, which this page cannot give`);
  return new Promise((resolve, reject) => {
    const form = questionForm(params, (answer) => (form.remove(), resolve(answer)));
    signal.addEventListener("abort", () => (form.remove(), reject(signal.reason)));
    out.append(form);
    form.querySelector("input, select, textarea, a, button").focus();
  });
}

function show(result, out, took) {
  const outcome = result.isError ? ["bad", "The tool reports an error"] : ["good", "Done"];
  out.append(make("p", { className: outcome[0], textContent: `${outcome[1]}, after ${took} ms` }));
  showContent(result, out);
  out.append(folded("The result as it came", pretty(result)));
}

async function call({ method, key, params, schema, out, signal }) {
  const exchange = [];
  const start = performance.now();
  const bar = make("progress", { ariaLabel: "Progress" });
  const told = make("p", { className: "quiet", textContent: "Working …" });
  out.replaceChildren(bar, told);
  const hear = (message) => {
    const { method: kind, params: news } = message;
    exchange.push(message);
    if (kind === "notifications/progress") {
      if (news.total) [bar.max, bar.value] = [news.total, news.progress];
      told.textContent = [news.message, news.total ? `${news.progress} of ${news.total}` : news.progress].filter(Boolean).join(" · ");
    } else if (kind === "notifications/message") {
      const said = typeof news.data === "string" ? news.data : toJson(news.data);
      out.append(make("p", { className: "quiet", textContent: `${news.level}: ${said}` }));
    }
  };
  try {
    let more = {};
    for (let round = 0; round < ROUNDS; round++) {
      const began = performance.now();
      const result = await request(method, key, { ...params, ...more }, schema, hear, signal);
      if (result.resultType !== "input_required") return show(result, out, Math.round(performance.now() - began));
      const answers = Object.create(null);
      told.textContent = "Waiting for your answer";
      bar.hidden = true;
      for (const [name, question] of Object.entries(result.inputRequests ?? {})) answers[name] = await ask(question, out, signal);
      more = { inputResponses: answers, requestState: result.requestState };
      told.textContent = "Working …";
      bar.hidden = false;
    }
    throw new Error(`The server still asks after ${ROUNDS} rounds`);
  } catch (error) {
    out.append(make("p", { className: "bad", textContent: signal.aborted ? "Stopped" : error.message }));
  } finally {
    bar.remove();
    told.remove();
    remember(`${method} ${params[key]}`, out.querySelector(".good, .bad")?.textContent ?? "", Math.round(performance.now() - start), exchange);
  }
}

// What was called, the latest first, with the messages of both sides. Headers are not in it, so a token is not, either.

function remember(what, outcome, took, exchange) {
  const kept = document.getElementById("history") ?? keepHistory();
  const mark = (each) => make("strong", { className: "quiet", textContent: each.method && each.id !== undefined ? "→ sent" : "← received" });
  const line = make("summary", {}, make("code", { textContent: what }), make("span", { className: "quiet", textContent: ` ${took} ms · ${outcome.split(", after")[0]}` }));
  kept.querySelector("h2").after(make("details", { className: "item" }, line, make("div", { className: "inside" }, ...exchange.flatMap((each) => [mark(each), pretty(each)]))));
  kept.querySelectorAll(".item").forEach((each, n) => n >= REMEMBERED && each.remove());
}

function keepHistory(kept = make("section", { id: "history" }, make("h2", { textContent: "History" }))) {
  document.querySelector("main").append(kept);
  document.querySelector("nav").append(make("a", { href: "#history", textContent: "History" }));
  return kept;
}

// The page.

function enliven(item) {
  const { verb, method, key, value } = item.dataset;
  const inside = item.querySelector(".inside");
  const schema = fromJson(inside.querySelector(".schema")?.textContent ?? "{}");
  const fields = Object.create(null);
  const form = make("form");
  const list = inside.querySelector(".fields");
  const out = make("div", { className: "out" });
  out.setAttribute("role", "status");
  out.setAttribute("aria-live", "polite");
  const stop = make("button", { type: "button", textContent: "Stop", hidden: true });
  const go = make("button", { type: "submit", textContent: verb });
  for (const row of list?.children ?? []) {
    const { name } = row.dataset;
    fields[name] = attach(row, field(schema.properties[name], schema, schema.required?.includes(name) ?? false));
  }
  inside.insertBefore(form, list ?? inside.querySelector("details"));
  const json = jsonSwitch(list ?? make("ul"), fields);
  typed.set(item, json);
  if (list) form.append(list, ...json.nodes);
  form.append(make("div", { className: "buttons" }, go, stop));
  form.after(out);
  sendOnEnter(form, fields);
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (go.disabled || json.problem() || (!json.isJson() && warned(form, fields))) return;
    const controller = new AbortController();
    const typed = json.read();
    const params = key === "uri" ? { uri: value || typed.uri } : { name: value, arguments: typed };
    stop.onclick = () => controller.abort();
    go.disabled = !(stop.hidden = false);
    await call({ method, key, params, schema, out, signal: controller.signal });
    go.disabled = !(stop.hidden = true);
  };
}

// On this machine the page follows its server while that is written: what is offered is fetched anew, and forms and answers stay.

const LOCAL = /^(localhost|127(\.\d+){3}|\[::1\])$/;
const origins = new WeakMap(); // of each item, its markup as it came
const typed = new WeakMap(); // of each item with a form, what is typed
const news = make("div", { id: "news" });
news.setAttribute("role", "status");
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function follow() {
  document.querySelector("main").before(news);
  for (let heard = true; heard; ) {
    heard = false;
    const notifications = { toolsListChanged: true, promptsListChanged: true, resourcesListChanged: true };
    const hear = ({ method }) => {
      if (/acknowledged$/.test(method)) heard = news.dataset.follows = true;
      if (/list_changed$/.test(method)) refresh();
    };
    await request("subscriptions/listen", null, { notifications }, null, hear).catch(() => {});
    if (heard) await pause(200);
    while (heard && !(await refresh())) await pause(500);
  }
}

async function refresh() {
  const answer = await fetch(here, { headers: { Accept: "text/html", ...Object.fromEntries(ownHeaders()) } }).catch(() => null);
  const found = answer && new DOMParser().parseFromString(written.createHTML(await answer.text()), "text/html");
  if (!answer?.ok) {
    news.replaceChildren(make("p", { className: "bad", textContent: found?.querySelector("p")?.textContent || "The server does not run. This page waits for it." }));
    const output = found?.querySelector("pre")?.textContent;
    if (output) news.append(pretty(output));
    return answer && answer.status < 500;
  }
  const again = news.firstChild !== null;
  news.replaceChildren();
  const fresh = found.querySelector("main");
  if (fresh) renew(fresh);
  if (again) news.append(make("p", { className: "good", textContent: "The server runs again." }));
  return true;
}

function renew(fresh) {
  const [active, top, old] = [document.activeElement, scrollY, new Map()];
  const [filtered, sending, kept] = [document.getElementById("filter")?.value, document.querySelector(".sending")?.open, document.getElementById("history")];
  const name = ({ dataset }) => `${dataset.method} ${dataset.value || dataset.key}`;
  for (const each of document.querySelectorAll("main section:not(#history) > .item, .group > .item")) old.set(name(each), [...(old.get(name(each)) ?? []), each]);
  const carried = [];
  for (const each of fresh.querySelectorAll(".item")) {
    const before = old.get(name(each))?.shift();
    if (before && origins.get(before) === each.outerHTML) each.replaceWith(before);
    else if (before?.open) carried.push([each, before]);
  }
  document.querySelector("main").replaceWith(fresh);
  start();
  for (const [each, before] of carried) carry(each, before);
  if (kept) keepHistory(kept);
  if (sending) document.querySelector(".sending").open = true;
  const field = document.getElementById("filter");
  if (filtered && field) filter((field.value = filtered));
  if (active.isConnected) active.focus({ preventScroll: true });
  scrollTo(0, top);
}

// An item that has changed: what was typed goes into its new form, as JSON where that has no place for it.

function carry(fresh, before) {
  enliven(fresh);
  fresh.open = true;
  try {
    typed.get(fresh).write(typed.get(before).read());
  } catch {} // what was typed is no JSON yet
  fresh.querySelector(".out").replaceChildren(...before.querySelector(".out").childNodes);
}

// Many tools are grouped by the beginning of their names, and a filter shows those that have its words anywhere.

function group(section) {
  const items = [...section.querySelectorAll(".item")];
  if (items.length <= MANY) return;
  const groups = Object.groupBy?.(items, (each) => /^[A-Za-z0-9]+(?=[_.:/-])/.exec(each.dataset.value)?.[0] ?? "") ?? {};
  const named = Object.entries(groups).filter(([name, found]) => name && found.length > 2 && found.length < items.length);
  for (const [name, found] of named) {
    const held = make("details", { className: "group", open: items.length <= 4 * MANY }, make("summary", {}, make("code", { textContent: name }), make("span", { className: "quiet", textContent: ` ${found.length}` })));
    found[0].before(held);
    held.append(...found);
  }
}

function filter(text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const each of document.querySelectorAll("section:not(#history) .item")) {
    const said = `${each.dataset.value} ${each.querySelector("summary").textContent} ${each.querySelector(".inside > .words")?.textContent ?? ""}`.toLowerCase();
    each.hidden = !wanted.every((word) => said.includes(word));
  }
  for (const each of document.querySelectorAll(".group")) {
    each.hidden = !each.querySelector(".item:not([hidden])");
    if (wanted.length) each.open = true;
  }
  const left = document.querySelectorAll("section:not(#history) .item:not([hidden])").length;
  document.getElementById("left").textContent = wanted.length ? `${left} found` : "";
}

function addFilter(items) {
  if (items.length < 8) return;
  const field = make("input", { type: "search", id: "filter", placeholder: "Filter by name or description", ariaLabel: "Filter" });
  const left = make("p", { className: "quiet", id: "left" });
  left.setAttribute("role", "status");
  field.oninput = () => filter(field.value);
  items[0].closest("section").before(make("div", { className: "filter" }, field, left));
}

function addSending(items) {
  if (!items.length && !login) return;
  const row = (words, node) => attach(make("li", {}, make("label", { className: "label", textContent: words })), { node });
  const list = make("ul", { className: "fields" });
  for (const each of [row("Token", given.token), row("Headers, one on each line", given.headers)]) list.append(each.node.parentNode);
  const about = make("p", { className: "quiet", textContent: "They are sent with every request of this page, and forgotten when it is left." });
  const use = make("button", { type: "submit", className: login?.issuer ? "second" : "", textContent: "Use them" });
  const form = make("form", { onsubmit: (event) => (event.preventDefault(), report(reload)) }, list, about, make("div", { className: "buttons" }, use), notice);
  if (login?.issuer) form.prepend(...loginWith(row));
  const panel = make("details", { className: "sending", open: !items.length }, make("summary", { textContent: login?.issuer ? "Log in, token and headers" : "Token and headers" }), form);
  (document.querySelector(".protected") ?? document.getElementById("connect")).after(panel);
}

function loginWith(row) {
  const { host } = new URL(login.issuer);
  const go = make("button", { type: "button", className: "first", textContent: `Log in at ${host}`, onclick: () => report(logIn) });
  const client = row(`Id of a public client at ${host}`, given.client).node.parentNode;
  return [make("div", { className: "buttons" }, go), folded("With a client that is registered there", make("ul", { className: "fields" }, client))];
}

function start() {
  document.getElementById("still").remove();
  const items = [...document.querySelectorAll(".item")];
  for (const each of items.filter((each) => !origins.has(each))) {
    origins.set(each, each.outerHTML);
    each.addEventListener("toggle", () => each.open && !each.querySelector("form") && enliven(each));
  }
  addSending(items);
  addFilter(items);
  document.querySelectorAll("section").forEach(group);
  connect();
}

// Behind a proxy the server may not know under which address people reach it; the browser does.

function connect() {
  const shown = { json: toJson(here), shell: /^[\w@%+=:,./-]+$/.test(here) ? here : `'${here.replaceAll("'", "%27")}'`, url: here };
  for (const each of document.querySelectorAll("[data-here]")) each.textContent = shown[each.dataset.here];
  for (const each of document.querySelectorAll("[data-install]")) {
    const { name } = each.dataset;
    const entry = toJson({ name, type: "http", url: here });
    each.href = each.dataset.install === "vscode" ? `vscode:mcp/install?${encodeURIComponent(entry)}`
      : `cursor://anysphere.cursor-deeplink/mcp/install?name=${encodeURIComponent(name)}&config=${encodeURIComponent(btoa(toJson({ url: here })))}`;
    each.hidden = false;
  }
  for (const each of document.querySelectorAll(".line pre")) {
    if (!navigator.clipboard) break;
    const copy = make("button", { type: "button", textContent: "Copy" });
    copy.onclick = () => navigator.clipboard.writeText(each.textContent).then(() => (copy.textContent = "Copied"), () => (copy.textContent = "Not allowed"));
    each.after(copy);
  }
}

// The key that leads to the filter.

document.addEventListener("keydown", (event) => {
  const field = document.getElementById("filter");
  if (!field || event.key !== "/" || /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) return;
  event.preventDefault();
  field.focus();
});

start();
if (back) report(() => finish(back));
if (LOCAL.test(location.hostname)) follow();

"use strict";
// Makes a form of each item of the page, and a client of the newest revision of it: one POST for each request. What a person
// types, tokens too, and what was called is forgotten when the page is left.
const { version, product } = document.body.dataset;
const login = JSON.parse(document.body.dataset.login ?? "null");
const back = login && returned();
const here = (back?.pending.here ?? location.href).split("#")[0];
const META = "io.modelcontextprotocol/";
const ROUNDS = 25;
const MANY = 24;
const REMEMBERED = 50;
let requests = 0;
let ids = 0;

const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const pretty = (value) => make("pre", { tabIndex: 0, textContent: typeof value === "string" ? value : JSON.stringify(value, null, 2) });
const folded = (title, ...children) => make("details", {}, make("summary", { textContent: title }), ...children);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// Schemas. What a field cannot be made of becomes JSON in a text area; the server checks everything anyway.

function plain(schema, root) {
  for (let deep = 0; deep < 8; deep++) {
    const arms = (schema?.anyOf ?? schema?.oneOf)?.filter((each) => each.type !== "null");
    if (typeof schema?.$ref === "string" && schema.$ref.startsWith("#")) {
      const steps = schema.$ref.slice(1).split("/").slice(1).map((each) => each.replaceAll("~1", "/").replaceAll("~0", "~"));
      schema = { ...steps.reduce((found, step) => found?.[step], root), ...schema, $ref: undefined };
    } else if (arms?.length === 1) schema = { ...arms[0], ...schema, anyOf: undefined, oneOf: undefined };
    else break;
  }
  const types = [schema?.type].flat().filter((each) => each !== "null");
  return { ...schema, type: types.length === 1 ? types[0] : undefined };
}

function choicesOf(schema) {
  const arms = schema.oneOf ?? schema.anyOf;
  if (schema.enum) return schema.enum.map((value, n) => [value, schema.enumNames?.[n] ?? (typeof value === "string" ? value : JSON.stringify(value))]);
  if ("const" in schema) return [[schema.const, JSON.stringify(schema.const)]];
  if (arms?.length && arms.every((each) => "const" in each)) return arms.map((each) => [each.const, each.title ?? String(each.const)]);
}

// A field is its node and how to read it; reading gives undefined for what is left out.

function field(schema, root, required) {
  schema = plain(schema, root);
  const several = schema.type === "array" && schema.items ? choicesOf(plain(schema.items, root)) : undefined;
  const choices = several ?? choicesOf(schema);
  if (choices) return select(choices, schema, required, Boolean(several));
  if (schema.type === "boolean") {
    const node = make("input", { type: "checkbox", checked: schema.default === true });
    return { node, read: () => (node.checked || required || typeof schema.default === "boolean" ? node.checked : undefined) };
  }
  if (schema.type === "integer" || schema.type === "number") return number(schema, required);
  return schema.type === "string" ? text(schema, required) : json(schema, required);
}

function select(choices, schema, required, multiple) {
  const preset = multiple ? (schema.default ?? []) : [schema.default];
  const options = choices.map(([value, title], n) => make("option", { value: n, textContent: title, selected: preset.includes(value) }));
  const empty = multiple || (required && "default" in schema) ? [] : [make("option", { value: "", textContent: required ? "choose one" : "leave out" })];
  const node = make("select", { multiple, required: required && !multiple }, ...empty, ...options);
  if (multiple) node.size = Math.min(choices.length, 8);
  return {
    node,
    read: () => {
      const chosen = [...node.selectedOptions].filter((each) => each.value !== "").map((each) => choices[each.value][0]);
      return multiple ? (chosen.length || required ? chosen : undefined) : chosen[0];
    },
  };
}

function number(schema, required) {
  const node = make("input", { type: "number", required, step: schema.type === "integer" ? "1" : "any", value: schema.default ?? "" });
  if ("minimum" in schema) node.min = schema.minimum;
  if ("maximum" in schema) node.max = schema.maximum;
  return { node, read: () => (node.value === "" ? undefined : node.valueAsNumber) };
}

function text(schema, required) {
  const type = { email: "email", date: "date", uri: "url" }[schema.format];
  const node = type ? make("input", { type, required }) : make("textarea", { rows: 1 });
  node.value = schema.default ?? "";
  if (schema.maxLength) node.maxLength = schema.maxLength;
  if (schema.minLength) [node.minLength, node.required] = [schema.minLength, required];
  if (!type) node.title = "Enter sends, Shift+Enter begins a new line";
  const blank = () => required && node.value === "" && schema.default === undefined;
  return { node, enter: !type, blank, read: () => (node.value === "" && !required ? undefined : node.value) };
}

function json(schema, required) {
  const shape = { array: "[]", object: "{}" }[schema.type] ?? "";
  const node = make("textarea", { className: "json", rows: 2, required, placeholder: `JSON${shape && ", such as "}${shape}`, spellcheck: false });
  if ("default" in schema) node.value = JSON.stringify(schema.default);
  node.addEventListener("input", () => {
    try {
      node.setCustomValidity((node.value.trim() && JSON.parse(node.value), ""));
    } catch {
      node.setCustomValidity("This is not JSON yet. Texts stand in double quotes.");
    }
  });
  return { node, read: () => (node.value.trim() ? JSON.parse(node.value) : undefined) };
}

// A row has a label and perhaps words that describe the field; people who do not see it hear both.

function attach(row, made) {
  const [label, words] = [row.querySelector("label"), row.querySelector(".words")];
  label.htmlFor = made.node.id = `f${++ids}`;
  if (words) made.node.setAttribute("aria-describedby", (words.id = `w${ids}`));
  row.append(made.node);
  return made;
}

function values(fields) {
  return Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, each.read()]).filter(([, value]) => value !== undefined));
}

// An empty text may be what is meant; more often a field was forgotten. The first press warns, the second sends.

function warned(form, fields) {
  form.querySelectorAll(".warn").forEach((each) => each.remove());
  const empty = Object.values(fields).filter(({ blank }) => blank?.());
  const asked = form.dataset.empty;
  form.dataset.empty = empty.map(({ node }) => node.id).join();
  if (!empty.length || asked === form.dataset.empty) return false;
  for (const { node } of empty) node.after(make("p", { className: "bad warn", role: "alert", textContent: "This is required and empty. Press again to send an empty text." }));
  empty[0].node.focus();
  return true;
}

function sendOnEnter(form, fields) {
  for (const { node, enter } of Object.values(fields)) {
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || (enter ? event.shiftKey : node.tagName !== "TEXTAREA" || !(event.ctrlKey || event.metaKey))) return;
      event.preventDefault();
      form.requestSubmit();
    });
  }
}

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
    said = JSON.parse(text).error.message ?? said;
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
  const found = await answer.json().catch(() => null);
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
  const found = await readJson(server.registration_endpoint, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(about) });
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
  sessionStorage.setItem("login", JSON.stringify({ here, state, verifier, client, scopes: login.scopes, endpoint: server.token_endpoint,
    named: server.authorization_response_iss_parameter_supported === true }));
  location.assign(target);
}

function returned() {
  const found = new URLSearchParams(location.search);
  const pending = JSON.parse(sessionStorage.getItem("login") ?? "null");
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
      "Mcp-Method": method, "Mcp-Name": headerValue(params[key]), ...Object.fromEntries([...mirrored(schema, params.arguments), ...ownHeaders()]) },
    body: JSON.stringify(message),
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
    yield JSON.parse(body);
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
      if (data.length) yield JSON.parse(data.join("\n"));
    }
  }
}

// Questions in the middle of a call.

function ask({ method, params }, out, signal) {
  if (method !== "elicitation/create") throw new Error(`The server asks for ${method}, which this page cannot give`);
  return new Promise((resolve, reject) => {
    const fields = Object.create(null);
    const form = make("form", { className: "asked" }, make("strong", { textContent: "The server asks" }),
      make("p", { className: "words", dir: "auto", textContent: params.message }));
    if (params.mode === "url") form.append(pageToOpen(params.url));
    const schema = params.requestedSchema ?? {};
    const list = make("ul", { className: "fields" });
    for (const [name, each] of Object.entries(params.mode === "url" ? {} : (schema.properties ?? {}))) {
      const required = schema.required?.includes(name) ?? false;
      const row = make("li", {}, make("label", { className: "label", textContent: each.title ?? name }));
      if (required) row.firstChild.append(" ", make("span", { className: "mark", textContent: "required" }));
      if (each.description) row.append(make("p", { className: "words", textContent: each.description }));
      fields[name] = attach(row, field(each, schema, required));
      list.append(row);
    }
    const end = (answer) => (form.remove(), resolve(answer));
    const button = (title, action) => make("button", { type: "button", textContent: title, onclick: () => end({ action }) });
    form.append(list, make("div", { className: "buttons" }, make("button", { type: "submit", textContent: params.mode === "url" ? "Done" : "Answer" }),
      button("Decline", "decline"), button("Cancel", "cancel")));
    form.onsubmit = (event) => {
      event.preventDefault();
      end(params.mode === "url" ? { action: "accept" } : { action: "accept", content: values(fields) });
    };
    sendOnEnter(form, fields);
    signal.addEventListener("abort", () => (form.remove(), reject(signal.reason)));
    out.append(form);
    form.querySelector("input, select, textarea, a, button").focus();
  });
}

function pageToOpen(address) {
  const safe = /^https?:\/\//i.test(address) && URL.canParse(address);
  const shown = make("code", { textContent: address });
  return make("p", {}, safe ? make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, `Open a page of ${new URL(address).host}`) : "", make("br"), shown);
}

// What comes back.

function block(each) {
  const type = each.mimeType ?? "";
  const data = each.data ?? each.blob;
  if (typeof each.text === "string") return words(each.text, type);
  if (each.type === "resource") return make("div", {}, make("code", { textContent: each.resource?.uri }), block(each.resource ?? {}));
  if (each.type === "resource_link") return make("p", {}, make("code", { textContent: each.uri }), ` ${each.title ?? each.name ?? ""}`);
  if (data && type.startsWith("image/")) return make("img", { src: `data:${type};base64,${data}`, alt: "The image in the result" });
  if (data && type.startsWith("audio/")) return make("audio", { src: `data:${type};base64,${data}`, controls: true });
  return view(each);
}

function words(text, type) {
  const found = parsed(text);
  if (found !== undefined) return view(found);
  if (!type.includes("markdown") && !/^(#{1,6} |```|> |\|.+\|$)|^([-*]|\d+\.) \S.*\n([-*]|\d+\.) |\*\*[^*\n]+\*\*|\]\(https?:/m.test(text)) return pretty(text);
  return make("div", { className: "prose", dir: "auto" }, ...markdown(text), folded("The text as it came", pretty(text)));
}

// JSON in a text, if it is an object or an array.

function parsed(text) {
  try {
    return /^\s*[[{]/.test(text) ? JSON.parse(text) : undefined;
  } catch {
    return undefined;
  }
}

// A value: rows of records as a table, anything else as a tree that folds.

function view(value) {
  return table(value) ?? make("div", { className: "tree", tabIndex: 0, role: "region", ariaLabel: "JSON" }, tree(value, 0));
}

function table(rows) {
  if (!Array.isArray(rows) || rows.length < 2 || rows.length > 500 || !rows.every(isObject)) return;
  const keys = [...new Set(rows.flatMap(Object.keys))];
  if (!keys.length || keys.length > 12 || rows.some((row) => Object.values(row).some((each) => typeof each === "object" && each !== null))) return;
  const line = (tag, cells) => make("tr", {}, ...cells.map((each) => make(tag, { textContent: each ?? "" })));
  return make("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: "Table" }, make("table", {}, make("thead", {}, line("th", keys)), make("tbody", {}, ...rows.map((row) => line("td", keys.map((key) => row[key]))))));
}

function tree(value, depth, key) {
  const name = key === undefined ? "" : make("span", { className: "key", textContent: `${key}: ` });
  if (typeof value !== "object" || value === null) return make("div", {}, name, make("span", { className: value === null ? "null" : typeof value, textContent: JSON.stringify(value) }));
  const members = Object.entries(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!members.length) return make("div", {}, name, open + close);
  const shut = make("span", { className: "quiet", textContent: ` ${members.length} ${close}` });
  const inner = make("div", { className: "in" }, ...members.map(([each, inside]) => tree(inside, depth + 1, Array.isArray(value) ? undefined : each)));
  return make("details", { open: depth < 2 || members.length < 6 }, make("summary", {}, name, open, shut), inner, close);
}

// Markdown, as far as answers have it: anything else stays the text that it is. Links go to the web only.

function markdown(text) {
  const out = [];
  const lines = text.split("\n");
  const run = (test) => {
    const found = [];
    while (lines.length && test(lines[0])) found.push(lines.shift());
    return found;
  };
  while (lines.length) {
    const [line] = lines;
    const heading = /^(#{1,6}) (.*)/.exec(line);
    if (line.startsWith("```")) {
      lines.shift();
      out.push(pretty(run((each) => !each.startsWith("```")).join("\n")));
      lines.shift();
    } else if (heading) {
      lines.shift();
      out.push(make("h4", {}, ...inline(heading[2])));
    } else if (/^([-*+]|\d+[.)]) /.test(line)) {
      const items = run((each) => /^\s*([-*+]|\d+[.)]) /.test(each)).map((each) => make("li", {}, ...inline(each.replace(/^\s*\S+ /, ""))));
      out.push(make(/^\d/.test(line) ? "ol" : "ul", {}, ...items));
    } else if (line.startsWith("> ")) {
      out.push(make("blockquote", {}, ...inline(run((each) => each.startsWith(">")).map((each) => each.replace(/^> ?/, "")).join("\n"))));
    } else if (/^\|.*\|\s*$/.test(line)) {
      const rows = run((each) => each.startsWith("|")).map((each) => each.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim()));
      const body = rows.filter((row) => !row.every((cell) => /^:?-+:?$/.test(cell)));
      out.push(make("div", { className: "wide", tabIndex: 0 }, make("table", {}, ...body.map((row, n) => make("tr", {}, ...row.map((cell) => make(n ? "td" : "th", {}, ...inline(cell))))))));
    } else if (!line.trim()) lines.shift();
    else {
      const [first, ...rest] = [lines.shift(), ...run((each) => each.trim() && !/^(#{1,6} |```|> |\||([-*+]|\d+[.)]) )/.test(each))];
      out.push(make("p", {}, ...inline([first, ...rest].join("\n"))));
    }
  }
  return out;
}

function inline(text) {
  const out = [];
  let last = 0;
  for (const found of text.matchAll(/`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\((https?:[^\s)]+)\)|(?<![\w*])[*_]([^*_\n]+)[*_](?![\w*])/g)) {
    const [whole, code, strong, label, address, slanted] = found;
    out.push(text.slice(last, found.index));
    if (code) out.push(make("code", { textContent: code }));
    else if (strong) out.push(make("strong", { textContent: strong }));
    else if (slanted) out.push(make("em", { textContent: slanted }));
    else if (!URL.canParse(address)) out.push(whole);
    else out.push(make("a", { href: address, target: "_blank", rel: "noopener noreferrer", textContent: label }), " ", make("code", { className: "quiet", textContent: new URL(address).host }));
    last = found.index + whole.length;
  }
  return [...out, text.slice(last)];
}

// A result is shown once: the structured content, unless it only wraps a text, in place of a text that repeats it.

function show(result, out, took) {
  const outcome = result.isError ? ["bad", "The tool reports an error"] : ["good", "Done"];
  out.append(make("p", { className: outcome[0], textContent: `${outcome[1]}, after ${took} ms` }));
  for (const each of result.messages ?? []) out.append(make("strong", { textContent: each.role }), ...[each.content].flat().map(block));
  const structured = result.structuredContent;
  const only = isObject(structured) && Object.keys(structured).length === 1 && "result" in structured ? structured.result : structured;
  const repeats = ({ text }) => text !== undefined && [structured, only].some((value) => text === value || JSON.stringify(parsed(text) ?? text) === JSON.stringify(value));
  const blocks = result.content ?? result.contents ?? [];
  out.append(...(structured === undefined ? blocks : blocks.filter((each) => !repeats(each))).map(block));
  if (structured !== undefined) out.append(typeof only === "string" ? words(only, "") : view(only));
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
      const said = typeof news.data === "string" ? news.data : JSON.stringify(news.data);
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
  const { method, key, value } = item.dataset;
  const inside = item.querySelector(".inside");
  const schema = JSON.parse(inside.querySelector(".schema")?.textContent ?? "{}");
  const fields = Object.create(null);
  const form = make("form");
  const list = inside.querySelector(".fields");
  const out = make("div", { className: "out" });
  out.setAttribute("role", "status");
  out.setAttribute("aria-live", "polite");
  const stop = make("button", { type: "button", textContent: "Stop", hidden: true });
  const go = make("button", { type: "submit", textContent: { "tools/call": "Call", "prompts/get": "Get" }[method] ?? "Read" });
  for (const row of list?.children ?? []) {
    const { name } = row.dataset;
    fields[name] = attach(row, field(schema.properties[name], schema, schema.required?.includes(name) ?? false));
  }
  inside.insertBefore(form, list ?? inside.querySelector("details"));
  if (list) form.append(list);
  form.append(make("div", { className: "buttons" }, go, stop));
  form.after(out);
  sendOnEnter(form, fields);
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (go.disabled || warned(form, fields)) return;
    const controller = new AbortController();
    const typed = values(fields);
    const params = key === "uri" ? { uri: value || typed.uri } : { name: value, arguments: typed };
    stop.onclick = () => controller.abort();
    go.disabled = !(stop.hidden = false);
    await call({ method, key, params, schema, out, signal: controller.signal });
    go.disabled = !(stop.hidden = true);
  };
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
  for (const each of items) each.addEventListener("toggle", () => each.open && !each.querySelector("form") && enliven(each));
  addSending(items);
  addFilter(items);
  document.querySelectorAll("section").forEach(group);
  connect();
}

// Behind a proxy the server may not know under which address people reach it; the browser does.

function connect() {
  const shown = { json: JSON.stringify(here), shell: /^[\w@%+=:,./-]+$/.test(here) ? here : `'${here.replaceAll("'", "%27")}'`, url: here };
  for (const each of document.querySelectorAll("[data-here]")) each.textContent = shown[each.dataset.here];
  for (const each of document.querySelectorAll("[data-install]")) {
    const { name } = each.dataset;
    const entry = JSON.stringify({ name, type: "http", url: here });
    each.href = each.dataset.install === "vscode" ? `vscode:mcp/install?${encodeURIComponent(entry)}`
      : `cursor://anysphere.cursor-deeplink/mcp/install?name=${encodeURIComponent(name)}&config=${encodeURIComponent(btoa(JSON.stringify({ url: here })))}`;
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

"use strict";
// Makes a form of each item of the page, and a client of the newest revision of it: one POST for each request, nothing kept.
const { version, product } = document.body.dataset;
const here = location.href.split("#")[0];
const META = "io.modelcontextprotocol/";
const ROUNDS = 25;
let requests = 0;
let ids = 0;

const make = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};
const pretty = (value) => make("pre", { tabIndex: 0, textContent: typeof value === "string" ? value : JSON.stringify(value, null, 2) });

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
  return { node, enter: !type, read: () => (node.value === "" && !required ? undefined : node.value) };
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

async function request(method, key, params, schema, hear, signal) {
  const id = ++requests;
  const meta = { progressToken: id, [`${META}protocolVersion`]: version, [`${META}clientCapabilities`]: { elicitation: { form: {}, url: {} } },
    [`${META}clientInfo`]: { name: "linkspan-page", version: product }, [`${META}logLevel`]: "info" };
  const answer = await fetch(here, {
    method: "POST",
    signal,
    headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream", "MCP-Protocol-Version": version,
      "Mcp-Method": method, "Mcp-Name": headerValue(params[key]), ...Object.fromEntries(mirrored(schema, params.arguments)) },
    body: JSON.stringify({ jsonrpc: "2.0", id, method, params: { ...params, _meta: meta } }),
  });
  const kind = answer.headers.get("content-type") ?? "";
  for await (const message of kind.startsWith("text/event-stream") ? events(answer.body) : whole(answer)) {
    if (message.error) throw new Error(`${message.error.message} (${message.error.code})`);
    if (message.result) return message.result;
    hear(message);
  }
  throw new Error(`The connection ended before the answer came (HTTP ${answer.status})`);
}

async function* whole(answer) {
  const body = await answer.text();
  try {
    yield JSON.parse(body);
  } catch {
    throw new Error(`HTTP ${answer.status}: ${body.slice(0, 300) || answer.statusText}`);
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
      const row = make("li", {}, make("label", { className: "label", textContent: each.title ?? (name === "value" ? "Your answer" : name) }));
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
  if (typeof each.text === "string") return pretty(each.text);
  if (each.type === "resource") return make("div", {}, make("code", { textContent: each.resource?.uri }), block(each.resource ?? {}));
  if (data && type.startsWith("image/")) return make("img", { src: `data:${type};base64,${data}`, alt: "The image in the result" });
  if (data && type.startsWith("audio/")) return make("audio", { src: `data:${type};base64,${data}`, controls: true });
  return pretty(each);
}

function show(result, out, took) {
  const words = result.isError ? ["bad", "The tool reports an error"] : ["good", "Done"];
  out.append(make("p", { className: words[0], textContent: `${words[1]}, after ${took} ms` }));
  for (const each of result.messages ?? []) out.append(make("strong", { textContent: each.role }), ...[each.content].flat().map(block));
  out.append(...(result.content ?? result.contents ?? []).map(block));
  const [first, second] = result.content ?? [];
  const repeats = !second && typeof first?.text === "string" && result.structuredContent?.result === first.text;
  if ("structuredContent" in result && !repeats) out.append(make("h3", { textContent: "Structured content" }), pretty(result.structuredContent));
  out.append(make("details", {}, make("summary", { textContent: "The result as it came" }), pretty(result)));
}

async function call({ method, key, params, schema, out, signal }) {
  const bar = make("progress", { ariaLabel: "Progress" });
  const told = make("p", { className: "quiet", textContent: "Working …" });
  out.replaceChildren(bar, told);
  const hear = ({ method: kind, params: news }) => {
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
  }
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
    if (go.disabled) return;
    const controller = new AbortController();
    const given = values(fields);
    const params = key === "uri" ? { uri: value || given.uri } : { name: value, arguments: given };
    stop.onclick = () => controller.abort();
    go.disabled = !(stop.hidden = false);
    await call({ method, key, params, schema, out, signal: controller.signal });
    go.disabled = !(stop.hidden = true);
  };
}

document.getElementById("still").remove();
for (const each of document.querySelectorAll(".item")) {
  each.addEventListener("toggle", () => each.open && !each.querySelector("form") && enliven(each));
}
// Behind a proxy the server may not know under which address people reach it; the browser does.
const shown = { json: JSON.stringify(here), shell: /^[\w@%+=:,./-]+$/.test(here) ? here : `'${here.replaceAll("'", "%27")}'` };
for (const each of document.querySelectorAll("[data-here]")) each.textContent = shown[each.dataset.here];
for (const each of document.querySelectorAll(".line pre")) {
  if (!navigator.clipboard) break;
  const copy = make("button", { type: "button", textContent: "Copy" });
  copy.onclick = () => navigator.clipboard.writeText(each.textContent).then(() => (copy.textContent = "Copied"), () => (copy.textContent = "Not allowed"));
  each.after(copy);
}

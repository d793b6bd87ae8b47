// Forms out of JSON Schemas. A field has its node, `read` (undefined: left out), and `write`, which says whether the value fits.
// What no field can be made of is written as JSON; the server checks everything anyway.

import { isObject, make } from "./elements.js";
import { fromJson, numberOf, toJson } from "./json.js";

const DEEPEST = 6;
let ids = 0;

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
  if (Array.isArray(schema.enum)) return schema.enum.map((value, n) => [value, schema.enumNames?.[n] ?? (typeof value === "string" ? value : toJson(value))]);
  if ("const" in schema) return [[schema.const, toJson(schema.const)]];
  if (arms?.length && arms.every((each) => "const" in each)) return arms.map((each) => [each.const, each.title ?? String(each.const)]);
}

export function same(one, other) {
  if (Array.isArray(one)) return Array.isArray(other) && one.length === other.length && one.every((each, n) => same(each, other[n]));
  if (!isObject(one) || !isObject(other)) return Object.is(one, other);
  return Object.keys(one).length === Object.keys(other).length && Object.keys(one).every((name) => Object.hasOwn(other, name) && same(one[name], other[name]));
}

// Whether a form that reads as `found` has all of a value; it may have defaults besides.

function covers(found, value) {
  if (Array.isArray(value)) return Array.isArray(found) && found.length === value.length && value.every((each, n) => covers(found[n], each));
  if (!isObject(value) || !isObject(found)) return same(found, value);
  return Object.keys(value).every((name) => Object.hasOwn(found, name) && covers(found[name], value[name]));
}

export function field(schema, root, required, depth = 0) {
  schema = plain(schema, root);
  const several = schema.type === "array" && schema.items ? choicesOf(plain(schema.items, root)) : undefined;
  const choices = several ?? choicesOf(schema);
  const arms = schema.oneOf ?? schema.anyOf;
  if (choices) return select(choices, schema, required, Boolean(several));
  if (schema.type === "boolean") return checkbox(schema, required);
  if (schema.type === "integer" || schema.type === "number") return numberField(schema, required);
  if (schema.type === "string") return textField(schema, required);
  if (depth < DEEPEST && arms?.length > 1) return alternatives(arms, schema, root, required, depth);
  if (depth < DEEPEST && isObject(schema.properties) && Object.keys(schema.properties).length) return frame(schema, root, required, depth);
  if (depth < DEEPEST && schema.type === "array" && isObject(schema.items) && Object.keys(schema.items).length) return listOf(schema, root, required, depth);
  return jsonField(schema, required);
}

function checkbox(schema, required) {
  const node = make("input", { type: "checkbox", checked: schema.default === true });
  return {
    node,
    read: () => (node.checked || required || typeof schema.default === "boolean" ? node.checked : undefined),
    write: (value) => ((node.checked = value === true), value === undefined || typeof value === "boolean"),
  };
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
    write: (value) => {
      const wanted = multiple ? value ?? [] : value === undefined ? [] : [value];
      if (!Array.isArray(wanted) || !wanted.every((each) => choices.some(([known]) => same(known, each)))) return false;
      options.forEach((each, n) => (each.selected = wanted.some((value) => same(value, choices[n][0]))));
      if (!wanted.length && empty.length) empty[0].selected = true;
      return true;
    },
  };
}

function numberField(schema, required) {
  const node = make("input", { type: "number", required, step: schema.type === "integer" ? "1" : "any", value: schema.default ?? "" });
  if ("minimum" in schema) node.min = schema.minimum;
  if ("maximum" in schema) node.max = schema.maximum;
  return {
    node,
    read: () => (node.value === "" ? undefined : numberOf(node.value)),
    write: (value) => ((node.value = value ?? ""), value === undefined || (/number|bigint/.test(typeof value) && numberOf(node.value) === value)),
  };
}

function textField(schema, required) {
  const type = { email: "email", date: "date", uri: "url" }[schema.format];
  const node = type ? make("input", { type, required }) : make("textarea", { rows: 1 });
  node.value = schema.default ?? "";
  if (schema.maxLength) node.maxLength = schema.maxLength;
  if (schema.minLength) [node.minLength, node.required] = [schema.minLength, required];
  if (!type) node.title = "Enter sends, Shift+Enter begins a new line";
  const blank = () => required && node.value === "" && schema.default === undefined;
  const write = (value) => ((node.value = value ?? ""), value === undefined || (typeof value === "string" && node.value === value));
  return { node, enter: !type, blank, write, read: () => (node.value === "" && !required ? undefined : node.value) };
}

function jsonField(schema, required) {
  const shape = { array: "[]", object: "{}" }[schema.type] ?? "";
  const node = make("textarea", { className: "json", rows: 2, required, placeholder: `JSON${shape && ", such as "}${shape}`, spellcheck: false });
  const write = (value) => ((node.value = value === undefined ? "" : toJson(value)), node.setCustomValidity(""), true);
  if ("default" in schema) write(schema.default);
  node.addEventListener("input", () => node.setCustomValidity(node.value.trim() ? mistake(node.value) : ""));
  return { node, write, read: () => (node.value.trim() ? fromJson(node.value) : undefined) };
}

// What is wrong with a text that should be JSON, and where. Browsers do not agree on whether to say the place.

export function mistake(text) {
  try {
    fromJson(text);
    return "";
  } catch {
    const before = text.slice(0, endOfJson(text)).split("\n");
    return `This is not JSON yet: see line ${before.length}, column ${before.at(-1).length + 1}. Texts stand in double quotes.`;
  }
}

// How far a text is JSON.

function endOfJson(text) {
  const token = /\s*(?:("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)|([{[])|([}\]])|(,)|(:))/y;
  const open = [];
  let wants = "value"; // or "key", "colon", "more"; "first" is a value or the end of what has just been opened
  for (;;) {
    const from = token.lastIndex;
    const found = token.exec(text);
    if (!found) return from + /\s*/.exec(text.slice(from))[0].length;
    const [, quoted, plain, opens, closes, comma] = found;
    const at = token.lastIndex - found[0].trimStart().length;
    const value = wants === "value" || (wants === "first" && open.at(-1) === "[");
    if (closes && (wants === "first" || wants === "more") && open.length && (open.at(-1) === "{") === (closes === "}")) {
      open.pop();
      wants = open.length ? "more" : "end";
    } else if (opens && value) {
      open.push(opens);
      wants = "first";
    } else if (quoted && (wants === "key" || (wants === "first" && open.at(-1) === "{"))) wants = "colon";
    else if ((quoted || plain) && value) wants = open.length ? "more" : "end";
    else if (comma && wants === "more") wants = open.at(-1) === "{" ? "key" : "value";
    else if (!quoted && !plain && !opens && !closes && !comma && wants === "colon") wants = "value";
    else return at;
  }
}

// An object: its fields in a frame. One that may be left out is, with all that it needs, until a person has put something into it.

function frame(schema, root, required, depth) {
  const fields = Object.create(null);
  const rows = rowsOf(schema, root, fields, depth + 1);
  const node = make("fieldset", {}, rows);
  const reading = () => safely(() => toJson(values(fields)));
  const needed = [...node.querySelectorAll(":required")];
  let blank = reading();
  let written = false; // what reads like nothing, and is meant
  const isThere = () => required || written || reading() !== blank;
  const ease = () => needed.forEach((each) => (each.required = isThere()));
  for (const kind of ["input", "change", "click"]) node.addEventListener(kind, ease);
  ease();
  return {
    node,
    fields,
    read: () => (isThere() ? values(fields) : undefined),
    write: (value) => {
      if (value !== undefined && !isObject(value)) return false;
      const known = Object.entries(fields).map(([name, each]) => each.write(value?.[name]));
      if (value === undefined) blank = reading();
      written = value !== undefined && reading() === blank;
      ease();
      return known.every(Boolean) && Object.keys(value ?? {}).every((name) => name in fields);
    },
  };
}

// A list: an item below the other, each of which can be moved and taken out.

function listOf(schema, root, required, depth) {
  const held = make("ol", { className: "items" });
  const items = [];
  const show = () => held.replaceChildren(...items.map((each) => each.row));
  const add = (value) => {
    const item = field(schema.items, root, true, depth + 1);
    const button = (words, label, act) => make("button", { type: "button", className: "small", textContent: words, ariaLabel: `${label} item`, onclick: () => (act(), show()) });
    const at = () => items.indexOf(item);
    const up = () => at() > 0 && items.splice(at() - 1, 0, ...items.splice(at(), 1));
    item.row = make("li", {}, item.node, button("↑", "Move up", up), button("✕", "Remove", () => items.splice(at(), 1)));
    item.node.ariaLabel = "Item";
    items.push(item);
    show();
    return value === undefined || item.write(value);
  };
  const more = make("button", { type: "button", className: "small", textContent: "Add an item", onclick: () => (add(), items.at(-1).row.querySelector("input, select, textarea, button")?.focus()) });
  const write = (value) => (items.splice(0), show(), value === undefined || (Array.isArray(value) && value.every((each) => add(each))));
  write(schema.default);
  return {
    node: make("fieldset", {}, held, more),
    write,
    read: () => (items.length || required ? items.map((each) => each.read()) : undefined),
    parts: () => items,
  };
}

// One of several shapes: a person chooses which.

function alternatives(arms, schema, root, required, depth) {
  const made = arms.map((each) => field({ ...each, description: undefined }, root, required, depth + 1));
  const titles = arms.map((each, n) => each.title ?? plain(each, root).type ?? `shape ${n + 1}`);
  const choice = make("select", { ariaLabel: "Which shape" }, ...titles.map((title, n) => make("option", { value: n, textContent: title })));
  const held = make("div");
  const show = () => held.replaceChildren(made[choice.value].node);
  const write = (value) => {
    if (value === undefined) return true;
    const fits = made.findIndex((each) => each.write(value) && covers(each.read(), value));
    choice.value = Math.max(fits, 0);
    show();
    return fits >= 0;
  };
  choice.onchange = show;
  show();
  write(schema.default);
  return { node: make("fieldset", {}, choice, held), write, read: () => made[choice.value].read() };
}

// A row has a label and perhaps words that describe the field; people who do not see it hear both.

export function attach(row, made) {
  const [label, words] = [row.querySelector("label"), row.querySelector(".words")];
  label.htmlFor = made.node.id = `f${++ids}`;
  label.id = `l${ids}`;
  if (made.node.tagName === "FIELDSET") made.node.setAttribute("aria-labelledby", label.id);
  if (words) made.node.setAttribute("aria-describedby", (words.id = `w${ids}`));
  row.append(made.node);
  return made;
}

// The rows of an object's members; the fields go into `fields`.

export function rowsOf(schema, root, fields, depth = 0) {
  const rows = make("ul", { className: "fields" });
  for (const [name, each] of Object.entries(schema.properties ?? {})) {
    const required = Array.isArray(schema.required) && schema.required.includes(name);
    const whole = plain(each, root);
    const label = make("label", { className: "label" }, make("code", { textContent: name }), " ", make("span", { className: "quiet", textContent: kindOf(whole, root) }));
    if (required) label.append(" ", make("span", { className: "mark", textContent: "required" }));
    if (typeof each?.["x-mcp-header"] === "string") label.append(" ", make("span", { className: "mark", textContent: `header Mcp-Param-${each["x-mcp-header"]}` }));
    const row = make("li", { dataset: { name } }, label);
    if (typeof whole.description === "string") row.append(make("p", { className: "words", dir: "auto", textContent: whole.description.slice(0, 4000) }));
    fields[name] = attach(row, field(each, root, required, depth));
    rows.append(row);
  }
  return rows;
}

function kindOf(schema, root) {
  if (schema.type === "array") return `list of ${plain(schema.items, root)?.type ?? "anything"}`;
  const bounds = [schema.minimum, schema.maximum];
  return [schema.type ?? "", bounds.some((each) => each !== undefined) ? `${bounds[0] ?? ""}..${bounds[1] ?? ""}` : ""].filter(Boolean).join(", ");
}

export function values(fields) {
  return Object.fromEntries(Object.entries(fields).map(([name, each]) => [name, each.read()]).filter(([, value]) => value !== undefined));
}

// The same values as JSON, to be edited there and back. Nothing typed is lost: what does not fit the form stays JSON.

export function jsonSwitch(rows, fields) {
  const area = make("textarea", { className: "json", rows: 6, spellcheck: false, hidden: true, ariaLabel: "The arguments as JSON" });
  const note = make("p", { className: "bad", hidden: true, role: "alert" });
  const button = make("button", { type: "button", className: "small", textContent: "Edit as JSON" });
  const say = (words) => ((note.textContent = words), (note.hidden = !words));
  const write = (value) => isObject(value) && Object.entries(fields).every(([name, each]) => each.write(value[name])) && covers(values(fields), value);
  const show = (asJson) => {
    [area.hidden, rows.hidden] = [!asJson, asJson];
    button.textContent = asJson ? "Edit as a form" : "Edit as JSON";
  };
  area.addEventListener("input", () => say(mistake(area.value)));
  button.onclick = () => {
    if (area.hidden) {
      area.value = toJson(safely(() => values(fields)) ?? {}, 2);
      say("");
      show(true);
      return area.focus();
    }
    const wrong = mistake(area.value);
    if (wrong) return say(wrong);
    if (!write(fromJson(area.value))) return say("The form has no place for all of this; it is sent as it is here.");
    say("");
    show(false);
  };
  return {
    nodes: [area, note, button],
    read: () => (area.hidden ? values(fields) : fromJson(area.value)),
    write: (value) => {
      const fits = write(value);
      area.value = toJson(value, 2);
      show(!fits);
      return fits;
    },
    problem: () => (area.hidden ? "" : mistake(area.value)),
    isJson: () => !area.hidden,
  };
}

function safely(read) {
  try {
    return read();
  } catch {
    return undefined;
  }
}

// An empty text may be what is meant; more often a field was forgotten. The first press warns, the second sends.

export function warned(form, fields) {
  form.querySelectorAll(".warn").forEach((each) => each.remove());
  const empty = Object.values(fields).filter(({ blank }) => blank?.());
  const asked = form.dataset.empty;
  form.dataset.empty = empty.map(({ node }) => node.id).join();
  if (!empty.length || asked === form.dataset.empty) return false;
  for (const { node } of empty) node.after(make("p", { className: "bad warn", role: "alert", textContent: "This is required and empty. Press again to send an empty text." }));
  empty[0].node.focus();
  return true;
}

export function sendOnEnter(form, fields) {
  for (const { node, enter } of Object.values(fields)) {
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing || (enter ? event.shiftKey : node.tagName !== "TEXTAREA" || !(event.ctrlKey || event.metaKey))) return;
      event.preventDefault();
      form.requestSubmit();
    });
  }
}

// The form for a question of a server in the middle of a call; `end` gets the answer.

export function questionForm(params, end, title = "The server asks", accept = params.mode === "url" ? "Done" : "Answer") {
  const fields = Object.create(null);
  const schema = params.mode === "url" ? {} : (params.requestedSchema ?? {});
  const form = make("form", { className: "asked" }, make("strong", { textContent: title }),
    make("p", { className: "words", dir: "auto", textContent: params.message }));
  if (params.mode === "url") form.append(pageToOpen(String(params.url)));
  const rows = make("ul", { className: "fields" });
  for (const [name, each] of Object.entries(schema.properties ?? {})) {
    const required = schema.required?.includes(name) ?? false;
    const row = make("li", {}, make("label", { className: "label", textContent: each.title ?? name }));
    if (required) row.firstChild.append(" ", make("span", { className: "mark", textContent: "required" }));
    if (each.description) row.append(make("p", { className: "words", textContent: each.description }));
    fields[name] = attach(row, field(each, schema, required));
    rows.append(row);
  }
  const button = (title, action) => make("button", { type: "button", textContent: title, onclick: () => end({ action }) });
  form.append(rows, make("div", { className: "buttons" }, make("button", { type: "submit", textContent: accept }),
    button("Decline", "decline"), button("Cancel", "cancel")));
  form.onsubmit = (event) => {
    event.preventDefault();
    end(params.mode === "url" ? { action: "accept" } : { action: "accept", content: values(fields) });
  };
  sendOnEnter(form, fields);
  return form;
}

function pageToOpen(address) {
  const safe = /^https?:\/\//i.test(address) && URL.canParse(address);
  const shown = make("code", { textContent: address });
  return make("p", {}, safe ? make("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, `Open a page of ${new URL(address).host}`) : "", make("br"), shown);
}

// What comes back: content blocks, tables, trees, Markdown. A server's markup is text here.

import { folded, isObject, make, pretty } from "./elements.js";
import { fromJson, toJson } from "./json.js";

export function block(each) {
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
  if (text === "") return make("p", { className: "quiet", textContent: "An empty text." });
  const found = parsed(text);
  if (found !== undefined) return view(found);
  if (!type.includes("markdown") && !/^(#{1,6} |```|> |\|.+\|$)|^([-*]|\d+\.) \S.*\n([-*]|\d+\.) |\*\*[^*\n]+\*\*|\]\(https?:/m.test(text)) return pretty(text);
  return make("div", { className: "prose", dir: "auto" }, ...markdown(text), folded("The text as it came", pretty(text)));
}

// JSON in a text, if it is an object or an array.

export function parsed(text) {
  try {
    return /^\s*[[{]/.test(text) ? fromJson(text) : undefined;
  } catch {
    return undefined;
  }
}

// A value: rows of records as a table, anything else as a tree that folds.

export function view(value) {
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
  if (typeof value !== "object" || value === null) return make("div", {}, name, make("span", { className: value === null ? "null" : typeof value === "bigint" ? "number" : typeof value, textContent: toJson(value) }));
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

export function shownOnce(result) {
  const structured = result.structuredContent;
  const only = isObject(structured) && Object.keys(structured).length === 1 && "result" in structured ? structured.result : structured;
  const repeats = ({ text }) => text !== undefined && [structured, only].some((value) => text === value || toJson(parsed(text) ?? text) === toJson(value));
  const blocks = result.content ?? result.contents ?? [];
  return { only, blocks: structured === undefined ? blocks : blocks.filter((each) => !repeats(each)) };
}

export const turn = (role, content) => [make("p", {}, make("strong", { textContent: role })), ...[content].flat().map(block)];

export function showContent(result, out) {
  const { only, blocks } = shownOnce(result);
  const shown = [...(result.messages ?? []).flatMap((each) => turn(each.role, each.content)), ...blocks.map(block)];
  if (only !== undefined) shown.push(typeof only === "string" ? words(only, "") : view(only));
  const what = result.messages ? "It has no messages." : "It has no content.";
  out.append(...(shown.length ? shown : [make("p", { className: "quiet", textContent: `The result is empty. ${what}` })]));
}

// Two calls beside each other: which they are, and what is different between them.

import { isObject, make } from "./elements.js";
import { same } from "./forms.js";
import { toJson } from "./json.js";
import { parsed, shownOnce } from "./results.js";

const MOST = 200; // differences that are drawn
const LARGEST = 250_000; // pairs of lines that are compared
const LONGEST = 2000;

export const named = (exchange) => `#${exchange.id} ${exchange.name.slice(0, 120)}, ${new Date(exchange.began * 1000).toLocaleTimeString([], { hour12: false })}`;

// The places at which two values differ, with both values there; undefined stands for none.

function differences(one, other, path = "") {
  if (same(one, other)) return [];
  if (Array.isArray(one) && Array.isArray(other)) {
    let [from, end] = [0, 0];
    const shorter = Math.min(one.length, other.length);
    while (from < shorter && same(one[from], other[from])) from++;
    while (end < shorter - from && same(one.at(-1 - end), other.at(-1 - end))) end++;
    const [left, right] = [one.slice(from, one.length - end), other.slice(from, other.length - end)];
    return Array.from({ length: Math.max(left.length, right.length) }, (_, n) => differences(left[n], right[n], `${path}[${from + n}]`)).flat();
  }
  if (isObject(one) && isObject(other)) {
    const own = (value, name) => (Object.hasOwn(value, name) ? value[name] : undefined);
    return [...new Set([...Object.keys(one), ...Object.keys(other)])].flatMap((name) => differences(own(one, name), own(other, name), path ? `${path}.${name}` : name));
  }
  const inside = [one, other].map((each) => (typeof each === "string" ? parsed(each) : undefined));
  return inside.includes(undefined) ? [{ path, one, other }] : differences(...inside, path);
}

// The lines of two texts: [sign, line], of those that are alike only the neighbours of others.

function lines(one, other) {
  const [left, right] = [one.split("\n"), other.split("\n")];
  if (left.length * right.length > LARGEST) return [...left.map((each) => ["−", each]), ...right.map((each) => ["+", each])];
  const longest = Array.from({ length: left.length + 1 }, () => new Uint32Array(right.length + 1));
  for (let n = left.length - 1; n >= 0; n--) for (let m = right.length - 1; m >= 0; m--) longest[n][m] = left[n] === right[m] ? longest[n + 1][m + 1] + 1 : Math.max(longest[n + 1][m], longest[n][m + 1]);
  const all = [];
  for (let n = 0, m = 0; n < left.length || m < right.length; ) {
    if (n < left.length && m < right.length && left[n] === right[m]) (all.push([" ", left[n++]]), m++);
    else if (m >= right.length || (n < left.length && longest[n + 1][m] >= longest[n][m + 1])) all.push(["−", left[n++]]);
    else all.push(["+", right[m++]]);
  }
  return all.filter(([sign], n) => sign !== " " || [all[n - 1], all[n + 1]].some((near) => near && near[0] !== " "));
}

const short = (value) => (value === undefined ? "" : (typeof value === "string" ? value : toJson(value)).slice(0, LONGEST));

function row({ path, one, other }) {
  const place = make("th", { scope: "row" }, make("code", { textContent: path || "all of it" }));
  if (typeof one !== "string" || typeof other !== "string" || !`${one}${other}`.includes("\n"))
    return make("tr", {}, place, make("td", {}, one === undefined ? make("span", { className: "quiet", textContent: "nothing" }) : make("del", { textContent: short(one) })),
      make("td", {}, other === undefined ? make("span", { className: "quiet", textContent: "nothing" }) : make("ins", { textContent: short(other) })));
  const all = lines(one, other).slice(0, LONGEST).map(([sign, line]) => make({ "−": "del", "+": "ins" }[sign] ?? "span", { textContent: `${sign} ${line}\n` }));
  return make("tr", {}, place, make("td", { colSpan: 2 }, make("pre", { tabIndex: 0 }, ...all)));
}

function table(title, found) {
  if (!found.length) return "";
  const head = make("tr", {}, ...["where", "first", "second"].map((textContent) => make("th", { scope: "col", textContent })));
  const more = found.length > MOST ? make("p", { className: "quiet", textContent: `${(found.length - MOST).toLocaleString()} more are not shown.` }) : "";
  return make("div", {}, make("h3", { textContent: title }), make("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: title }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...found.slice(0, MOST).map(row)))), more);
}

// What an answer says: without `_meta`, and without texts that repeat the structured content.

function answerOf({ result, beginning, error, is_error, state }) {
  const { _meta, resultType, isError, ...rest } = result ?? {};
  const { blocks } = shownOnce(rest);
  const once = rest.content ? { ...rest, content: blocks } : rest;
  return { ...once, ...(beginning && { beginning }), ...((is_error || state !== "done") && { outcome: state === "done" ? "the tool reports an error" : state }), ...(error && { code: error.code, problem: error.message ?? error.problem }) };
}

// `body` makes what is shown of one call.

export function comparison(one, other, body) {
  const side = (which, exchange) => make("div", {}, make("h3", { textContent: [`${which}: ${named(exchange)}`, exchange.revision].filter(Boolean).join(", ") }), make("p", { className: "quiet", textContent: toJson(exchange.arguments).slice(0, 400) }), ...body(exchange));
  const waits = [one, other].filter((each) => each.state === "running").length;
  const found = waits ? [] : differences(answerOf(one), answerOf(other));
  const cut = one.beginning || other.beginning ? " Only the beginnings of large results are compared." : "";
  const words = waits ? `Waiting for ${waits === 2 ? "both answers" : "the other answer"} …` : found.length ? `The answers differ in ${found.length === 1 ? "one place" : `${found.length.toLocaleString()} places`}.` : "Both answers say the same.";
  return [make("h2", { textContent: `${named(one)}, compared with ${named(other)}` }), make("p", { className: waits ? "quiet" : found.length ? "bad" : "good", textContent: words + (waits ? "" : cut) }),
    table("What the answers differ in", found), table("What the calls differ in", differences({ name: one.name, arguments: one.arguments }, { name: other.name, arguments: other.arguments })),
    make("div", { className: "pair" }, side("First", one), side("Second", other))];
}

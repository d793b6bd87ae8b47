// Elements of a page. Whatever a server says becomes text here: nothing is ever parsed as markup.

import { toJson } from "./json.js";

const LONGEST = 65536;
const HIDDEN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;

// Hidden characters, which turn the direction of text or are not seen at all, are shown as what they are. Joiners stay in words.
export function reveal(text) {
  return String(text).replace(HIDDEN, (found, at, whole) => {
    if ((found === "\u200c" || found === "\u200d") && /[^\x00-\x7f]/.test(whole[at - 1] ?? "") && /[^\x00-\x7f]/.test(whole[at + 1] ?? "")) return found;
    return `\\u{${found.codePointAt(0).toString(16)}}`;
  });
}

export function make(tag, properties = {}, ...children) {
  const { textContent, dataset, ...rest } = properties;
  const node = Object.assign(document.createElement(tag), rest);
  Object.assign(node.dataset, dataset);
  if (textContent !== undefined) node.textContent = reveal(textContent);
  node.append(...children.filter((each) => each !== undefined && each !== null).map((each) => (typeof each === "string" ? reveal(each) : each)));
  return node;
}

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
export const folded = (title, ...children) => make("details", {}, make("summary", { textContent: title }), ...children);

// A text or a value as it is; of a very long one the beginning, until a person asks for all of it.
export function pretty(value) {
  const text = typeof value === "string" ? value : toJson(value, 2) ?? "";
  const node = make("pre", { tabIndex: 0, textContent: text.slice(0, LONGEST) });
  if (text.length <= LONGEST) return node;
  const more = make("button", { type: "button", textContent: `Show all ${text.length.toLocaleString()} characters` });
  more.onclick = () => ((node.textContent = reveal(text)), more.remove());
  return make("div", {}, node, more);
}

// JSON with its whole numbers as they are: one that a number of JavaScript would round is a BigInt. Nothing else on a page reads
// or writes JSON.

const readExact = (key, value, context) => (typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) ? BigInt(context.source) : value);
const writeExact = (key, value) => (typeof value === "bigint" ? (JSON.rawJSON?.(String(value)) ?? Number(value)) : value);

export const fromJson = (text) => JSON.parse(text, /\d{16}/.test(text) ? readExact : undefined);
export const toJson = (value, indent) => JSON.stringify(value, writeExact, indent);
export const numberOf = (text) => (/^-?\d+$/.test(text) && !Number.isSafeInteger(Number(text)) ? BigInt(text) : Number(text));

// For code that is not ours and knows numbers only.

export const rounded = (value) => JSON.parse(toJson(value));

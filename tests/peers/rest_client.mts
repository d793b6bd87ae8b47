// A client with the types of the document calls a tool, answers what it asks, and prints both responses.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js"; // of openapi-typescript

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });
const given: components["schemas"]["book.arguments"] = { date: "Monday" };

const first = await client.POST("/tools/book", { body: given });
if (first.error === undefined || !("questions" in first.error)) throw new Error("no question");
const { questions, state } = first.error;
const reply: components["schemas"]["Answers"] = { arguments: given, answers: { seats: { seats: 4 } }, state };

// An operation has one type of body, its arguments: that of answers is a schema of its own.
const second = await client.POST("/tools/book", { body: reply as never });
const result: string | undefined = second.data?.result;
console.log(JSON.stringify([
  [first.response.status, Object.keys(questions)],
  [second.response.status, result],
]));

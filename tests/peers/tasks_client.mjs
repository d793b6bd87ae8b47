// The reference client of the tasks extension drives a server: prints what each call came to, as one JSON object.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  createApplicationInputHandler,
  createTaskSessionFromClient,
  resultFromTaskOutcome,
} from "@modelcontextprotocol/ext-tasks/client";

const url = new URL(process.argv[2]);
const version = "2026-07-28";
const info = { name: "ext-tasks", version: "1" };
const capabilities = { elicitation: { form: {} } };
let id = 1000;

// The SDK's client does not know the shapes of tasks, so its host sends these requests.
async function rawDispatch(request, options = {}) {
  const response = await fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": version,
      "mcp-method": request.method,
      ...(request.method === "tools/call" ? { "mcp-name": request.params.name } : {}),
      ...options.context?.headers, // of tasks, whose name it sends itself
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: id++, ...request }),
    signal: options.signal,
  });
  const text = await response.text();
  const isStream = response.headers.get("content-type").startsWith("text/event-stream");
  const events = text.split("\n").filter((line) => line.startsWith("data: "));
  const message = JSON.parse(isStream ? events.at(-1).slice(6) : text);
  return "error" in message ? { kind: "error", error: message.error } : { kind: "result", result: message.result };
}

const client = new Client(info, { capabilities, versionNegotiation: { mode: { pin: version } } });
await client.connect(new StreamableHTTPClientTransport(url));
const session = createTaskSessionFromClient(client, {
  endpointId: "linkspan",
  rawDispatch,
  v2RequestFraming: { protocolVersion: version, clientInfo: info, clientCapabilities: capabilities },
  onInputRequest: createApplicationInputHandler({
    elicitation: () => ({ action: "accept", content: { name: "Ada" } }),
    sampling: () => ({}),
    roots: () => ({ roots: [] }),
  }),
});

const found = {};
async function settle(name, args) {
  const execution = await session.callTool(name, args);
  try {
    const { outcome } = await execution.settle();
    found[name] = { kind: execution.kind, result: resultFromTaskOutcome(outcome) };
  } catch (error) {
    found[name] = { kind: execution.kind, error: error.name, message: error.message };
  }
  return execution;
}
for (const [name, args] of JSON.parse(process.argv[3])) await settle(name, args);
const execution = await session.callTool("endless", {});
await execution.cancel();
found.endless = await execution.result().catch((error) => ({ error: error.name }));
await session.close();
await client.close();
console.log(JSON.stringify(found));

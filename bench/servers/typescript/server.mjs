// The TypeScript SDK: `node server.mjs` over stdio, `node server.mjs PORT` over HTTP, stateless and in JSON.
import { createServer } from "node:http";

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { z } from "zod";

function make() {
  const server = new McpServer({ name: "bench", version: "1" });
  const inputSchema = { a: z.number().int(), b: z.number().int() };
  const outputSchema = { result: z.number().int() };
  server.registerTool("add_async", { description: "Add two numbers.", inputSchema, outputSchema }, async ({ a, b }) => ({
    content: [{ type: "text", text: String(a + b) }],
    structuredContent: { result: a + b },
  }));
  server.registerTool("echo", { description: "Return a text.", inputSchema: { text: z.string() } }, async ({ text }) => ({
    content: [{ type: "text", text }],
  }));
  return server;
}

const port = process.argv[2];
if (port === undefined) {
  await make().connect(new StdioServerTransport());
} else {
  createServer(async (request, response) => {
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
    await make().connect(transport);
    await transport.handleRequest(request, response);
  }).listen(Number(port), "127.0.0.1");
}

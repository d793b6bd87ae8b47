// A small language model in OpenAI's words: POST /v1/chat/completions, streaming or not.
//
//     node serve.mjs WEIGHTS.gguf
//
// It prints its port, and ends with its stdin. A model of this size calls no tool by itself: while the last message is the user's and tools are
// offered, its answer is held to the grammar of a call of one of them; after a tool has answered, it speaks freely.

import http from "node:http";
import {ChatMLChatWrapper, getLlama, LlamaChatSession} from "node-llama-cpp";

const llama = await getLlama({gpu: false, build: "never", maxThreads: 2, logLevel: "error"});
const model = await llama.loadModel({modelPath: process.argv[2]});
const context = await model.createContext({contextSize: 2048});
const sequence = context.getSequence();

async function answer({messages, tools, max_tokens}) {
    await sequence.clearHistory();
    const session = new LlamaChatSession({contextSequence: sequence, chatWrapper: new ChatMLChatWrapper()});
    const last = messages.at(-1);
    session.setChatHistory(messages.slice(0, -1).flatMap(told));
    const limits = {maxTokens: Math.min(max_tokens ?? 128, 128), temperature: 0};
    if (tools?.length && last.role === "user") {
        const calls = tools.map(({function: {name, parameters}}) => ({
            type: "object",
            properties: {name: {const: name}, arguments: parameters}
        }));
        const grammar = await llama.createGrammarForJsonSchema(calls.length === 1 ? calls[0] : {oneOf: calls});
        const asked = `${tools.map(described).join("\n\n")}\n\n${text(last)}\n\nWrite the call as JSON.`;
        const call = grammar.parse(await session.prompt(asked, {...limits, grammar}));
        return {calls: [{id: "call_1", type: "function", function: {name: call.name, arguments: JSON.stringify(call.arguments)}}]};
    }
    const said = last.role === "tool" ? `The result is ${text(last)}. Tell me the result in one sentence.` : text(last);
    return {content: await session.prompt(said, limits)};
}

function described({function: {name, description, parameters}}) {
    const members = Object.entries(parameters.properties ?? {});
    return [`Function ${name}: ${description}`, ...members.map(([key, {description}]) => `- ${key}: ${description ?? ""}`)].join("\n");
}

function told(message) {
    if (message.role === "system")
        return [{type: "system", text: text(message)}];
    if (message.role === "assistant")
        return [{type: "model", response: [text(message) || JSON.stringify(message.tool_calls?.[0]?.function ?? "")]}];
    return [{type: "user", text: text(message)}];
}

function text({content}) {
    return Array.isArray(content) ? content.map((part) => part.text ?? "").join("\n") : content ?? "";
}

async function body(request) {
    const chunks = [];
    for await (const chunk of request)
        chunks.push(chunk);
    return JSON.parse(Buffer.concat(chunks).toString());
}

let turn = Promise.resolve();  // one at a time: there is one sequence

const server = http.createServer(async (request, response) => {
    if (request.method !== "POST" || new URL(request.url, "http://x").pathname !== "/v1/chat/completions") {
        response.writeHead(404).end();
        return;
    }
    try {
        const asked = await body(request);
        const found = await (turn = turn.catch(() => {}).then(() => answer(asked)));
        const finish_reason = found.calls ? "tool_calls" : "stop";
        const message = {role: "assistant", content: found.content ?? null, ...(found.calls && {tool_calls: found.calls})};
        const head = {id: "chatcmpl-1", created: Math.floor(Date.now() / 1000), model: asked.model};
        if (!asked.stream) {
            response.writeHead(200, {"content-type": "application/json"});
            response.end(JSON.stringify({...head, object: "chat.completion", choices: [{index: 0, message, finish_reason}]}));
            return;
        }
        const delta = {...message, tool_calls: found.calls?.map((call, index) => ({index, ...call}))};
        const chunk = (choice) => `data: ${JSON.stringify({...head, object: "chat.completion.chunk", choices: [{index: 0, ...choice}]})}\n\n`;
        response.writeHead(200, {"content-type": "text/event-stream"});
        response.end(chunk({delta, finish_reason: null}) + chunk({delta: {}, finish_reason}) + "data: [DONE]\n\n");
    } catch (error) {
        response.writeHead(500, {"content-type": "application/json"});
        response.end(JSON.stringify({error: {message: String(error), type: "server_error"}}));
    }
});
process.stdin.resume().on("end", () => process.exit(0));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));

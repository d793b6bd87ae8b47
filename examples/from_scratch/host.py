"""A host as one writes it from scratch: it reads what the user wants, asks a model, and makes the calls that the model wants.

`python examples/from_scratch/host.py` works without a network: what the model says is in replies.jsonl. With a real one:
`python examples/from_scratch/host.py anthropic:NAME`. What is missing here (consent, bounds, many servers, streaming) is in
`linkspan.host` and in `linkspan chat`.
"""

import asyncio
import json
import sys
from contextlib import aclosing
from pathlib import Path

from linkspan import Client, ClientError
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    Message,
    Model,
    ModelError,
    ModelRequest,
    Opaque,
    Text,
    TextDelta,
    ToolAnswer,
    ToolMessage,
    ToolSpec,
    ToolUse,
    UserMessage,
)
from linkspan.host.models import open_model
from linkspan.wire.redaction import neutral

HERE = Path(__file__).parent
SERVER = [sys.executable, str(HERE / "server.py")]
MODEL = f"scripted:{HERE / 'replies.jsonl'}"
ROUNDS = 10


async def answer(client: Client, model: Model, query: str) -> str:
    """Let the model answer, and call tools until it needs no more."""
    tools = [ToolSpec(tool.name, tool.description or "", tool.input_schema) for tool in await client.list_tools()]
    messages: list[Message] = [UserMessage([Text(query)])]
    lines: list[str] = []
    for _ in range(ROUNDS):
        message = await next_message(model, ModelRequest(messages, tools))
        lines.append(message.text)
        if not message.tool_uses:
            break
        answers = []
        for use in message.tool_uses:
            lines.append(f"[Calling tool {use.name} with args {json.dumps(use.arguments)}]")
            answers.append(await call(client, use))
        messages = [*messages, message, ToolMessage(answers)]  # all results go back together
    return "\n".join(line for line in lines if line)


async def next_message(model: Model, request: ModelRequest) -> AssistantMessage:
    """Put the pieces of a message together."""
    text, parts = "", list[Text | ToolUse | Opaque]()
    async with aclosing(model.reply(request)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                text += event.text
            elif isinstance(event, ToolUse | Opaque):
                parts.append(event)
            elif isinstance(event, Finished) and event.reason == "length":
                text += " ..."
    return AssistantMessage([Text(text), *parts] if text else parts)


async def call(client: Client, use: ToolUse) -> ToolAnswer:
    """Call a tool. What goes wrong is for the model, which may find another way."""
    try:
        result = await client.call_tool(use.name, use.arguments)
    except ClientError as error:
        return ToolAnswer(use.id, use.name, str(error), is_error=True)
    return ToolAnswer(use.id, use.name, result.text, result.is_error)


async def main(model: Model) -> None:
    print("MCP Client Started!\nType your queries 'exit' to exit.")
    async with Client(SERVER) as client:
        for line in sys.stdin:
            if line.strip().lower() == "exit":
                return
            try:
                print(neutral(await answer(client, model, line.strip())) or "No response from the server", flush=True)
            except (ModelError, ClientError) as error:
                print(neutral(str(error)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(open_model(sys.argv[1] if len(sys.argv) > 1 else MODEL)))

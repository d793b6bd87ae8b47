"""A host in thirty lines: a model that may use the tools of a server, at a terminal.

`python examples/hosts/minimal.py anthropic:NAME` (or openai:, gemini:, ollama:); without a model a script answers.
"""

import asyncio
import sys

from linkspan import Conversation, Host, Policy, open_model
from linkspan.host.scripted import ScriptedModel, use

DICE = f"{__file__}/../../dice.py"
SCRIPT = [use("roll", sides=1, count=2), "You rolled two ones."]


async def main() -> None:
    """Answer line after line, until the input ends."""
    model = open_model(sys.argv[1]) if sys.argv[1:] else ScriptedModel(SCRIPT)
    async with Host({"dice": DICE}, policy=Policy(allow=["dice"])) as host:
        chat = Conversation(host, model)
        while question := await asyncio.to_thread(sys.stdin.readline):
            print(await chat.answer(question.strip()))


if __name__ == "__main__":
    asyncio.run(main())

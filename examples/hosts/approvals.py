"""An agent that asks before it acts: tools that only read run at once, and a person approves each of the others.

`echo yes | python examples/hosts/approvals.py` lets a scripted model pay; with a real one: `... approvals.py anthropic:NAME`.
"""

import asyncio
import json
import sys

from linkspan import Conversation, Host, Policy, Server, open_model
from linkspan.host.consent import Approval, Verdict
from linkspan.host.scripted import ScriptedModel, last_words, use

bank = Server("bank")
balance = {"alice": 100, "bob": 20}


@bank.tool(annotations={"read_only_hint": True})
def look(name: str) -> int:
    """Return the balance of a person."""
    return balance[name]


@bank.tool
def pay(sender: str, receiver: str, amount: int) -> str:
    """Send money from one person to another."""
    balance[sender] -= amount
    balance[receiver] += amount
    return f"{receiver} has {balance[receiver]} now"


def approve(approval: Approval) -> Verdict:
    """Ask the person at the terminal; "once" approves this call only."""
    print(f"The model wants {approval.tool.name} {json.dumps(approval.arguments)}. Allow it? [yes/no]", flush=True)
    return "once" if sys.stdin.readline().strip() == "yes" else "no"


SCRIPT = [use("look", name="alice"), use("pay", sender="alice", receiver="bob", amount=30), last_words]


async def main() -> None:
    """Give the agent one task, and print what it says at the end."""
    model = open_model(sys.argv[1]) if sys.argv[1:] else ScriptedModel(SCRIPT)
    async with Host({"bank": bank}, policy=Policy(trust=["bank"]), approve=approve) as host:
        print(await Conversation(host, model).answer("Send 30 from Alice to Bob, if she has that much."))


if __name__ == "__main__":
    asyncio.run(main())

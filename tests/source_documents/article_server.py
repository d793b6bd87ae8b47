"""A server without any library, as the article writes one; it notes each line that it reads in the file that it is given."""

import json
import sys

TOOL = {"name": "dice", "description": "Roll a dice", "inputSchema": {"type": "object"}}
INFO = {"name": "article", "version": "1.0.0"}
RESULTS = {
    "initialize": {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": INFO},
    "tools/list": {"tools": [TOOL]},
    "ping": {},
}


def answer(message):
    if message["method"] != "tools/call":
        return {"result": RESULTS[message["method"]]}
    how = message["params"]["arguments"].get("how")
    if how == "refuse":
        return {"error": {"code": -32000, "message": "no dice here"}}
    if how == "die":
        print("this is no JSON", flush=True)
        print("out of dice", file=sys.stderr, flush=True)
        sys.exit(3)
    print("x" * 1_000_000, file=sys.stderr, flush=True)  # more than any pipe holds
    return {"result": {"content": [{"type": "text", "text": "3"}]}}


with open(sys.argv[1], "a", encoding="utf-8") as log:
    for line in sys.stdin:
        log.write(line)
        log.flush()
        message = json.loads(line)
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)

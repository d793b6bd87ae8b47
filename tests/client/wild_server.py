"""A server that does as it is told, however bad: `python wild_server.py PLAN`. The plan is JSON; `wild.py` says what it means.

Of the standard library only, and little of it, so that it starts at once under `python -I -S`.
"""

import json
import os
import signal
import sys
import time

PLAN = json.loads(sys.argv[1])
DONE = []
LEGACY = '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"wild","version":"1"}}'
MODERN = '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{}}'
TOOLS = ["hi", "again", "die", "hang"]
LIST = json.dumps(
    {
        "resultType": "complete",
        "tools": [
            {"name": each, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": each == "again"}}
            for each in TOOLS
        ],
    }
)
RESULT = '{"jsonrpc":"2.0","id":$ID,"result":$RESULT}'
USUAL = {
    "server/discover": [RESULT.replace("$RESULT", MODERN)],
    "initialize": [RESULT.replace("$RESULT", LEGACY)],
    "tools/list": [RESULT.replace("$RESULT", LIST)],
    "tools/call": [
        '{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[{"type":"text","text":"hi"}]}}'
    ],
    "tools/call hang": [],
    "ping": ['{"jsonrpc":"2.0","id":$ID,"result":{}}'],
}


def write(text: str) -> None:
    data = memoryview(text.encode())
    while data:
        data = data[os.write(1, data) :]


def perform(step, request_id: str) -> None:
    if isinstance(step, str):
        write(step.replace("$ID", request_id).replace("$PID", str(os.getpid())) + "\n")
        return
    ((action, value),) = step.items()
    match action:
        case "exit":
            os._exit(value)
        case "kill":
            os.kill(os.getpid(), getattr(signal, value))
        case "stderr":
            os.write(2, value.replace("$ID", request_id).replace("$PID", str(os.getpid())).encode() + b"\n")
        case "flood":
            for _ in range(value):
                os.write(2, b"x" * 999 + b"\n")
        case "sleep":
            time.sleep(value)
        case "deaf":
            for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(each, signal.SIG_IGN)
        case "large":
            write('{"jsonrpc":"2.0","id":' + request_id + ',"result":{"content":[],"x":"')
            for _ in range(value):
                write("x" * 1_000_000)
            write('"}}\n')
        case "deep":
            write(RESULT.replace("$ID", request_id).replace("$RESULT", "[" * value + "]" * value) + "\n")
        case "bytes":
            os.write(1, bytes.fromhex(value))
        case "child":
            if os.fork() == 0:
                time.sleep(value)
                os._exit(0)
        case "orphan":  # the process ends; a child of it takes the rest of the steps, and ends
            if os.fork() != 0:
                os._exit(value)
        case "close":
            os.close(value)
        case "once":
            if value not in DONE:
                DONE.append(value)
                perform(value, request_id)


def steps_for(message: dict):
    method = message.get("method", "answer")
    name = (message.get("params") or {}).get("name")
    for key in (f"{method} {name}", method):
        if key in PLAN:
            return PLAN[key]
        if key in USUAL:
            return USUAL[key]
    return []


for step in PLAN.get("start", []):
    perform(step, "0")
for line in sys.stdin.buffer:
    message = json.loads(line)
    for step in steps_for(message):
        perform(step, json.dumps(message.get("id")))
for step in PLAN.get("end", []):
    perform(step, "0")

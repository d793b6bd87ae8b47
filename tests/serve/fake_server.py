"""A stand-in for a Server: just enough protocol to test the drivers without the core."""

from __future__ import annotations

import inspect
import json

from linkspan.core.call import NO_REQUEST, CallCancelled, CallReady


class Server:
    """Answers `ping` by itself and `tools/call` through functions."""

    def __init__(self, name="fake"):
        self.tools = {}

    def tool(self, fn=None, *, inline=False):
        if fn is None:
            return lambda fn: self.tool(fn, inline=inline)
        self.tools[fn.__name__] = (fn, inline)
        return fn

    def connect(self, *, ports):
        return Connection(self, ports.lock)

    def run(self, **options):
        from linkspan.serve.stdio import StdioTransport

        raise SystemExit(StdioTransport(self, **options).open())


class Call:
    def __init__(self, request_id, run, is_async, inline):
        self.id, self.run, self.is_async, self.inline, self.cancelled = request_id, run, is_async, inline, False
        self.hooked, self.request = False, NO_REQUEST


class Connection:
    """One line, one message; see ServerConnection. `finish` and `fail` come without the lock, and take it."""

    lifespan = background = None

    def __init__(self, server, lock):
        self.server, self.lock, self.out, self.calls, self.rest = server, lock, [], {}, b""

    def receive_data(self, data):
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [event for line in lines if line.strip() for event in self.receive_line(line)]

    def receive_eof(self):
        return self.receive_data(b"\n")

    def receive_line(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            self.send({"jsonrpc": "2.0", "error": {"code": -32700, "message": "Parse error"}})
            return []
        if message["method"] == "ping":
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": {}})
            return []
        if message["method"] == "notifications/cancelled":
            call = self.calls.pop(message["params"]["requestId"], None)
            if call is None:
                return []
            call.cancelled = True
            return [CallCancelled(call)]
        fn, inline = self.server.tools[message["params"]["name"]]
        arguments = message["params"].get("arguments", {})
        call = Call(message["id"], lambda: fn(**arguments), inspect.iscoroutinefunction(fn), inline)
        self.calls[call.id] = call
        return [CallReady(call)]

    def send(self, message):
        self.out.append(json.dumps(message).encode() + b"\n")

    def finish(self, call, value):
        return self.end(call, str(value), failed=False)

    def fail(self, call, error):
        return self.end(call, type(error).__name__, failed=True)

    def end(self, call, text, *, failed):
        result = {"content": [{"type": "text", "text": text}], "isError": failed}
        with self.lock:
            if self.calls.pop(call.id, None) is not None:
                self.send({"jsonrpc": "2.0", "id": call.id, "result": result})
        return []

    def data_to_send(self):
        data, self.out = b"".join(self.out), []
        return data

    def next_timeout(self):
        return None

    def handle_timeout(self, now):
        return []

    @property
    def running(self):
        return len(self.calls)

    @property
    def accepting(self):
        return True

    def close(self):
        events = []
        for call in list(self.calls.values()):
            call.cancelled = True
            events.append(CallCancelled(call))
        self.calls.clear()
        return events

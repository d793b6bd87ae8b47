"""The floor over HTTP: a bare ASGI app that decodes, adds and encodes with msgspec, on the same uvicorn."""

import sys

import msgspec
import uvicorn


class Arguments(msgspec.Struct):
    a: int
    b: int


class Params(msgspec.Struct):
    name: str
    arguments: Arguments


class Request(msgspec.Struct):
    id: int | str
    params: Params


SAME = {
    "resultType": "complete",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "0.0.0"}},
}
"""What else is in an answer of ours: both servers send the same number of bytes."""
decode, encode = msgspec.json.Decoder(Request).decode, msgspec.json.encode


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    body = (await receive())["body"]
    request = decode(body)
    value = request.params.arguments.a + request.params.arguments.b
    result = {"content": [{"type": "text", "text": str(value)}], "structuredContent": {"result": value}, **SAME}
    answer = encode({"jsonrpc": "2.0", "id": request.id, "result": result})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False, timeout_keep_alive=60, lifespan="off")

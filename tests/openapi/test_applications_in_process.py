"""An ASGI application of this process as tools: it runs as over HTTP, and sees nothing of its caller that was not named."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from linkspan import Client, RegistrationError, Server, ServerError, SyncClient
from linkspan.openapi import from_app, mount_app

fastapi = pytest.importorskip("fastapi")
from fastapi import BackgroundTasks, Depends, FastAPI, Header, HTTPException, Request, UploadFile  # noqa: E402
from fastapi.responses import StreamingResponse  # noqa: E402


class Shop:
    """An application with all that a call may need, and what happened in it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.go_on = asyncio.Event()
        self.app = FastAPI(title="Shop", lifespan=self.live)
        for path, function, method in (
            ("/orders/{number}", self.order, "GET"),
            ("/where", self.where, "GET"),
            ("/admin", self.admin, "GET"),
            ("/lines", self.lines, "GET"),
            ("/endless", self.endless, "GET"),
            ("/upload", self.upload, "POST"),
            ("/later", self.later, "POST"),
            ("/broken", self.broken, "GET"),
        ):
            self.app.add_api_route(
                path,
                function,
                methods=[method],
                operation_id=function.__name__,
                tags=["mcp"] if method == "GET" else [],
            )

    @asynccontextmanager
    async def live(self, _: FastAPI) -> AsyncIterator[dict[str, str]]:
        self.log.append("up")
        yield {"pool": "open"}
        self.log.append("down")

    async def session(self) -> AsyncIterator[str]:
        self.log.append("begin")
        yield "session"
        self.log.append("end")

    def order(self, number: int, request: Request, page: int = 1) -> dict[str, Any]:
        return {"number": number, "page": page, "pool": request.state.pool}

    async def where(self, request: Request, x_tenant: Annotated[str | None, Header()] = None) -> dict[str, Any]:
        shown = {name: value for name, value in request.headers.items() if name not in ("accept", "host")}
        return {"client": request.client and request.client.host, "headers": shown, "tenant": x_tenant}

    async def admin(self, request: Request) -> str:
        if request.client is None or request.client.host not in ("127.0.0.1", "::1"):
            raise HTTPException(403, "only from this machine")
        return "the keys"

    async def lines(self) -> StreamingResponse:
        async def each() -> AsyncIterator[str]:
            for number in range(3):
                yield f"{number}\n"

        return StreamingResponse(each(), media_type="text/plain")

    async def endless(self) -> StreamingResponse:
        async def each() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1000
                await asyncio.sleep(0)

        return StreamingResponse(each(), media_type="text/plain")

    async def upload(self, file: UploadFile, note: str = "") -> dict[str, Any]:
        return {"size": len(await file.read()), "name": file.filename, "note": note}

    async def later(self, tasks: BackgroundTasks, session: Annotated[str, Depends(lambda: "x")]) -> str:
        async def work() -> None:
            await self.go_on.wait()
            self.log.append("worked")

        tasks.add_task(work)
        return "accepted"

    async def broken(self) -> None:
        raise ValueError("a secret")


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_the_five_lines(shop: Shop) -> None:
    main = Server("main")
    mount_app(main, shop.app, "shop")
    with SyncClient(main) as client:
        found = client.call_tool("shop_order", {"number": 7})
        assert found.structured == {"number": 7, "page": 1, "pool": "open"}


def test_without_a_choice_its_gets_are_tools(shop: Shop) -> None:
    with SyncClient(from_app(shop.app)) as client:
        names = {tool.name for tool in client.list_tools()}
        assert names == {"order", "where", "admin", "lines", "endless", "broken"}
    with SyncClient(from_app(shop.app, only=["upload", "l*"])) as client:
        assert [tool.name for tool in client.list_tools()] == ["lines", "upload", "later"]


def test_more_than_forty_need_a_choice() -> None:
    app = FastAPI()
    for number in range(41):
        app.add_api_route(f"/{number}", lambda: 1, operation_id=f"get{number}")
    with pytest.raises(RegistrationError, match="41 operations that read"):
        from_app(app)


def test_validation_and_failures_are_those_of_the_application(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with SyncClient(from_app(shop.app)) as client:
        assert "number must be an integer" in client.call_tool("order", {"number": "x"}).text
        assert client.call_tool("broken").text == "GET /broken: 500 Internal Server Error: Internal Server Error"
    assert "a secret" in caplog.text


def test_dependencies_lifespan_and_background_tasks_run_as_over_http(shop: Shop) -> None:
    async def use_session(held: Annotated[str, Depends(shop.session)]) -> str:
        return held

    use_session.__annotations__["held"] = Annotated[str, Depends(shop.session)]
    shop.app.add_api_route("/session", use_session, methods=["POST"], operation_id="use_session")

    async def converse() -> None:
        async with Client(from_app(shop.app, only=["*"])) as client:
            assert (await client.call_tool("use_session")).structured == {"result": "session"}
            assert (await client.call_tool("later")).structured == {"result": "accepted"}
            assert "worked" not in shop.log
            shop.go_on.set()

    asyncio.run(converse())
    assert shop.log == ["up", "begin", "end", "worked", "down"]


def test_uploads_and_streams(shop: Shop) -> None:
    with SyncClient(from_app(shop.app, only=["*"], max_response=100_000)) as client:
        data = base64.b64encode(b"\0" * 2000).decode()
        assert client.call_tool("upload", {"file": data, "note": "hi"}).structured == {
            "size": 2000,
            "name": "file",
            "note": "hi",
        }
        assert client.call_tool("lines").text == "0\n1\n2\n"
        assert "has more than 100000 bytes" in client.call_tool("endless").text


def test_the_application_sees_no_loopback_and_no_header_that_was_not_named(shop: Shop) -> None:
    """Over HTTP from this machine, with credentials: the address is none, and they stay where they were sent to."""
    main = Server("main")
    mount_app(main, shop.app)
    named = Server("named")
    mount_app(named, shop.app, forward=["Authorization", "X-Tenant"])
    sent = {"authorization": "Bearer secret", "cookie": "a=b", "x-tenant": "acme", "x-forwarded-for": "127.0.0.1"}
    for server, seen in ((main, {}), (named, {"authorization": "Bearer secret", "x-tenant": "acme"})):
        found = asyncio.run(_called(server, "where", sent))
        assert found == {"client": None, "headers": seen, "tenant": seen.get("x-tenant")}
        assert asyncio.run(_called(server, "admin", sent)) is None
    assert asyncio.run(_called(main, "where", sent, "203.0.113.7"))["client"] == "203.0.113.7"


async def _called(server: Server, tool: str, headers: dict[str, str], address: str = "127.0.0.1") -> Any:
    """Call a tool over ASGI, and return its structured content."""
    httpx = pytest.importorskip("httpx")
    app = server.asgi()
    transport = httpx.ASGITransport(app, client=(address, 1))
    async with (
        server.lifespan_of(app)(None),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
        }
        response = await http.post(
            "/",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": tool, "arguments": {}, "_meta": meta},
            },
            headers={
                **headers,
                "accept": "application/json, text/event-stream",
                "mcp-protocol-version": "2026-07-28",
                "mcp-method": "tools/call",
                "mcp-name": tool,
            },
        )
        return response.json()["result"].get("structuredContent")


def test_an_application_without_a_document_is_refused() -> None:
    async def app(*_: Any) -> None: ...

    with pytest.raises(RegistrationError, match="pass document="):
        from_app(app)


def test_an_application_that_refuses_to_start_fails_its_calls() -> None:
    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    app = FastAPI(lifespan=live)
    app.add_api_route("/x", lambda: 1, operation_id="x")
    with SyncClient(from_app(app)) as client, pytest.raises(ServerError):
        client.call_tool("x")

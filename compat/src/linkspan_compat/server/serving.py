"""From a server of an SDK to a server of Linkspan, and to its transports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan import Configuration, InputRequired, RemoteProtocolError
from linkspan import Context as LinkspanContext
from linkspan import Server as LinkspanServer
from linkspan_compat.errors import MCPError
from linkspan_compat.server.requests import PROTOCOL_METHODS, RequestContext, request_ctx

if TYPE_CHECKING:
    from linkspan_compat.server.lowlevel import Server

__all__ = ["Served", "encoded"]

_ASKING: Final = ("tools/call", "prompts/get", "resources/read")
"""The methods whose handlers may wait at questions."""


def encoded(value: Any) -> msgspec.Raw:
    """Return a result as JSON: a model, or a mapping with models in it. What JSON cannot express becomes text."""
    if isinstance(value, msgspec.Raw):
        return value
    if hasattr(value, "model_dump_json"):
        return msgspec.Raw(value.model_dump_json(by_alias=True, exclude_none=True).encode())
    return msgspec.Raw(msgspec.json.encode(value, enc_hook=_as_plain))


def asked_by(found: Any) -> InputRequired:
    """Return an `InputRequiredResult` as Linkspan has it. Raises: ValueError for a question that is none."""
    from linkspan import ask_question
    from linkspan_compat.server.requests import plain

    questions = plain(found).get("inputRequests") or {}
    requests = {key: ask_question(each.get("method", ""), each.get("params")) for key, each in questions.items()}
    return InputRequired(requests, found.request_state)


def _as_plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(by_alias=True, mode="json", exclude_none=True)
    return str(value)


class Served:
    """A server of an SDK as one of Linkspan, made anew for each way to serve it."""

    def __init__(
        self, server: Server[Any, Any], options: Any = None, *, auth: Any = None, lifespan: bool = False
    ) -> None:
        """`options` are the InitializationOptions that the program passed; `lifespan` lets Linkspan open the lifespan."""
        self.server = server
        self.lifespan_context: Any = None
        task_tools, of_tasks = server.task_tools()
        more: dict[str, Any] = dict(of_tasks)
        if auth is not None:
            more["auth"] = auth
        if lifespan:
            more["lifespan"] = self._lifespan
        capabilities = (
            options.capabilities.model_dump(by_alias=True, mode="json", exclude_none=True)
            if options is not None
            else server.capabilities()
        )
        self.under = LinkspanServer(
            (options.server_name if options is not None else None) or server.name,
            (options.server_version if options is not None else None) or server.shown_version(),
            title=server.title,
            website_url=server.website_url,
            icons=_icons(server.icons),
            instructions=(options.instructions if options is not None else None) or server.instructions,
            capabilities=msgspec.convert(capabilities, _capabilities()),
            configuration=Configuration(logs_undeclared=True),
            **more,
        )
        for method in server.methods:
            if method == "ping":
                continue
            if method in PROTOCOL_METHODS:
                self.under.handler(method, hold=method in _ASKING)(self._answers(method))
            else:
                self.under.define_custom_method(method, self._answers_custom(method))
        for name, settings in task_tools.items():
            self.under.define_tool(name, handler=_answered_elsewhere, input_schema={"type": "object"}, task=settings)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold the lifespan of the server open."""
        async with self.server.lifespan(self.server) as self.lifespan_context:
            yield

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[Any]:
        async with self.opened():
            yield self.lifespan_context

    def _answers(self, method: str) -> Any:
        async def answer(params: dict[str, Any], ctx: LinkspanContext) -> Any:
            return await self._answer(method, params, ctx)

        return answer

    def _answers_custom(self, method: str) -> Any:
        async def answer(ctx: LinkspanContext, **params: Any) -> Any:
            return await self._answer(method, params, ctx)

        return answer

    async def _answer(self, method: str, params: dict[str, Any], ctx: LinkspanContext) -> Any:
        request = RequestContext(method, params, ctx, self.under, self.server, self.lifespan_context)
        token = request_ctx.set(request)
        try:
            found = await self.server.methods[method](request, params)
            return asked_by(found) if type(found).__name__ == "InputRequiredResult" else encoded(found)
        except MCPError as error:
            raise RemoteProtocolError(error.code, error.message, error.data) from None
        except (asyncio.CancelledError, RemoteProtocolError):
            raise
        except Exception as error:
            raise self.server.failed(error) from None
        finally:
            request_ctx.reset(token)

    async def stdio(self) -> None:
        """Serve stdio until the client goes away."""
        async with self.opened():
            await self.under.serve("stdio")


async def _answered_elsewhere(arguments: dict[str, Any]) -> None:
    """Stand for a tool that may be a task: the function for `tools/call` answers, in tasks too."""
    raise NotImplementedError


def _capabilities() -> type:
    from linkspan.types.messages import ServerCapabilities

    return ServerCapabilities


def _icons(icons: Any) -> Any:
    if not icons:
        return None
    from linkspan import Icon

    return [msgspec.convert(each.model_dump(by_alias=True, exclude_none=True), Icon) for each in icons]

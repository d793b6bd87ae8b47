"""Questions of a handler to the client, which suspend it until the answer is there: it runs once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from linkspan import QuestionRefused, RemoteProtocolError, ToolError
from linkspan_compat.errors import MCPError
from linkspan_compat.errors import ToolError as SdkToolError

if TYPE_CHECKING:
    from linkspan_compat.server.requests import RequestContext

__all__ = ["ask"]

_IN_TASK: Final = (
    "A task cannot wait for an answer, which may come to another process. Return an InputRequiredResult from the tool, and read "
    "ctx.input_responses when it runs again"
)


async def ask(request: RequestContext, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the client of a request, and return its answer as JSON.

    Raises: McpError where it refuses or cannot be asked, ToolError in a task.
    """
    from linkspan_compat.server.requests import plain

    under: Any = request.required
    if under.task_id is not None:
        raise SdkToolError(_IN_TASK)
    try:
        if method == "ping":
            await under.ping()
            return {}
        return dict(await under.question(request.next_question(), method, plain(dict(params))))
    except QuestionRefused as error:
        raise MCPError(error.code, error.message, error.data) from error
    except RemoteProtocolError as error:
        raise MCPError(error.code, error.message, error.data) from error
    except ToolError as error:
        raise MCPError(-32600, str(error)) from error

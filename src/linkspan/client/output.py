"""Structured output against the schema that its tool promised. Validators come from the extra `schema`; each is made once."""

from __future__ import annotations

from collections.abc import Sequence

from linkspan.client.errors import InvalidResponse
from linkspan.client.results import Head
from linkspan.client.state import ClientState, OutputCheck
from linkspan.errors import RegistrationError
from linkspan.types.base import UNSET
from linkspan.types.tools import Tool

__all__ = ["check_output"]


def check_output(state: ClientState, tool: Tool, head: Head) -> Sequence[str]:
    """Return what is wrong with a result's structured content; nothing if it fits, is an error, or is not to be checked.

    Raises: InvalidResponse if the client is strict and something is wrong, or nothing can be checked here.
    """
    wanted = state.options.check_output
    if wanted == "off" or head.is_error or tool.output_schema is None:
        return ()
    if head.structured_content is UNSET:
        problems: Sequence[str] = ("the tool has an output schema, but sent no structured content",)
    else:
        try:
            check = state.output_checks.get(tool.name) or _compiled(state, tool)
        except RegistrationError as problem:  # no library for schemas, or a schema that cannot be used
            problems = (f"its output cannot be checked: {problem}",) if wanted == "strict" else ()
        else:
            problems = [str(each) for each in check(head.structured_content)]
    if problems and wanted == "strict":
        raise InvalidResponse(
            f"the structured output of tool {tool.name!r} does not fit its schema: {'; '.join(problems)}",
            state.origin,
            delivery="answered",
            hint="tell the server's author, or check leniently: check_output='lenient'",
        )
    return problems


def _compiled(state: ClientState, tool: Tool) -> OutputCheck:
    from linkspan.schema.validate import compile_validator

    assert tool.output_schema is not None
    check = compile_validator(tool.output_schema).check
    if state.tools.get(tool.name) is tool:
        state.output_checks[tool.name] = check
    return check

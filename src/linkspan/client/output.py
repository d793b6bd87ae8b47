"""Structured output against the schema that its tool promised. Each schema is compiled once."""

from __future__ import annotations

from collections.abc import Sequence

from linkspan.client.errors import InvalidResponse
from linkspan.client.results import Head
from linkspan.client.state import Catalogue, ClientState, OutputCheck
from linkspan.errors import RegistrationError
from linkspan.types.base import UNSET, JSONObject
from linkspan.types.messages import Tool

__all__ = ["check_output"]


def check_output(state: ClientState, catalogue: Catalogue, tool: Tool, head: Head) -> Sequence[str]:
    """Return what is wrong with a result's structured content; nothing if it fits, is an error, or is not to be checked.

    What could not be checked here is listed too. Raises: InvalidResponse if the client is strict and anything is listed.
    """
    wanted = state.options.check_output
    if wanted == "off" or head.is_error or tool.output_schema is None:
        return ()
    if head.structured_content is UNSET:
        problems: Sequence[str] = ("the tool has an output schema, but sent no structured content",)
    else:
        check = catalogue.output_checks.get(tool.name) or _compiled(catalogue, tool)
        problems = [str(each) for each in check(head.structured_content)]
    if problems and wanted == "strict":
        raise InvalidResponse(
            f"the structured output of tool {tool.name!r} does not fit its schema: {'; '.join(problems)}",
            state.origin,
            delivery="answered",
            hint="tell the server's author, or check leniently: check_output='lenient'",
        )
    return problems


def _compiled(catalogue: Catalogue, tool: Tool) -> OutputCheck:
    assert tool.output_schema is not None
    check = _check(tool.output_schema)
    if catalogue.tools.get(tool.name) is tool:
        catalogue.output_checks[tool.name] = check
    return check


def _check(schema: JSONObject) -> OutputCheck:
    """Return what checks a value, and names the parts of the schema that it does not check."""
    from linkspan.schema.validate import compile_foreign

    try:
        validator = compile_foreign(schema)
    except RegistrationError as problem:
        unusable = f"not checked: {problem}"
        return lambda _: (unusable,)
    if not validator.left_out:
        return validator.check
    names = ", ".join(f'"{each}"' for each in validator.left_out)
    note = f"not checked: {names} in the tool's output schema{validator.advice}"
    return lambda value: (*validator.check(value), note)

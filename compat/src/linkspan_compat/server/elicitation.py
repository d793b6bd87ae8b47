"""Forms for the user, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, Union

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "CancelledElicitation",
    "DeclinedElicitation",
    "ElicitationResult",
    "elicit_url",
    "elicit_with_validation",
]

T = TypeVar("T")


@dataclass
class AcceptedElicitation(Generic[T]):
    """The user filled the form in."""

    data: T
    action: Literal["accept"] = "accept"


@dataclass
class DeclinedElicitation:
    """The user does not want to."""

    action: Literal["decline"] = "decline"


@dataclass
class CancelledElicitation:
    """The user closed the form."""

    action: Literal["cancel"] = "cancel"


@dataclass
class AcceptedUrlElicitation:
    """The user will open the page."""

    action: Literal["accept"] = "accept"


ElicitationResult = Union[AcceptedElicitation[T], DeclinedElicitation, CancelledElicitation]  # noqa: UP007


async def elicit_with_validation(session: Any, message: str, schema: Any, related_request_id: Any = None) -> Any:
    """Ask with the schema of a model, and read the answer as that model. Raises: TypeError; pydantic.ValidationError."""
    answer = await session.elicit_form(message, form_schema(schema.model_json_schema()))
    return outcome_of(answer, schema.model_validate)


async def elicit_url(
    session: Any, message: str, url: str, elicitation_id: str | None = None, related_request_id: Any = None
) -> Any:
    """Ask the user to open a page."""
    answer = await session.elicit_url(message, url, elicitation_id)
    return AcceptedUrlElicitation() if answer.action == "accept" else outcome_of(answer)


def outcome_of(answer: Any, read: Callable[[Any], Any] = dict) -> Any:
    """Return what came of a question: what `read` makes of the content, where the user accepted."""
    if answer.action == "accept":
        return AcceptedElicitation(read(answer.content or {}))
    return DeclinedElicitation() if answer.action == "decline" else CancelledElicitation()


def form_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a form: of a model of plain values. Raises: TypeError for any other."""
    schema = dict(schema)
    definitions = schema.pop("$defs", {})
    for name, each in schema.get("properties", {}).items():
        schema["properties"][name] = found = _plain(each, definitions)
        if "type" not in found and "enum" not in found and "oneOf" not in found and "const" not in found:
            raise TypeError(
                f"Elicitation schema field '{name}' must be a primitive type "
                "(str, int, float, bool), a list of them, an enum, or Optional of these types. Nested models are not allowed."
            )
    return schema


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a field without references, and without null for what may be left out."""
    if "$ref" in schema:
        found = definitions.get(schema["$ref"].rpartition("/")[2], {})
        if found.get("type") == "object":
            return {}
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    forms = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(forms) == 1:
        schema = {**_plain(forms[0], definitions), **{key: value for key, value in schema.items() if key != "anyOf"}}
        if schema.get("default", 0) is None:
            del schema["default"]
    return schema

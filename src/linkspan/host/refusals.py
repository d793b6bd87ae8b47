"""Why a model gave no answer, in a sentence that says what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from linkspan.host.dialects.reading import items, member, problem_of, provider_said
from linkspan.host.messages import ModelError
from linkspan.types.base import JSON, is_array
from linkspan.wire.redaction import redact

__all__ = ["Address", "OutOfCredit", "Unreachable", "rejected", "unreachable", "without_secrets"]

_NO_CREDIT: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_error")


class Address(msgspec.Struct, frozen=True):
    """Where a model is, as errors speak of it; nothing in it is secret."""

    name: str
    """For example "anthropic:claude-sonnet-4-5"."""
    model: str
    url: str = ""
    """Of the provider, without a password; empty where an SDK knows it."""
    key_name: str = ""
    """The environment variable that holds the key, or would; empty if the key was given otherwise."""
    has_key: bool = True
    nobody: str = ""
    """What to ask when nothing listens, such as "is Ollama running?"."""
    unknown_model: str = ""
    """What to do when there is no such model."""


class Unreachable(ModelError):
    """There is no connection to the provider, or it was lost before an answer came."""


class OutOfCredit(ModelError):
    """The account must be paid for first; asking again does not help."""


def rejected(address: Address, status: int | None, body: JSON, *, retry_after: float | None = None) -> ModelError:
    """Return the error for an answer with an error status; `body` as JSON, or as text."""
    message, kind, _ = problem_of(body)
    said = provider_said(message)
    no_credit = kind in _NO_CREDIT or status == 402
    if no_credit:
        what = "the account has no credit left: see the provider's billing page"
    else:
        what = _key(address) if _is_about_the_key(body) else _what(address, status)
    text = f"{address.name}: {what}{f' ({said})' if said else ''}"
    return (OutOfCredit if no_credit else ModelError)(text, status=status, retry_after=retry_after)


def unreachable(address: Address, why: str, *, sent: bool) -> Unreachable:
    """Return the error for a connection that failed; `sent`: after the request had gone out."""
    if sent:
        return Unreachable(
            f"{address.name}: the connection to {address.url} was lost ({provider_said(why)}): ask again"
        )
    if "refused" in why:
        question = address.nobody or "is the URL right, and is the server running?"
        return Unreachable(f"{address.name}: nothing listens at {address.url}: {question}")
    return Unreachable(f"{address.name}: {address.url} cannot be reached ({provider_said(why)})")


def without_secrets(error: ModelError, address: Address, secrets: Iterable[str]) -> ModelError:
    """Return the error with the model's name in front, and without the key, whatever the provider echoed."""
    text = redact(str(error), secrets)
    if not text.startswith(address.name):
        text = f"{address.name}: {text}"
    return type(error)(text, status=error.status, retry_after=error.retry_after)


def _what(address: Address, status: int | None) -> str:
    match status:
        case 401:
            return _key(address)
        case 403:
            return f"{_whose(address)} may not be used for this"
        case 404:
            advice = address.unknown_model or "is its name right?"
            return f"there is no model {address.model!r}{f' at {address.url}' if address.url else ''}: {advice}"
        case 413:
            return "the conversation is too large for this provider: begin a new one, or show fewer tools"
        case 429:
            return "the limit of requests is reached: wait a little, or ask the provider for more"
        case 503 | 529:
            return "the provider is overloaded: ask again later"
        case _:
            pass
    if status is None:
        return "there was no answer"
    if status >= 500:
        return f"the provider failed (status {status}): ask again later"
    if status >= 400:
        return f"the provider refused the request (status {status})"
    return f"{address.url} answered with status {status}, as a model's URL does not: is it right?"


def _is_about_the_key(body: JSON) -> bool:
    """Tell whether Google says with status 400 what others say with 401."""
    error = member(body[0] if is_array(body) and body else body, "error")
    return any(member(detail, "reason") == "API_KEY_INVALID" for detail in items(member(error, "details")))


def _key(address: Address) -> str:
    if address.has_key:
        return f"{_whose(address)} was refused"
    return f"it wants a key: set {address.key_name}" if address.key_name else "it wants a key"


def _whose(address: Address) -> str:
    return f"the key in {address.key_name}" if address.key_name and address.has_key else "the key"

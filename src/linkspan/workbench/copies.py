"""The copy of a call: what is known of it, without its secrets, as code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from linkspan.flows.http_messages import HttpHop
from linkspan.types.base import JSON, JSONObject
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import REDACTED, Redactor, redact_json
from linkspan.workbench.code import MadeCall, Subject, call_as_code, with_own_names
from linkspan.workbench.exchanges import BenchCall
from linkspan.workbench.listing import Listing
from linkspan.workbench.placeholders import Placeholders


def copied(
    subject: Subject,
    exchange: BenchCall,
    hops: Iterable[HttpHop],
    listing: Listing,
    roots: Sequence[str],
    redactor: Redactor,
) -> dict[str, str]:
    """Return a call as code by its kind. `hops` are the latest requests over HTTP, and `roots` what was declared."""
    wanted, shown = exchange.wanted, redactor.message
    placeholders = Placeholders(kept=exchange.kept)
    hide = placeholders.without_secrets
    request = shown({"request": exchange.request})["request"]
    answers = [
        msgspec.structs.replace(
            each,
            message=given["message"],
            content=hide(each.content, given["content"]),
            text=hide(each.text, given["text"], "text"),
        )
        for each in exchange.answers
        if (given := shown(msgspec.to_builtins(each)))
    ]
    made = MadeCall(
        wanted.kind,
        name=hide(wanted.name, redactor.text(wanted.name), "uri"),
        arguments=hide(wanted.arguments, shown({"arguments": wanted.arguments})["arguments"]),
        revision=exchange.revision,
        is_pinned=bool(wanted.revision),
        request=hide(exchange.request, request),
        headers=_headers(exchange, hops, listing, request),
        answers=answers,
        roots=roots,
        result=_expected(exchange, redactor, placeholders.hidden),
        error=exchange.error,
    )
    return call_as_code(subject, made)


def _headers(
    exchange: BenchCall, hops: Iterable[HttpHop], listing: Listing, request: JSONObject | None
) -> Mapping[str, str]:
    """Return the headers of the latest request of this kind, with those that repeat the body of this one."""
    dates = (exchange.revision, None)
    posts = [each.sent for each in hops if each.method == "POST" and each.status]
    alike = [each for each in posts if each.get("mcp-method") in (exchange.method, None)]
    none: Mapping[str, str] = {}
    found = next((each for each in reversed(alike) if each.get("mcp-protocol-version") in dates), none)
    tools = listing.items.get("tools", ())
    schema: JSON = next((each.get("inputSchema") for each in tools if each.get("name") == exchange.wanted.name), None)
    return with_own_names(found, exchange.revision, request, schema)


def _expected(exchange: BenchCall, redactor: Redactor, secrets: Iterable[str]) -> JSONObject | None:
    """Return the result that a test can expect: of one with secrets, only whether it is an error."""
    try:
        result: JSONObject = msgspec.json.decode(exchange.result)
    except msgspec.DecodeError:
        return None
    shown = redact_json(redactor.message({"result": result})["result"], secrets)
    hidden = REDACTED in encode(shown).decode() if exchange.kept else shown != result
    return {"isError": result.get("isError")} if hidden else result

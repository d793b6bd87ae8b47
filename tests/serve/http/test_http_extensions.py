"""Extensions over HTTP: the header that names what a request is about, statuses, streams. Through every face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from http_faces import Face
from http_talk import body, mirror

from linkspan.errors import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY
from parcels import PARCELS, arrived, shop

Serve = Callable[..., Face]
DECLARED = {"extensions": {PARCELS: {}}}


@pytest.mark.parametrize(
    ("name", "capabilities", "status", "code"),
    [
        ("p7", DECLARED, 200, None),
        ("=?base64?cDc=?=", DECLARED, 200, None),
        ("p8", DECLARED, 400, HEADER_MISMATCH),
        ("", DECLARED, 400, HEADER_MISMATCH),
        (None, DECLARED, 200, None),  # the transport requires it of tools/call, prompts/get and resources/read only
        ("p7", {}, 400, MISSING_CLIENT_CAPABILITY),
    ],
)
def test_the_header_names_what_a_method_of_an_extension_is_about(
    serve: Serve, name: str | None, capabilities: dict[str, Any], status: int, code: int | None
) -> None:
    request = body("parcels/find", {"parcelId": "p7"}, clientCapabilities=capabilities)
    answer = serve(shop()).ask("POST", mirror(request, Mcp_Name=name), request)
    assert (answer.status, answer.code) == (status, code), answer.body


def test_an_extension_that_is_off_has_no_methods(serve: Serve) -> None:
    request = body("parcels/lose", {"parcelId": "p7"}, clientCapabilities=DECLARED)
    answer = serve(shop()).ask("POST", mirror(request), request)
    assert (answer.status, answer.code) == (404, METHOD_NOT_FOUND)


def test_a_stream_carries_the_notifications_of_an_extension(serve: Serve) -> None:
    server = shop()
    face = serve(server)
    request = body("subscriptions/listen", {"notifications": {"parcelIds": ["p7"]}}, clientCapabilities=DECLARED)
    stream = face.open("POST", mirror(request), request)
    assert stream.message()["params"]["notifications"] == {"parcelIds": ["p7"]}
    server._announcer.send(arrived("p7"), None)
    assert stream.message()["params"]["status"] == "arrived"
    stream.close()

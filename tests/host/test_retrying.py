"""How long to wait before a provider is asked again; time and chance are arguments."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan.host.http_model import Backoff, read_retry_after

NOON = 1_700_000_000.0
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}


def test_pauses_double_up_to_a_bound_and_end() -> None:
    backoff = Backoff(attempts=5, longest=3.0)
    assert [backoff.pause(failures, 1.0) for failures in (1, 2, 3, 4, 5)] == [1.0, 2.0, 3.0, 3.0, None]
    assert [backoff.pause(failures, 0.0) for failures in (1, 2, 3, 4, 5)] == [0.5, 1.0, 1.5, 1.5, None]


@pytest.mark.parametrize(
    ("asked", "pause"), [(None, 1.0), (0.0, 1.0), (0.2, 1.0), (12.0, 12.0), (60.0, 60.0), (60.1, None)]
)
def test_a_provider_may_ask_for_more_but_not_for_too_much(asked: float | None, pause: float | None) -> None:
    assert Backoff().pause(1, 1.0, asked) == pause


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({}, None, None),
        ({"retry-after": "7"}, None, 7.0),
        ({"retry-after": " 1.5 "}, None, 1.5),
        ({"retry-after": "7", "retry-after-ms": "250"}, None, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, None, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, None, 0.0),
        ({"retry-after": "soon"}, None, None),
        ({"retry-after": "-5"}, None, None),
        ({"retry-after": "9" * 400}, None, None),
        ({"retry-after": "nan"}, None, None),
        ({}, {"error": {"details": [{"@type": "other"}, RETRY_INFO]}}, 34.5),
        ({}, [{"error": {"details": [RETRY_INFO]}}], 34.5),
        ({}, "slow down", None),
        ({}, {"error": {"details": [{"retryDelay": 3}, None]}}, None),
    ],
)
def test_when_to_come_back_is_read_from_what_the_provider_says(
    headers: dict[str, str], body: Any, seconds: float | None
) -> None:
    assert read_retry_after(headers, body, NOON) == seconds

"""Pages: nothing is skipped or repeated when things come and go between them."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan.errors import INVALID_PARAMS, LocalProtocolError, RemoteProtocolError
from linkspan.server.catalogue import ListPage, paginate

ITEMS = [(1, "a"), (2, "b"), (4, "d"), (5, "e")]


def walk(items: list[tuple[int, str]], page_size: int | None) -> list[list[str]]:
    page = paginate(items, None, page_size)
    pages = [page.items]
    while page.next_cursor is not None:
        page = paginate(items, page.next_cursor, page_size)
        pages.append(page.items)
    return pages


@pytest.mark.parametrize(
    ("page_size", "pages"),
    [
        (None, [["a", "b", "d", "e"]]),
        (1, [["a"], ["b"], ["d"], ["e"]]),
        (2, [["a", "b"], ["d", "e"]]),
        (3, [["a", "b", "d"], ["e"]]),
        (4, [["a", "b", "d", "e"]]),
        (9, [["a", "b", "d", "e"]]),
    ],
)
def test_pages_are_the_list_in_order(page_size: int | None, pages: list[list[str]]) -> None:
    assert walk(ITEMS, page_size) == pages


@pytest.mark.parametrize("page_size", [None, 2])
def test_an_empty_list_is_one_empty_page(page_size: int | None) -> None:
    assert paginate([], None, page_size) == ListPage([], None)


def test_the_list_goes_on_where_a_removed_item_was() -> None:
    cursor = paginate(ITEMS, None, 2).next_cursor
    assert paginate([(1, "a"), (4, "d"), (5, "e")], cursor, 2) == ListPage(["d", "e"], None)
    assert paginate([(4, "d"), (5, "e")], cursor, 2).items == ["d", "e"]
    assert paginate([(1, "a"), (2, "b")], cursor, 2) == ListPage([], None)
    assert paginate([], cursor, 2) == ListPage([], None)


def test_without_a_page_size_a_cursor_yields_all_of_the_rest() -> None:
    assert paginate(ITEMS, paginate(ITEMS, None, 1).next_cursor, None) == ListPage(["b", "d", "e"], None)


@given(st.data())
def test_what_stays_is_listed_once_whatever_else_comes_and_goes(data: st.DataObject) -> None:
    items = {number: str(number) for number in range(data.draw(st.integers(0, 12)))}
    stays = set(items.values())
    following = len(items)
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = paginate(list(items.items()), cursor, data.draw(st.integers(1, 4)))
        seen += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
        for gone in data.draw(st.lists(st.sampled_from(sorted(items)), max_size=2, unique=True)):
            stays.discard(items.pop(gone))
        if following < 20 and data.draw(st.booleans()):
            items[following] = str(following)
            following += 1
    assert cursor is None
    assert len(seen) == len(set(seen))
    assert stays <= set(seen)
    assert seen == sorted(seen, key=int)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "2",
        "nonsense",
        "é",
        "\ud800",
        "invalid-cursor",
        encoded(""),
        encoded("2"),
        encoded("after:"),
        encoded("after:-1"),
        encoded("after:02"),
        encoded("after:2 "),
        encoded("after:2²"),
        encoded("after:" + "9" * 5000),
        encoded("before:2"),
        encoded("after:2") + "=",
        encoded("after:2") + "\n",
        encoded("after:2").rstrip("="),
    ],
)
def test_a_foreign_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(RemoteProtocolError, match="Invalid cursor") as caught:
        paginate(ITEMS, cursor, 2)
    assert caught.value.code == INVALID_PARAMS


@given(st.text(max_size=30))
def test_no_cursor_raises_anything_else(cursor: str) -> None:
    with suppress(RemoteProtocolError):
        paginate(ITEMS, cursor, 2)


@pytest.mark.parametrize("page_size", [0, -1])
def test_a_page_has_room_for_something(page_size: int) -> None:
    with pytest.raises(LocalProtocolError, match="page_size must be at least 1"):
        paginate(ITEMS, None, page_size)

from __future__ import annotations

import pytest

from linkspan.schema.annotations import Docstring, parse_docstring

GOOGLE = """Do it.

    More words.

    Args:
        a: The first,
            over two lines.
        b (int, optional): The second: with a colon.
        *rest: The rest.

    Note:
        Stays.

    Returns:
        int: Gone.

    Raises:
        ValueError: Gone.
    """
NUMPY = """Do it.

    Parameters
    ----------
    a : int
        The first,
        over two lines.
    b, c : str, optional
        Both.

    Returns
    -------
    int
        Gone.

    Notes
    -----
    Stays.
    """
SPHINX = """Do it.

    :param a: The first,
        over two lines.
    :param int b: The second.
    :type a: int
    :returns: Gone.
    :raises ValueError: Gone.
    """


@pytest.mark.parametrize(
    ("doc", "found"),
    [
        (None, Docstring()),
        ("  \n ", Docstring()),
        ("Just this.", Docstring("Just this.")),
        ("Say: hello\n\nOne: two", Docstring("Say: hello\n\nOne: two")),
        (
            GOOGLE,
            Docstring(
                "Do it.\n\nMore words.\n\nNote:\n    Stays.",
                {"a": "The first, over two lines.", "b": "The second: with a colon.", "rest": "The rest."},
            ),
        ),
        (
            NUMPY,
            Docstring(
                "Do it.\n\nNotes\n-----\nStays.", {"a": "The first, over two lines.", "b": "Both.", "c": "Both."}
            ),
        ),
        (SPHINX, Docstring("Do it.", {"a": "The first, over two lines.", "b": "The second."})),
    ],
)
def test_docstrings_of_three_styles_are_read(doc: str | None, found: Docstring) -> None:
    assert parse_docstring(doc) == found


def test_a_text_below_a_sphinx_field_begins_where_it_begins() -> None:
    found = parse_docstring("Roll.\n\n:param sides:\n    How many sides\n    a die has.\n")
    assert found.parameters == {"sides": "How many sides a die has."}

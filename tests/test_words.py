"""The words of the sources and the documents: plain technical English, as `docs/words.md` asks for.

A form that reads oddly is refused in strings, docstrings, comments and documents; first of all in the texts of errors.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import figures

ROOT = Path(__file__).parent.parent

FORMS: dict[str, str] = {
    r"(?<![Tt]here )\b(?:is|are|was|were) none\b": "name what is wrong: `invalid URL`, not `a URL that is none`",
    r"\b(?:is|are|was|were) not one\b": "name what is wrong: `invalid response`, not `the answer is not one`",
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?:[A-Z]\w*|text|object|list|number|tool|request|answer)\b": (
        "write `is not a valid ...` or `is not a ...`"
    ),
    r"\b(?:to|for) nothing\b": "say what has no effect, or what the default is",
    r"\bin vain\b": "write `has no effect` or `will not help`",
    r"\bwithout a word\b": "write `without an error message` or `silently`",
    r"\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody|[Aa]nybody|[Ww]hoever)\b": (
        "name the role: the caller, the client, the peer, the user, another thread"
    ),
    r"\b(?:is|are|was|were|be|been|being|gets?) told\b": "write `receives`, `is notified of`, `is passed`",
    r"\b[Ss]a(?:y|ys|id) so\b": "write what is reported or declared",
    r"(?<!not )\b(?:[Ss]a(?:y|ys|id)|[Tt]ells?|told) (?:whether|if|which|what|how|why|where|who|when|that)\b": (
        "a function returns, an error names, a document states"
    ),
    r"\b[Hh]ears? (?:of|that|it|about)\b": "write `receives`, `is notified of`",
    r"\b[Hh]eard\b": "write `received`, `was notified of`",
    r"\b[Tt]ak(?:e|es|en) note\b": "write `record` or `signal`",
    r"\bis no more\b": "write `has ended` or `was removed`",
    r"\b(?:comes?|came) of (?:it|this|that|them|a|an|the|one|all)\b": "write `the result of`",
    r"\b(?:[Ss]trangers?|[Ss]tranger's)\b": "write `untrusted`, `another principal`, `an unknown peer`",
    r"\bwhat time brings\b": "write `due timers`",
    r"\b(?:[Bb]ury|[Bb]uries|[Bb]uried|[Hh]ush)\b": "write `reap`, `close`",
    r"\bhas? to do with\b": "write `matches`, `concerns`",
    r"\b(?:what|which|who|that) (?:are|is) meant\b": "write `refers to`, `the intended ...`",
    r"\b(?:knows|know|thinks|thought) nothing of\b": "write `does not depend on`",
    r"\bleads? nowhere\b": "write `points to /dev/null`, `has no effect`",
    r"\btakes? place of\b|\bbe it\b": "write `or`, `even`",
}
"""Forms that read oddly, and what to write."""

ALLOWED: frozenset[str] = frozenset()
"""Exact words of a text in which a form is right English."""

_FENCE = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_FORMS = {re.compile(form): advice for form, advice in FORMS.items()}


class Words(NamedTuple):
    """One text: where it begins, and whether a user meets it in an error."""

    place: str
    text: str
    is_error: bool = False


class Oddity(NamedTuple):
    """A form in a text."""

    place: str
    found: str
    advice: str
    is_error: bool

    def __str__(self) -> str:
        return f"{self.place}: {self.found!r}: {self.advice}"


def words_of_module(name: str, source: str) -> Iterator[Words]:
    """Yield each string, docstring and comment of a module."""
    tree = ast.parse(source)
    raised = {id(part) for node in ast.walk(tree) if _is_raised(node) for part in ast.walk(node)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield Words(f"{name}:{node.lineno}", "".join(parts), id(node) in raised)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield Words(f"{name}:{node.lineno}", node.value, id(node) in raised)
    yield from _comments(name, source)


def _is_raised(node: ast.AST) -> bool:
    """Return whether a node makes an error: `raise ...`, or a call of a class of errors."""
    if isinstance(node, ast.Raise):
        return True
    made = node.func if isinstance(node, ast.Call) else None
    called = made.id if isinstance(made, ast.Name) else made.attr if isinstance(made, ast.Attribute) else ""
    return called[:1].isupper() and called.endswith(("Error", "Refused", "Problem", "Malformed"))


def _comments(name: str, source: str) -> Iterator[Words]:
    """Yield the comments; those on lines that follow each other are one text."""
    place, lines, last = 0, list[str](), -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != last + 1 and lines:
            yield Words(f"{name}:{place}", " ".join(lines))
            lines = []
        place = place if lines else token.start[0]
        lines.append(token.string.lstrip("# "))
        last = token.start[0]
    if lines:
        yield Words(f"{name}:{place}", " ".join(lines))


def words_of_page(path: Path) -> Iterator[Words]:
    """Yield the prose of a document, paragraph by paragraph, without its code."""
    text = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), path.read_text())
    at = 1
    for paragraph in text.split("\n\n"):
        yield Words(f"{path.name}:{at}", _CODE.sub("``", paragraph))
        at += paragraph.count("\n") + 2


def oddities(words: Iterator[Words]) -> Iterator[Oddity]:
    """Yield each form that reads oddly."""
    for place, text, is_error in words:
        one_line = " ".join(text.split())
        for form, advice in _FORMS.items():
            for found in form.finditer(one_line):
                around = one_line[max(0, found.start() - 30) : found.end() + 20]
                if not any(each in around for each in ALLOWED):
                    yield Oddity(place, around, advice, is_error)


def measure() -> dict[str, list[Oddity]]:
    """Return every oddity, by package; those of the documents are in "docs"."""
    by_package: dict[str, list[Oddity]] = {"docs": []}
    for name, source in figures.sources().items():
        by_package.setdefault(figures.package(name), []).extend(oddities(words_of_module(name, source)))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if page.name != "words.md":  # the glossary names the forms
            by_package["docs"] += oddities(words_of_page(page))
    return by_package


@pytest.fixture(scope="module")
def found() -> dict[str, list[Oddity]]:
    return measure()


def test_no_text_of_an_error_reads_oddly(found: dict[str, list[Oddity]]) -> None:
    wrong = [str(each) for oddities in found.values() for each in oddities if each.is_error]
    assert not wrong, "\n".join(wrong)


def test_no_string_comment_or_page_reads_oddly(found: dict[str, list[Oddity]]) -> None:
    assert not [str(each) for oddities in found.values() for each in oddities]


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("a URL that is none", 1),
        ("the response is not one", 1),
        ("'x' is no TOML", 1),
        ("There is no Client of this name", 0),
        ("trying again is in vain", 1),
        ("for whoever calls", 1),
        ("the invalid URL", 0),
        ("Return whether the peer supports it.", 0),
        ("Tell whether the peer supports it.", 1),
    ],
)
def test_the_forms_are_found(text: str, counted: int) -> None:
    assert len(list(oddities(iter([Words("here", text)])))) == counted


def test_texts_of_errors_are_recognized() -> None:
    source = 'raise ValueError(f"{x} is no JSON")\nerror = ConnectError("is none")\nnote = "is none"  # is none\n'
    judged = Counter(each.is_error for each in oddities(words_of_module("m.py", source)))
    assert judged == {True: 2, False: 2}


if __name__ == "__main__":
    for listed in measure().values():
        for each in listed:
            print("ERROR" if each.is_error else "     ", each)


NOT_IN_NAMES = {
    "buried",
    "bury",
    "hear",
    "heard",
    "hears",
    "hush",
    "nowhere",
    "stranger",
    "tell",
    "tells",
    "tend",
    "tends",
    "told",
    "whoever",
}
"""Words that no identifier has: docs/words.md has those of the field."""


@pytest.mark.parametrize("name", sorted(figures.sources()))
def test_identifiers_obey_the_words_too(name: str) -> None:
    tokens = tokenize.generate_tokens(io.StringIO(figures.sources()[name]).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    odd = {each for each in names if not NOT_IN_NAMES.isdisjoint(each.lower().split("_"))}
    assert not odd, f"{name}: {', '.join(sorted(odd))}"

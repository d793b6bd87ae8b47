"""What the search of the site looks through: each section of each page, and the questions in which people ask for a page.

`python docs/finding.py` writes it to the standard output, as conf.py writes it beside the pages of the site.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from snowballstemmer import stemmer

__all__ = ["find_index"]

HERE = Path(__file__).parent
TITLE, HEADING, ASKED, CODE = 12, 6, 7, 1
"""What a word counts in a title, a heading, a question and a block of code; one of the text counts 2."""
SMALL = frozenset([
    "a", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "doesn",
    "for", "from", "get", "got", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "linkspan", "m",
    "make", "mcp", "me", "my", "need", "of", "on", "or", "our", "please", "possible", "re", "s", "so", "still", "such", "t",
    "than", "that", "the", "their", "them", "then", "there", "these", "they", "thing", "things", "this", "those", "to",
    "unless", "use", "using", "ve", "vs", "want", "was", "way", "we", "were", "what", "when", "where", "which", "while", "who",
    "why", "will", "with", "would", "you", "your",
])  # fmt: skip
"""Words that say nothing about what is wanted."""
UNDIVIDED = frozenset(["ChatGPT", "OpenAI", "OpenRouter", "GitHub"])
"""Names whose parts are not what they are about: a page about ChatGPT is not one about chats."""
stem: Callable[[str], str] = stemmer("english").stemWord

ASKED_FILE = tomllib.loads((HERE / "asked.toml").read_text(encoding="utf-8"))
ABBREVIATIONS = {
    stem(short): stem(whole)
    for short, whole in ASKED_FILE["words"]["abbreviations"].items()
}


def words(text: str) -> Iterator[str]:
    """Yield the stems of a text; a name such as `SyncClient` counts whole and in its parts."""
    for name in re.findall(r"[^\W_]+", text):
        parts = (
            []
            if name in UNDIVIDED
            else re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
        )
        for word in {name.lower(), *(part.lower() for part in parts if len(parts) > 1)}:
            if word not in SMALL:
                yield ABBREVIATIONS.get(stem(word), stem(word))


def sections(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the anchor, the heading, the text and the code of each section of a page; the first has no anchor."""
    anchor, heading, fenced = "", "", False
    prose: list[str] = []
    code: list[str] = []
    seen: Counter[str] = Counter()
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            code.append(line)
        elif found := re.match(r"(#+) +(.+)", line):
            if heading:
                yield anchor, heading, "\n".join(prose), "\n".join(code)
            prose, code = [], []
            heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found[2]).strip()
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            anchor = (
                ""
                if len(found[1]) == 1
                else slug + (f"-{seen[slug]}" if seen[slug] else "")
            )
            seen[slug] += 1
        else:
            prose.append(re.sub(r"\]\([^)]*\)", "]", line))
    yield anchor, heading, "\n".join(prose), "\n".join(code)


def find_index(pages: Iterable[tuple[str, str]]) -> str:
    """Return the index of pages, each a name and a Markdown text, as JSON.

    `pages` are `[name, title, stem, ...]`, `sections` are `[page, anchor, heading, stem, ...]`, `words` maps a stem to
    `[section, count, ...]`, `questions` are `[page, stem, ...]`, `groups` are lists of stems that mean nearly the same, and
    `whole` maps the stem of an abbreviation to that of the word.
    """
    found: dict[str, list[list[str | int]]] = {
        "pages": [],
        "sections": [],
        "questions": [],
    }
    postings: dict[str, list[int]] = {}
    for page, (name, text) in enumerate(pages):
        questions = ASKED_FILE["pages"].get(name, "").strip().splitlines()
        found["questions"] += [
            [page, *dict.fromkeys(words(each))] for each in questions
        ]
        for anchor, heading, prose, code in sections(text):
            counts: Counter[str] = Counter()
            for word in words(heading.replace("`", "")):
                counts[word] += HEADING if anchor else TITLE
            if not anchor:
                found["pages"].append(
                    [name, heading.replace("`", ""), *dict.fromkeys(words(heading))]
                )
                for word in {
                    each for question in questions for each in words(question)
                }:
                    counts[word] += ASKED
            for word in words(prose):
                counts[word] += 2
            for word in words(code):
                counts[word] += CODE
            for word, count in counts.items():
                postings.setdefault(word, []).extend((len(found["sections"]), count))
            found["sections"].append(
                [
                    page,
                    anchor,
                    heading.replace("`", ""),
                    *(dict.fromkeys(words(heading)) if anchor else ()),
                ]
            )
    groups = [
        sorted({*words(line)})
        for line in ASKED_FILE["words"]["groups"].strip().splitlines()
    ]
    small = sorted(SMALL)
    return json.dumps(
        {
            **found,
            "words": postings,
            "groups": groups,
            "small": small,
            "whole": ABBREVIATIONS,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


if __name__ == "__main__":
    names = sorted(each for each in HERE.rglob("*.md") if each.stem != "api")
    shown = [
        (str(each.relative_to(HERE).with_suffix("")), each.read_text(encoding="utf-8"))
        for each in names
    ]
    sys.stdout.write(find_index(shown))

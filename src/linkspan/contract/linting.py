"""What providers of models refuse or lose of a server, what models stumble over, what directories of servers demand, and secrets.

Each rule has a code, and is about servers in any language. What a provider or a host does is a fact of its date, not of the
protocol: see `AUDIENCES`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import combinations
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.contract.snapshot import Snapshot, tool_tokens
from linkspan.contract.tokens import token_words, tokens_of
from linkspan.schema.provider_schemas import Provider, convert
from linkspan.schema.refusals import MOST_PARTS, parts, refusals
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.redaction import hidden, redact

Level: TypeAlias = Literal["error", "warning", "advice"]
Audience: TypeAlias = Literal["claude", "openai", "gemini", "cursor", "vscode", "directory"]

AUDIENCES: Final[tuple[Audience, ...]] = ("claude", "openai", "gemini", "cursor", "vscode", "directory")
"""For whom a server may be: providers and hosts as of 2026, and the directories that list servers."""

RULES: Final[Mapping[str, tuple[Level, str]]] = {
    "L01": ("error", "a name of a tool has up to 64 letters, digits, `_` and `-`"),
    "L02": ("error", "a name of an argument has up to 64 letters, digits, `_`, `.` and `-`"),
    "L03": ("error", "a schema has no `anyOf`, `oneOf` or `allOf` at its root"),
    "L04": ("error", "an array names its items"),
    "L05": ("error", "the arguments are an object"),
    "L06": ("error", "a schema does not contain itself"),
    "L08": ("error", "two names of tools differ in more than case, `-` and `_`"),
    "L07": ("warning", "a provider takes the whole schema"),
    "L09": ("warning", "the name of a tool behind that of its server is short enough for a host"),
    "L10": ("warning", "there are not more tools than a host takes"),
    "L11": ("warning", "the list takes at most 10,000 tokens, and a tool 1,500"),
    "L12": ("warning", "arguments are nested at most 5 deep"),
    "L20": ("warning", "a tool has a description of a sentence"),
    "L25": ("warning", "a text does not tell the model which tool to prefer, and hides nothing"),
    "L32": ("warning", "a tool that deletes is not called read-only"),
    "L33": ("warning", "hints do not contradict each other"),
    "L40": ("warning", "no text has a key, a token or a private address"),
    "L21": ("advice", "an argument has a description"),
    "L22": ("advice", "two tools do not have the same description"),
    "L23": ("advice", "a choice has at most 50 values"),
    "L24": ("advice", "names of tools are of one style"),
    "L26": ("advice", "a tool has an output schema"),
    "L30": ("warning", "a tool has a title"),
    "L31": ("warning", "a tool has `readOnlyHint` or `destructiveHint`"),
}
"""For each code its level and what it asks for."""

_REFUSING: Final[Mapping[str, tuple[Audience, ...]]] = {
    "L01": ("claude", "openai", "gemini"),
    "L02": ("claude",),
    "L03": ("claude", "openai"),
    "L04": ("openai", "gemini", "vscode"),
    "L05": (),
}
"""Who refuses what `refusals` names."""
_PROVIDERS: Final[Mapping[Audience, Provider]] = {"claude": "anthropic", "openai": "openai", "gemini": "gemini"}
_LONGEST: Final[Mapping[Audience, int]] = {"cursor": 60, "claude": 64, "vscode": 64}
_MOST_TOOLS: Final[Mapping[Audience, int]] = {"cursor": 40, "openai": 128, "vscode": 128}
_MOST_TOKENS: Final = 10_000
_MOST_TOKENS_OF_ONE: Final = 1_500
_DEEPEST: Final = 5
_SHORTEST: Final = 5
"""Tokens of a description, about: some 20 letters."""
_EMOJI: Final = "\ufe0e\ufe0f"
"""What asks for a sign in black or in colour: it hides nothing."""
_MOST_VALUES: Final = 50
_ALIKE: Final = 0.92
_COMPARED: Final = 200
"""Tools, and characters of each, that are compared with each other."""
_PUSHY: Final = re.compile(
    r"(?i)\b(?:always (?:use|call|prefer)|(?:use|call) this tool (?:first|before any)|never (?:use|call) (?:any )?other"
    r"|ignore (?:all |any )?(?:previous|other) (?:instructions|tools)|do not (?:tell|mention|inform) the user)\b"
)
_PRIVATE: Final = re.compile(
    r"https?://(?:localhost|127\.\d+|10\.\d+|192\.168|172\.(?:1[6-9]|2\d|3[01])|[\w.-]+\.(?:internal|local|corp))\b[^\s\"'<>]*"
)
_DELETES: Final = re.compile(
    r"(?i)(?:^|[_-])(?:delete|remove|drop|destroy|purge|erase)(?:[_-]|$)|^(?:delete|remove|drop)[A-Z]"
)
_LEVELS: Final[tuple[Level, ...]] = ("error", "warning", "advice")


class Finding(msgspec.Struct, frozen=True):
    """One thing that a rule finds."""

    code: str
    """Its rule, such as `L07`."""
    item: str
    """The name of the tool; empty for the server."""
    words: str
    audiences: tuple[Audience, ...] = ()
    """Whom it concerns; empty if all."""

    @property
    def level(self) -> Level:
        """How bad it is."""
        return RULES[self.code][0]


def lint(snapshot: Snapshot, audiences: Collection[Audience] = AUDIENCES[:-1]) -> list[Finding]:
    """Return what the rules find in a server, the worst first; those of directories only if `directory` is an audience."""
    found = [*_list(snapshot)]
    for name, tool in snapshot.of("tool").items():
        for rule in _RULES_OF_A_TOOL:
            found += rule(name, tool)
        found += _name_with_server(snapshot.server, name)
    order = list(RULES)
    wanted = [each for each in found if not each.audiences or set(each.audiences) & set(audiences)]
    shown = [
        msgspec.structs.replace(each, audiences=tuple(one for one in each.audiences if one in audiences))
        for each in wanted
    ]
    return sorted(shown, key=lambda each: (_LEVELS.index(each.level), order.index(each.code), each.item))


# The list as a whole.


def _list(snapshot: Snapshot) -> Iterator[Finding]:
    names = list(snapshot.of("tool"))
    for audience, most in _MOST_TOOLS.items():
        if len(names) > most:
            yield Finding("L10", "", f"it has {len(names)} tools; {audience} takes {most}", (audience,))
    if snapshot.tokens > _MOST_TOKENS:
        yield Finding("L11", "", f"its tools take {token_words(snapshot.tokens)} of each request to a model")
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.casefold().replace("-", "_"), name)
        if other != name:
            yield Finding("L08", name, f"hosts may take it for {other!r}")
    styles = Counter(_style(each) for each in names if _style(each))
    if len(styles) > 1:
        usual = styles.most_common(1)[0][0]
        odd = [each for each in names if _style(each) not in ("", usual)]
        yield Finding("L24", odd[0], f"most names are in {usual}; this one is in {_style(odd[0])}")
    yield from _alike(snapshot)
    yield from _texts("", {"instructions": snapshot.instructions})


def _style(name: str) -> str:
    if "_" in name or "-" in name:
        return "snake_case" if "_" in name else "kebab-case"
    return "camelCase" if re.search(r"[a-z][A-Z]", name) else ""


def _alike(snapshot: Snapshot) -> Iterator[Finding]:
    """Compare descriptions with each other."""
    texts = [(name, str(tool.get("description") or "")[:_COMPARED]) for name, tool in snapshot.of("tool").items()]
    long = [(name, text) for name, text in texts[:_COMPARED] if tokens_of(text) >= _SHORTEST]
    for (one, text), (other, its) in combinations(long, 2):
        matcher = SequenceMatcher(None, text, its, autojunk=False)
        if matcher.real_quick_ratio() > _ALIKE and matcher.quick_ratio() > _ALIKE and matcher.ratio() > _ALIKE:
            yield Finding("L22", other, f"its description is nearly that of {one!r}: write what is different")


# A tool.


def _name_with_server(server: str, name: str) -> Iterator[Finding]:
    for audience, longest in _LONGEST.items():
        whole = f"mcp__{server}__{name}" if audience == "claude" else f"{server}_{name}"
        if len(whole) > longest:
            yield Finding(
                "L09", name, f"{whole!r} has {len(whole)} characters; {audience} takes {longest}", (audience,)
            )


def _name(name: str, tool: Mapping[str, JSON]) -> Iterator[Finding]:
    annotations: JSONObject = tool.get("annotations") or {}
    if not tool.get("title") and not annotations.get("title"):
        yield Finding("L30", name, "it has no title", ("directory",))
    if annotations.get("readOnlyHint") is None and annotations.get("destructiveHint") is None:
        yield Finding("L31", name, "it has neither readOnlyHint nor destructiveHint", ("directory",))
    if annotations.get("readOnlyHint") is True:
        if _DELETES.search(name):
            yield Finding("L32", name, "its name is that of a deletion, and readOnlyHint is true")
        if annotations.get("destructiveHint") is True:
            yield Finding("L33", name, "readOnlyHint and destructiveHint are both true")
    if tool.get("outputSchema") is None:
        yield Finding("L26", name, "it has no output schema")


def _description(name: str, tool: Mapping[str, JSON]) -> Iterator[Finding]:
    text: JSON = tool.get("description")
    bare = "".join(each for each in str(text or "") if each.isalnum()).casefold()
    if not bare:
        yield Finding("L20", name, "it has no description")
    elif tokens_of(str(text)) < _SHORTEST or bare == "".join(each for each in name if each.isalnum()).casefold():
        yield Finding("L20", name, f"its description says little: {clip(str(text), 60)!r}")
    yield from _texts(name, {"description": text})
    if (tokens := tool_tokens(tool)) > _MOST_TOKENS_OF_ONE:
        yield Finding("L11", name, f"it takes {token_words(tokens)} of each request to a model")


def _texts(name: str, texts: Mapping[str, JSON]) -> Iterator[Finding]:
    for what, text in texts.items():
        if not isinstance(text, str):
            continue
        if found := _PUSHY.search(text):
            yield Finding("L25", name, f"its {what} steers the model: {found[0]!r}")
        if hidden().search(re.sub(f"[{_EMOJI}]", "", text)):
            yield Finding("L25", name, f"its {what} has characters that people do not see")
        if redact(text) != text:
            yield Finding("L40", name, f"its {what} has what looks like a secret")
        elif found := _PRIVATE.search(text):
            yield Finding("L40", name, f"its {what} has a private address: {clip(found[0], 60)}")


def _arguments(name: str, tool: Mapping[str, JSON]) -> Iterator[Finding]:
    schema: JSON = tool.get("inputSchema")
    for code, words in refusals(name, schema):
        yield Finding(code, name, words, _REFUSING[code])
    if not is_object(schema) or schema.get("type", "object") != "object":
        return
    if _contains_itself(schema):
        yield Finding("L06", name, "its schema contains itself", ("gemini",))
    deepest = 0
    for path, part in parts(schema):
        deepest = max(deepest, len(path))
        yield from _part(name, ".".join(path), part)
    if deepest > _DEEPEST:
        yield Finding("L12", name, f"its arguments are nested {deepest} deep")
    for audience, provider in _PROVIDERS.items():
        if losses := convert(schema, provider)[1]:
            more = f", and {len(losses) - 1} more" if len(losses) > 1 else ""
            yield Finding("L07", name, f"{losses[0]}{more}", (audience,))


def _part(name: str, path: str, part: JSONObject) -> Iterator[Finding]:
    """Judge one argument, or a member of one."""
    values: JSON = part.get("enum")
    if is_array(values) and len(values) > _MOST_VALUES:
        yield Finding("L23", name, f"argument {path}: {len(values)} values to choose from")
    if not part.get("description") and not part.get("title") and "." not in path:
        yield Finding("L21", name, f"argument {path}: no description")
    texts = {f"argument {path}": part.get("description"), f"default of {path}": part.get("default")}
    examples: JSON = part.get("examples")
    texts |= {f"example of {path}": each for each in examples} if is_array(examples) else {}
    yield from _texts(name, texts)


def _contains_itself(schema: JSONObject) -> bool:
    """Whether a reference leads to where it stands."""
    from linkspan.schema.summary import local_target

    waiting: list[tuple[JSON, tuple[str, ...]]] = [(schema, ("#",))]
    for _ in range(MOST_PARTS):
        if not waiting:
            break
        part, opened = waiting.pop()
        if is_array(part):
            waiting += [(each, opened) for each in part]
        if not is_object(part):
            continue
        reference: JSON = part.get("$ref")
        if isinstance(reference, str):
            if reference in opened:
                return True
            waiting.append((local_target(reference, schema), (*opened, reference)))
        waiting += [(each, opened) for key, each in part.items() if key not in ("$defs", "definitions")]
    return False


_RULES_OF_A_TOOL: Final[tuple[Callable[[str, Mapping[str, JSON]], Iterator[Finding]], ...]] = (
    _name,
    _description,
    _arguments,
)

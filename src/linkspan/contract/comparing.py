"""What a change of a server means for its clients: breaking, risky or additive, with a rule for each kind of change.

Arguments and results are judged the other way round: a client breaks where fewer arguments are accepted, and where more kinds of
results come back. What cannot be decided is risky, never additive.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.contract.narrowing import Difference, changed, differences, is_repeated, shown
from linkspan.contract.snapshot import Snapshot
from linkspan.contract.tokens import token_words
from linkspan.revisions import LEGACY
from linkspan.types.base import JSON, JSONObject
from linkspan.wire.redaction import revealed

Level: TypeAlias = Literal["breaking", "risky", "additive"]

RULES: Final[Mapping[str, tuple[Level, str]]] = {
    "C01": ("breaking", "an item is gone, or has another name"),
    "C02": ("breaking", "an argument is gone, and unknown ones are refused"),
    "C03": ("breaking", "an argument is required that could be left out"),
    "C04": ("breaking", "an argument accepts fewer values"),
    "C05": ("breaking", "unknown arguments are refused"),
    "C06": ("breaking", "a member of the result is gone, or may be missing"),
    "C07": ("breaking", "a result may have other values than before"),
    "C08": ("breaking", "the output schema is gone"),
    "C09": ("breaking", "the URI or the media type of a resource or a template changed"),
    "C10": ("breaking", "an argument of a prompt is required"),
    "C11": ("breaking", "a capability is gone"),
    "C12": ("breaking", "a revision of the protocol is no longer served"),
    "C13": ("breaking", "a tool no longer runs as a task, or runs as nothing else"),
    "C30": ("risky", "a hint promises less"),
    "C31": ("risky", "a text that models read changed"),
    "C32": ("risky", "a default changed"),
    "C33": ("risky", "a pattern or a format changed"),
    "C34": ("risky", "the change of a schema cannot be decided"),
    "C35": ("risky", "the list of tools takes a fifth more tokens"),
    "C36": ("risky", "the order of arguments changed"),
    "C37": ("risky", "the lists are those of different callers"),
    "C38": ("risky", "an argument is gone, and ignored where it is sent"),
    "C39": ("risky", "changes of a list are not announced any more"),
    "C40": ("risky", "a revision is no longer named, and may be served by a handshake all the same"),
    "C50": ("additive", "an item is new"),
    "C51": ("additive", "an optional argument is new"),
    "C52": ("additive", "an argument accepts more values"),
    "C53": ("additive", "a member of the result is new, or always there"),
    "C54": ("additive", "an output schema is new"),
    "C55": ("additive", "a result has fewer values than before"),
    "C56": ("additive", "a hint promises more"),
    "C57": ("additive", "a capability, a revision or a way to run is new"),
}
"""For each code the level of a change and what it is."""

LEVELS: Final[tuple[Level, ...]] = ("breaking", "risky", "additive")
_GROWTH: Final = 1.2
_INPUT: Final[Mapping[str, str]] = {
    "added": "C51", "removed": "C02", "ignored": "C38", "required": "C03", "optional": "C52", "closed": "C05", "opened": "C52",
    "pattern": "C33", "format": "C33", "default": "C32", "text": "C31", "order": "C36", "undecided": "C34",
}  # fmt: skip
_OUTPUT: Final[Mapping[str, str]] = {
    "added": "C53", "removed": "C06", "ignored": "C06", "required": "C53", "optional": "C06", "closed": "C55", "opened": "C07",
    "pattern": "C33", "format": "C33", "default": "C31", "text": "C31", "undecided": "C34",
}  # fmt: skip
_HINTS: Final[Mapping[str, bool]] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
"""What a tool without a hint says. The opposite is the promise."""
_TEXTS: Final = ("title", "description")


class ContractChange(msgspec.Struct, frozen=True):
    """One change that a client may notice."""

    code: str
    """Its rule, such as `C03`."""
    place: str
    """Of what: `tool book`, or `the server`."""
    words: str
    lines: tuple[str, ...] = ()
    """Of a text: what went (`- `) and what came (`+ `)."""

    @property
    def level(self) -> Level:
        """How bad it is."""
        return RULES[self.code][0]


def changes(old: Snapshot, new: Snapshot) -> list[ContractChange]:
    """Return what changed for clients, the worst first."""
    found = [*_server(old, new)]
    for kind in ("tool", "prompt", "template", "resource"):
        found += _items(kind, old, new)
    before, after = old.tokens, new.tokens
    if before and after > before * _GROWTH:
        found.append(
            ContractChange("C35", "the server", f"its tools take {token_words(after)} instead of {token_words(before)}")
        )
    return sorted(dict.fromkeys(found), key=lambda each: LEVELS.index(each.level))


def _server(old: Snapshot, new: Snapshot) -> Iterator[ContractChange]:
    place = "the server"
    unsure = not any(each in LEGACY for each in new.revisions)
    for before, after, what in (
        (old.capabilities, new.capabilities, "the capability"),
        (old.revisions, new.revisions, "the revision"),
    ):
        for each in before:
            if each not in after and each in LEGACY and unsure:
                yield ContractChange(
                    "C40", place, f"{what} {each} is no longer named; a handshake may still agree on it"
                )
            elif each not in after:
                code = "C12" if what == "the revision" else "C39" if each.endswith(".listChanged") else "C11"
                yield ContractChange(code, place, f"{what} {each} is gone")
        yield from (ContractChange("C57", place, f"{what} {each} is new") for each in after if each not in before)
    if old.instructions != new.instructions:
        yield ContractChange("C31", place, "its instructions changed", _lines(old.instructions, new.instructions))
    if old.caller != new.caller:
        yield ContractChange("C37", place, f"the caller {old.caller or '(no name)'} became {new.caller or '(no name)'}")


def _items(kind: str, old: Snapshot, new: Snapshot) -> Iterator[ContractChange]:
    before, after = old.of(kind), new.of(kind)
    added = [name for name in after if name not in before]
    for name, item in before.items():
        if name in after:
            yield from _OF_ITEM[kind](f"{kind} {name}", item, after[name])
            continue
        renamed = next((each for each in added if _is_renamed(item, after[each])), None)
        yield ContractChange("C01", f"{kind} {name}", "is gone" if renamed is None else f"is called {renamed} now")
    yield from (ContractChange("C50", f"{kind} {name}", "is new") for name in added)


def _is_renamed(old: Mapping[str, JSON], new: Mapping[str, JSON]) -> bool:
    names = ("name", "title", "uri", "uriTemplate")
    return {key: each for key, each in old.items() if key not in names} == {
        key: each for key, each in new.items() if key not in names
    }


# Tools.


def _tool(place: str, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> Iterator[ContractChange]:
    yield from _texts(place, old, new)
    yield from (
        _judged(place, each, _INPUT, "argument", narrower="C04", wider="C52")
        for each in differences(old.get("inputSchema", {}), new.get("inputSchema", {}))
    )
    yield from _output(place, old.get("outputSchema"), new.get("outputSchema"))
    yield from _hints(place, old.get("annotations") or {}, new.get("annotations") or {})
    before, after = _as_task(old), _as_task(new)
    if before != after and after == "forbidden":
        yield ContractChange("C13", place, "no longer runs as a task")
    elif before != after:
        yield ContractChange("C13" if after == "required" else "C57", place, f"as a task: {before} became {after}")


def _as_task(tool: Mapping[str, JSON]) -> JSON:
    execution: JSONObject = tool.get("execution") or {}
    return execution.get("taskSupport", "forbidden")


def _output(place: str, old: JSON, new: JSON) -> Iterator[ContractChange]:
    if old is None and new is None:
        return
    if old is None or new is None:
        yield ContractChange(
            "C54" if old is None else "C08", place, f"the output schema is {'new' if old is None else 'gone'}"
        )
        return
    found = differences(old, new)
    gone = {each.path for each in found if each.kind in ("removed", "ignored")}
    for each in found:
        is_unexpected = (each.kind, each.effect) in (("added", "wider"), ("required", "unknown"))
        if is_unexpected:  # members without a name were refused
            yield ContractChange("C07", place, f"result {shown(each.path)}: {each.words}")
        elif each.path in gone and each.kind != "optional":
            yield ContractChange("C06", place, f"result {shown(each.path)}: is gone")
        elif each.path not in gone and each.kind != "order":
            yield _judged(place, each, _OUTPUT, "result", narrower="C55", wider="C07")


def _judged(
    place: str, found: Difference, rules: Mapping[str, str], what: str, *, narrower: str, wider: str
) -> ContractChange:
    """Return the change that a difference of a schema is."""
    code = rules.get(found.kind) or {"narrower": narrower, "wider": wider}.get(found.effect, "C34")
    if found.kind == "pattern" and found.effect in ("narrower", "wider"):
        code = narrower if found.effect == "narrower" else wider
    where = (
        f"{what} {shown(found.path)}: " if found.path else "its arguments: " if what == "argument" else "its result: "
    )
    return ContractChange(code, place, where + found.words)


def _hints(place: str, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> Iterator[ContractChange]:
    for name, unsaid in _HINTS.items():
        before, after = (unsaid if each.get(name) is None else each[name] for each in (old, new))
        said = name in old or name in new
        if before == after or not said:
            if name == "destructiveHint" and new.get(name) is True and old.get(name) is None:
                yield ContractChange("C30", place, "destructiveHint true is new")
            continue
        code = "C56" if after is not unsaid else "C30"
        yield ContractChange(code, place, f"{name} {str(before).lower()} became {str(after).lower()}")


# Other items.


def _prompt(place: str, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> Iterator[ContractChange]:
    yield from _texts(place, old, new)
    before, after = ({each["name"]: each for each in item.get("arguments") or ()} for item in (old, new))
    for name in before:
        if name not in after:
            yield ContractChange("C02", place, f"argument {name}: is gone")
    for name, argument in after.items():
        required = argument.get("required") is True
        if name not in before:
            words = "is new and required" if required else "is new"
            yield ContractChange("C10" if required else "C51", place, f"argument {name}: {words}")
        elif required != (before[name].get("required") is True):
            words = "became required" if required else "may be left out"
            yield ContractChange("C10" if required else "C52", place, f"argument {name}: {words}")
        if name in before and before[name].get("description") != argument.get("description"):
            yield ContractChange("C31", place, f"argument {name}: its description changed")
    if [each for each in before if each in after] != [each for each in after if each in before]:
        yield ContractChange("C36", place, "the order of its arguments changed")


def _resource(place: str, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> Iterator[ContractChange]:
    yield from _texts(place, old, new)
    for key in ("uriTemplate", "mimeType"):
        if old.get(key) != new.get(key):
            yield ContractChange("C09", place, f"{key} {old.get(key)} became {new.get(key)}")


_OF_ITEM: Final = {"tool": _tool, "prompt": _prompt, "template": _resource, "resource": _resource}


def _texts(place: str, old: Mapping[str, JSON], new: Mapping[str, JSON]) -> Iterator[ContractChange]:
    for key in _TEXTS:
        before, after = (
            None if key == "title" and is_repeated(each.get(key), each.get("name")) else each.get(key)
            for each in (old, new)
        )
        if before != after:
            yield ContractChange("C31", place, changed(key, before, after), _lines(before, after))


def _lines(old: JSON, new: JSON) -> tuple[str, ...]:
    """Return the lines that two texts do not share."""
    before, after = (revealed(each).splitlines() if isinstance(each, str) else [] for each in (old, new))
    found = difflib.unified_diff(before, after, n=0, lineterm="")
    return tuple(f"{each[0]} {each[1:]}" for each in found if not each.startswith(("---", "+++", "@@")))


# Reports.


def summary(found: Sequence[ContractChange], old: Snapshot, new: Snapshot) -> str:
    """Return the last line of a report: how many changes there are, and what the list takes."""
    counts = ", ".join(f"{sum(each.level == level for each in found)} {level}" for level in LEVELS)
    before, after = old.tokens, new.tokens
    growth = f" ({(after - before) / before:+.0%})" if before and before != after else ""
    tokens = token_words(after) if before == after else f"~{before:,} -> {token_words(after)}{growth}"
    return f"{new.server}: {counts if found else 'nothing changed'}; list {tokens}"


def markdown(found: Sequence[ContractChange], old: Snapshot, new: Snapshot) -> str:
    """Return a report for a pull request."""
    lines = [f"### Contract of `{_cell(new.server)}`", "", _cell(summary(found, old, new)), ""]
    for level in LEVELS:
        of_level = [each for each in found if each.level == level]
        if not of_level:
            continue
        lines += [f"| {level} | change | rule |", "|---|---|---|"]
        lines += [f"| {_cell(each.place)} | {_cell(each.words)} | {each.code} |" for each in of_level]
        for each in of_level:
            lines += ["", f"{_cell(each.place)}, {_cell(each.words)}:", "", *_fenced(each.lines)] if each.lines else []
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    """Return a text of a server as one cell of a table, in which it is no markup."""
    one = " ".join(revealed(text).split())
    return "".join(f"\\{each}" if each in "\\`*_{}[]<>#|!@" else each for each in one)


def _fenced(lines: Sequence[str]) -> list[str]:
    """Return lines as a block of a diff, whatever they hold."""
    longest = max((len(run) for line in lines for run in line.split() if set(run) == {"`"}), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}diff", *lines, fence]

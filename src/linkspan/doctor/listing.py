"""What hosts make of the list of tools: the rules of `linkspan lint` as the faults that people met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from linkspan.contract.linting import AUDIENCES, Audience, Finding, lint
from linkspan.contract.snapshot import Snapshot
from linkspan.contract.tokens import token_words
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.verdicts import Verdict, fault, skipped, warning

_RULES: Final[Mapping[str, tuple[str, str]]] = {
    "L04": ("D40", "give the array items"),
    "L02": ("D41", "name arguments with letters, digits, _, . and -"),
    "L03": ("D42", "describe one object, and check the combinations in the tool"),
    "L01": ("D43", "name tools with letters, digits, _ and -, 64 at most"),
}
"""For a rule of lint the fault that it is, and the cure."""
_REFUSED_BY_GEMINI: Final = ("its $ref does not resolve", "the schema contains itself")
_SHOWN: Final = 3


def listed(snapshot: Snapshot, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    """Yield what hosts make of a list."""
    audiences = {each.audience: each.title for each in hosts.values() if each.audience}
    wanted: list[Audience] = [each for each in AUDIENCES if each in audiences or each == "directory"]
    found = lint(snapshot, wanted)
    for rule, (id, cure) in _RULES.items():
        yield from _of_rule(id, [each for each in found if each.code == rule], cure, audiences)
    gemini = [
        each for each in found if each.code == "L07" and each.words.partition(": ")[2].startswith(_REFUSED_BY_GEMINI)
    ]
    gemini = [each for each in gemini if "gemini" in each.audiences]
    yield from _of_rule(
        "D44", gemini, "write the schema without references to themselves, or to what is not there", audiences
    )
    for host in hosts.values():
        yield from _of_host(snapshot, host)
    demands = [each for each in found if each.code in ("L30", "L31")]
    yield (
        warning("D48", _words(demands), "give each tool title= and annotations={'readOnlyHint': ...}", ("directories",))
        if demands
        else Verdict("D48", "ok")
    )


def structured(snapshot: Snapshot, called: Mapping[str, bool]) -> Iterator[Verdict]:
    """Yield whether tools with an output schema return structured content; `called` are tools, and whether they did."""
    described = [each for each in called if "outputSchema" in snapshot.of("tool").get(each, {})]
    missing = [each for each in described if not called[each]]
    if missing:
        words = f"{missing[0]} has an output schema, and its result has no structuredContent"
        yield fault("D49", words, "return structuredContent, or leave the output schema out", ("Gemini CLI", "VS Code"))
    elif described:
        yield Verdict("D49", "ok")
    else:
        yield skipped("D49", "no tool with an output schema is called: name one with --call")


def _of_rule(id: str, found: Sequence[Finding], cure: str, audiences: Mapping[str, str]) -> Iterator[Verdict]:
    if not found:
        yield Verdict(id, "ok")
        return
    hurt = tuple(dict.fromkeys(audiences[one] for each in found for one in each.audiences if one in audiences))
    yield fault(id, _words(found), cure, hurt)


def _words(found: Sequence[Finding]) -> str:
    words = [f"{each.item}: {each.words}" for each in found[:_SHOWN]]
    return "; ".join([*words, *([f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else [])])


def _of_host(snapshot: Snapshot, host: DoctorProfile) -> Iterator[Verdict]:
    names, whom = list(snapshot.of("tool")), (host.title,)
    long = [each for each in names if len(snapshot.server) + 1 + len(each) > host.longest_name]
    yield (
        fault(
            "D45",
            f"{snapshot.server}_{long[0]} is longer than {host.longest_name}",
            "shorten the name of the server or the tool",
            whom,
        )
        if long
        else Verdict("D45", "ok")
    )
    if host.most_tools is not None:
        too_many = len(names) > host.most_tools
        words = f"{len(names)} tools, and it takes {host.most_tools}"
        yield (
            fault("D46", words, "offer fewer: switch some off, or split the server", whom)
            if too_many
            else Verdict("D46", "ok")
        )
    if snapshot.tokens > host.most_tokens:
        words = f"{token_words(snapshot.tokens)}; more than {host.most_tokens:,} is cut or refused"
        yield warning("D47", words, "shorten descriptions, or offer fewer tools: linkspan lint has the largest", whom)
    else:
        yield Verdict("D47", "ok")
    if host.audience == "openai":
        missing = [each for each in ("search", "fetch") if each not in names]
        words = f"no tool is called {' or '.join(missing)}"
        yield (
            warning("D50", words, "add both, if deep research is to use the server", whom)
            if missing
            else Verdict("D50", "ok")
        )

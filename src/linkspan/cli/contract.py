"""The verbs about a server's contract: lock writes what it offers to a file, diff shows what changed since, lint judges it,
and stubs writes typed code for its clients."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from linkspan.cli.options import CommandLine, Options, WrongUse, listed, near
from linkspan.cli.session import REFUSED, Outcome, Session
from linkspan.cli.terminal import Style
from linkspan.client.sync_client import SyncClient
from linkspan.contract.comparing import LEVELS, ContractChange, changes, markdown, summary
from linkspan.contract.linting import AUDIENCES, RULES, Finding, Level
from linkspan.contract.linting import lint as judged
from linkspan.contract.locating import SourceLocation, places
from linkspan.contract.snapshot import InvalidLock, Snapshot, read, written
from linkspan.contract.stubs import code
from linkspan.contract.taking import take
from linkspan.contract.tokens import token_words
from linkspan.text import counted, split_object
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.wire.redaction import neutral, one_line

LOCK: Final = "tools.lock"
"""The file that `lock` writes by default."""

_MARK: Final = b'{"lock":'
_GIT: Final = "git:"
_PLURALS: Final[Mapping[Level, str]] = {"error": "errors", "warning": "warnings", "advice": "advice"}
_COLOURS: Final = {"breaking": "red", "risky": "yellow", "additive": "dim"}

_LOCK_EXAMPLES = """examples:
  linkspan lock server.py                  # writes tools.lock: commit it
  linkspan lock server.py -o - | less
  linkspan lock --resources https://example.com/mcp -o example.lock"""

_DIFF_EXAMPLES = """OLD and NEW are locks, targets, or git:REVISION:FILE, such as git:main:tools.lock

examples:
  linkspan diff tools.lock server.py       # exit status 1 if something breaks clients
  linkspan diff git:HEAD~1:tools.lock tools.lock --markdown
  linkspan diff --fail-on risky --max-tokens 2000 tools.lock -- python server.py"""

_LINT_EXAMPLES = """examples:
  linkspan lint server.py                  # exit status 1 if a provider refuses it
  linkspan lint --for claude,directory --strict https://example.com/mcp

  # linkspan: ignore[L07, L21]             at the def of a tool, leaves rules out for it
  [tool.linkspan.lint] of pyproject.toml takes for = [...] and ignore = [...]"""

_STUBS_EXAMPLES = """examples:
  linkspan stubs server.py -o ferries_api.py
  linkspan stubs --async --class Ferries https://example.com/mcp -o ferries_api.py"""


def lock(arguments: Sequence[str]) -> int:
    """`linkspan lock TARGET`: write what a server offers to a file."""
    line = CommandLine(
        "lock", arguments, "Write what a server offers to a file, which `diff` compares.", _LOCK_EXAMPLES
    )
    line.add("-o", "--out", metavar="FILE", default=LOCK, help=f"the file; - is stdout (default: {LOCK})")
    _add_of_snapshots(line)
    session = Session(line.parse())

    def conversation(session: Session) -> Outcome:
        found = _take(session, session.connect())
        text, out = written(found), session.options.out
        if out == "-":
            return Outcome(_document(found), lambda _, __: text.rstrip("\n"))
        _write(out, text)
        return Outcome(_document(found), lambda _, __: f"{out}: {_counts(found)}")

    return session.run(conversation)


def diff(arguments: Sequence[str]) -> int:
    """`linkspan diff OLD NEW`: show what changed for clients."""
    about = "Show what changed for the clients of a server: breaking, risky, additive."
    line = CommandLine("diff", arguments, about, _DIFF_EXAMPLES)
    compared = "what TARGET is compared with: TARGET is the old one, OTHER the new one"
    line.add("other", metavar="OTHER", nargs="?", help=compared)
    failing = "the least that makes the exit status 1 (default: breaking)"
    line.add("--fail-on", choices=LEVELS, default="breaking", help=failing)
    line.add("--markdown", action="store_true", help="a report for a pull request")
    line.add("--max-tokens", type=int, metavar="N", help="fail if the new list of tools takes more tokens, about")
    _add_of_snapshots(line)
    options = line.parse()
    session = Session(options)
    sides = (options.target, options.other) if isinstance(options.target, str) else (options.other, options.target)
    if None in sides:
        return session.wrong("give two: what was, and what is, such as `linkspan diff tools.lock server.py`")
    try:
        before, after = map(_side, sides)
    except WrongUse as problem:
        return session.wrong(str(problem))

    def compare(old: Snapshot, new: Snapshot) -> Outcome:
        found = changes(old, new)
        fails = [each for each in found if LEVELS.index(each.level) <= LEVELS.index(options.fail_on)]
        too_many = options.max_tokens is not None and new.tokens > options.max_tokens
        show = partial(_show, found=found, before=old, after=new, options=options)
        return Outcome(_report(found, old, new), show, REFUSED if fails or too_many else 0)

    if isinstance(before, Snapshot) and isinstance(after, Snapshot):
        return session.show(compare(before, after))
    target = before if isinstance(after, Snapshot) else after
    assert not isinstance(target, Snapshot)
    options.target = target

    def conversation(session: Session) -> Outcome:
        found = _take(session, session.connect())
        if isinstance(after, Snapshot):
            return compare(found, after)
        if isinstance(before, Snapshot):
            return compare(before, found)
        with session.client_of(before) as client:
            return compare(_take(session, client), found)

    return session.run(conversation)


def lint(arguments: Sequence[str]) -> int:
    """`linkspan lint TARGET`: show what providers, hosts and models make of a server."""
    about = "Show what providers of models refuse of a server, what models stumble over, and secrets."
    line = CommandLine("lint", arguments, about, _LINT_EXAMPLES)
    line.add("--for", dest="audiences", metavar="NAMES", help=f"{', '.join(AUDIENCES)} (default: all but directory)")
    line.add("--ignore", metavar="RULES", help="rules to leave out, such as L07,L21")
    line.add("--strict", action="store_true", help="warnings make the exit status 1, too")
    options = line.parse()
    session = Session(options)
    try:
        settings = _settings(Path("pyproject.toml"))
        audiences = _chosen(options.audiences, settings.get("for"), AUDIENCES, "--for") or list(AUDIENCES[:-1])
        ignored = set(_chosen(options.ignore, settings.get("ignore"), RULES, "--ignore"))
    except WrongUse as problem:
        return session.wrong(str(problem))

    def conversation(session: Session) -> Outcome:
        snapshot = _take(session, session.connect())
        file, known = _source(options.target)
        found = [
            each
            for each in judged(snapshot, [one for one in AUDIENCES if one in audiences])
            if each.code not in ignored and not (each.item in known and each.code in known[each.item].ignored)
        ]
        failing = ("error", "warning") if options.strict else ("error",)
        document: JSON = [{"level": each.level, **msgspec.to_builtins(each)} for each in found]
        show = partial(_show_findings, found=found, file=file, known=known, server=snapshot.server)
        return Outcome({"findings": document}, show, REFUSED if any(each.level in failing for each in found) else 0)

    options.resources, options.caller = False, None
    return session.run(conversation)


def _settings(file: Path) -> JSONObject:
    """Return the table `tool.linkspan.lint` of a project in this folder. Raises: WrongUse."""
    import tomllib

    try:
        found: JSONObject = tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as problem:
        raise WrongUse(f"{file} cannot be read: {problem}") from None
    settings: JSONObject = found.get("tool", {}).get("linkspan", {}).get("lint", {})
    return settings


def _chosen(given: str | None, kept: JSON, known: Collection[str], option: str) -> list[str]:
    """Return names of an option, else those of the project. Raises: WrongUse for an unknown one."""
    names: list[JSON] = (
        [each.strip() for each in given.split(",")] if given is not None else kept if is_array(kept) else []
    )
    for each in names:
        if each not in known:
            raise WrongUse(f"{option}: there is no {each!r}{near(str(each), known)}; choose from {listed(list(known))}")
    return names


def _source(target: str | tuple[str, ...]) -> tuple[str, Mapping[str, SourceLocation]]:
    """Return the Python file of a target, and where its tools are; empty for another target."""
    path = split_object(target)[0] if isinstance(target, str) else ""
    try:
        return (path, places(Path(path).read_text("utf-8"))) if path.endswith(".py") else ("", {})
    except (OSError, UnicodeDecodeError):
        return "", {}


def _show_findings(
    _: JSON, style: Style, *, found: Sequence[Finding], file: str, known: Mapping[str, SourceLocation], server: str
) -> str:
    paint = {"error": style.red, "warning": style.yellow, "advice": style.dim}
    lines: list[str] = []
    for each in found:
        where = f"{file}:{known[each.item].line} " if each.item in known else ""
        whom = f" [{', '.join(each.audiences)}]" if each.audiences else ""
        item = one_line(each.item, 80) if each.item else "the server"
        lines.append(f"{where}{item}: {paint[each.level](each.level)} {each.code}{whom}: {one_line(each.words, 300)}")
    counts = Counter(each.level for each in found)
    total = ", ".join(f"{n} {level if n == 1 else _PLURALS[level]}" for level in _PLURALS if (n := counts[level]))
    return "\n".join([*lines, f"{one_line(server, 80)}: {total or 'nothing found'}"])


def stubs(arguments: Sequence[str]) -> int:
    """`linkspan stubs TARGET`: write typed code that calls the tools of a server."""
    line = CommandLine("stubs", arguments, "Write typed Python code that calls the tools of a server.", _STUBS_EXAMPLES)
    line.add("-o", "--out", metavar="FILE", default="-", help="the file (default: stdout)")
    line.add("--class", dest="name", metavar="NAME", help="the name of the class (default: that of the server)")
    line.add("--async", dest="is_async", action="store_true", help="for `Client` instead of `SyncClient`")
    session = Session(line.parse())
    session.options.resources, session.options.caller = False, None

    def conversation(session: Session) -> Outcome:
        options = session.options
        found = _take(session, session.connect())
        try:
            text = code(found, options.name, is_async=options.is_async)
        except ValueError as problem:
            raise WrongUse(str(problem)) from None
        if options.out == "-":
            return Outcome({"code": text}, lambda _, __: text.rstrip("\n"))
        _write(options.out, text)
        return Outcome({"code": text}, lambda _, __: f"{options.out}: {_counts(found)}")

    return session.run(conversation)


def _write(out: str, text: str) -> None:
    """Write a file. Raises: WrongUse."""
    try:
        Path(out).write_text(text, "utf-8", newline="\n")
    except OSError as problem:
        raise WrongUse(f"{out} cannot be written: {problem.strerror or problem}") from None


def _add_of_snapshots(line: CommandLine) -> None:
    line.add("--resources", action="store_true", help="also resources with a URI of their own, which often come and go")
    line.add("--caller", metavar="NAME", help="a name for who asks, where the lists depend on that; kept in the lock")


def _take(session: Session, client: SyncClient) -> Snapshot:
    return take(client, resources=session.options.resources, caller=session.options.caller)


def _counts(found: Snapshot) -> str:
    """Return what a snapshot has: `2 tools, 1 prompt, ~231 tokens`."""
    counts = [counted(len(items), kind) for kind, items in found.items.items() if items]
    return ", ".join([*(counts or ["nothing"]), token_words(found.tokens)])


def _document(found: Snapshot) -> JSON:
    return {**msgspec.to_builtins(found), "tokens": found.tokens}


# The two sides of a comparison.


def _side(side: str | tuple[str, ...]) -> Snapshot | str | tuple[str, ...]:
    """Return what a lock says, or the target of a client. Raises: WrongUse."""
    text = _lock_text(side) if isinstance(side, str) else None
    if text is None:
        return side
    try:
        return read(text, str(side))
    except InvalidLock as problem:
        raise WrongUse(str(problem)) from None


def _lock_text(side: str) -> str | None:
    """Return the text of a lock; None for the target of a client. Raises: WrongUse."""
    if side.startswith(_GIT):
        revision, _, name = side.removeprefix(_GIT).partition(":")
        if not revision or not name or revision.startswith("-"):
            raise WrongUse(f"{side}: write git:REVISION:FILE, such as git:main:tools.lock")
        return _git_text(revision, name)
    path = Path(side)
    try:
        if not path.is_file():
            if path.suffix == ".lock":
                raise WrongUse(f"there is no file {side}: write it with `linkspan lock`")
            return None
        with path.open("rb") as file:
            is_lock = path.suffix == ".lock" or file.read(len(_MARK)) == _MARK
        return path.read_text("utf-8") if is_lock else None
    except UnicodeDecodeError:
        raise WrongUse(f"{side} is not UTF-8 text") from None
    except OSError as problem:
        raise WrongUse(f"{side} cannot be read: {problem.strerror or problem}") from None


def _git_text(revision: str, path: str) -> str:
    name = path if path.startswith(("./", "../")) else f"./{path}"
    try:
        found = subprocess.run(["git", "show", f"{revision}:{name}"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise WrongUse(f"git:{revision}:{path}: git could not be run ({problem})") from None
    if found.returncode:
        reason = found.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        raise WrongUse(f"git:{revision}:{path}: {reason or 'git has no such file'}")
    return found.stdout.decode("utf-8", "replace")


# Reports.


def _report(found: Sequence[ContractChange], before: Snapshot, after: Snapshot) -> JSONObject:
    return {
        "server": after.server,
        "changes": [{"level": each.level, **msgspec.to_builtins(each)} for each in found],
        "tokens": {"before": before.tokens, "after": after.tokens},
    }


def _show(
    _: JSON, style: Style, *, found: Sequence[ContractChange], before: Snapshot, after: Snapshot, options: Options
) -> str:
    """Return the changes as a person reads them."""
    if options.markdown:
        return markdown(found, before, after).rstrip("\n")
    lines: list[str] = []
    for each in found:
        paint: Callable[[str], str] = getattr(style, _COLOURS[each.level])
        lines.append(f"{paint(f'{each.level.upper():8}')}  {neutral(f'{each.place}: {each.words}')}  [{each.code}]")
        lines += [style.dim(f"             {neutral(line)}") for line in each.lines]
    lines.append(neutral(summary(found, before, after)))
    if options.max_tokens is not None and after.tokens > options.max_tokens:
        lines.append(style.red(f"its tools take {token_words(after.tokens)}, more than {options.max_tokens:,}"))
    return "\n".join(lines)

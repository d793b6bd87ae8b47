"""`linkspan chat [SERVER ...]`: talk to a language model that may use the tools of servers."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from linkspan.cli.main import parser_for
from linkspan.cli.options import REPEATABLE, ChatOptions, WrongUse, add_output, seconds, split
from linkspan.cli.session import WRONG_USE
from linkspan.wire.redaction import neutral

if TYPE_CHECKING:
    from linkspan.cli.chat_store import SavedChat
    from linkspan.cli.terminal import Terminal
    from linkspan.client.targets import ServerTarget
    from linkspan.host.messages import Model

_MODEL: Final = "LINKSPAN_MODEL"
_EXAMPLES: Final = """examples:
  linkspan chat examples/dice.py --model anthropic:NAME
  linkspan chat --config mcp.json "npx -y some-server" --model http://localhost:11434/v1#NAME
  linkspan chat examples/dice.py --model openai:NAME --yes -p "Roll two dice"

exit status:
  0    the chat was ended; with -p, the model answered
  1    with -p: the model gave no answer, or the turn was ended at a bound
  2    the command line is wrong, or the model cannot be used
  130  Ctrl-C, except where it stops a turn"""
_WHICH_MODEL: Final = f"""the model is missing; name one with --model, or in the variable {_MODEL}:
  anthropic:NAME                     with the key in ANTHROPIC_API_KEY
  openai:NAME                        with the key in OPENAI_API_KEY
  gemini:NAME                        with the key in GEMINI_API_KEY
  http://localhost:11434/v1#NAME     any OpenAI-compatible server: Ollama, llama.cpp, vLLM
  scripted:FILE                      prepared replies from a file"""


def main(arguments: Sequence[str]) -> int:
    """Chat."""
    given, command = split(list(arguments))
    parser = _parser()
    options = parser.parse_intermixed_args(given, ChatOptions())
    if command == ():
        parser.error("a command must follow --")
    import msgspec

    from linkspan.cli.chat_session import SESSIONS, ChatSession, chat_home
    from linkspan.cli.chat_store import kept_chats, read_chat, show_chats
    from linkspan.cli.terminal import Terminal, dump

    terminal = Terminal(quiet=options.quiet, verbose=True, color=not options.no_color, editing=True)
    folder = chat_home() / SESSIONS
    if options.sessions:
        found = kept_chats(folder)
        terminal.emit(dump({"sessions": msgspec.to_builtins(found)}) if options.json else neutral(show_chats(found)))
        return 0
    try:
        _read_texts(options)
        wanted = options.resume is not None or options.continue_
        resumed = read_chat(folder, options.resume) if wanted else None
        servers, left_out = _servers(options.config, [*options.server, *([command] if command else [])], terminal)
        session = ChatSession(options, servers, left_out, _model(options.model, resumed), terminal, resumed)
    except WrongUse as problem:
        if options.json:
            terminal.emit(dump({"error": {"type": "WrongUse", "problem": str(problem)}}))
        else:
            terminal.write_line(neutral(f"linkspan chat: {problem}"))
        return WRONG_USE
    return session.run()


def _parser() -> argparse.ArgumentParser:
    about = "Talk to a language model that may use the tools of servers, if you let it."
    parser = parser_for("linkspan chat", about, _EXAMPLES, allow_abbrev=False)
    add: Any = parser.add_argument
    server = "a .py file, a command in quotes, mcp.json:NAME or a URL; or `-- COMMAND ARGS...` at the end"
    add("server", metavar="SERVER", nargs="*", help=server)
    add("--config", metavar="FILE", help="all servers of an mcp.json (repeatable)", **REPEATABLE)
    add("--model", metavar="NAME", help=f"anthropic:NAME, openai:NAME, http://HOST/v1#NAME, ...; otherwise {_MODEL}")
    add("-p", "--prompt", metavar="TEXT", help="ask this, print the answer and exit; - reads it from stdin")
    add("--system", metavar="TEXT", help="system prompt; @FILE reads it from a file")
    add("--load", metavar="FILE", help="continue a conversation that /save wrote")
    kept: Any = parser.add_argument_group("conversations that are kept").add_argument
    kept("--sessions", action="store_true", help="list them")
    kept("--continue", dest="continue_", action="store_true", help="go on with the newest one")
    kept("--resume", metavar="NAME", help="go on with this one")
    kept("--private", action="store_true", help="keep neither this conversation nor the lines that are typed")
    add("--save", metavar="DIR", help="write pictures to files in this directory")
    consent: Any = parser.add_argument_group("what may run without a question").add_argument
    consent("--allow", metavar="PATTERN", help="SERVER, or SERVER/TOOL with * in it", **REPEATABLE)
    consent("--deny", metavar="PATTERN", help="never let these run", **REPEATABLE)
    consent("--trust", metavar="SERVER", help="trust its hints: let its read-only tools run", **REPEATABLE)
    consent("--yes", action="store_true", help="everything, including texts that servers request from the model")
    bounds: Any = parser.add_argument_group("bounds").add_argument
    bounds("--max-rounds", type=_count, metavar="N", help="messages of the model in one turn (25)")
    by_seconds = "deadline for servers: for the start, and for each response"
    bounds("--timeout", type=seconds, metavar="SECONDS", help=by_seconds)
    servers: Any = parser.add_argument_group("the servers").add_argument
    servers("--root", metavar="DIR", help="offer this directory to them (repeatable)", **REPEATABLE)
    add_output(parser)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10_000:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return int(text)


def _read_texts(options: ChatOptions) -> None:
    """Read the question from stdin, and the system prompt from a file, where the options name them. Raises: WrongUse."""
    if options.json and options.prompt is None:
        raise WrongUse("--json goes with -p: a dialogue has no single JSON document")
    piped = options.prompt == "-"
    if piped:
        options.prompt = sys.stdin.read() if sys.stdin is not None else ""
    if options.prompt is not None and not options.prompt.strip():
        empty = "-p - reads the question from stdin, which is empty"
        raise WrongUse(empty if piped else "-p must be followed by a question")
    if options.system is not None and options.system.startswith("@"):
        try:
            options.system = Path(options.system[1:]).read_text("utf-8")
        except OSError as error:
            raise WrongUse(f"--system {options.system}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise WrongUse(f"--system {options.system}: the file is not UTF-8") from None


def _servers(
    configs: Sequence[str], targets: Sequence[str | tuple[str, ...]], terminal: Terminal
) -> tuple[Mapping[str, ServerTarget], Sequence[str]]:
    """Return the servers by name, and the entries of configurations that are left out, with the reason.

    Raises: WrongUse for an invalid target or configuration.
    """
    from linkspan.cli.chat_ui import inputs_from
    from linkspan.client.targets import UnusableTarget, read_config, resolve

    servers: dict[str, ServerTarget] = {}
    left_out: list[str] = []
    try:
        for config in configs:
            found = read_config(config, inputs=inputs_from(terminal))
            for name, entry in found.items():
                servers[_free(name, servers)] = entry
            left_out += [f"{name}: {why} in {config}" for name, why in found.left_out.items()]
        for target in targets:
            servers[_free(resolve(target).origin.server, servers)] = target
    except UnusableTarget as problem:
        raise WrongUse(str(problem)) from None
    return servers, left_out


def _free(name: str, taken: Mapping[str, object]) -> str:
    """Return the name, with a number if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _model(given: str | None, resumed: SavedChat | None) -> Model:
    """Open the model, which is that of a resumed chat by default. Raises: WrongUse, which names a missing setting."""
    name = given or os.environ.get(_MODEL, "").strip() or (resumed.model if resumed is not None else "")
    if not name:
        raise WrongUse(_WHICH_MODEL)
    from linkspan.host.models import UnusableModel, open_model

    try:
        return open_model(name)
    except UnusableModel as problem:
        raise WrongUse(str(problem)) from None

"""What a person is asked in a chat: may this tool be called, may the model answer a server?

Law: the person sees exactly what will be sent, and whose it is, before anything is: what an eye would not see is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from linkspan.cli.questions import Terminal
from linkspan.cli.terminal import dump
from linkspan.host.consent import Approval, Verdict, hints_of
from linkspan.types.base import is_array
from linkspan.types.content import ImageContent, TextContent
from linkspan.types.messages import CreateMessageParams
from linkspan.wire.plain import revealed, revealed_line

__all__ = ["ask_approval", "ask_review", "ask_sampling"]

T = TypeVar("T")

_LINES: Final = 40
_CHARACTERS: Final = 4_000
_VERDICTS: Final[Mapping[str, Verdict]] = {
    "y": "once",
    "yes": "once",
    "once": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
    "n": "no",
    "no": "no",
}
_YES_OR_NO: Final[Mapping[str, bool]] = {"y": True, "yes": True, "n": False, "no": False}


def ask_approval(terminal: Terminal, approval: Approval, is_over: Callable[[], bool] = lambda: False) -> Verdict:
    """Ask whether a tool may be called. Raises: KeyboardInterrupt for Ctrl-C."""
    style = terminal.err
    tool = approval.tool
    terminal.say(
        f"\n{style.bold('The model wants to call')} {style.cyan(revealed_line(tool.name, 100))} "
        f"{style.bold(f'of the server {revealed_line(approval.server, 60)}.')}"
    )
    if approval.change:
        _show_change(terminal, approval.change)
    elif tool.description:
        terminal.say(f"  {revealed_line(tool.description, 300)}")
    if hints := hints_of(tool):
        terminal.say(style.dim(f"  its server says: {', '.join(hints)}"))
    text = dump(approval.arguments, reveal=True)
    terminal.say("  it will be sent:")
    shown_all = _show(terminal, text)
    choices = "[y]es, for this [s]ession, [a]lways, [n]o" + ("" if shown_all else ", [m]ore")
    return _hear(terminal, f"{style.bold('Call it?')} {choices}: ", _VERDICTS, _VERDICTS["no"], text, is_over)


def ask_sampling(
    terminal: Terminal,
    server: str,
    params: CreateMessageParams,
    model: str,
    is_over: Callable[[], bool] = lambda: False,
) -> Verdict:
    """Ask whether the model may write something for a server; `once` wants to see it before it is sent."""
    style = terminal.err
    terminal.say(
        f"\n{style.bold(f'The server {revealed_line(server, 60)} wants a text from the model')} "
        f"{style.dim(f'({revealed_line(model, 80)}, at most {params.max_tokens} tokens)')}"
    )
    text = _sampling_text(params)
    shown_all = _show(terminal, text)
    choices = "[y]es and show me the text, for this [s]ession, [n]o" + ("" if shown_all else ", [m]ore")
    verdicts: dict[str, Verdict] = {word: verdict for word, verdict in _VERDICTS.items() if verdict != "always"}
    return _hear(
        terminal, f"{style.bold('Let the model write it?')} {choices}: ", verdicts, _VERDICTS["no"], text, is_over
    )


def ask_review(terminal: Terminal, server: str, text: str, is_over: Callable[[], bool] = lambda: False) -> bool:
    """Ask whether a text that the model wrote may be sent to a server."""
    style = terminal.err
    terminal.say(f"\n{style.bold('The model wrote:')}")
    shown_all = _show(terminal, text)
    prompt = f"{style.bold(f'Send it to {revealed_line(server, 60)}?')} [y]es, [n]o" + ("" if shown_all else ", [m]ore")
    return _hear(terminal, f"{prompt}: ", _YES_OR_NO, False, text, is_over)


def _hear(
    terminal: Terminal, prompt: str, words: Mapping[str, T], otherwise: T, text: str, is_over: Callable[[], bool]
) -> T:
    """Ask until there is an answer; Enter is none. The end of the input is `otherwise`."""
    while True:
        try:
            said = terminal.read(prompt).strip().casefold()
        except EOFError:
            return otherwise
        if is_over():
            terminal.say(terminal.err.yellow("  Nobody waits for this any more."))
            return otherwise
        if said in words:
            return words[said]
        if said in ("m", "more"):
            terminal.say(_indented(revealed(text)))


def _show_change(terminal: Terminal, change: str) -> None:
    style = terminal.err
    terminal.say(style.yellow('  Its definition has changed since you used it; "no" keeps the old one:'))
    paint = {"-": style.red, "+": style.cyan}
    for line in revealed(change).splitlines():
        terminal.say(f"    {paint.get(line[:1], style.dim)(line)}")


def _show(terminal: Terminal, text: str) -> bool:
    """Show a text, or its head; tell whether that was all of it."""
    text = revealed(text)
    head = "\n".join(text[:_CHARACTERS].rstrip("\n").split("\n")[:_LINES])
    terminal.say(_indented(head))
    if len(head) >= len(text.rstrip("\n")):
        return True
    terminal.say(terminal.err.yellow(f"    ... this is not all of it: {len(text)} characters"))
    return False


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.removesuffix("\n").split("\n"))


def _sampling_text(params: CreateMessageParams) -> str:
    parts = [f"system: {params.system_prompt}"] if params.system_prompt else []
    for message in params.messages:
        blocks = message.content if is_array(message.content) else [message.content]
        parts += [f"{message.role}: {_block_text(each)}" for each in blocks]
    return "\n".join(parts)


def _block_text(block: object) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[a picture, {block.mime_type}]"
        case _:
            return "[content that is not text]"

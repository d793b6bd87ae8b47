"""Pictures in a terminal that can draw them, by the protocol of kitty or of iTerm2; otherwise files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from linkspan.cli.options import WrongUse
from linkspan.cli.show import saver
from linkspan.host.messages import Picture
from linkspan.wire.redaction import one_line

Protocol: TypeAlias = Literal["kitty", "iterm2"]

_CHUNK: Final = 4096
"""Characters of base64 in one command of kitty."""
_ROWS: Final = 16
_KITTY: Final = {"kitty", "ghostty"}
_ITERM2: Final = {"iTerm.app", "WezTerm"}


def protocol_of(environ: Mapping[str, str]) -> Protocol | None:
    """Return how the terminal draws pictures, None if it does not, as inside of tmux and screen."""
    term = environ.get("TERM", "")
    program = environ.get("TERM_PROGRAM", "")
    if environ.get("TMUX") or environ.get("STY") or term.startswith(("tmux", "screen", "dumb")):
        return None
    if environ.get("KITTY_WINDOW_ID") or program in _KITTY or term in ("xterm-kitty", "xterm-ghostty"):
        return "kitty"
    return "iterm2" if program in _ITERM2 else None


def drawing(image: Picture, protocol: Protocol | None) -> str | None:
    """Return what makes a terminal draw a picture, None if it cannot. The data must be valid base64."""
    if protocol == "iterm2":
        size = len(image.data.rstrip("=")) * 3 // 4
        return f"\x1b]1337;File=inline=1;size={size};height={_ROWS};preserveAspectRatio=1:{image.data}\x07"
    if protocol != "kitty" or image.mime_type != "image/png":
        return None
    pieces = [image.data[at : at + _CHUNK] for at in range(0, len(image.data), _CHUNK)]
    heads = [f"a=T,f=100,q=2,r={_ROWS},m=1", *["m=1"] * (len(pieces) - 1)]
    heads[-1] = heads[-1].removesuffix("1") + "0"
    return "".join(f"\x1b_G{head};{piece}\x1b\\" for head, piece in zip(heads, pieces, strict=True))


def save_picture(image: Picture, folder: Callable[[], str | None]) -> str:
    """Return the line for a picture that is not drawn, and write it to a file if there is a folder."""
    save = saver(folder(), "picture")
    size = len(image.data.rstrip("=")) * 3 // 4
    what = f"{one_line(image.mime_type, 60)}, {size:,} bytes"
    try:
        kept = save({"data": image.data, "mimeType": image.mime_type}) if save is not None else "not saved"
    except WrongUse as problem:
        kept = one_line(str(problem))
    return f"[picture: {what}, {kept}]"

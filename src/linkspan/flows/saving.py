"""Pictures, sounds and files of a result, as files. What a server sends decides the content of a file, never its name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from linkspan.types.base import AudioContent, BlobResourceContents, EmbeddedResource, ImageContent, TextResourceContents

_SUFFIXES: Final = {"audio/wav": ".wav", "audio/mpeg": ".mp3", "image/jpeg": ".jpg", "image/svg+xml": ".svg"} | {
    "image/webp": ".webp",
    "text/markdown": ".md",
    "text/plain": ".txt",
}
"""Types that mimetypes does not know in every version, or has several suffixes for."""
_MOST: Final = 10_000
"""Files of one name in a folder."""


def suffix_of(mime_type: str | None) -> str:
    """Return the end of the name of a file of this media type, with its dot; `.bin` for an unknown type."""
    from mimetypes import MimeTypes  # without the tables of the system, which differ

    kind = (mime_type or "").partition(";")[0].strip().lower()
    return _SUFFIXES.get(kind) or MimeTypes().guess_extension(kind) or ".bin"


def save_blocks(blocks: Iterable[object], folder: str | os.PathLike[str]) -> list[Path]:
    """Write what blocks hold beside texts and links into new files of `folder`, which is made; return their paths.

    The files are called `result-1.png`, by the media types and the next free numbers. Raises: OSError; ValueError for data that
    is not valid base64.
    """
    found = list(_contents(blocks))
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    return [_write(home, data, suffix_of(mime_type)) for data, mime_type in found]


def _contents(blocks: Iterable[object]) -> Iterator[tuple[bytes, str | None]]:
    for block in blocks:
        inner = block.resource if isinstance(block, EmbeddedResource) else block
        if isinstance(inner, ImageContent | AudioContent | BlobResourceContents):
            yield inner.bytes, inner.mime_type
        elif isinstance(inner, TextResourceContents):
            yield inner.text.encode(errors="replace"), inner.mime_type or "text/plain"


def _write(folder: Path, data: bytes, suffix: str) -> Path:
    for number in range(1, _MOST):
        path = folder / f"result-{number}{suffix}"
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{folder} has too many results: choose another folder")

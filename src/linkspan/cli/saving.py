"""Writes what is no text into files. Law: a server chooses neither the directory nor a name that could leave it."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from pathlib import Path

from linkspan.cli.target import WrongUse
from linkspan.types.base import JSON, JSONObject

__all__ = ["Directory", "decoded", "saver", "write_file"]


def saver(directory: str | None, stem: str) -> Callable[[JSONObject], str] | None:
    """Return what stores a block's bytes, for `--save`; files without a name of their own are called `stem`."""
    return Directory(directory, stem).save if directory is not None else None


class Directory:
    """Where `--save DIR` puts files; it is made when there is something to put there. Nothing is overwritten."""

    def __init__(self, path: str, stem: str) -> None:
        self._path = Path(path)
        self._stem = _safe(stem)

    def save(self, block: JSONObject) -> str:
        """Write one block's bytes; return the file's name. Raises: WrongUse."""
        data = decoded(block.get("data", block.get("blob")))
        if data is None:
            return "nothing: it is not base64"
        stem, suffix = self._name(block)
        for number in range(1, 10_000):
            path = self._path / f"{stem}-{number}{suffix}"
            if not path.exists():
                write_file(path, data)
                return str(path)
        raise WrongUse(f"{self._path} is full of files like this one")

    def _name(self, block: JSONObject) -> tuple[str, str]:
        uri: JSON = block.get("uri")
        last = Path(_safe(uri.rstrip("/").rpartition("/")[2])) if isinstance(uri, str) else Path(self._stem)
        mime: JSON = block.get("mimeType")
        return last.stem or self._stem, last.suffix or _suffix(mime if isinstance(mime, str) else "")


def decoded(text: JSON) -> bytes | None:
    """Return the bytes that a base64 text stands for, or None if it is none."""
    try:
        return binascii.a2b_base64("".join(text.split()), strict_mode=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def write_file(path: Path, data: bytes) -> None:
    """Write a file and the directories it needs. Raises: WrongUse."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as problem:
        raise WrongUse(f"{path} cannot be written: {problem.strerror or problem}") from None


def _safe(name: str) -> str:
    """Return a name made of letters, digits, dots, dashes and underscores, that hides nothing and leads nowhere."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:80].strip(".-") or "file"


def _suffix(mime: str) -> str:
    import mimetypes

    common = {"audio/wav": ".wav", "audio/mpeg": ".mp3", "image/jpeg": ".jpg", "image/svg+xml": ".svg"}
    return common.get(mime) or mimetypes.guess_extension(mime.partition(";")[0].strip()) or ".bin"

"""What functions return for pictures, sounds and files: `Image`, `Audio` and `File`, from bytes or from a path.

A file is read where the value is made, so in the thread of the function that makes it, and an error is raised there.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

from linkspan.runtime.files import type_of_name
from linkspan.server.content_blocks import BYTES, Media, media_type
from linkspan.types.base import AudioContent, EmbeddedResource, ImageContent
from linkspan.wire.values import encode_base64

if TYPE_CHECKING:
    from linkspan.types.base import Annotations

_SUBTYPES: Final = {
    "jpg": "jpeg",
    "svg": "svg+xml",
    "tif": "tiff",
    "mp3": "mpeg",
    "m4a": "mp4",
    "oga": "ogg",
    "weba": "webm",
}


def _content(kind: str, data: bytes | bytearray | memoryview | None, path: str | os.PathLike[str] | None) -> bytes:
    """Return the bytes that a value is made of. Raises: TypeError unless one of both is given; OSError."""
    if (data is None) == (path is None):
        raise TypeError(f"{kind} takes data or path=...")
    if path is not None:
        with open(path, "rb") as file:
            return file.read()
    if not isinstance(data, BYTES):
        raise TypeError(f"{kind} takes bytes, not {type(data).__name__}; for a file, write {kind}(path=...)")
    return bytes(cast("bytes", data))


class _Shown(Media):
    """A picture or a sound."""

    __slots__ = ()
    _major: str

    def __init__(
        self,
        data: bytes | bytearray | memoryview | None = None,
        format: str | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        """Take the bytes, or read the file at `path`. `format` is "png", say, or a media type; left out, it is recognized.

        Raises: OSError for a file that cannot be read; ValueError where the type cannot be recognized.
        """
        kind = type(self).__name__
        found = _content(kind, data, path)
        if format is not None:
            name = format.lower().lstrip(".")
            super().__init__(found, name if "/" in name else f"{self._major}/{_SUBTYPES.get(name, name)}", annotations)
            return
        guesses = media_type(found), type_of_name(os.fspath(path)) if path is not None else None
        mime_type = next((each for each in guesses if each is not None and each.startswith(f"{self._major}/")), None)
        if mime_type is None:
            raise ValueError(
                f"{kind}: the type of these {len(found)} bytes is not known; write {kind}(..., format='...')"
            )
        super().__init__(found, mime_type, annotations)


class Image(_Shown):
    """A picture as a result, in a list of results, in a message, or as a resource: `Image(path="plot.png")`."""

    __slots__ = ()
    _major = "image"

    def block(self) -> ImageContent:
        """Return the image block."""
        return ImageContent(encode_base64(self.data), self.mime_type, annotations=self.annotations)


class Audio(_Shown):
    """A sound as a result, in a list of results, in a message, or as a resource: `Audio(path="bell.wav")`."""

    __slots__ = ()
    _major = "audio"

    def block(self) -> AudioContent:
        """Return the audio block."""
        return AudioContent(encode_base64(self.data), self.mime_type, annotations=self.annotations)


class File(Media):
    """A file as a result, which clients get as an embedded resource; as a text where it is one."""

    __slots__ = ("uri",)

    def __init__(
        self,
        data: bytes | bytearray | memoryview | str | None = None,
        name: str | None = None,
        *,
        path: str | os.PathLike[str] | None = None,
        mime_type: str | None = None,
        uri: str | None = None,
        annotations: Annotations | None = None,
    ) -> None:
        """Take the content, or read the file at `path`; `name` is the file name that clients see, without a folder.

        `uri` is by default made of the name. Raises: OSError for a file that cannot be read.
        """
        name = name or (
            os.path.basename(os.fspath(path)) if path is not None else "file.txt" if isinstance(data, str) else "file"
        )
        found = _content("File", data.encode() if isinstance(data, str) else data, path)
        super().__init__(found, mime_type or type_of_name(name), annotations)
        self.uri = uri or f"result:{quote(name)}"

    def block(self) -> EmbeddedResource:
        """Return the embedded resource."""
        return EmbeddedResource(self.resource(self.uri), annotations=self.annotations)

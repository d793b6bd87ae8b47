"""`Image`, `Audio` and `File`: what a tool returns to show a file."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

from linkspan_compat.protocol.current import TYPES

__all__ = ["Audio", "File", "Image"]

_IMAGES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
_SOUNDS: Final = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".aac": "audio/aac",
    ".m4a": "audio/mp4",
}


class _Media:
    """A file, or bytes, of a format."""

    _family = "application"
    _known = dict[str, str]()
    _usual = "application/octet-stream"

    def __init__(
        self, path: str | Path | None = None, data: bytes | None = None, format: str | None = None, **more: Any
    ) -> None:
        if path is None and data is None:
            raise ValueError("Either path or data must be provided")
        if path is not None and data is not None:
            raise ValueError("Only one of path or data can be provided")
        self.path = Path(path).expanduser() if path else None
        self.data = data
        self.annotations = more.get("annotations")
        self.name = more.get("name")
        self._format = format
        self._mime_type = self._get_mime_type()

    def _get_mime_type(self) -> str:
        if self._format:
            return f"{self._family}/{self._format.lower()}"
        if self.path:
            return self._known.get(self.path.suffix.lower(), "application/octet-stream")
        return self._usual

    def _bytes(self) -> bytes:
        if self.path:
            return self.path.read_bytes()
        assert self.data is not None
        return self.data

    def _encoded(self) -> str:
        return base64.b64encode(self._bytes()).decode()

    def _block(self, kind: str, mime_type: str | None, annotations: Any) -> Any:
        members = {"data": self._encoded(), "mimeType": mime_type or self._mime_type}
        if (shown := annotations or self.annotations) is not None:
            members["annotations"] = shown
        return TYPES[kind].model_validate({"type": self._family, **members})


class Image(_Media):
    """A picture."""

    _family = "image"
    _known = _IMAGES
    _usual = "image/png"

    def to_image_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return it as content."""
        return self._block("ImageContent", mime_type, annotations)

    def to_data_uri(self, mime_type: str | None = None) -> str:
        """Return it as a URI."""
        return f"data:{mime_type or self._mime_type};base64,{self._encoded()}"


class Audio(_Media):
    """A sound."""

    _family = "audio"
    _known = _SOUNDS
    _usual = "audio/wav"

    def to_audio_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return it as content."""
        return self._block("AudioContent", mime_type, annotations)


class File(_Media):
    """A file of any kind."""

    def _get_mime_type(self) -> str:
        if self._format:
            fmt = self._format.lower()
            text = {"plain", "txt", "text"}
            return "text/plain" if fmt in text else f"application/{fmt}"
        if self.path:
            import mimetypes

            return mimetypes.guess_type(self.path)[0] or "application/octet-stream"
        return "application/octet-stream"

    def to_resource_content(self, mime_type: str | None = None, annotations: Any = None) -> Any:
        """Return it as an embedded resource."""
        shown = mime_type or self._mime_type
        if self.path:
            uri = self.path.resolve().as_uri()
        else:
            ending = shown.partition("/")[2]
            uri = f"file:///{self.name or f'resource.{ending}'}"
        body: dict[str, Any] = {"uri": uri, "mimeType": shown}
        if shown.startswith("text/"):
            try:
                body["text"] = self._bytes().decode()
            except UnicodeDecodeError:
                body["text"] = self._bytes().decode("latin-1")
        else:
            body["blob"] = self._encoded()
        members: dict[str, Any] = {"type": "resource", "resource": body}
        if (described := annotations or self.annotations) is not None:
            members["annotations"] = described
        return TYPES["EmbeddedResource"].model_validate(members)

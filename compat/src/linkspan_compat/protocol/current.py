"""The names of `mcp.types` in the flavour of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from linkspan_compat.flavours import SdkVersion, sdk_version
from linkspan_compat.protocol.table import CONSTANTS

if TYPE_CHECKING:
    from linkspan_compat.protocol.types import TypesOf

__all__ = ["TYPES", "TYPES_OF_2"]


class _Current(Mapping[str, Any]):
    """Looks a name up when it is needed: pydantic is loaded with the first model."""

    def __init__(self, version: SdkVersion | None = None) -> None:
        """Have the names of a version, by default of the one in use."""
        self._version: SdkVersion | None = version

    @property
    def names(self) -> TypesOf:
        """The names of the version."""
        from linkspan_compat.protocol.types import types_of

        return types_of(self._version or sdk_version())

    def __getitem__(self, name: str) -> Any:
        return CONSTANTS[name] if name in CONSTANTS else self.names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in CONSTANTS or name in self.names


TYPES: Final[Mapping[str, Any]] = _Current()
"""Models, aliases and constants by their names."""

TYPES_OF_2: Final[Mapping[str, Any]] = _Current("2")
"""Those of the package `mcp_types`, which has one version."""

"""Models for `mcp.types`, made from the table when a name is first used.

Two flavours: version 1 has the names of the wire, URLs as `AnyUrl` and root models; version 2 has snake_case names, which may
be written either way, and URLs as text. Importing this module loads pydantic; constants come without it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, FileUrl, RootModel, TypeAdapter, UrlConstraints, create_model
from pydantic.alias_generators import to_camel, to_snake

from linkspan.revisions import LATEST, LEGACY
from linkspan_compat.protocol.table import ALIASES, CONSTANTS, MODELS, ROOTS

__all__ = ["TypesOf", "as_json", "types_of"]

Version: TypeAlias = Literal["1", "2"]

_LINE: Final = re.compile(r"(?:(?P<only>[12]):)?(?P<name>\w+)\((?P<bases>[\w,]*)\) ?(?P<fields>.*)")
_FIELD: Final = re.compile(r"(?P<name>\w+)(?P<optional>\?)?(?:=(?P<constant>[^:]+?))?(?::(?P<type>.+))?")

ParamsT = TypeVar("ParamsT")
MethodT = TypeVar("MethodT", bound=str)


class _Spelled(BaseModel):
    """Base of all models: a member may be read under the name that the other version has for it, too."""

    def __getattr__(self, name: str) -> Any:
        fields = type(self).model_fields
        other = to_camel(name) if "_" in name.strip("_") else to_snake(name)
        if not name.startswith("_") and other != name and other in fields:
            return getattr(self, other)
        return super().__getattr__(name)  # type: ignore[misc]


class Model1(_Spelled):
    """A model of version 1."""

    model_config = ConfigDict(extra="allow")


class Model2(_Spelled):
    """A model of version 2."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Request1(Model1, Generic[ParamsT, MethodT]):
    """A request, version 1."""

    method: MethodT
    params: ParamsT


class Request2(Model2, Generic[ParamsT, MethodT]):
    """A request, version 2."""

    method: MethodT
    params: ParamsT


class Notification1(Model1, Generic[ParamsT, MethodT]):
    """A notification, version 1."""

    method: MethodT
    params: ParamsT


class Notification2(Model2, Generic[ParamsT, MethodT]):
    """A notification, version 2."""

    method: MethodT
    params: ParamsT


class Meta1(Model1):
    """The `_meta` of a request, version 1."""

    progressToken: str | int | None = None


def _lines(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.strip())


class TypesOf(Mapping[str, Any]):
    """The names of `mcp.types` of one version. Any thread."""

    def __init__(self, version: Version) -> None:
        """Read the table; nothing is made yet."""
        self.version = version
        self._made: dict[str, Any] = dict(CONSTANTS)
        self._lock = threading.RLock()
        self._models: dict[str, tuple[str, str]] = {}
        for line in _lines(MODELS):
            found = _LINE.fullmatch(line)
            assert found is not None, line
            if found["only"] in (None, version):
                self._models[found["name"]] = (found["bases"], found["fields"])
        self._aliases = dict(line.split(" = ", 1) for line in _lines(ALIASES))
        is_first = version == "1"
        self._base: type[BaseModel] = Model1 if is_first else Model2
        self._made["LATEST_PROTOCOL_VERSION"] = LEGACY[-1] if is_first else LATEST.date
        self._made["DEFAULT_NEGOTIATED_VERSION"] = LEGACY[1]
        self._made |= {
            "Any": Any,
            "Literal": Literal,
            "dict": dict,
            "list": list,
            "str": str,
            "int": int,
            "float": float,
            "bool": bool,
            "None": None,
            "Url": Annotated[AnyUrl, UrlConstraints(host_required=False)] if is_first else str,
            "FileUrl": FileUrl,
            "Share": Annotated[float, Field(ge=0.0, le=1.0)],
            "RequestId": Annotated[int, Field(strict=True)] | str,
            "Request": Request1 if is_first else Request2,
            "Notification": Notification1 if is_first else Notification2,
        }
        self._own = {
            "LATEST_PROTOCOL_VERSION",
            "DEFAULT_NEGOTIATED_VERSION",
            *self._models,
            *self._aliases,
            *CONSTANTS,
            "RequestId",
            "Request",
            "Notification",
            "PaginatedRequest",
        }
        self._own |= {"RequestParamsMeta"} if not is_first else {"AnyFunction"}
        if is_first:
            self._own |= ROOTS.keys()
        else:
            self._own |= {*ROOTS, *(f"{_snake(name)}_adapter" for name in ROOTS)}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._own))

    def __len__(self) -> int:
        return len(self._own)

    def __contains__(self, name: object) -> bool:
        return name in self._own

    def __getitem__(self, name: str) -> Any:
        try:
            return self._made[name]
        except KeyError:
            pass
        with self._lock:
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    def _make(self, name: str) -> Any:
        if name in self._models:
            return self._model(name, *self._models[name])
        if name in self._aliases:
            return self._evaluated(self._aliases[name])
        if name in ROOTS:
            union = self[ROOTS[name]]
            if self.version == "2":
                return union
            made = create_model(name, __base__=RootModel[union])  # type: ignore[valid-type]
            made.__module__ = __name__
            return made
        if name == "PaginatedRequest":
            return self["Request"]
        if name in ("RequestParamsMeta", "AnyFunction"):
            return dict[str, Any] if name == "RequestParamsMeta" else Any
        if self.version == "2" and name.endswith("_adapter"):
            wanted = next((each for each in ROOTS if f"{_snake(each)}_adapter" == name), None)
            if wanted is not None:
                return TypeAdapter(self[wanted])
        raise KeyError(name)

    def _evaluated(self, expression: str) -> Any:
        return eval(expression, {"__builtins__": {}}, self)  # of our own table alone

    def _model(self, name: str, bases: str, fields: str) -> type[BaseModel]:
        parents = tuple(self[base] for base in bases.split(",") if base) or (self._base,)
        generic = parents[0] in (self._made["Request"], self._made["Notification"])
        made: dict[str, Any] = {}
        for text in fields.split():
            found = _FIELD.fullmatch(text)
            assert found is not None, text
            member, hint, default = self._field(found)
            made[member] = (hint, default)
        if generic:
            parents = (parents[0][made["params"][0], made["method"][0]],)
        return create_model(name, __base__=parents, __module__=__name__, **made)

    def _field(self, found: re.Match[str]) -> tuple[str, Any, Any]:
        name = found["name"] if self.version == "1" else to_snake(found["name"])
        if found["name"] == "meta":
            return "meta", dict[str, Any] | None, Field(alias="_meta", default=None)
        if found["constant"] is not None:
            value = self._evaluated(found["constant"])
            if found["type"] is not None:
                return name, self._evaluated(found["type"]), value
            if not isinstance(value, str):
                return name, type(value), value
            if name == "result_type":
                return name, str, value
            is_required = self.version == "1" and name in ("type", "jsonrpc")
            return name, Literal[value], ... if is_required else value
        hint = self._evaluated(found["type"])
        return (name, hint | None if hint is not Any else hint, None) if found["optional"] else (name, hint, ...)


def _snake(name: str) -> str:
    return to_snake(name.replace("JSONRPC", "Jsonrpc"))


_OF: Final[dict[Version, TypesOf]] = {}


def types_of(version: Version) -> TypesOf:
    """Return the names of a version."""
    if version not in _OF:
        _OF[version] = TypesOf(version)
    return _OF[version]


def as_json(value: BaseModel) -> bytes:
    """Return a model as it is sent: by the names of the wire, without members that are absent."""
    return value.model_dump_json(by_alias=True, exclude_none=True).encode()

"""What both sides know of skills: the shapes on the wire, the rules for names and URIs, the limits. Pure.

Spec: https://github.com/modelcontextprotocol/ext-skills, stable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, TypeAlias

import msgspec

from linkspan.types.base import JSON, JSONObject, Meta, Wire
from linkspan.types.messages import ListParams, Params, Resource
from linkspan.types.methods import ListSpec

__all__ = [
    "DIRECTORY",
    "DYNAMIC",
    "EXTENSION_ID",
    "MAX_FILES",
    "MAX_TOTAL",
    "SKILLS",
    "DirectoryParams",
    "DirectoryResult",
    "GetSkillParams",
    "GetSkillResult",
    "ListSkillsResult",
    "Skill",
    "SkillFile",
    "digest_of",
    "file_uri",
    "name_problem",
    "root_of",
]

EXTENSION_ID: Final = "io.modelcontextprotocol/skills"
MANIFEST: Final = "SKILL.md"
MARKDOWN: Final = "text/markdown"
DIRECTORY: Final = "inode/directory"
DYNAMIC: Final = "dynamic"
MAX_FILES: Final = 512
MAX_TOTAL: Final = 16 * 1024 * 1024
MAX_DESCRIPTION: Final = 1024
MAX_NAME: Final = 64
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?=[^/])")


class SkillFile(Wire, frozen=True):
    """A file of a skill: its URI, the digest and the number of its bytes."""

    uri: str
    digest: str
    size: int


Files: TypeAlias = list[SkillFile] | Literal["dynamic"]


class Skill(Wire, frozen=True):
    """The entry of a skill, as `skills/list` and `skills/get` have it."""

    uri: str
    frontmatter: JSONObject
    resources: Files


class ListSkillsResult(Wire, frozen=True):
    """A page of skills."""

    skills: list[Skill]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class GetSkillParams(Params, frozen=True, kw_only=True):
    """The params of `skills/get`."""

    named_by: ClassVar[str | None] = "uri"
    uri: str


class GetSkillResult(Wire, frozen=True):
    """One skill."""

    skill: Skill
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class DirectoryParams(ListParams, frozen=True, kw_only=True):
    """The params of `resources/directory/read`."""

    named_by: ClassVar[str | None] = "uri"
    uri: str


class DirectoryResult(Wire, frozen=True):
    """What is directly in a directory: files, and directories with the type `inode/directory`."""

    resources: list[Resource]
    next_cursor: str | None = None
    ttl_ms: float | None = None
    """With `cache_scope`: not of the specification, but a client of the TypeScript SDK reads no result without them."""
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


SKILLS: Final = ListSpec(
    method="skills/list", noun="skill", key="uri", capability="resources", item=Skill, result=ListSkillsResult
)


def digest_of(data: bytes) -> str:
    """Return the digest of the bytes of a file."""
    import hashlib

    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_digest(value: JSON) -> bool:
    """Return whether a JSON value has the form of a digest."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def is_name(value: JSON) -> bool:
    """Return whether a JSON value is a name that a skill may have."""
    return isinstance(value, str) and len(value) <= MAX_NAME and _NAME.fullmatch(value) is not None


def name_problem(frontmatter: JSONObject, folder: str) -> str | None:
    """Return what is wrong with the name and the description of a skill in a folder of that name; None if nothing is."""
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not is_name(name):
        return f"its name has 1 to {MAX_NAME} of a-z, 0-9 and single hyphens between them, not {str(name)[:80]!r}"
    if name != folder:
        return f"its name {name!r} is not that of its folder, {folder[:80]!r}"
    if not isinstance(description, str) or not description.strip() or len(description) > MAX_DESCRIPTION:
        return f"its description is a text of 1 to {MAX_DESCRIPTION} characters"
    return None


def root_of(uri: str) -> str | None:
    """Return the root of a skill by the URI of its SKILL.md: without a slash at the end; None for another kind of URI."""
    root, slash, last = uri.rpartition("/")
    return root if slash and last == MANIFEST and is_plain(root) else None


def is_plain(uri: str) -> bool:
    """Return whether a URI has a scheme and a path of plain segments, none of which leads elsewhere."""
    scheme = _SCHEME.match(uri)
    if scheme is None or any(each in uri for each in "?#\\") or not uri.isprintable() or " " in uri:
        return False
    return all(is_segment(each) for each in uri[scheme.end() :].split("/"))


def is_segment(text: str) -> bool:
    """Return whether one part of a path names something in its folder, also after percent-decoding."""
    from urllib.parse import unquote

    plain = unquote(text)
    return bool(text) and plain not in ("", ".", "..") and not any(each in plain for each in "/\\\0")


def file_uri(root: str, path: str) -> str:
    """Return the URI of a file by its path below the root of its skill, with slashes."""
    from urllib.parse import quote

    return f"{root}/{quote(path)}"


def parents(uris: Sequence[str]) -> dict[str, set[str]]:
    """Return the directories that files are in, up to the authority of their URIs, and what is directly in each."""
    found: dict[str, set[str]] = {}
    for uri in uris:
        scheme = _SCHEME.match(uri)
        child = uri
        while scheme is not None and (parent := child.rpartition("/")[0]) and len(parent) > scheme.end():
            known = parent in found
            found.setdefault(parent, set()).add(child)
            if known:
                break
            child = parent
    return found

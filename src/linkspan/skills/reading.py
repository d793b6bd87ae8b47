"""Skills as a client reads them: no byte is returned before it is verified against the entry that the caller holds.

    with SyncClient(url) as client:
        skill = SyncClientSkills(client).get("skill://pdf/SKILL.md")
        print(skill.load())
        print(skill.read_text("references/FORMS.md"))

Nothing is read ahead of need. A digest shows that entry and content belong together, and no more: the server has made both.
Spec: https://github.com/modelcontextprotocol/ext-skills, stable, "Integrity and Verification".
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast
from urllib.parse import unquote

import msgspec

from linkspan.errors import clipped
from linkspan.flows.client_errors import ClientError, InvalidResponse, ServerOrigin
from linkspan.skills.frontmatter import FrontmatterError, check_yaml, parse_frontmatter
from linkspan.skills.shapes import (
    DYNAMIC,
    EXTENSION_ID,
    MANIFEST,
    MAX_FILES,
    MAX_TOTAL,
    DirectoryResult,
    Skill,
    SkillFile,
    digest_of,
    file_uri,
    is_digest,
    is_name,
    is_plain,
    is_segment,
    root_of,
)
from linkspan.types.base import (
    JSON,
    BlobResourceContents,
    JSONObject,
    Meta,
    TextResourceContents,
    Wire,
    is_array,
    is_number,
    is_object,
)
from linkspan.types.messages import ReadResourceResult, Resource
from linkspan.types.methods import ListSpec

if TYPE_CHECKING:
    from linkspan.client.client import Client
    from linkspan.client.sync_client import SyncClient

__all__ = ["ClientSkill", "ClientSkills", "SkillChanged", "SyncClientSkill", "SyncClientSkills"]

T = TypeVar("T")
Steps: TypeAlias = Generator[Callable[[Any], Any], Any, T]
"""What is asked of a client, one after the other: each is called with the client, and its result, awaited, is sent back."""


class SkillChanged(ClientError):
    """What a server sent is not what the entry of a skill describes, or is no file of it; nothing of it was returned.

    The skill has changed, on its server or on the way: get its entry again, and ask the user again before using it.
    """


class _IndexEntry(Wire, frozen=True):
    """An entry as it came. One that is invalid says nothing about the others."""

    uri: JSON = None
    frontmatter: JSON = None
    resources: JSON = None


class _ListResult(Wire, frozen=True):
    skills: list[_IndexEntry]
    next_cursor: str | None = None
    ttl_ms: float | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


_LIST: Final = ListSpec(
    method="skills/list", noun="skill", key="uri", capability="resources", item=_IndexEntry, result=_ListResult
)


# Entries.


def checked_entry(entry: _IndexEntry) -> Skill:
    """Return an entry that can be verified against. Raises: ValueError, with what is wrong with it."""
    uri, frontmatter = entry.uri, entry.frontmatter
    root = root_of(uri) if isinstance(uri, str) else None
    if root is None:
        raise ValueError("its uri is not that of a SKILL.md")
    if not is_object(frontmatter):
        raise ValueError("its frontmatter is not an object")
    name, description = frontmatter.get("name"), frontmatter.get("description")
    if not is_name(name) or unquote(root.rpartition("/")[2]) != name:
        raise ValueError("its name is not that of the last folder in its uri, or not one that skills may have")
    if not isinstance(description, str) or not description.strip():
        raise ValueError("it has no description")
    if entry.resources == DYNAMIC:
        return Skill(cast("str", uri), frontmatter, DYNAMIC)
    if not is_array(entry.resources):
        raise ValueError('its resources are neither an array nor "dynamic"')
    files = [_checked_file(each, root) for each in entry.resources[: MAX_FILES + 1]]
    if len(files) > MAX_FILES or sum(each.size for each in files) > MAX_TOTAL:
        raise ValueError(f"it has more than {MAX_FILES} files or {MAX_TOTAL} bytes")
    known = {unquote(each.uri) for each in files}
    if len(known) < len(files) or unquote(cast("str", uri)) not in known:
        raise ValueError("its resources name a file twice, or not its SKILL.md")
    return Skill(cast("str", uri), frontmatter, files)


def _checked_file(value: JSON, root: str) -> SkillFile:
    fields = value if is_object(value) else {}
    uri, digest, size = (fields.get(name) for name in ("uri", "digest", "size"))
    if not isinstance(uri, str) or not is_plain(uri) or not uri.startswith(f"{root}/"):
        raise ValueError(f"its resources have something outside of the skill: {clipped(str(uri))}")
    if not is_digest(digest) or not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"its resources have no digest and size for {clipped(uri)}")
    return SkillFile(uri, str(digest), size)


def same(left: JSON, right: JSON) -> bool:
    """Return whether two JSON values are equal; true is not 1."""
    if is_object(left) and is_object(right):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if is_array(left) and is_array(right):
        return len(left) == len(right) and all(map(same, left, right))
    if is_number(left) and is_number(right):
        return left == right
    return type(left) is type(right) and bool(left == right)


# What both faces do.


def _connected() -> Steps[Mapping[str, JSON] | None]:
    """Return the settings of skills that the server declares; None where it has no skills."""
    yield lambda client: client.connect() if client.server_capabilities is None else None
    capabilities = yield lambda client: client.server_capabilities
    declared: Mapping[str, JSON] = capabilities.extensions or {}
    settings = declared.get(EXTENSION_ID)
    return settings if is_object(settings) else None


def _list(problems: list[str]) -> Steps[list[Skill]]:
    if (yield from _connected()) is None:
        return []
    entries: list[_IndexEntry] = yield lambda client: client.list_items(_LIST)
    found: dict[str, Skill] = {}
    problems.clear()
    for each in entries:
        try:
            skill = checked_entry(each)
            if skill.uri in found:
                raise ValueError("it is listed twice")
        except ValueError as problem:
            problems.append(f"{clipped(str(each.uri))}: {problem}")
        else:
            found[skill.uri] = skill
    return list(found.values())


def _get(origin: ServerOrigin, uri: str) -> Steps[Skill]:
    if (yield from _connected()) is None:
        raise ClientError("the server declares no skills", origin)
    result: JSON = yield lambda client: client.request("skills/get", {"uri": uri})
    entry = result.get("skill") if is_object(result) else None
    try:
        skill = checked_entry(msgspec.convert(entry, _IndexEntry))
        if skill.uri != uri:
            raise ValueError("it is another skill")
    except (ValueError, msgspec.ValidationError) as problem:
        raise InvalidResponse(f"invalid response to skills/get: {problem}", origin, delivery="answered") from None
    return skill


def _read_directory(origin: ServerOrigin, uri: str, problems: list[str]) -> Steps[list[Resource]]:
    settings = yield from _connected()
    if settings is None or settings.get("directoryRead") is not True:
        raise ClientError("the server does not declare directoryRead", origin)
    found: list[Resource] = []
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        params = {"uri": uri} if cursor is None else {"uri": uri, "cursor": cursor}
        page: JSON = yield partial(_ask_directory, params)
        try:
            whole = msgspec.convert(page, DirectoryResult)
        except msgspec.ValidationError as problem:
            raise InvalidResponse(
                f"invalid response to resources/directory/read: {problem}", origin, delivery="answered"
            ) from None
        inside = [each for each in whole.resources if each.uri.rpartition("/")[0] == uri and is_plain(each.uri)]
        problems += [f"{clipped(each.uri)} is not in {uri}" for each in whole.resources if each not in inside]
        found += inside
        cursor = whole.next_cursor
        if cursor is None or cursor in seen or len(found) > MAX_FILES:
            return found
        seen.add(cursor)


def _ask_directory(params: Mapping[str, JSON], client: Any) -> Any:
    return client.request("resources/directory/read", params)


class _HeldSkill:
    """An entry, and what was read of its skill. Several threads may read: at worst a file is read twice."""

    def __init__(self, entry: Skill, origin: ServerOrigin) -> None:
        self.entry = entry
        self.origin = origin
        self.root = root_of(entry.uri) or ""
        self.files: Mapping[str, SkillFile] | None = None
        if not isinstance(entry.resources, str):
            self.files = {unquote(each.uri): each for each in entry.resources}
        self._kept: dict[str, bytes] = {}
        self._size = 0

    def load(self) -> Steps[str]:
        data = yield from self.read(MANIFEST)
        try:
            fields: JSONObject = parse_frontmatter(data)
            text = data.decode()
        except (FrontmatterError, UnicodeDecodeError) as problem:
            raise self._changed(self.entry.uri, str(problem)) from None
        if not same(fields, self.entry.frontmatter):
            raise self._changed(self.entry.uri, "its frontmatter is not that of its entry")
        return text

    def read(self, path: str) -> Steps[bytes]:
        uri = self._uri_of(path)
        file = self.files.get(unquote(uri)) if self.files is not None else None
        if file is not None and (kept := self._kept.get(file.digest)) is not None:
            return kept
        if file is None and self.files is not None:
            raise self._changed(uri, "its entry does not list it")
        asked = file.uri if file is not None else uri
        result: ReadResourceResult = yield lambda client: client.read_resource(asked)
        data = self._bytes_of(asked, result)
        if file is None:
            self._size += len(data)
            if self._size > MAX_TOTAL:
                raise self._changed(uri, f"the skill has more than {MAX_TOTAL} bytes")
            return data
        if len(data) != file.size:
            raise self._changed(uri, f"it has {len(data)} bytes, and its entry says {file.size}")
        if digest_of(data) != file.digest:
            raise self._changed(uri, "its digest is not that of its entry")
        self._kept[file.digest] = data
        return data

    def _uri_of(self, path: str) -> str:
        """Return the URI of a file by its path from the root of the skill, or by its URI. Raises: SkillChanged."""
        if "://" in path:
            if is_plain(path) and path.startswith(f"{self.root}/"):
                return path
            raise self._changed(path, "it is not inside the skill")
        parts: list[str] = []
        for part in path.split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part != ".":
                parts.append(part)
        if not parts or not all(map(is_segment, parts)):
            raise self._changed(path, "it is not a path inside the skill")
        return file_uri(self.root, "/".join(parts))

    def _bytes_of(self, uri: str, result: ReadResourceResult) -> bytes:
        contents = list(result.contents)
        if len(contents) != 1 or contents[0].uri != uri:
            raise self._changed(uri, "the server sent something else")
        content = contents[0]
        try:
            if isinstance(content, TextResourceContents):
                return content.text.encode()
            if isinstance(content, BlobResourceContents):
                return content.bytes
        except ValueError as problem:
            raise self._changed(uri, str(problem)) from None
        raise self._changed(uri, "the server sent neither text nor bytes")

    def _changed(self, uri: str, problem: str) -> SkillChanged:
        return SkillChanged(
            f"{clipped(uri)} was refused: {problem}",
            self.origin,
            delivery="answered",
            hint="get the skill again; if it has changed, ask the user again before using it",
        )


# The faces.


class _ReadSkill:
    """A skill by the entry that is held of it."""

    def __init__(self, held: _HeldSkill, run: Callable[[Steps[Any]], Any]) -> None:
        """Made by the skills of a client."""
        self._held = held
        self._run = run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.uri} of {self.server}>"

    @property
    def entry(self) -> Skill:
        """The entry: what is read is verified against it."""
        return self._held.entry

    @property
    def server(self) -> str:
        """What the client calls the server. With the URI it identifies the skill."""
        return self._held.origin.server

    @property
    def uri(self) -> str:
        """The URI of the SKILL.md."""
        return self.entry.uri

    @property
    def name(self) -> str:
        """The name, which other skills may have, too."""
        return str(self.entry.frontmatter["name"])

    @property
    def description(self) -> str:
        """What the skill is for, in the words of its author."""
        return str(self.entry.frontmatter["description"])

    @property
    def is_dynamic(self) -> bool:
        """Whether the server generates it, so that there are no digests: only its frontmatter is verified."""
        return self._held.files is None

    @property
    def files(self) -> list[str]:
        """The paths of its files from its root; empty for one that is generated."""
        start = len(unquote(self._held.root)) + 1
        return [uri[start:] for uri in self._held.files or ()]

    @property
    def digests(self) -> dict[str, str]:
        """The digest of each file by its URI, which an approval is bound to; empty for one that is generated."""
        return {each.uri: each.digest for each in self.entry.resources if not isinstance(each, str)}


class SyncClientSkill(_ReadSkill):
    """A skill of a `SyncClient`."""

    def load(self) -> str:
        """Return the text of SKILL.md, with its frontmatter. Raises: SkillChanged, ClientError."""
        return cast("str", self._run(self._held.load()))

    def read_bytes(self, path: str) -> bytes:
        """Return a file by its path from the root of the skill. Raises: SkillChanged, without a request for an unlisted one."""
        return cast("bytes", self._run(self._held.read(path)))

    def read_text(self, path: str) -> str:
        """Return a file that is a text. Raises: SkillChanged; ClientError; UnicodeDecodeError for another kind of file."""
        return self.read_bytes(path).decode()


class ClientSkill(_ReadSkill):
    """A skill of a `Client`."""

    async def load(self) -> str:
        """Return the text of SKILL.md, with its frontmatter. Raises: SkillChanged, ClientError."""
        return cast("str", await self._run(self._held.load()))

    async def read_bytes(self, path: str) -> bytes:
        """Return a file by its path from the root of the skill. Raises: SkillChanged, without a request for an unlisted one."""
        return cast("bytes", await self._run(self._held.read(path)))

    async def read_text(self, path: str) -> str:
        """Return a file that is a text. Raises: SkillChanged; ClientError; UnicodeDecodeError for another kind of file."""
        return (await self.read_bytes(path)).decode()


class SyncClientSkills:
    """The skills of a server, for threads: `SyncClientSkills(client).list()`."""

    def __init__(self, client: SyncClient) -> None:
        """Ask the server of `client`. Raises: LinkspanError where PyYAML is missing."""
        check_yaml()
        self._client = client
        self.problems: list[str] = []
        """What was left out of the last list, and why."""

    def list(self) -> Sequence[SyncClientSkill]:
        """Return the skills that the server lists. There may be others, for `get`. Reads no file. Raises: ClientError."""
        return [self._skill(each) for each in self._run(_list(self.problems))]

    def get(self, uri: str) -> SyncClientSkill:
        """Return a skill by the URI of its SKILL.md, as the server describes it now. Raises: ClientError."""
        return self._skill(self._run(_get(self._client.origin, uri)))

    def of_entry(self, entry: Skill) -> SyncClientSkill:
        """Return a skill by an entry that was held before, such as the one that a user has approved."""
        return self._skill(entry)

    def read_directory(self, uri: str) -> Sequence[Resource]:
        """Return what is in a directory now, which may be more than entries list. Raises: ClientError."""
        return self._run(_read_directory(self._client.origin, uri, self.problems))

    def _skill(self, entry: Skill) -> SyncClientSkill:
        return SyncClientSkill(_HeldSkill(entry, self._client.origin), self._run)

    def _run(self, steps: Steps[T]) -> T:
        value: Any = None
        while True:
            try:
                ask = steps.send(value)
            except StopIteration as stop:
                return cast("T", stop.value)
            value = ask(self._client)


class ClientSkills:
    """The skills of a server, for asyncio: `await ClientSkills(client).list()`."""

    def __init__(self, client: Client) -> None:
        """Ask the server of `client`. Raises: LinkspanError where PyYAML is missing."""
        check_yaml()
        self._client = client
        self.problems: list[str] = []
        """What was left out of the last list, and why."""

    async def list(self) -> Sequence[ClientSkill]:
        """Return the skills that the server lists. There may be others, for `get`. Reads no file. Raises: ClientError."""
        return [self._skill(each) for each in await self._run(_list(self.problems))]

    async def get(self, uri: str) -> ClientSkill:
        """Return a skill by the URI of its SKILL.md, as the server describes it now. Raises: ClientError."""
        return self._skill(await self._run(_get(self._client.origin, uri)))

    def of_entry(self, entry: Skill) -> ClientSkill:
        """Return a skill by an entry that was held before, such as the one that a user has approved."""
        return self._skill(entry)

    async def read_directory(self, uri: str) -> Sequence[Resource]:
        """Return what is in a directory now, which may be more than entries list. Raises: ClientError."""
        return await self._run(_read_directory(self._client.origin, uri, self.problems))

    def _skill(self, entry: Skill) -> ClientSkill:
        return ClientSkill(_HeldSkill(entry, self._client.origin), self._run)

    async def _run(self, steps: Steps[T]) -> T:
        value: Any = None
        while True:
            try:
                ask = steps.send(value)
            except StopIteration as stop:
                return cast("T", stop.value)
            value = ask(self._client)
            if hasattr(value, "__await__"):
                value = await value

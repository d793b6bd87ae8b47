"""Skills of a server: folders on its disk, and what functions generate.

    server = Server("docs", extensions=[Skills("skills/")])

The folders are looked at when a client asks for skills or lists resources, and every few seconds while a client listens: a server
with hundreds of skills starts as fast as one without. Spec: https://github.com/modelcontextprotocol/ext-skills, stable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike, fspath
from typing import Final, TypeAlias, TypeVar, Unpack

import msgspec

from linkspan.core.extension import Attached, Extension, ExtensionMethod
from linkspan.errors import LinkspanError, RegistrationError
from linkspan.keywords import Keywords
from linkspan.revisions.neutral import Request
from linkspan.runtime.files import Directory, type_of_name
from linkspan.runtime.forks import ForkedLock
from linkspan.serve.polling import Poller
from linkspan.server.content_blocks import Media
from linkspan.server.handlers import LISTENING, Function, converting
from linkspan.server.observation import warn
from linkspan.server.places import Place
from linkspan.server.resources import Resource, ResourceTemplate
from linkspan.server.visibility import When
from linkspan.skills.directories import read_directory
from linkspan.skills.folders import SCHEME, FoundSkill, SkillFolder
from linkspan.skills.frontmatter import FrontmatterError, check_yaml, parse_frontmatter
from linkspan.skills.shapes import (
    DYNAMIC,
    EXTENSION_ID,
    MANIFEST,
    MARKDOWN,
    SKILLS,
    DirectoryParams,
    DirectoryResult,
    GetSkillParams,
    GetSkillResult,
    Skill,
    file_uri,
    is_plain,
    name_problem,
)
from linkspan.types.base import JSON, JSONObject, TextResourceContents

__all__ = ["Skills"]

F = TypeVar("F", bound=Function)
StrPath: TypeAlias = str | PathLike[str]
_AGE: Final = 1.0
"""Seconds for which what was seen of the folders is good enough for a request about one skill."""
_TRIES: Final = 3


class Audience(Keywords, total=False):
    """Who sees skills, as for a tool: of entries and files alike."""

    when: When | None
    scopes: Sequence[str]
    tags: Sequence[str]


class _Generated(msgspec.Struct, frozen=True):
    entry: Skill
    read: Function
    audience: Audience


class Skills:
    """The skills of a server, as a value of `extensions=`."""

    def __init__(
        self,
        folder: StrPath | None = None,
        *,
        prefix: str = "",
        poll: float | None = 3.0,
        **audience: Unpack[Audience],
    ) -> None:
        """Offer each folder below `folder` that has a SKILL.md; see `folder`.

        While a client listens, the folders are looked at every `poll` seconds; None never does.
        Raises: RegistrationError; LinkspanError where PyYAML is missing.
        """
        check_yaml()
        self._folders: list[tuple[SkillFolder, Audience]] = []
        self._generated: list[_Generated] = []
        self._offered: _Offered | None = None
        self._poll = poll
        self.extension = Extension(
            id=EXTENSION_ID,
            server={"directoryRead": True},
            lists=(SKILLS,),
            methods={
                "skills/get": ExtensionMethod(params=GetSkillParams, begin=self._get, about=SKILLS, cached=True),
                "resources/directory/read": ExtensionMethod(
                    params=DirectoryParams, begin=self._read_directory, among=SKILLS, cached=True
                ),
            },
            attach=self._attach,
            needs_declaration=False,  # only servers declare it
            in_handshakes=True,
        )
        if folder is not None:
            self.folder(folder, prefix=prefix, **audience)

    def __repr__(self) -> str:
        return f"<Skills of {', '.join(each.root for each, _ in self._folders) or 'no folder'}>"

    def folder(self, folder: StrPath, *, prefix: str = "", **audience: Unpack[Audience]) -> None:
        """Offer the skills below a folder, which may be in folders of their own: `skill://billing/refunds/SKILL.md`.

        With `prefix`, such as "acme", their URIs begin with it: `skill://acme/billing/refunds/SKILL.md`. `when`, `scopes` and
        `tags` are those of a tool, for the entries and the files. Raises: RegistrationError.
        """
        try:
            directory = Directory(folder)
        except OSError as error:
            raise RegistrationError(
                f"Skills({fspath(folder)!r}): it is not a directory that can be read: {error.strerror}; write a path that does "
                "not depend on the folder in which the server is started, such as Path(__file__).parent / ..."
            ) from None
        self._folders.append((SkillFolder(directory, prefix), audience))

    def skill(
        self, path: str, *, description: str, frontmatter: JSONObject | None = None, **audience: Unpack[Audience]
    ) -> Callable[[F], F]:
        """Offer what a function returns as the text of a SKILL.md, below its frontmatter. Used as a decorator.

            @skills.skill("reports/daily", description="Read today's figures. Use it when asked about today.")
            def daily(ctx: Context) -> str: ...

        The last part of `path` is the name of the skill. Its entry says "dynamic": hosts ask the user each time, and some load
        none of these. `frontmatter` has further fields. Raises: RegistrationError.
        """

        def add(function: F) -> F:
            fields: JSONObject = {"name": path.rpartition("/")[2], "description": description, **(frontmatter or {})}
            head = _head(path, fields)
            uri = f"{SCHEME}{path}/{MANIFEST}"
            made = _Generated(Skill(uri, fields, DYNAMIC), _with_head(function, head), audience)
            self._generated.append(made)
            if self._offered is not None:
                self._offered.generate(made)
            return function

        return add

    def check(self) -> None:
        """Look at all folders now, for a test of your own. Raises: RegistrationError with each problem, and where it is."""
        problems: list[str] = []
        for folder, _ in self._folders:
            folder.doubt("")
            folder.refresh()
            problems += folder.problems
        if problems:
            raise RegistrationError("\n".join(problems))

    def _attach(self, place: Place) -> Attached:
        if self._offered is not None:
            raise RegistrationError("these Skills are on a server already: make others for each server")
        self._offered = offered = _Offered(place, self._folders)
        for each in self._generated:
            offered.generate(each)
        sources: dict[str, Callable[[], object]] = {}
        sources |= dict.fromkeys(("skills/list", "resources/list", "resources/templates/list"), offered.refresh)
        sources |= dict.fromkeys(("skills/get", "resources/directory/read"), offered.refresh_if_old)
        poller = Poller(offered.refresh, place.is_listened_to, self._poll, "skills")
        sources |= dict.fromkeys(("resources/read", *LISTENING), offered.refresh_first)
        return Attached(sources=sources, watch=poller.watch)

    def _get(self, request: Request) -> GetSkillResult:
        assert self._offered is not None
        assert isinstance(request.params, GetSkillParams)
        return GetSkillResult(self._offered.entry(request.params.uri))

    def _read_directory(self, request: Request) -> DirectoryResult:
        assert self._offered is not None
        assert isinstance(request.params, DirectoryParams)
        return self._offered.directory(request, request.params)


class _Offered:
    """The skills of one server, as they are registered on it."""

    def __init__(self, place: Place, folders: Sequence[tuple[SkillFolder, Audience]]) -> None:
        self._place = place
        self._folders = folders
        self._items = place.items(SKILLS.method)
        self._registered: dict[str, tuple[FoundSkill, SkillFolder]] = {}
        self._warned: set[str] = set()
        self._lock = ForkedLock()
        self._refreshed: float | None = None
        """When the last look at the folders began whose findings are registered; None before the first one has ended."""
        self._is_behind = False
        """Whether a folder has changed since they were registered."""

    # What there is.

    def generate(self, made: _Generated) -> None:
        """Register a skill that a function generates. Raises: RegistrationError."""
        frontmatter: JSONObject = made.entry.frontmatter
        description: str = frontmatter["description"]
        source = Resource(
            made.entry.uri,
            frontmatter["name"],
            description=description,
            mime_type=MARKDOWN,
            read=made.read,
            **made.audience,
        )
        self._place.add([source])
        self._items.add(made.entry, **made.audience)

    def refresh(self) -> None:
        """Look at the folders, and register what has changed. It reads the disk, so no event loop may wait for it."""
        arrived = time.monotonic()
        with self._lock:
            if self._refreshed is not None and self._refreshed > arrived:
                return  # while this thread waited, another one has looked
            began = time.monotonic()
            for each, _ in self._folders:
                self._is_behind |= each.refresh()
            uris = self._register() if self._is_behind else []
            self._is_behind = False
            is_first, self._refreshed = self._refreshed is None, began
        if not is_first and uris:  # before, no client has seen a list
            self._place.announce(SKILLS.capability, uris)

    def refresh_if_old(self) -> None:
        """Look unless that was done just now."""
        if self._refreshed is None or time.monotonic() - self._refreshed > _AGE:
            self.refresh()

    def refresh_first(self) -> None:
        """Look if that was never done."""
        if self._refreshed is None:
            self.refresh()

    def _register(self) -> list[str]:
        """Register what the folders have; return the URIs of what is another now."""
        found: dict[str, tuple[FoundSkill, SkillFolder]] = {}
        for folder, _ in self._folders:
            for root, skill in folder.skills.items():
                if found.setdefault(root, (skill, folder))[1] is not folder:
                    self._warn(
                        f"{folder.root}: the skill {root} is left out: {found[root][1].root} has one of that URI"
                    )
        audiences = {id(folder): audience for folder, audience in self._folders}
        uris: list[str] = []
        for root, (before, folder) in list(self._registered.items()):
            after, present = found.get(root, (None, None))
            if after == before and present is folder:
                continue
            uris += _differing(before, after)
            if after is not None and present is folder:
                try:
                    self._replace(before, after, audiences[id(folder)])
                except KeyError:
                    self._warn(f"{folder.root}: the skill {root} is registered anew: its resource had been removed")
                except RegistrationError:
                    pass  # the next loop meets and reports it
                else:
                    self._registered[root] = after, folder
                    continue
            self._remove(before)
            del self._registered[root]
        for root, (skill, folder) in found.items():
            if root in self._registered:
                continue
            try:
                self._add(skill, folder, audiences[id(folder)])
            except RegistrationError as problem:
                self._warn(f"{folder.root}: the skill {root} is left out: {problem}")
            else:
                self._registered[root] = (skill, folder)
                uris.append(skill.entry.uri)
        for folder, _ in self._folders:
            for said in folder.problems:
                self._warn(f"skill left out: {said}")
        return list(dict.fromkeys(uris))

    def _add(self, skill: FoundSkill, folder: SkillFolder, audience: Audience) -> None:
        """Register a skill: its entry, its SKILL.md, and a template for its other files. Raises: RegistrationError."""
        if skill.entry.uri in self._items:
            raise RegistrationError("there is another one with that URI")
        tagged = _tagged(skill, audience)
        self._place.add([self._manifest(skill, tagged), *self._others(skill, tagged)])
        try:
            self._items.add(skill.entry, **tagged)
        except RegistrationError:
            self._remove(skill)
            raise

    def _replace(self, before: FoundSkill, after: FoundSkill, audience: Audience) -> None:
        """Register a skill that has changed, which is there all the time.

        Raises: RegistrationError if its template is taken, KeyError if its resource was removed; then `before` is left to remove.
        """
        tagged = _tagged(after, audience)
        was, others = self._others(before, tagged), self._others(after, tagged)
        if others and not was:
            self._place.add(others)
        try:
            self._place.replace(self._manifest(after, tagged))
            self._items.replace(after.entry)
        except KeyError:
            if others and not was:
                self._place.remove(_template(after))
            raise
        if was and not others:
            self._place.remove(_template(before))

    def _manifest(self, skill: FoundSkill, audience: Audience) -> Resource:
        """Return the resource of a SKILL.md."""
        return Resource(
            skill.entry.uri,
            skill.name,
            description=skill.description,
            mime_type=MARKDOWN,
            read=partial(self._read, skill.root, MANIFEST),
            **audience,
        )

    def _others(self, skill: FoundSkill, audience: Audience) -> list[ResourceTemplate]:
        """Return what answers for the other files of a skill; nothing where it has none."""
        if len(skill.files) < 2:
            return []

        def read_file(path: str) -> object:
            return self._read(skill.root, path)

        about = f"The files of the skill {skill.name}."
        return [ResourceTemplate(_template(skill), skill.name, description=about, read=read_file, **audience)]

    def _remove(self, skill: FoundSkill) -> None:
        self._items.remove(skill.entry.uri)
        self._place.remove(skill.entry.uri)
        if len(skill.files) > 1:  # otherwise a template there is the author's own
            self._place.remove(_template(skill))

    def _warn(self, problem: str) -> None:
        if problem not in self._warned:
            self._warned.add(problem)
            warn(problem)

    # What is asked.

    def _read(self, root: str, path: str) -> object:
        """Return the contents of a file, as its present entry describes them; None where there is none."""
        for _ in range(_TRIES):
            skill, folder = self._registered.get(root, (None, None))
            file = skill.files.get(path) if skill is not None else None
            if file is None or folder is None:
                return None
            data = folder.read(file)
            if data is not None:
                return _contents(file_uri(root, path), path, data)
            with self._lock:
                folder.doubt(file.path)
            self.refresh()
        raise LinkspanError(f"{root}/{path} changes all the time")

    def entry(self, uri: str) -> Skill:
        """Return the entry that is registered."""
        found = self._items.get(uri)
        assert isinstance(found, Skill)
        return found

    def directory(self, request: Request, params: DirectoryParams) -> DirectoryResult:
        """Return what is directly in a directory, of what its caller may use. Raises: RemoteProtocolError."""
        return read_directory(self._items.usable(request), params)


def _tagged(skill: FoundSkill, audience: Audience) -> Audience:
    """Return who sees a skill, by whose path it can be switched off, too."""
    return {**audience, "tags": [*audience.get("tags", ()), skill.root.removeprefix(SCHEME)]}


def _differing(before: FoundSkill, after: FoundSkill | None) -> list[str]:
    """Return the URIs of the files that went, or have another digest."""
    digests = {path: each.digest for path, each in after.files.items()} if after is not None else {}
    return [file_uri(before.root, path) for path, each in before.files.items() if digests.get(path) != each.digest]


def _template(skill: FoundSkill) -> str:
    return f"{skill.root}/{{+path}}"


def _contents(uri: str, path: str, data: bytes) -> object:
    """Return a file as a text where that has the very same bytes, otherwise as base64."""
    mime_type = type_of_name(path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Media(data, mime_type)
    return TextResourceContents(uri, text, "text/plain" if mime_type == "application/octet-stream" else mime_type)


def _head(path: str, fields: JSONObject) -> str:
    """Return the frontmatter of a generated skill as YAML, of which JSON is a part. Raises: RegistrationError."""
    import json

    problem = name_problem(fields, path.rpartition("/")[2])
    if problem is None and not is_plain(f"{SCHEME}{path}"):
        problem = "write names with slashes between them, such as 'reports/daily'"
    if problem is not None:
        raise RegistrationError(f"skill({path!r}): {problem}")
    try:
        lines = [f"{_key(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
        head = "".join(f"{line}\n" for line in ("---", *lines, "---"))
        same: JSON = parse_frontmatter(head.encode())
    except (FrontmatterError, TypeError, ValueError) as error:
        raise RegistrationError(f"skill({path!r}): its frontmatter is not JSON: {error}") from None
    if same != fields:
        raise RegistrationError(f"skill({path!r}): its frontmatter is not JSON that YAML has, too")
    return head


def _key(name: str) -> str:
    import json

    return name if name.replace("-", "").isidentifier() and name.isascii() else json.dumps(name)


def _with_head(function: Function, head: str) -> Function:
    """Return a function whose text has the frontmatter above it."""

    def whole(text: object) -> str:
        if not isinstance(text, str):
            raise TypeError(f"a skill is generated as a text, not as {type(text).__name__}")
        return f"{head}\n{text}"

    return converting(function, whole)

"""The skills below a folder of this machine: their entries, and the bytes that these entries describe.

Law: an entry and the bytes are of one moment. A file is served only as its digest in the present entry says; one that has changed
since is looked at again first. What is hidden, and what a link leads out to, does not exist: see `runtime/files.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from linkspan.errors import RegistrationError
from linkspan.runtime.files import Directory, FileFacts
from linkspan.skills.frontmatter import FrontmatterError, parse_frontmatter
from linkspan.skills.shapes import (
    MANIFEST,
    MAX_FILES,
    MAX_TOTAL,
    Skill,
    SkillFile,
    digest_of,
    file_uri,
    is_segment,
    name_problem,
)
from linkspan.types.base import JSONObject

_MOST_FILES: Final = 50_000
"""Of one folder with all its skills."""
_TRIES: Final = 3
SCHEME: Final = "skill://"


class FoundFile(msgspec.Struct, frozen=True):
    """A file as it was when it was read."""

    path: str
    """From the folder on, with slashes."""
    digest: str
    size: int


class _ReadFile(msgspec.Struct, frozen=True):
    """What was read of a file, all at once."""

    facts: FileFacts
    found: FoundFile | None
    """None if it cannot be read."""
    frontmatter: JSONObject | FrontmatterError | None = None
    """Of a SKILL.md."""


class FoundSkill(msgspec.Struct, frozen=True):
    """A skill as it was when its folder was looked at."""

    root: str
    """Its URI, without a slash at the end."""
    entry: Skill
    files: Mapping[str, FoundFile]
    """By their paths in the skill."""

    @property
    def name(self) -> str:
        """Its name."""
        name: str = self.entry.frontmatter["name"]
        return name

    @property
    def description(self) -> str:
        """What it is for."""
        description: str = self.entry.frontmatter["description"]
        return description


class _SkillLeftOut(Exception):
    """Why a folder with a SKILL.md is not offered as a skill."""


class SkillFolder:
    """One folder, looked at again and again. Used by one thread at a time."""

    def __init__(self, directory: Directory, prefix: str = "") -> None:
        """Offer the skills below `directory` under the path `prefix`. Raises: RegistrationError for a bad prefix."""
        if prefix and not all(map(is_segment, prefix.split("/"))):
            raise RegistrationError(f"Skills(prefix={prefix!r}): write one or more names with slashes between them")
        self._directory = directory
        self._prefix = f"{prefix}/" if prefix else ""
        self._facts: Mapping[str, FileFacts] | None = None
        self._read: dict[str, _ReadFile] = {}
        self.skills: Mapping[str, FoundSkill] = {}
        """By their roots."""
        self.problems: Sequence[str] = ()
        """Why folders are not offered, each with the path of its SKILL.md."""

    @property
    def root(self) -> str:
        """The path of the folder."""
        return self._directory.root

    def refresh(self) -> bool:
        """Bring `skills` and `problems` up to date; return whether any file differs."""
        facts = self._directory.scan(_MOST_FILES)
        if facts == self._facts:
            return False
        skills, problems = self._look_at(facts)
        for _ in range(_TRIES):
            if not problems or (again := self._directory.scan(_MOST_FILES)) == facts:
                break  # otherwise a file that could not be read may be gone by now
            facts = again
            skills, problems = self._look_at(facts)
        self._facts, self.skills, self.problems = facts, skills, problems
        return True

    def _look_at(self, facts: Mapping[str, FileFacts]) -> tuple[Mapping[str, FoundSkill], Sequence[str]]:
        """Return the skills, by their roots, and the problems of files with these facts."""
        self._read = {path: each for path, each in self._read.items() if facts.get(path) == each.facts}
        skills: dict[str, FoundSkill] = {}
        problems = [
            f"{self.root}/{path}: name it {MANIFEST}"
            for path in facts
            if (last := path.rpartition("/")[2]) != MANIFEST and last.casefold() == MANIFEST.casefold()
        ]
        if len(facts) >= _MOST_FILES:
            problems.append(f"{self.root} has more than {_MOST_FILES} files, of which the others are left out")
        homes = [path.rpartition("/")[0] for path in facts if path.rpartition("/")[2] == MANIFEST]
        for home, paths in _files_of(homes, facts).items():
            try:
                found = self._found(home, paths, facts)
            except _SkillLeftOut as problem:
                problems.append(f"{self.root}/{home}/{MANIFEST}: {problem}")
            else:
                skills[found.root] = found
        return skills, problems

    def doubt(self, path: str) -> None:
        """Look at a file again although nothing shows that it has changed."""
        self._facts = None
        self._read.pop(path, None)

    def read(self, file: FoundFile) -> bytes | None:
        """Return the bytes of a file if they are still those that its entry describes."""
        data = self._directory.read(file.path, file.size + 1)
        return data if data is not None and digest_of(data) == file.digest else None

    def _found(self, home: str, paths: Sequence[str], facts: Mapping[str, FileFacts]) -> FoundSkill:
        """Return the skill in a folder. Raises: _SkillLeftOut."""
        if not home:
            raise _SkillLeftOut("this folder is a skill itself; pass the folder that it is in")
        if len(paths) > MAX_FILES:
            raise _SkillLeftOut(f"the skill has more than {MAX_FILES} files")
        files = {path[len(home) + 1 :]: self._file(path, facts[path]) for path in paths}
        frontmatter = self._read[f"{home}/{MANIFEST}"].frontmatter
        if sum(each.size for each in files.values()) > MAX_TOTAL:
            raise _SkillLeftOut(f"the files of the skill have more than {MAX_TOTAL} bytes")
        _check_clashes(files)
        if not isinstance(frontmatter, dict):
            raise _SkillLeftOut(str(frontmatter))
        if problem := name_problem(frontmatter, home.rpartition("/")[2]):
            raise _SkillLeftOut(problem)
        root = file_uri(SCHEME.removesuffix("/"), f"{self._prefix}{home}")
        resources = [SkillFile(file_uri(root, path), each.digest, each.size) for path, each in files.items()]
        return FoundSkill(root, Skill(file_uri(root, MANIFEST), frontmatter, resources), files)

    def _file(self, path: str, facts: FileFacts) -> FoundFile:
        """Return a file as it is now, or was when these facts were first seen of it. Raises: _SkillLeftOut."""
        known = self._read.get(path)
        if known is None:
            known = self._read[path] = self._read_whole(path, facts)
        if known.found is None:
            size = f" or has more than {MAX_TOTAL} bytes" if facts.size > MAX_TOTAL else ""
            raise _SkillLeftOut(f"{path} cannot be read{size}")
        return known.found

    def _read_whole(self, path: str, facts: FileFacts) -> _ReadFile:
        data = self._directory.read(path, MAX_TOTAL + 1) if facts.size <= MAX_TOTAL else None
        if data is None:
            return _ReadFile(facts, None)
        frontmatter: JSONObject | FrontmatterError | None = None
        if path.rpartition("/")[2] == MANIFEST:
            try:
                frontmatter = parse_frontmatter(data)
            except FrontmatterError as problem:
                frontmatter = problem
        return _ReadFile(facts, FoundFile(path, digest_of(data), len(data)), frontmatter)


def _files_of(homes: Iterable[str], facts: Mapping[str, FileFacts]) -> dict[str, list[str]]:
    """Return the files of each folder with a SKILL.md: those of skills inside it, too."""
    found: dict[str, list[str]] = {home: [] for home in sorted(homes)}
    for path in facts:
        home = path.rpartition("/")[0]
        while True:
            if home in found:
                found[home].append(path)
            if not home:
                break
            home = home.rpartition("/")[0]
    return found


def _check_clashes(paths: Iterable[str]) -> None:
    """Refuse names that are one and the same on some systems. Raises: _SkillLeftOut."""
    import unicodedata

    known: dict[str, str] = {}
    for path in paths:
        folded = unicodedata.normalize("NFC", path).casefold()
        if folded in known:
            raise _SkillLeftOut(
                f"{known[folded]!r} and {path!r} are one file on systems that do not tell such names apart"
            )
        known[folded] = path

"""What `resources/directory/read` shows: the directories that the files of skills are in. Pure.

Spec: https://github.com/modelcontextprotocol/ext-skills, stable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from linkspan.errors import INVALID_PARAMS, RemoteProtocolError, clipped
from linkspan.runtime.files import type_of_name
from linkspan.server.catalogue import paginate
from linkspan.skills.shapes import (
    DIRECTORY,
    MARKDOWN,
    DirectoryParams,
    DirectoryResult,
    Skill,
    parents,
    root_of,
)
from linkspan.types.base import Wire
from linkspan.types.messages import Resource

_PAGE: Final = 500


def read_directory(skills: Iterable[Wire], params: DirectoryParams) -> DirectoryResult:
    """Return what is directly in a directory of skills. Raises: RemoteProtocolError for what is no directory."""
    uri = params.uri
    entries = {each.uri: each for each in skills if isinstance(each, Skill) and _meet(root_of(each.uri) or "", uri)}
    sizes: dict[str, int | None] = dict.fromkeys(entries)
    for each in entries.values():
        sizes |= {file.uri: file.size for file in each.resources if not isinstance(file, str)}
    tree = parents(list(sizes))
    if uri not in tree:
        raise RemoteProtocolError(INVALID_PARAMS, f"{clipped(uri)} is not a directory resource")
    page = paginate(list(enumerate(sorted(tree[uri]))), params.cursor, _PAGE)
    children = [_child(each, sizes.get(each), entries.get(each), is_file=each in sizes) for each in page.items]
    return DirectoryResult(children, page.next_cursor)


def _meet(root: str, uri: str) -> bool:
    """Return whether one of two paths is the other, or leads to it."""
    return f"{uri}/".startswith(f"{root}/") or f"{root}/".startswith(f"{uri}/")


def _child(uri: str, size: int | None, entry: Skill | None, *, is_file: bool) -> Resource:
    from urllib.parse import unquote

    name = unquote(uri.rpartition("/")[2])
    if not is_file:
        return Resource(uri, name, mime_type=DIRECTORY)
    if entry is None:
        return Resource(uri, name, mime_type=type_of_name(name), size=size)
    fields = entry.frontmatter
    return Resource(uri, fields["name"], description=fields["description"], mime_type=MARKDOWN, size=size)

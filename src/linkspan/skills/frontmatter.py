"""The frontmatter of a SKILL.md as JSON: every field as its author wrote it.

YAML is read by the core schema of YAML 1.2, in which `2026-01-02`, `yes` and `1:30` are texts. Aliases, depth, size and repeated
keys are bounded or refused, and no tag makes a value of another kind. Spec: https://agentskills.io/specification.
"""

from __future__ import annotations

import re
from typing import Final

from linkspan.errors import LinkspanError, install_hint
from linkspan.types.base import JSONObject, is_object
from linkspan.wire.yaml_json import YamlBounds, YamlProblem, has_yaml, read_yaml

__all__ = ["FrontmatterError", "check_yaml", "parse_frontmatter"]

MAX_BYTES: Final = 64 * 1024
MAX_DEPTH: Final = 20
MAX_ALIASES: Final = 100
MAX_VALUES: Final = 10_000
"""Those that aliases repeat count each time."""

_FENCE: Final = re.compile(rb"(?:\xef\xbb\xbf)?---[ \t]*\r?\n")
_END: Final = re.compile(rb"^---[ \t]*\r?$", re.MULTILINE)
_BOUNDS: Final = YamlBounds(MAX_DEPTH, MAX_VALUES, MAX_ALIASES, first_line=2)  # the fence is the first line


class FrontmatterError(LinkspanError):
    """A SKILL.md without frontmatter, or with one that cannot be read as JSON; the message has what to change."""


def check_yaml() -> None:
    """Raise LinkspanError where PyYAML is missing."""
    if not has_yaml():
        raise LinkspanError(f"skills need PyYAML: {install_hint('skills')}")


def parse_frontmatter(data: bytes) -> JSONObject:
    """Return the frontmatter of a SKILL.md. Raises: FrontmatterError; LinkspanError where PyYAML is missing."""
    check_yaml()
    start = _FENCE.match(data)
    if start is None:
        raise FrontmatterError("it does not begin with frontmatter: write a line '---' first")
    end = _END.search(data, start.end(), start.end() + MAX_BYTES)
    if end is None:
        raise FrontmatterError(f"its frontmatter has no line '---' at the end, or more than {MAX_BYTES} bytes")
    try:
        text = data[start.end() : end.start()].decode()
    except UnicodeDecodeError as problem:
        raise FrontmatterError(f"its frontmatter is not UTF-8: {problem.reason}") from None
    try:
        found = read_yaml(text, _BOUNDS)
    except YamlProblem as problem:
        raise FrontmatterError(f"its frontmatter {problem}") from None
    if not is_object(found):
        raise FrontmatterError("its frontmatter is not a mapping, such as 'name: ...'")
    return found

"""`linkspan openapi`: write the curation of an OpenAPI document, and show what changed in the document since."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from linkspan.cli.main import parser_for
from linkspan.cli.session import REFUSED, WRONG_USE
from linkspan.errors import LinkspanError
from linkspan.openapi.curation import compare_curation, read_curation, write_curation
from linkspan.openapi.reading import read_document
from linkspan.openapi.schemas import ApiDocumentError
from linkspan.wire.redaction import one_line

_EPILOG: Final = """examples:
  linkspan openapi init api.json -o api.toml       # lists all operations: those that read are on
  linkspan openapi check api.json api.toml         # exit status 1 if a tool that is on has changed or is gone

In Python: from_openapi("api.json", curation="api.toml"). Exit status: 0, 1 for changes, 2 for what cannot be read."""


def main(arguments: Sequence[str]) -> int:
    """Write a curation, or compare one with its document."""
    parser = parser_for("linkspan openapi", "Choose which operations of an OpenAPI document are tools.", _EPILOG)
    parser.add_argument("action", choices=["init", "check"], help="init: list all operations; check: show what changed")
    parser.add_argument("document", metavar="DOCUMENT", help="a file, JSON or YAML: OpenAPI 3.0 or 3.1")
    parser.add_argument("curation", metavar="CURATION", nargs="?", help="check: the file that init wrote")
    parser.add_argument("-o", "--out", metavar="FILE", default="-", help="init: the file to write (default: stdout)")
    parser.add_argument("--force", action="store_true", help="init: replace a file that is there")
    options = parser.parse_args(list(arguments))
    try:
        return _init(options) if options.action == "init" else _check(options)
    except (LinkspanError, ApiDocumentError, OSError) as problem:
        reason = f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else problem
        print(f"linkspan openapi: {one_line(str(reason))}", file=sys.stderr)
        return WRONG_USE


def _init(options: Namespace) -> int:
    text = write_curation(read_document(options.document), options.document)
    if options.out == "-":
        sys.stdout.write(text)
        return 0
    out = Path(options.out)
    if out.exists() and not options.force:
        print(f"linkspan openapi: {out} is there already: pass --force to replace it", file=sys.stderr)
        return WRONG_USE
    out.write_text(text, "utf-8")
    print(f"{out}: {text.splitlines()[1].removeprefix('# ')}")
    return 0


def _check(options: Namespace) -> int:
    if options.curation is None:
        print(
            "linkspan openapi: check needs the curation, too: linkspan openapi check api.json api.toml", file=sys.stderr
        )
        return WRONG_USE
    found = compare_curation(read_document(options.document), read_curation(options.curation))
    for each in found:
        state = "" if each.kind == "new" else " (on)" if each.is_on else " (off)"
        print(f"{each.kind}: {one_line(each.name)}{state}: {one_line(each.detail)}")
    if not found:
        print(f"{options.curation}: nothing has changed")
    return REFUSED if any(each.is_on for each in found) else 0

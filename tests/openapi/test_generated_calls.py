"""Generated calls: a server that is made of the document gets what the document says. `bench/openapi` does more of them."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import received

from linkspan.openapi import ApiDocument

KINDS: dict[str, Any] = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "array": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object", "properties": {"R": {"type": "integer"}, "G": {"type": "string"}}},
    "tree": {"$ref": "#/components/schemas/Tree"},
}
TREE = {"type": "object", "properties": {"name": {"type": "string"}, "below": {"$ref": "#/components/schemas/Tree"}}}
STYLES = {
    "path": ("simple",),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
BODIES = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "text/plain",
    "application/pdf",
)


def document(version: str) -> ApiDocument:
    """Return a document with an operation for each place, style, way to explode and kind, and one for each kind of body."""
    paths: dict[str, Any] = {}
    for place, styles in STYLES.items():
        for style, explode, kind in itertools.product(styles, (True, False), KINDS):
            found = {
                "name": "p",
                "in": place,
                "style": style,
                "explode": explode,
                "required": True,
                "schema": KINDS[kind],
            }
            path = f"/{place}/{style}/{explode}/{kind}" + ("/{p}" if place == "path" else "")
            paths[path] = {"get": {"parameters": [found]}}
    for number, media in enumerate(BODIES):
        members = {name: each for name, each in KINDS.items() if name != "tree"}
        schema = {"type": "object", "properties": members} if number < 3 else {"type": "string"}
        paths[f"/body{number}"] = {
            "post": {"requestBody": {"required": True, "content": {media: {"schema": schema}}}},
        }
    raw = {"openapi": version, "info": {}, "paths": paths, "components": {"schemas": {"Tree": TREE}}}
    return ApiDocument(raw)


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
def test_what_arrives_is_what_the_document_says(version: str) -> None:
    found = document(version)
    operations = found.readable(found.keys)
    assert not found.left_out
    rng = random.Random(31)
    wrong = [problem for each in operations * 3 if (problem := received.difference(each, rng)) is not None]
    assert wrong == []

"""Operations of a document as requests: each argument in its place and its style, and bodies of each kind."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from linkspan.errors import ToolError
from linkspan.openapi.reading import ApiDocument, ApiOperation
from linkspan.openapi.requests import ApiRequest, write_request

LIST, PAIRS = ["blue", "black brown"], {"R": 100, "G": 200}


def operation(path: str = "/x", method: str = "get", version: str = "3.1.0", **members: Any) -> ApiOperation:
    """Return the one operation of a document."""
    components = members.pop("components", {})
    raw = {"openapi": version, "info": {}, "paths": {path: {method: members}}, "components": components}
    document = ApiDocument(raw)
    return document.operation(next(iter(document.keys)))


def sent(argument: object, place: str, **parameter: Any) -> ApiRequest:
    path = "/x/{color}/y" if place == "path" else "/x"
    found = operation(path, parameters=[{"name": "color", "in": place, "schema": {}, **parameter}])
    return write_request(found, {"color": argument})


@pytest.mark.parametrize(
    ("style", "explode", "text", "array", "of_members"),
    [
        ("simple", False, "blue", "blue,black%20brown", "R,100,G,200"),
        ("simple", True, "blue", "blue,black%20brown", "R=100,G=200"),
        ("label", False, ".blue", ".blue,black%20brown", ".R,100,G,200"),
        ("label", True, ".blue", ".blue.black%20brown", ".R=100.G=200"),
        ("matrix", False, ";color=blue", ";color=blue,black%20brown", ";color=R,100,G,200"),
        ("matrix", True, ";color=blue", ";color=blue;color=black%20brown", ";R=100;G=200"),
    ],
)
def test_values_in_a_path(style: str, explode: bool, text: str, array: str, of_members: str) -> None:
    for value, written in (("blue", text), (LIST, array), (PAIRS, of_members)):
        assert sent(value, "path", style=style, explode=explode).path == f"/x/{written}/y"


@pytest.mark.parametrize(
    ("style", "explode", "array", "of_members"),
    [
        ("form", True, "color=blue&color=black%20brown", "R=100&G=200"),
        ("form", False, "color=blue,black%20brown", "color=R,100,G,200"),
        ("spaceDelimited", False, "color=blue%20black%20brown", "color=R%20100%20G%20200"),
        ("pipeDelimited", False, "color=blue%7Cblack%20brown", "color=R%7C100%7CG%7C200"),
        ("deepObject", True, "color[]=blue&color[]=black%20brown", "color[R]=100&color[G]=200"),
    ],
)
def test_values_in_a_query(style: str, explode: bool, array: str, of_members: str) -> None:
    assert sent("a b&c=1#é", "query", style=style, explode=explode).query == "color=a%20b%26c%3D1%23%C3%A9"
    assert sent(LIST, "query", style=style, explode=explode).query == array
    assert sent(PAIRS, "query", style=style, explode=explode).query == of_members


def test_objects_inside_objects_have_brackets_inside_brackets() -> None:
    found = sent({"a": {"b": [1, 2]}, "c": [{"d": True}], "e": None}, "query", style="deepObject")
    assert found.query == "color[a][b][]=1&color[a][b][]=2&color[c][0][d]=true"


def test_reserved_characters_stay_only_where_the_document_allows_it() -> None:
    assert sent("a/b?c&d", "query").query == "color=a%2Fb%3Fc%26d"
    assert sent("a/b?c&d", "query", allowReserved=True).query == "color=a/b?c%26d"


def test_a_parameter_with_content_is_one_json_text() -> None:
    content = {"application/json": {"schema": {"type": "object"}}}
    found = operation(parameters=[{"name": "filter", "in": "query", "content": content}])
    assert parse_qsl(write_request(found, {"filter": {"a": [1]}}).query) == [("filter", '{"a":[1]}')]


def test_headers_and_cookies() -> None:
    assert sent(LIST, "header").headers["color"] == "blue,black brown"
    assert sent(PAIRS, "header", explode=True).headers["color"] == "R=100,G=200"
    assert sent("a; b=c", "cookie").headers["cookie"] == "color=a%3B%20b%3Dc"
    assert sent(True, "header").headers["color"] == "true"


def body(media: str, schema: dict[str, Any], given: dict[str, Any], **more: Any) -> ApiRequest:
    content = {media: {"schema": schema, **more}}
    return write_request(operation(method="post", requestBody={"required": True, "content": content}), given)


FIELDS = {"type": "object", "properties": {"name": {"type": "string"}, "data": {}, "tags": {"type": "array"}}}


def test_members_of_a_body_are_arguments() -> None:
    found = body("application/json", FIELDS, {"name": "x", "tags": [1]})
    assert (found.headers["content-type"], json.loads(found.body)) == ("application/json", {"name": "x", "tags": [1]})


def test_a_body_of_another_kind_is_one_argument() -> None:
    assert body("application/json", {"type": "array"}, {"body": [1, 2]}).body == b"[1,2]"
    assert body("text/plain", {"type": "string"}, {"body": "é"}).body == "é".encode()
    assert body("application/pdf", {}, {"body": "AAEC"}).body == b"\0\1\2"
    with pytest.raises(ToolError, match="body must be base64"):
        body("application/pdf", {}, {"body": "no base64!"})


def test_forms_write_members_with_brackets() -> None:
    given = {"name": "a b&c", "data": {"x": {"y": 1}}, "tags": [1, 2]}
    found = body("application/x-www-form-urlencoded", FIELDS, given)
    assert found.body == b"name=a+b%26c&data[x][y]=1&tags=1&tags=2"
    encoding = {"data": {"contentType": "application/json"}, "tags": {"style": "deepObject", "explode": True}}
    found = body("application/x-www-form-urlencoded", FIELDS, given, encoding=encoding)
    assert parse_qsl(found.body.decode())[1:] == [("data", '{"x":{"y":1}}'), ("tags[]", "1"), ("tags[]", "2")]


def test_multipart_has_a_part_for_each_value() -> None:
    fields = {
        "type": "object",
        "properties": {
            "note": {"type": "string"},
            "files": {"type": "array", "items": {"type": "string", "contentEncoding": "base64"}},
            "data": {"type": "object"},
        },
    }
    found = body("multipart/form-data", fields, {"note": "hi", "files": ["AAE=", "Ag=="], "data": {"a": 1}})
    mark = found.headers["content-type"].partition("boundary=")[2].encode()
    parts = [part.partition(b"\r\n\r\n") for part in found.body.split(b"--" + mark)[1:-1]]
    assert [part[2].removesuffix(b"\r\n") for part in parts] == [b"hi", b"\0\1", b"\2", b'{"a":1}']
    assert b'name="files"; filename="files"\r\nContent-Type: application/octet-stream' in parts[1][0]


def test_a_name_that_a_parameter_and_the_body_share() -> None:
    found = operation(
        "/pets/{name}",
        "put",
        parameters=[{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}],
        requestBody={"required": True, "content": {"application/json": {"schema": FIELDS}}},
    )
    assert [*found.input_schema["properties"]] == ["path_name", "name", "data", "tags"]
    request = write_request(found, {"path_name": "old", "name": "new"})
    assert (request.path, json.loads(request.body)) == ("/pets/old", {"name": "new"})
    with pytest.raises(ToolError, match="an argument of the path is missing"):
        write_request(found, {"name": "new"})


def test_schemas_of_3_0_become_plain_json_schema() -> None:
    schema = {
        "type": "object",
        "required": ["id", "name"],
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "name": {"type": "string", "nullable": True, "example": {"$id": "x"}, "xml": {}},
            "size": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "kind": {"type": "string", "enum": ["a"], "nullable": True},
            "child": {"$ref": "#/components/schemas/Node"},
            "both": {"allOf": [{"$ref": "#/components/schemas/A"}, {"properties": {"b": {"type": "string"}}}]},
        },
    }
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    a = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    content = {"application/json": {"schema": schema}}
    found = operation(
        method="post", version="3.0.3", requestBody={"required": True, "content": content},
        components={"schemas": {"Node": node, "A": a, "Unused": node}},
    )  # fmt: skip
    assert found.input_schema == {
        "type": "object",
        "properties": {
            "name": {"type": ["string", "null"]},
            "size": {"type": "number", "exclusiveMinimum": 0},
            "kind": {"type": ["string", "null"], "enum": ["a", None]},
            "child": {"$ref": "#/$defs/Node"},
            "both": {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "required": ["a"],
            },
        },
        "additionalProperties": False,
        "required": ["name"],
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }


def test_what_a_method_means() -> None:
    hints = {each: operation(method=each).annotations() for each in ("get", "head", "post", "put", "patch", "delete")}
    assert [each for each, hint in hints.items() if hint.read_only_hint] == ["get", "head"]
    assert [each for each, hint in hints.items() if hint.destructive_hint] == ["delete"]
    assert [each for each, hint in hints.items() if hint.idempotent_hint] == ["put", "delete"]


def test_names_of_tools() -> None:
    def named(own: str | None, path: str = "/a/{b}") -> str:
        return operation(path, operationId=own).name

    assert named("issues/list-for-repo") == "issues_list-for-repo"
    assert named("GetPetById") == "GetPetById"
    assert named(None) == "get_a_b"
    assert len(named("x" * 1000)) == 64
    assert len(named("x" * 2000)) <= 64


def test_keys_of_the_api_are_no_arguments() -> None:
    schemes = {"key": {"type": "apiKey", "in": "query", "name": "api_key"}}
    given = [{"name": each, "in": "query", "schema": {}} for each in ("api_key", "q")]
    given += [{"name": each, "in": "header", "schema": {}} for each in ("Authorization", "X-Forwarded-For", "X-Mine")]
    found = operation(parameters=given, components={"securitySchemes": schemes})
    assert [*found.input_schema["properties"]] == ["q", "X-Mine"]

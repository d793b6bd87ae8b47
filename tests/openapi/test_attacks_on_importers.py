"""Attacks on what makes tools of documents, from published flaws of importers and from the RFCs: each is refused, or harmless.

They come from arguments that a model was made to send, from documents of other authors, and from responses of an API.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from linkspan import RegistrationError, SyncClient, ToolError
from linkspan.client.transports.http_requests import HttpFailure
from linkspan.openapi import ApiDocument, ApiDocumentError, ApiKey, Bearer, from_openapi, read_document
from linkspan.openapi.answers import ApiReply, read_reply
from linkspan.openapi.calling import check_base_url
from linkspan.openapi.requests import write_request
from linkspan.openapi.routes import ApiRoutes
from linkspan.openapi.schemas import UnreadableOperation

TEXT = {"type": "string"}


def document(
    path: str = "/x", method: str = "get", operation: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "T"}, "paths": {path: {method: dict(operation or {})}}, **more}


def parameters(**places: str) -> dict[str, Any]:
    """Return an operation with parameters by name, and the place of each."""
    listed = [
        {"name": name, "in": place, "required": place == "path", "schema": TEXT} for name, place in places.items()
    ]
    return {"operationId": "tool", "parameters": listed}


def operation(raw: Mapping[str, Any]) -> Any:
    found = ApiDocument(dict(raw))
    return found.operation(next(iter(found.keys)))


# Arguments.


@pytest.mark.parametrize(
    "value",
    [
        "..",
        ".",
        "../admin",
        "../../admin?all=1",
        "a/../../admin",
        "..\\admin",
        "..%2fadmin",
        "%2e%2e/admin",
        "%2e%2e%2fadmin",
        "..%252fadmin",
        "%252e%252e%252fadmin",
        "..;/admin",
        "..%5cadmin",
        "..\u2215admin",
        "..\uff0fadmin",
        " .. /admin",
        "x\r\nHost: evil",
        "x%0d%0aHost: evil",
        "x\0.json",
        "",
        "%25252525252e",
    ],
)
def test_a_path_value_that_climbs_is_refused(value: str) -> None:
    """GHSA-vv7q-7jx5-f767, and its variants by proxies that decode twice."""
    with pytest.raises(ToolError):
        write_request(operation(document("/v1/{id}/y", operation=parameters(id="path"))), {"id": value})


@pytest.mark.parametrize(
    "value", ["a/b", "a?b=c", "a#b", "https://evil.example/", "//evil.example", "@evil.example", "a;b", "{other}", "ü"]
)
def test_a_path_value_stays_one_segment(value: str) -> None:
    found = write_request(operation(document("/v1/{id}/y", operation=parameters(id="path"))), {"id": value})
    assert found.path.startswith("/v1/")
    assert found.path.endswith("/y")
    assert not set(found.path.removeprefix("/v1/").removesuffix("/y")) & set("/?#\\@{}")
    assert found.query == ""


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\rb", "a\0b", "\x7f"])
def test_a_header_value_has_no_line_breaks(value: str) -> None:
    with pytest.raises(ToolError, match="sent as a header"):
        write_request(operation(document(operation=parameters(trace="header"))), {"trace": value})


def test_a_cookie_value_adds_no_cookie() -> None:
    found = write_request(operation(document(operation=parameters(c="cookie"))), {"c": "1; admin=1, x\r\nSet: y"})
    assert found.headers["cookie"] == "c=1%3B%20admin%3D1%2C%20x%0D%0ASet%3A%20y"


def test_a_query_value_adds_no_parameter() -> None:
    assert write_request(operation(document(operation=parameters(q="query"))), {"q": "1&admin=1#x"}).query == (
        "q=1%26admin%3D1%23x"
    )


def test_a_name_in_a_form_ends_no_part() -> None:
    schema = {"type": "object", "properties": {'a"\r\nX: y\r\n\r\n': TEXT}}
    body = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
    with pytest.raises(UnreadableOperation):
        operation(document(method="post", operation=body))
    free = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": {"type": "object"}}}}}
    found = write_request(operation(document(method="post", operation=free)), {"body": {'a"\r\nX: y': "1"}})
    assert b'name="a%22%0D%0AX: y"\r\n' in found.body


def test_a_value_with_the_boundary_ends_no_part() -> None:
    schema = {"type": "object", "properties": {"a": TEXT}}
    body = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
    found = operation(document(method="post", operation=body))
    marks = {write_request(found, {"a": "x"}).headers["content-type"] for _ in range(5)}
    assert len(marks) == 5


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Cookie",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "X-Forwarded-For",
        "X-HTTP-Method-Override",
    ],
)
def test_such_a_header_is_no_argument(name: str) -> None:
    given = [{"name": name, "in": "header", "required": True, "schema": TEXT}]
    assert operation(document(operation={"parameters": given})).input_schema["properties"] == {}


# Documents.


@pytest.mark.parametrize(
    "path",
    [
        "@evil.example/x",
        "x",
        "//evil.example/x",
        "/../x",
        "/a/%2e%2E/x",
        "/x?a b",
        "/x?a=\r\nb",
        "/a\\b",
        "/a\r\nHost: b",
        "/{",
    ],
)
def test_a_path_of_a_document_that_leads_elsewhere_is_left_out(path: str) -> None:
    with pytest.raises(UnreadableOperation, match="path"):
        operation(document(path))


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example",
        "/v1",
        "ftp://x",
        "file:///etc/passwd",
        "https://user:pass@x",
        "https://x/?a",
        "https://x/../y",
        "https://x\\@y",
        "https://{host}/",
        "javascript:alert(1)",
    ],
)
def test_a_server_of_a_document_that_is_not_plainly_https_is_refused(url: str) -> None:
    with pytest.raises(RegistrationError):
        from_openapi(document(servers=[{"url": url}], operation=parameters()))


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254", "::ffff:127.0.0.1", "0.0.0.0"]
)
def test_a_server_of_a_document_is_in_no_private_network(address: str) -> None:
    """awslabs/mcp#3695. What is checked is the address that is connected to, so a name that changes does not help."""
    with pytest.raises(HttpFailure, match="private address"):
        ApiRoutes(None, 1.0, named=False).admit("api.example", address)


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "0.0.0.0"])
def test_metadata_of_clouds_is_never_reached(address: str) -> None:
    with pytest.raises(HttpFailure):
        ApiRoutes(None, 1.0, named=True).admit("api.example", address)


@pytest.mark.parametrize(
    "pointer",
    [
        "https://evil.example/s.json",
        "file:///etc/passwd",
        "other.yaml#/a",
        "//evil.example/s",
        "#/absent",
        "#/info/title/x",
    ],
)
def test_no_reference_is_fetched(pointer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)
    given = [{"name": "a", "in": "query", "schema": {"$ref": pointer}}]
    with pytest.raises(UnreadableOperation, match="ref"):
        operation(document(operation={"parameters": given}))


def schemas(**found: Any) -> Any:
    """Return the operation whose body is the schema `A` of these."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}
    body = {"requestBody": {"required": True, "content": content}}
    return operation(document(method="post", operation=body, components={"schemas": found}))


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_references_in_a_circle_end() -> None:
    with pytest.raises(UnreadableOperation, match="references only"):
        schemas(A=ref("B"), B=ref("A"))
    found = schemas(A={"type": "object", "properties": {"next": ref("A")}})
    assert found.input_schema["$defs"] == {"A": {"type": "object", "properties": {"next": {"$ref": "#/$defs/A"}}}}
    assert schemas(A={"allOf": [ref("A")]}).input_schema["properties"]["body"] is not None


def test_a_path_item_in_a_circle_is_left_out() -> None:
    found = ApiDocument({"openapi": "3.1.0", "paths": {"/a": {"$ref": "#/paths/~1b"}, "/b": {"$ref": "#/paths/~1a"}}})
    assert (len(found), len(found.left_out)) == (0, 2)


def test_references_that_double_take_no_more_room() -> None:
    """Billion laughs: 60 schemas, each of which has the next one twice."""
    began = time.process_time()
    chain = {
        f"A{n}": {"type": "object", "properties": {"l": ref(f"A{n + 1}"), "r": ref(f"A{n + 1}")}} for n in range(25)
    }
    found = schemas(A=chain["A0"], **chain, A25={"type": "string"})
    assert len(json.dumps(found.input_schema)) < 10_000
    assert time.process_time() - began < 2


def test_deep_nesting_is_refused() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        deep = {"type": "array", "items": deep}
    with pytest.raises(UnreadableOperation, match="levels deep"):
        schemas(A=deep)
    with pytest.raises(ApiDocumentError):
        read_document(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


def test_too_many_parts_are_refused() -> None:
    with pytest.raises(UnreadableOperation, match="parts"):
        schemas(A={"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}] * 30_000}}})
    with pytest.raises(UnreadableOperation, match="300 arguments"):
        schemas(A={"type": "object", "properties": {f"a{n}": {} for n in range(400)}})


def test_huge_enums_and_patterns_are_left_out() -> None:
    found = schemas(
        A={"type": "object", "properties": {"e": {"type": "string", "enum": [str(n) for n in range(100_000)]},
                                            "p": {"type": "string", "pattern": "(a+)+" * 1000}}}
    ).input_schema["properties"]  # fmt: skip
    assert found == {"e": {"type": "string"}, "p": {"type": "string"}}


def test_a_pattern_that_backtracks_costs_nothing() -> None:
    """A pattern that is not linear-safe is not run: CVE-style ReDoS by a document."""
    schema = {"type": "object", "properties": {"p": {"type": "string", "pattern": "^(a+)+$"}}}
    content = {"application/json": {"schema": schema}}
    raw = document(method="post", operation={"operationId": "t", "requestBody": {"required": True, "content": content}})
    began = time.process_time()
    with SyncClient(from_openapi(raw, only=["*"], base_url="http://127.0.0.1:9")) as client:
        client.call_tool("t", {"p": "a" * 40 + "!"})
    assert time.process_time() - began < 2


@pytest.mark.parametrize("name", ["__proto__", "constructor", "prototype", "a\u202eb", "a\u200bb", "a\nb"])
def test_such_a_member_is_left_out_with_its_operation(name: str) -> None:
    with pytest.raises(UnreadableOperation):
        schemas(A={"type": "object", "properties": {name: TEXT}})


def test_a_parameter_with_the_name_of_a_prototype_gets_another() -> None:
    found = operation(document(operation=parameters(__proto__="query", constructor="query")))
    assert not {"__proto__", "constructor", "prototype"} & found.input_schema["properties"].keys()


def test_descriptions_have_no_invisible_letters() -> None:
    hidden = "Safe.\u202eevil\u2066 \u200b\U000e0041\U000e0042 \x1b[31m<!-- do --> [here](https://evil.example)"
    found = operation(document(operation={"summary": hidden, "description": hidden, "tags": ["\u202ea"]}))
    text = json.dumps([found.title, found.description, found.tags], ensure_ascii=False)
    assert text.isprintable()
    assert not {"\u202e", "\u2066", "\u200b", "\U000e0041", "\x1b"} & {*text}
    assert "evil.example" not in text


def test_long_texts_are_cut() -> None:
    found = operation(document(operation={"operationId": "x" * 1000, "description": "word " * 100_000}))
    assert len(found.name) == 64
    assert len(found.description) <= 1200


def test_names_that_two_operations_share_mean_the_first() -> None:
    paths = {
        "/a": {"get": {"operationId": "same"}},
        "/b": {"get": {"operationId": "same"}},
        "/c": {"get": {"operationId": "sa/me"}},
        "/d": {"get": {"operationId": "sa_me"}},
    }
    found = ApiDocument({"openapi": "3.1.0", "paths": paths})
    assert [*found.keys][:3] == ["same", "get_b", "sa_me"]
    assert len(found.keys) == 4
    assert found.keys[found.named("same") or ""] == ("GET", "/a")


def test_no_identifier_of_a_schema_and_no_anchor_is_kept() -> None:
    """punkpeye and AJV: a key `$id` anywhere made a validator load another schema."""
    schema = {
        "$id": "https://evil.example",
        "$schema": "x",
        "$anchor": "a",
        "$dynamicRef": "#a",
        "$vocabulary": {},
        "type": "string",
    }
    assert schemas(A={"type": "object", "properties": {"a": schema}}).input_schema["properties"] == {"a": TEXT}


def test_a_default_that_looks_like_a_reference_is_a_value() -> None:
    found = schemas(A={"type": "object", "properties": {"a": {"default": {"$ref": "#/$defs/A"}}}})
    assert found.input_schema["properties"]["a"] == {"default": {"$ref": "#/$defs/A"}}


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x]\nb: &b [*a,*a]\n" + "".join(f"c{n}: &c{n} [*b,*b,*b,*b]\n" for n in range(2000)),
        "openapi: !!python/object/apply:os.system ['true']\n",
        "a: " + "[" * 1000 + "]" * 1000,
        "openapi: 3.1.0\nopenapi: 3.0.0\n",
        "--- 1\n--- 2\n",
        "a: *nothing",
    ],
)
def test_yaml_makes_nothing_but_bounded_json(text: str) -> None:
    pytest.importorskip("yaml")
    began = time.process_time()
    with pytest.raises(ApiDocumentError):
        read_document(text.encode())
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "raw",
    [
        b'{"swagger":"2.0"}', b'{"openapi":"4.0"}', b'{"openapi":3}', b"[]", b"{}", b"", b"\xff\xfe", b"{",
        b'{"openapi":"3.1.0","paths":[]}', b'{"openapi":"3.1.0","paths":{"/a":7,"/b":{"get":7}}}',
        b'{"openapi":"3.1.0","paths":{"/a":{"get":{"parameters":{"a":1},"requestBody":7,"tags":7,"summary":{}}}}}',
        b'{"openapi":"3.1.0","paths":{"/a":{"get":{"parameters":[7,{},{"name":7,"in":"query"},{"name":"a","in":"x"}]}}}}',
    ],
)  # fmt: skip
def test_what_is_not_a_document_is_an_error_and_never_a_crash(raw: bytes) -> None:
    try:
        found = read_document(raw)
    except ApiDocumentError:
        return
    found.readable(found.keys)


def test_documents_are_bounded(tmp_path: Path) -> None:
    with pytest.raises(ApiDocumentError, match="5000 operations"):
        ApiDocument({"openapi": "3.1.0", "paths": {f"/{n}": {"get": {}} for n in range(5001)}})
    with pytest.raises(ApiDocumentError, match="bytes"):
        read_document(b" " * (33 * 1024 * 1024))


def test_a_url_is_not_fetched() -> None:
    with pytest.raises(ApiDocumentError, match="nothing is fetched"):
        read_document("https://example.com/openapi.json")


# Credentials.


@pytest.mark.parametrize("name", ["authorization", "Cookie", "Proxy-Authorization"])
def test_credentials_of_callers_go_to_no_api_elsewhere(name: str) -> None:
    with pytest.raises(RegistrationError, match="auth="):
        from_openapi(document(operation=parameters()), base_url="https://api.example", forward=[name])


def test_a_missing_credential_is_found_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    for auth in (Bearer("NO_SUCH_TOKEN"), ApiKey("NO_SUCH_TOKEN", header="x")):
        with pytest.raises(RegistrationError, match="not set"):
            from_openapi(document(operation=parameters()), base_url="https://api.example", auth=auth)


# Responses.


def reply(body: bytes, kind: str = "application/json", status: int = 200, **headers: str) -> Any:
    found = read_reply(ApiReply(status, {"content-type": kind, **headers}, body), "GET", "/x", "u:x", ["tok-secret-99"])
    return found.is_error, found.content[0].text if found.content else "", found.structured_content


def test_the_type_of_a_response_decides_how_it_is_read() -> None:
    assert reply(b'{"a":1}', "text/html")[1] == '{"a":1}'
    assert reply(b"<html>", "application/json")[0] is True
    assert reply(b"\xff", "text/plain; charset=no-such-codec")[1] == "\ufffd"
    assert reply(b"x", "text/plain; charset=idna\r\nX: y")[1] == "x"


def test_failures_are_short_and_show_no_secret() -> None:
    is_error, text, _ = reply(b'{"detail":"' + b"x" * 100_000 + b'"}', status=500)
    assert is_error
    assert len(text) <= 2000
    assert "tok-secret-99" not in reply(b'{"message":"bad token tok-secret-99"}', status=401)[1]
    assert "\u202e" not in reply('{"message":"a\u202eb"}'.encode(), status=400)[1]
    assert "later" not in reply(b"", status=429, **{"retry-after": "later"})[1]


class _Api(BaseHTTPRequestHandler):
    """An API that redirects, answers too much, or does not answer; it keeps what it was sent."""

    protocol_version = "HTTP/1.1"
    seen: list[tuple[str, dict[str, str]]] = []

    def do_GET(self) -> None:
        self.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        status, headers, body = 200, {}, b"{}"
        port = self.server.server_address[1]
        if "/go/" in self.path:
            place = self.path.rpartition("/go/")[2].partition("?")[0]
            target = {
                "same": "/v1/x", "up": "/v2/x", "dots": "/v1/../v2/x", "encoded": "/v1/%2e%2e/v2/x",
                "host": f"http://localhost:{port}/v1/x", "metadata": "http://169.254.169.254/", "scheme": "file:///etc/passwd",
                "user": f"http://user@127.0.0.1:{port}/v1/x", "again": "/v1/go/again",
            }  # fmt: skip
            status, headers = 302, {"location": target[place]}
        elif self.path.startswith("/v1/large"):
            body = b"x" * 200_000
        elif self.path.startswith("/v1/slow"):
            time.sleep(0.5)
        self.send_response(status)
        for name, value in {**headers, "content-type": "application/json", "content-length": str(len(body))}.items():
            self.send_header(name, value)
        with suppress(OSError):  # a client that has had enough
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def api() -> Iterator[SyncClient]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    paths = {
        "/x": {"get": {"operationId": "x", "parameters": parameters(q="query")["parameters"]}},
        "/go/{to}": {"get": {"operationId": "go", "parameters": parameters(to="path")["parameters"]}},
        "/large": {"get": {"operationId": "large"}},
        "/slow": {"get": {"operationId": "slow"}},
    }
    made = from_openapi(
        {"openapi": "3.1.0", "info": {"title": "Api"}, "paths": paths},
        base_url=f"http://127.0.0.1:{server.server_address[1]}/v1",
        auth="tok-secret-99",
        headers={"X-Client": "mine"},
        timeout=0.3,
        max_response=100_000,
    )
    with SyncClient(made) as client:
        yield client
    server.shutdown()
    server.server_close()


def test_what_is_sent(api: SyncClient) -> None:
    _Api.seen.clear()
    assert not api.call_tool("x", {"q": "a b"}).is_error
    path, headers = _Api.seen[0]
    assert path == "/v1/x?q=a%20b"
    assert (headers["authorization"], headers["x-client"]) == ("Bearer tok-secret-99", "mine")


def test_a_redirect_below_the_base_carries_no_credentials(api: SyncClient) -> None:
    _Api.seen.clear()
    assert not api.call_tool("go", {"to": "same"}).is_error
    assert [path for path, _ in _Api.seen] == ["/v1/go/same", "/v1/x"]
    assert not {"authorization", "x-client", "cookie"} & _Api.seen[1][1].keys()


@pytest.mark.parametrize("to", ["up", "dots", "encoded", "host", "metadata", "scheme", "user"])
def test_a_redirect_elsewhere_is_not_followed(api: SyncClient, to: str) -> None:
    _Api.seen.clear()
    found = api.call_tool("go", {"to": to})
    assert found.is_error
    assert "was not followed" in found.text
    assert len(_Api.seen) == 1


def test_redirects_without_end_are_not_followed(api: SyncClient) -> None:
    _Api.seen.clear()
    assert api.call_tool("go", {"to": "again"}).is_error
    assert len(_Api.seen) == 4


def test_responses_are_bounded_in_size_and_time(api: SyncClient) -> None:
    assert "has more than 100000 bytes" in api.call_tool("large").text
    assert "no response within 0.3 s" in api.call_tool("slow").text


def test_a_base_url_is_held_to_its_form() -> None:
    assert check_base_url("https://api.example/v1/", written=True) == "https://api.example/v1"
    for wrong in (
        "https://a@b/",
        "https://a/?x",
        "https://a/#",
        "https://a/..",
        "gopher://a",
        "https://a\r\nb",
        "a",
        "",
    ):
        with pytest.raises(RegistrationError):
            check_base_url(wrong, written=True)

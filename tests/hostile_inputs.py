"""Everything that reads what a peer has sent, on both sides, with inputs that are made to take long: `CASES`, by name.

A case has a bound: the largest input that it gets, or less where that is more than can be counted. Its shapes make an input of a
size, mostly in bytes. A new parser of what a peer sends gets its case here.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from linkspan import Grant, Limits, Protected, Server
from linkspan.auth.client_registration import said_by
from linkspan.auth.code import PendingLogin, read_redirect
from linkspan.auth.jwks import max_age
from linkspan.auth.metadata import ServerMetadata, decode_or_none
from linkspan.auth.network import check_url
from linkspan.auth.verifying import verify
from linkspan.cli.forms import doubts_about
from linkspan.cli.markdown import markdown_writer
from linkspan.cli.show import Lines, show_result
from linkspan.cli.terminal import Style
from linkspan.client.transports.http_connections import LARGEST_HEAD, MOST_LINES, HttpConnection, TunnelAnswer
from linkspan.client.transports.proxies import is_exempt
from linkspan.core.http_checks import Arrival, Gate, HttpPolicy
from linkspan.flows.http_messages import excerpt, retry_after, shown_url, what_came
from linkspan.host.dialects.anthropic import AnthropicDialect
from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.group import GroupNames
from linkspan.host.memory import difference
from linkspan.host.messages import ModelRequest
from linkspan.host.results import marked, unmarked
from linkspan.schema.summary import type_words
from linkspan.schema.validate import compile_foreign
from linkspan.server.request_state import MAX_BYTES, Binding, RequestStateKeys, unseal
from linkspan.server.uri_template import MAX_URI
from linkspan.skills.frontmatter import FrontmatterError, parse_frontmatter
from linkspan.types import display
from linkspan.wire.challenges import LONGEST_CHALLENGES, read_challenges
from linkspan.wire.framing import EventReader, LineReader
from linkspan.wire.headers import agrees, decode_value, parse_authority, parse_origin, wants_page
from linkspan.wire.jsonrpc import decode
from linkspan.wire.redaction import Redactor, neutral, one_line, redact, revealed_line

__all__ = ["CASES", "SQUARE", "Case"]

JSONObject = dict[str, Any]
KIB = 1024
HEADER = HttpPolicy().max_header_bytes
"""The longest header that a server takes."""

Shape = Callable[[int], Any]


@dataclass(frozen=True)
class Case:
    """A parser, by a function of one input."""

    read: Callable[[Any], object]
    bound: int
    shapes: Mapping[str, Shape]

    def run(self, shape: str, size: int) -> None:
        """Parse an input; what it is refused with does not matter."""
        with suppress(Exception):
            self.read(self.shapes[shape](size))


def of(*pieces: str, before: str = "", after: str = "") -> dict[str, Shape]:
    """Return shapes that repeat a piece each; `before` and `after` stand once."""
    return {piece: lambda size, piece=piece: before + piece * (size // len(piece)) + after for piece in pieces}


def encoded(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return shapes of texts as bytes."""
    return {name: lambda size, shape=shape: shape(size).encode() for name, shape in shapes.items()}


def in_pieces(reader: Any, data: bytes) -> None:
    """Give a reader one byte after the other."""
    one_by_one(reader.receive_data, data)


def one_by_one(receive: Callable[[Any], object], data: Any) -> None:
    """Pass on one byte, or one character, after the other."""
    for at in range(len(data)):
        receive(data[at : at + 1])


# HTTP, as a client reads it.


def response(data: bytes) -> None:
    """Receive a response, in pieces as they come from a network."""
    connection = HttpConnection()
    connection.expect()
    for at in range(0, len(data), 1400):
        connection.receive(data[at : at + 1400])
        while connection.answered and connection.take():
            pass


def head(lines: bytes) -> bytes:
    """Return a response with these header lines."""
    return b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 0\r\n\r\n"


def chunked(body: bytes) -> bytes:
    """Return a response with these chunks and trailers."""
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body


def packed(coding: bytes, body: bytes) -> bytes:
    """Return a response with a packed body."""
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n" % (coding, len(body)) + body


# A server.

server = Server("hostile", limits=Limits(max_line_bytes=KIB * KIB))


@server.tool
def add(a: int, b: int = 0, names: list[str] | None = None, more: dict[str, Any] | None = None) -> int:
    """Add two numbers."""
    return a + b


@server.resource("files://{+path}/of/{name}{?a,b}")
def file(path: str, name: str, a: str = "", b: str = "") -> str:
    """Return a file."""
    return name


@server.resource("wiki://{a}-{b}-{c}-{d}")
def page(a: str, b: str, c: str, d: str) -> str:
    """Return a page."""
    return a


@server.prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return name


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "hostile", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, **params: Any) -> str:
    """Return a message of a client."""
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}})


def calling(arguments: str) -> str:
    """Return a call of a tool with arguments in JSON."""
    return request("tools/call", name="add", arguments="ARGUMENTS").replace('"ARGUMENTS"', arguments)


protected = Protected("https://mcp.example/mcp", verify=lambda token: Grant(token))
gate = Gate(HttpPolicy(cors=True))


def requested(lines: list[tuple[bytes, bytes]]) -> None:
    """Let a request in by its headers."""
    usual = ((b"host", b"mcp.example"), (b"content-type", b"application/json"))
    gate.read("POST", (*usual, *lines), Arrival("10.0.0.1", "10.0.0.2"))


def credentials(value: str) -> None:
    """Read what a request says of its sender, and the token in it."""
    found = protected.credentials({"authorization": value, "dpop": value}, "")
    if found is not None:
        list(verify(protected.verifiers, found.token, "https://mcp.example/mcp", 0.0))


def token(part: str) -> str:
    """Return a JWT with these claims."""
    encoded_ = urlsafe_b64encode(part.encode()).rstrip(b"=").decode()
    return f"Bearer {encoded_}.{encoded_}.{encoded_}"


def unsealed(text: str) -> None:
    """Read the state of a request."""
    binding = Binding("tools/call", "add", "", None, "hostile")
    unseal(RequestStateKeys(b"k" * 32), text, binding, now=0.0)


def page_of(query: str) -> None:
    """Read the redirect that ends a login."""
    read_redirect(query, PendingLogin("https://as.example", True, "state", "verifier", "http://127.0.0.1/callback"))


# A host.


def rendered(text: str) -> None:
    """Show Markdown, which comes in pieces."""
    writer = markdown_writer(lambda _: None, lambda: 80)
    assert writer is not None
    for at in range(0, len(text), 16):
        writer.add(text[at : at + 16])
    writer.end()


def decoded(dialect: Any) -> Callable[[list[Any]], None]:
    """Return what reads the events of a model."""

    def read(events: list[Any]) -> None:
        decoder = dialect.decoder(ModelRequest(()))
        for event in events:
            decoder.feed(event)
        decoder.end(done=True)

    return read


def deltas(*deltas: Any) -> Shape:
    """Return events of chat completions that repeat these."""
    return lambda size: [{"choices": [{"delta": each}]} for each in deltas] * size


def piece(name: str = "", index: int | None = None, text: str = "1,") -> JSONObject:
    """Return a piece of a call."""
    return {"tool_calls": [{"index": index, "function": {"name": name, "arguments": text}}]}


def checked(schema: JSONObject, value: Any) -> None:
    """Check the output of a tool by the schema that its server wrote."""
    compile_foreign(schema).check(value)


def nested(size: int, **leaf: Any) -> JSONObject:
    """Return a schema with one object in the other."""
    found: JSONObject = {"type": "object", **leaf}
    for _ in range(min(size, 60)):
        found = {"type": "object", "properties": {"a": found}, "required": ["a"]}
    return found


SCHEMAS: dict[str, Shape] = {
    "properties": lambda n: ({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(n)}}, {}),
    "required": lambda n: ({"type": "object", "required": [f"p{i}" for i in range(n)]}, {}),
    "members that are not allowed": lambda n: (
        {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
        {f"p{i}": 1 for i in range(n)},
    ),
    "items that are wrong": lambda n: (
        {"type": "object", "properties": {"a": {"items": {"type": "string"}}}},
        {"a": [1] * n},
    ),
    "unique items": lambda n: ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"x": i} for i in range(n)]}),
    "unique numbers": lambda n: ({"properties": {"a": {"uniqueItems": True}}}, {"a": [i / 2 for i in range(n)]}),
    "enum": lambda n: ({"properties": {"a": {"items": {"enum": [*range(n)]}}}}, {"a": [*range(n)]}),
    "enum of texts": lambda n: (
        {"properties": {"a": {"items": {"enum": [f"x{i}" for i in range(n)]}}}},
        {"a": ["y"] * 20},
    ),
    "any of many": lambda n: ({"properties": {"a": {"anyOf": [{"const": i} for i in range(n)]}}}, {"a": -1}),
    "all of many": lambda n: ({"allOf": [{"required": [f"p{i}"]} for i in range(n)]}, {}),
    "references": lambda n: (
        {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(n)} | {f"d{n}": {}}, "$ref": "#/$defs/d0"},
        {},
    ),
    "references that double": lambda n: (
        {
            "$defs": {f"d{i}": {"properties": {key: {"$ref": f"#/$defs/d{i + 1}"} for key in "ab"}} for i in range(n)}
            | {f"d{n}": {}},
            "$ref": "#/$defs/d0",
        },
        {"a": {"a": {}}},
    ),
    "a reference to itself": lambda n: ({"anyOf": [{"$ref": "#"}] * n, "type": "object"}, {}),
    "patterns": lambda n: ({"properties": {"a": {"pattern": "(a*)*b"}}}, {"a": "a" * n}),
    "formats": lambda n: ({"properties": {"a": {"format": "date-time"}}}, {"a": "1" * n}),
    "a large number": lambda n: ({"properties": {"a": {"multipleOf": 0.1}}}, {"a": 10 ** min(n, 4000)}),
}
SIZES_OF_NAMES = {
    "different": lambda size: {"one": [f"tool{i}" for i in range(size)]},
    "of two servers": lambda size: {key: [f"tool{i}" for i in range(size)] for key in ("one", "two")},
    "long": lambda size: {key: [f"{'x' * 200}{i}" for i in range(size)] for key in ("one", "two")},
}


def frontmatter(data: bytes) -> None:
    """Read the frontmatter of a skill of somebody else."""
    with suppress(FrontmatterError):
        parse_frontmatter(data)


def fenced(make: Callable[[int], str]) -> Shape:
    """Return a SKILL.md around what is made."""
    return lambda size: f"---\n{make(size)}\n---\n".encode()


CASES: dict[str, Case] = {
    "frontmatter of skills": Case(
        frontmatter,
        64 * KIB,
        {
            "brackets": fenced(lambda size: "a: " + "[" * size),
            "keys": fenced(lambda size: "".join(f"k{n}: 1\n" for n in range(size // 9))),
            "aliases": fenced(lambda size: "a: &a [x]\nb: [" + "*a, " * (size // 4) + "]"),
            "aliases of aliases": fenced(
                lambda size: (
                    "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, size // 24))
                )
            ),
            "a text": fenced(lambda size: "a: " + "x" * size),
            "digits": fenced(lambda size: "a: " + "9" * size),
            "quotes": fenced(lambda size: "a: " + "''" * (size // 2)),
            "blanks": fenced(lambda size: "a:" + " " * size + "b"),
            "lines": fenced(lambda size: "a: |\n" + "  \n" * (size // 3)),
            "no end": lambda size: b"---\n" + b"--- x\n" * (size // 6),
        },
    ),
    "challenges": Case(
        read_challenges,
        LONGEST_CHALLENGES,
        {
            **of('\\"', "\\", '"', 'a="', 'a="" ', "a=b,", "a b ", "a b=, ", 'é"', "=", before='Bearer x="'),
            **{f"{name} ": shape for name, shape in of('a=""', "a ", "a==, ", '"x"', '="', before="Bearer ").items()},
        },
    ),
    "headers of a response, by lines": Case(
        response,
        MOST_LINES,
        {
            "of one name": lambda size: head(b"".join(b"a: %400d\r\n" % i for i in range(size - 1))),
            "of one name and value": lambda size: head((b"a: %b\r\n" % (b"x" * 400)) * (size - 1)),
            "of many names": lambda size: head(b"".join(b"a%d: %400d\r\n" % (i, i) for i in range(size - 1))),
        },
    ),
    "headers of a response, by bytes": Case(
        response,
        LARGEST_HEAD,
        {
            "one value": lambda size: head(b"a: %b\r\n" % (b"," * (size - 20))),
            "one name": lambda size: head(b"%b: x\r\n" % (b"a" * (size - 20))),
            "interim": lambda size: b"HTTP/1.1 103 X\r\n\r\n" * (size // 18),
            "blanks": lambda size: head(b"a:%b\r\n" % (b" " * (size - 20))),
            "a reason": lambda size: b"HTTP/1.1 200 %b" % (b"x" * size),
        },
    ),
    "trailers": Case(
        response,
        LARGEST_HEAD,
        {
            "lines": lambda size: chunked(b"0\r\n" + b"a: b\r\n" * (size // 6)),
            "one name": lambda size: chunked(b"0\r\n" + b"a" * size),
            "one value": lambda size: chunked(b"0\r\na: " + b"a" * size),
        },
    ),
    "chunks": Case(
        response,
        64 * KIB,
        {
            "of one byte": lambda size: chunked(b"1\r\nx\r\n" * (size // 6)),
            "with extensions": lambda size: chunked(b"1;a=b;c=d\r\nx\r\n" * (size // 14)),
            "one extension": lambda size: chunked(b"1;" + b"a" * size),
        },
    ),
    "packed bodies": Case(
        response,
        64 * KIB,
        {
            "empty members": lambda size: packed(b"gzip", gzip.compress(b"", mtime=0) * (size // 20)),
            "members": lambda size: packed(b"gzip", gzip.compress(b"x" * 40, mtime=0) * (size // 24)),
            "large": lambda size: packed(b"deflate", zlib.compress(b" " * size * 64)),
            "not packed": lambda size: packed(b"gzip", b"\x1f\x8b" * (size // 2)),
        },
    ),
    "the answer of a proxy": Case(
        lambda data: one_by_one(TunnelAnswer().receive, data),
        16 * KIB,
        {"headers": lambda size: b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (size // 6), "one": lambda size: b"x" * size},
    ),
    "events": Case(
        lambda data: [EventReader(KIB * KIB).receive_data(data)],
        64 * KIB,
        encoded(
            of(
                "data:\n",
                "data: x\n\n",
                ":\n",
                "\n",
                "\r",
                "\r\n",
                "id: x\n",
                "event: x\n",
                "retry: 1\n\n",
                "x",
                "data:",
            )
        ),
    ),
    "events in pieces": Case(
        lambda data: in_pieces(EventReader(KIB * KIB), data),
        8 * KIB,
        encoded(of("data:\n", "data: x\n\n", ":\n", "\r\n", "x", before="data:")),
    ),
    "lines": Case(
        lambda data: in_pieces(LineReader(KIB * KIB), data),
        8 * KIB,
        encoded(of("\n", "x\n", "x", " ", " \n")),
    ),
    "lines that are too long": Case(
        lambda data: in_pieces(LineReader(KIB // 4), data), 16 * KIB, encoded(of("x", "xxxxxxx\n"))
    ),
    "messages": Case(
        decode,
        64 * KIB,
        encoded(
            {
                **of(
                    "[", '{"a":', "1", "[],", '"\\u0000', "\\", '{"id":1,', before='{"jsonrpc":"2.0","id":1,"result":'
                ),
                **{
                    f"closed {name}": shape
                    for name, shape in of("1", "9", before='{"jsonrpc":"2.0","id":1,"result":{"a":', after="}}").items()
                },
                "digits in an id": lambda size: '{"jsonrpc":"2.0","id":%s,"method":"x"}' % ("1" * size),
                "a fraction": lambda size: '{"jsonrpc":"2.0","id":1,"result":{"a":0.%s}}' % ("1" * size),
                "members": lambda size: '{{"jsonrpc":"2.0","id":1{}}}'.format(
                    "".join(f',"a{i}":1' for i in range(size // 9))
                ),
                "one member": lambda size: '{"jsonrpc":"2.0","id":1%s}' % (',"result":{}' * (size // 12)),
                "a batch": lambda size: "[%s1]" % ('{"jsonrpc":"2.0","method":"x"},' * (size // 31)),
                "not UTF-8": lambda size: '{"jsonrpc":"2.0","id":1,"result":{"a":"%s"}}' % ("\x80" * size),
            }
        ),
    ),
    "a message that is too large": Case(
        lambda data: [decode(each) for each in LineReader(KIB).receive_data(data)],
        64 * KIB,
        encoded(of('"a":1,', '"id":', "{", '"', before='{"jsonrpc":"2.0",', after='"method":"x"}\n')),
    ),
    "a body that is no answer": Case(
        lambda data: what_came(data, 1, Limits()), 64 * KIB, encoded(of("<", "<title ", "[", "Bearer ", "x="))
    ),
    "the body of an error": Case(lambda data: excerpt(data), 64 * KIB, encoded(of("<title", "<title>", "\x1b", "a "))),
    "Retry-After": Case(lambda text: retry_after(text, 0.0), HEADER, of("1", "Mon, ", "1 ", ":", "(", "+")),
    "a URL": Case(
        lambda text: (shown_url(text), check_url(text, "https://mcp.example/mcp"), doubts_about(text)),
        64 * KIB,
        of("a.", "@", ":", "%41", "/..", "[", "?a", "1", before="https://"),
    ),
    "media types": Case(
        lambda text: (wants_page(text), requested([(b"accept", text.encode())])),
        HEADER,
        of(",", "a/b,", ";", "text/html;q=0,", " ", '"'),
    ),
    "headers of a request": Case(
        requested,
        4 * KIB,
        {
            "of one name": lambda size: [(b"a", b"x")] * size,
            "of many names": lambda size: [(b"a%d" % i, b"x") for i in range(size)],
        },
    ),
    "a host and an origin": Case(
        lambda text: (
            parse_authority(text),
            parse_origin(f"https://{text}"),
            requested([(b"origin", text.encode()), (b"access-control-request-headers", text.encode())]),
        ),
        HEADER,
        of("a", "a.", "%41", "[", ":", "1", "[::", "/", "mcp-param-,"),
    ),
    "a header that repeats a value": Case(
        lambda text: (decode_value(text), agrees(decode_value(text), 1), agrees(decode_value(text), 1.5)),
        HEADER,
        {
            **of("1", "0", "1e", "é", " ", "="),
            "base64": lambda size: f"=?base64?{b64encode(b'1' * (size // 2)).decode()}?=",
            "not base64": lambda size: f"=?base64?{'=' * size}?=",
        },
    ),
    "credentials": Case(
        credentials,
        HEADER,
        {
            **of("a", ".", "=", ", ", "bearer ", " ", before="Bearer "),
            **of(", bearer", ",  ", before="Basic "),
            "claims": lambda size: token('{"iss":"%s"}' % ("x" * (size // 4))),
            "claims that nest": lambda size: token('{"a":' * (size // 20)),
            "claims of digits": lambda size: token('{"exp":%s}' % ("1" * (size // 4))),
        },
    ),
    "a query": Case(
        lambda text: protected.credentials({}, text), HEADER, of("&", "a=b&", "%41", "+", ";", "=", "access_token=&")
    ),
    "a sealed state": Case(unsealed, MAX_BYTES, of("a", "A", "=", "-", before="v1.")),
    "a redirect": Case(page_of, 64 * KIB, of("&", "a=b&", "%", "%41", "+", "error=", before="state=state&")),
    "a document of metadata": Case(
        lambda data: decode_or_none(data, ServerMetadata),
        64 * KIB,
        encoded(of('"a",', "1,", "[", before='{"issuer":"x","scopes_supported":[')),
    ),
    "the refusal of an authorization server": Case(
        lambda data: said_by(data, 400, ["secret"]),
        64 * KIB,
        encoded(of("a ", "secret", "Bearer ", "code=", "\\n", before='{"error":"x","error_description":"', after='"}')),
    ),
    "Cache-Control": Case(
        lambda text: max_age({"cache-control": text}), HEADER, of("max-age", "max-age=", "max-age ", "no-", " ", ", ")
    ),
    "NO_PROXY against a host": Case(
        lambda text: is_exempt(text, 443, "a.example,10.0.0.0/8"), HEADER, of("a", "1.", ":")
    ),
    "secrets in texts": Case(
        redact,
        64 * KIB,
        of(
            "a",
            "a ",
            "password",
            "password=",
            "password: ",
            "://a:",
            "Bearer ",
            "-----BEGIN PRIVATE KEY-----",
            "sk-",
            "eyJ",
            "eyJa.",
            "code=",
            "?code=",
            "--password ",
            "api_key",
            "token\\",
            '"token":',
            "Authorization: ",
            "a.a-",
            "=",
            ":\n",
            "AKIA",
            "\n",
            "://",
            "@",
            "_",
            "-",
        ),
    ),
    "secrets in messages": Case(
        lambda value: Redactor(["secret"]).message(value),
        KIB // 2,
        {
            "members": lambda size: {f"password{i}": "x" for i in range(size)},
            "texts": lambda size: ["password=secret"] * size,
            "forms": lambda size: (
                [{"requestedSchema": {"properties": {"pin": {}}}}, {"action": "x", "content": {"pin": "1"}}] * size
            ),
        },
    ),
    "hidden characters": Case(
        lambda text: (neutral(text), one_line(text, 300), revealed_line(text)),
        4 * KIB,
        of(
            "\x1b", "\u202e", "\u200d", "a\u200d", "\U0001f468\u200d", "\ufe0f", "\r\n", " ", "\t \n", "\U000e0041", "a"
        ),
    ),
    "results for a model": Case(
        lambda text: (marked(text, "server", "tool"), unmarked(text), unmarked(marked(text, "server", "tool"))),
        64 * KIB,
        of("<", "< ", " ", "</", "<tool_output", "\n</tool_output>", "<tool_output ", before="<"),
    ),
    "Markdown": Case(
        rendered,
        4 * KIB,
        of("a", "*", "`", "> ", "- ", "\n", "| ", "&#8238;", "<", "_a", "\\", before="a "),
    ),
    "Markdown of links": Case(rendered, KIB, of("[", "![", before="a ")),
    "Markdown of many paragraphs": Case(rendered, KIB // 4, of("a\n\n")),
    "Markdown in a long block of code": Case(rendered, KIB, of("a ", "a\n", "`", before="```\na")),
    "Markdown of blanks": Case(rendered, 32 * KIB, of(" ", before="a ")),
    "Markdown of blanks in a block of code": Case(rendered, 32 * KIB, of(" ", "\t", before="```\na")),
    "Markdown of empty lines in a block of code": Case(rendered, 2 * KIB, of("\n", " \n", before="```\na", after="a")),
    "lines for a terminal": Case(
        lambda text: one_by_one(Lines(lambda _: None).add, text), 8 * KIB, of("x", "\r", "x\n")
    ),
    "results in a terminal": Case(
        lambda text: show_result({"content": [{"type": "text", "text": text}]}, Style(on=False)),
        32 * KIB,
        of("a", "\x1b[31m", "\n", "\U0001f468\u200d", '{"a":'),
    ),
    "results in a notebook": Case(
        lambda text: (display._markdown(text), display._html(text), display._escaped_markdown(text)),
        8 * KIB,
        of("`", "a`", "&", "<", "\\", "|"),
    ),
    "names of tools in a group": Case(lambda found: GroupNames().assign(found), KIB, SIZES_OF_NAMES),
    "definitions that changed": Case(
        lambda texts: difference(*texts),
        16 * KIB,
        {
            "the same line": lambda size: (
                {"description": "x\n" * (size // 2)},
                {"description": "x\n" * (size // 2) + "y"},
            ),
            "a few lines": lambda size: tuple(
                {"description": "\n".join(f"{(i * k) % 53}" for i in range(size // 4))} for k in (1, 7)
            ),
            "one long line": lambda size: ({"description": "ab" * (size // 2)}, {"description": "ba" * (size // 2)}),
            "members": lambda size: tuple(
                {"inputSchema": {f"{i * k % 97}-{i}": 1 for i in range(size // 16)}} for k in (1, 5)
            ),
        },
    ),
    "schemas of a server": Case(lambda both: checked(*both), 512, SCHEMAS),
    "schemas in words": Case(lambda both: type_words(both[0], both[0]), 512, SCHEMAS),
    "events of chat completions": Case(
        decoded(OpenAIDialect()),
        KIB // 2,
        {
            "words": deltas({"content": "x"}),
            "thoughts": deltas({"reasoning_content": "x" * 50}),
            "pieces of one call": deltas(piece("a", 0, "[")),
            "pieces without an index": deltas(piece("a", None, "[1]")),
            "pieces that name it each time": deltas(piece("a", None, '{"a":')),
            "calls": deltas(piece("a"), piece("b")),
            "details": deltas({"reasoning_details": [{"x": 1}]}),
        },
    ),
    "events of messages": Case(
        decoded(AnthropicDialect()),
        KIB,
        {
            "blocks": lambda size: [
                {
                    "type": "content_block_start",
                    "index": i,
                    "content_block": {"type": "tool_use", "id": "a", "name": "a"},
                }
                for i in range(size)
            ],
            "pieces": lambda size: [
                {
                    "type": "content_block_start",
                    "index": 0,
                    "content_block": {"type": "tool_use", "id": "a", "name": "a"},
                },
                *[
                    {
                        "type": "content_block_delta",
                        "index": 0,
                        "delta": {"type": "input_json_delta", "partial_json": "[" * 50},
                    }
                ]
                * size,
            ],
            "thoughts": lambda size: [
                {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
                *[
                    {
                        "type": "content_block_delta",
                        "index": 0,
                        "delta": {"type": "thinking_delta", "thinking": "x" * 50},
                    }
                ]
                * size,
            ],
        },
    ),
    "a call": Case(
        lambda text: server.handle_json(text),
        32 * KIB,
        {
            "digits": lambda size: calling('{"a":%s}' % ("1" * size)),
            "a list": lambda size: calling('{{"a":1,"names":[{}]}}'.format(",".join(["1"] * (size // 2)))),
            "an object": lambda size: calling(
                '{{"a":1,"more":{{{}}}}}'.format(",".join(f'"x{i}":1' for i in range(size // 9)))
            ),
            "one member": lambda size: calling('{"a":1%s}' % (',"a":1' * (size // 6))),
            "unknown members": lambda size: calling(
                '{{"a":1{}}}'.format("".join(f',"n{i}":1' for i in range(size // 9)))
            ),
            "a long member": lambda size: calling('{"a":1,"%s":1}' % ("na" * (size // 2))),
            "nested": lambda size: calling('{"a":1,"more":%s}' % ('{"a":' * (size // 6))),
            "brackets in a text": lambda size: calling('{"a":1,"more":{"a":"%s"}}' % ("[" * size)),
            "escapes": lambda size: calling('{"a":1,"more":{"a":"%s"}}' % ("\\u0041" * (size // 6))),
            "an unknown tool": lambda size: request("tools/call", name="ad" * (size // 2)),
        },
    ),
    "a URI": Case(
        lambda text: server.handle_json(request("resources/read", uri=text)),
        MAX_URI,
        {
            **of("/of/", "a/of/", "/", "%2F", "..", "a", before="files://"),
            **of("-", "a-", "%2D", "--a", before="wiki://"),
            **of("&a=1", "&", "a=", "%26", before="files://x/of/y?"),
            **of(" ", ":", before=""),
        },
    ),
    "other requests": Case(
        lambda text: server.handle_json(text),
        32 * KIB,
        {
            "a cursor": lambda size: request("tools/list", cursor="A" * size),
            "a cursor of digits": lambda size: request("tools/list", cursor=b64encode(b"1" * size).decode()),
            "a prompt": lambda size: request("prompts/get", name="gree" * (size // 4)),
            "arguments of a prompt": lambda size: request(
                "prompts/get", name="greet", arguments={f"n{i}": "" for i in range(size // 9)}
            ),
            "a completion": lambda size: request(
                "completion/complete",
                ref={"type": "ref/resource", "uri": "files://{+path}" * (size // 15)},
                argument={"name": "path", "value": "a" * size},
            ),
            "a method": lambda size: request("tools/" * (size // 6)),
            "an envelope": lambda size: json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "ping",
                    "params": {"_meta": {**META, **{f"x/{i}": i for i in range(size // 9)}}},
                }
            ),
            "a handshake": lambda size: json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "initialize",
                    "params": {"protocolVersion": "1" * size, "capabilities": {}},
                }
            ),
        },
    ),
}


# Parsers that took work in the square, as they were.

_TO_NEXT = re.compile(r'(?:"(?:[^"\\]|\\.)*+"|[^,])*+(?:,|\Z)')


def joined(values: list[str]) -> None:
    """Join the values of a header as its lines come."""
    whole = ""
    for each in values:
        if each not in whole.split(", "):
            whole = f"{whole}, {each}"


SQUARE: dict[str, Case] = {
    "a quoted string that is tried again at each place": Case(_TO_NEXT.match, 4 * KIB, of('\\"', before='"')),
    "a header that is joined line by line": Case(joined, KIB, {"lines": lambda size: [str(i) for i in range(size)]}),
}

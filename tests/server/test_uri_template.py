"""URI templates: what fits, what each variable is, what never fits, and that nothing takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from linkspan.errors import RegistrationError
from linkspan.server.uri_template import MAX_URI, check_uri, compile_template, is_template

FITS = [
    ("note://{day}", "note://monday", {"day": "monday"}),
    ("note://{day}", "note://caf%C3%A9%20noir", {"day": "café noir"}),
    ("note://{day}", "note://caf\u00e9", {"day": "café"}),
    ("note://{day}", "note://a,b;c=d&e", {"day": "a,b;c=d&e"}),
    ("note://{day}", "note://%252e%252e", {"day": "%2e%2e"}),
    ("note://{day}", "note://...", {"day": "..."}),
    ("users://{id}/profile", "users://7/profile", {"id": "7"}),
    ("users://{id}/{part}", "users://7/name", {"id": "7", "part": "name"}),
    ("map://{x,y}", "map://1,2", {"x": "1", "y": "2"}),
    ("file:///data/{+path}", "file:///data/a/b%2Fc.txt", {"path": "a/b/c.txt"}),
    ("file://{+path}", "file:///etc/hosts", {"path": "/etc/hosts"}),
    ("https://example.com{+path}/raw", "https://example.com/a/raw/raw", {"path": "/a/raw"}),
    ("file:///{+path}/lines/{n}", "file:///a/lines/b/lines/7", {"path": "a/lines/b", "n": "7"}),
    ("page://{name}{#part}", "page://home#top/left?x", {"name": "home", "part": "top/left?x"}),
    ("file:///{name}{.ext}", "file:///a.tar.gz", {"name": "a.tar", "ext": "gz"}),
    ("file:///{name}.{ext}", "file:///a.tar.gz", {"name": "a.tar", "ext": "gz"}),
    ("x:y{/a,b}", "x:y/1/2", {"a": "1", "b": "2"}),
    ("git://repo{/path*}", "git://repo/src/a.py", {"path": "src/a.py"}),
    ("x:y{;a,b}", "x:y;a=1;b=2", {"a": "1", "b": "2"}),
    ("find:it{?q,limit}", "find:it", {}),
    ("find:it{?q,limit}", "find:it?limit=5&q=a%26b/c", {"q": "a&b/c", "limit": "5"}),
    ("find:it{?q,limit}", "find:it?q=&", {"q": ""}),
    ("find:it{?q}", "find:it?q=a%23b%20c", {"q": "a#b c"}),
    ("find:it{?q}", "find:it?q=https://example.com/a", {"q": "https://example.com/a"}),
    ("find:{what}{?q}{&limit}", "find:it?limit=5", {"what": "it", "limit": "5"}),
    ("find:it?kind=all{&q}", "find:it?kind=all&q=x", {"q": "x"}),
    ("find:it?kind={kind}{&q}", "find:it?kind=all", {"kind": "all"}),
    ("https://example.com/{page}", "https://example.com/home", {"page": "home"}),
]


@pytest.mark.parametrize(("template", "uri", "variables"), FITS)
def test_a_uri_that_fits_yields_its_variables(template: str, uri: str, variables: dict[str, str]) -> None:
    assert compile_template(template).match(uri) == variables


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("note://{day}", "note://"),
        ("note://{day}", "note:/x"),
        ("note://{day}", "note://a/b"),
        ("note://{day}", "note://a?b"),
        ("note://{day}", "note://\ud800"),
        ("note://{day}", "note://%FF"),
        ("note://{day}", "note://" + "a" * MAX_URI),
        ("note://{day}/x", "note://monday"),
        ("x:{a}/{b}", "x:1"),
        ("x:y{;a}", "x:y;b=1"),
        ("find:it{?q}", "find:it?q=1&other=2"),
        ("find:it{?q}", "find:it?q=1#top"),
        ("find:it{?q}", "find:it?q=/etc/passwd"),
        ("find:it{?q}", "find:it?q=%2Fetc/passwd"),
        ("find:it?kind={kind}{&q}", "find:it?kind=all&q=1#top"),
        ("find:it{?q}", "find:it?q=1&q=2"),
        ("find:it?kind=all{&q}", "find:it?kind=one&q=x"),
        ("find:it?kind=all{&q}", "find:it?q=x"),
    ],
)
def test_a_uri_that_does_not_fit_yields_nothing(template: str, uri: str) -> None:
    assert compile_template(template).match(uri) is None


CLIMBS = [
    "..",
    ".",
    "%2e%2e",
    ".%2E",
    "%2e",
    "a\\b",
    "a%5Cb",
    "a%00",
    "\x00",
    "..%2fa",
    "a%2F..",
    "..\\a",
    "%2e%2e%5ca",
    "..%20",
    "%20..",
    ".%20.",
    "..%20.",
    "...%20",
    "..%09",
    "..%0a",
    ".%c2%a0",
]


@pytest.mark.parametrize("text", ["a/b", "a/b/", "a//b", "a/b c", "50%/x"])
@pytest.mark.parametrize("template", ["file:///data/{name}", "x:{name}", "x:y{.name}", "x:y{;name}", "x:y{?name}"])
def test_an_encoded_slash_round_trips(template: str, text: str) -> None:
    compiled = compile_template(template)
    uri = compiled.expand({"name": text})
    assert "%2F" in uri
    assert compiled.match(uri) == {"name": text}


@pytest.mark.parametrize("template", ["file:///data/{name}", "x:{name}", "x:y{.name}", "x:y{;name}", "x:y{?name}"])
def test_an_encoded_slash_makes_no_absolute_path(template: str) -> None:
    compiled = compile_template(template)
    assert compiled.match(compiled.expand({"name": "/etc"})) is None


@pytest.mark.parametrize("value", [*CLIMBS, "%2Fetc", "a/b", "a%2F%2e%2e%2Fb"])
def test_a_plain_variable_climbs_nowhere_and_has_no_plain_slash(value: str) -> None:
    assert compile_template("file:///data/{name}").match(f"file:///data/{value}") is None
    assert compile_template("file:///data/{name}.txt").match(f"file:///data/{value}.txt") is None or value in (
        ".",
        "..",
    )


@pytest.mark.parametrize(
    "template", ["file:///data/{+path}", "file:///data{/path*}", "x:y{#path}", "x:{+path}", "x:y{?path}"]
)
@pytest.mark.parametrize("value", [*CLIMBS, "../../etc/passwd", "a/../b", "a/./b", "a/%2e%2e/b", "a/..", "./a"])
def test_a_wide_variable_never_climbs(template: str, value: str) -> None:
    front = re.sub(r"\{.*", "", template) + {"/": "/", "#": "#", "?": "?path="}.get(
        template[template.index("{") + 1], ""
    )
    assert compile_template(template).match(front + "ab/cd") == {"path": "ab/cd"}
    assert compile_template(template).match(front + value) is None


@pytest.mark.parametrize(
    "template", ["file:///data/{+path}", "file:///data{/path*}", "docs://{+path}", "x:{a}/{+path}"]
)
@pytest.mark.parametrize("value", ["/etc/passwd", "%2Fetc/passwd", "//etc"])
def test_a_wide_variable_behind_a_slash_is_never_an_absolute_path(template: str, value: str) -> None:
    front = template.replace("{a}", "a").replace("{/path*}", "/").replace("{+path}", "")
    assert compile_template(template).match(front + "etc/passwd") is not None
    assert compile_template(template).match(front + value) is None


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("note://today", "has no {variable}"),
        ("note://{day", "brace without its partner"),
        ("note://day}", "brace without its partner"),
        ("note://{{day}}", "brace without its partner"),
        ("note://{}", "'' is not a variable's name"),
        ("note://{a b}", "'a b' is not a variable's name"),
        ("note://{a,}", "'' is not a variable's name"),
        ("note://{=day}", "'=day' is not a variable's name"),
        ("note://{a}/{a}", "names a variable twice"),
        ("note://{a}{b}", "put something between two variables"),
        ("note://{a}{+b}", "put something between two variables"),
        ("note://{day:3}", "write the plain name"),
        ("note://{day*}", "write the plain name"),
        ("note://x{?day*}", "write the plain name"),
        ("note://x{?day}/y", "at the end"),
        ("note://x{?day}{#part}", "at the end"),
        ("note://x#y{?day}", "leave the fragment out"),
        ("note://x?y=1{?day}", "write {&name}"),
        ("note://x{?a}{?b}", "write {&name}"),
        ("note://x{&day}", "write {?name}"),
        ("no te://{day}", "percent-encode"),
        ("note://100%/{day}", "percent-encode"),
        ("1note://{day}", "a scheme is letters"),
    ],
)
def test_a_bad_template_is_refused_with_what_to_write(template: str, problem: str) -> None:
    with pytest.raises(RegistrationError, match=re.escape(problem)):
        compile_template(template)


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        ("x:{a}", {"a": "b/c d%é"}, "x:b%2Fc%20d%25%C3%A9"),
        ("x:{+a}", {"a": "b/c d%20%"}, "x:b/c%20d%20%25"),
        ("x:y{#a}", {"a": "b/c"}, "x:y#b/c"),
        ("x:y{.a,b}", {"a": "1", "b": "2"}, "x:y.1.2"),
        ("x:y{/a*}", {"a": "b/c"}, "x:y/b/c"),
        ("x:y{;a,b}", {"a": "", "b": "2"}, "x:y;a;b=2"),
        ("x:y{?a,b}", {"a": "", "b": "2"}, "x:y?a=&b=2"),
        ("x:y?c=3{&a,b}", {"b": "2"}, "x:y?c=3&b=2"),
        ("x:y{?a,b}", {}, "x:y"),
    ],
)
def test_a_template_expands(template: str, values: dict[str, str], uri: str) -> None:
    assert compile_template(template).expand(values) == uri


SEGMENT = st.text(st.characters(exclude_characters="/\\\x00", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: "".join(text.split()).strip(".") != "" or text == "..."
)


@given(SEGMENT, SEGMENT, st.none() | SEGMENT, st.none() | SEGMENT)
def test_what_was_expanded_matches_again(a: str, b: str, c: str | None, d: str | None) -> None:
    template = compile_template("x://{a}/-{/b*}{?c,d}")
    values = {name: value for name, value in zip("abcd", (a, b, c, d), strict=True) if value is not None}
    assert template.match(template.expand(values)) == values


PART = st.sampled_from(["{+%s}", "{%s}", "{#%s}", "{.%s}", "{/%s}", "{/%s*}", "-", "/", "a", "a-", ".."])
ODD = st.text(st.sampled_from("a-./%25eEfF\\;=&?#,\x00"))


@given(st.lists(PART, min_size=1, max_size=6), ODD)
@example(["{+%s}", "/", "{+%s}"], "a//a/b")
def test_no_uri_makes_any_template_raise_or_climb(parts: list[str], tail: str) -> None:
    text = "x:" + "".join(part % f"v{n}" if "%" in part else part for n, part in enumerate(parts))
    try:
        template = compile_template(text)
    except RegistrationError:
        return
    for value in (template.match("x:" + tail) or {}).values():
        assert not {"\\", "\x00"} & set(value)
        assert not {".", ".."} & set(value.split("/"))


@given(
    st.lists(st.sampled_from(["a", "-", "b-"]), min_size=1, max_size=3), st.text(st.sampled_from("ab-"), max_size=12)
)
def test_the_matcher_finds_a_reading_wherever_there_is_one(between: list[str], tail: str) -> None:
    """A backtracking expression, slow but plain, is the witness."""
    template = compile_template("x:{v0}" + "".join(f"{text}{{v{n + 1}}}" for n, text in enumerate(between)))
    witness = re.compile("x:(.+)" + "".join(re.escape(text) + "(.+)" for text in between))
    found = template.match("x:" + tail)
    assert (found is None) == (witness.fullmatch("x:" + tail) is None)
    assert found is None or template.expand(found) == "x:" + tail


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("{a}-{b}-{c}-{d}-{e}/x", "-" * MAX_URI),
        ("{+a}/{+b}/{+c}/{+d}/{+e}!", "/" * MAX_URI),
        ("{+a}aaaaaaab{+b}aaaaaaab{+c}", "a" * MAX_URI),
        ("x:{/a*}/y{/b*}/y{/c*}", "x:" + "/y" * (MAX_URI // 2 - 1) + "?"),
        ("x:{?a,b}", "x:?" + "a=1&" * (MAX_URI // 4 - 1)),
    ],
)
@pytest.mark.timeout(20)
def test_no_uri_takes_long(template: str, uri: str) -> None:
    compiled = compile_template(template)
    assert compiled.match(uri) is None  # milliseconds; where it backtracked, minutes


@pytest.mark.parametrize(
    "uri", ["note://today", "https://example.com/my_resource", "urn:a:b", "file:///a%20b", "x:/y?z=a:b#c", "x:é/a"]
)
def test_a_uri_of_a_resource_has_a_scheme(uri: str) -> None:
    check_uri(uri)


@pytest.mark.parametrize("template", ["files/{path}", "/files/{path}", "{+path}", "git+{vcs}://x", "{scheme}://x"])
def test_a_template_has_a_scheme_or_begins_with_a_variable(template: str) -> None:
    if template.endswith("files/{path}"):
        with pytest.raises(RegistrationError, match="has no scheme: write 'https://"):
            compile_template(template)
    else:
        assert compile_template(template)


NO_URIS = ["", "a b", "a\\b", "x:\n", "1x:y", ":x", "a{b}", "<a>", "a%2", "a%zz", "\ud800"]
NO_SCHEMES = ["é/a", "/etc/passwd", "today", "//host/a"]


@pytest.mark.parametrize("uri", [*NO_URIS, *NO_SCHEMES])
def test_what_is_no_uri_is_refused(uri: str) -> None:
    with pytest.raises(RegistrationError, match="cannot be a resource's URI"):
        check_uri(uri)


@pytest.mark.parametrize(("uri", "expected"), [("x://{a}", True), ("x://}", True), ("x://a", False)])
def test_braces_make_a_template(uri: str, expected: bool) -> None:
    assert is_template(uri) is expected

"""Questions of a server, at the prompt: the dialogue as a list of lines, and once each at a real terminal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from shell import TRAVEL, at_terminal

from linkspan.cli.forms import Unreadable, ask_user, doubts_about, fields_of, read_value
from linkspan.cli.show import cut, progress_line
from linkspan.cli.terminal import Style
from linkspan.flows.answers import Refused
from linkspan.types.messages import ElicitParams, ProgressParams


class Person:
    """Types these lines, and keeps what it was shown."""

    interactive = True
    err = Style(on=False)

    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)
        self.shown = ""

    def write_line(self, text: str) -> None:
        self.shown += f"{text}\n"

    def read(self, prompt: str) -> str:
        self.shown += prompt
        if not self._lines:
            raise EOFError
        line = self._lines.pop(0)
        self.shown += f"{line}\n"
        return line


class Nobody(Person):
    interactive = False


FIELDS: dict[str, Any] = {
    "name": {"type": "string", "title": "Your name", "description": "As in your\npassport."},
    "seat": {
        "type": "string",
        "oneOf": [{"const": "a", "title": "Aisle"}, {"const": "w", "title": "Window"}],
        "default": "w",
    },
    "bags": {"type": "integer", "minimum": 0, "maximum": 3},
    "meals": {"type": "array", "items": {"type": "string", "enum": ["fish", "soup", "cake"]}},
    "insured": {"type": "boolean", "default": False},
}
FORM = ElicitParams("Who travels?", requested_schema={"type": "object", "properties": FIELDS, "required": ["name"]})


def without_blanks(text: str) -> str:
    """Return a text without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.split("\n"))


def ask(person: Person, params: ElicitParams = FORM, **answers: str) -> object:
    return ask_user(person, "travel", params, answers)


def test_a_form_is_asked_field_by_field_and_reviewed() -> None:
    person = Person("", "Ada", "1", "7", "2", "1, cake", "yes", "y")
    assert ask(person) == {"name": "Ada", "seat": "a", "bags": 2, "meals": ["fish", "cake"], "insured": True}
    assert (
        without_blanks(person.shown)
        == """
travel asks:
  Who travels?
Enter accepts the value in [brackets]; "decline" refuses, "cancel" or Ctrl-D cancels.

  Your name (text)
  As in your passport.
  name:
  name needs a value ("decline" refuses, "cancel" cancels)
  name: Ada

  seat (one of these)
    1) Aisle
    2) Window
  seat [Window]: 1

  bags (whole number, at least 0, at most 3, optional)
  bags: 7
  bags must be at most 3
  bags: 2

  meals (any of these, separated by commas, optional)
    1) fish
    2) soup
    3) cake
  meals: 1, cake

  insured (yes or no)
  insured [no]: yes

  name     Ada
  seat     Aisle
  bags     2
  meals    fish, cake
  insured  yes
Send this to travel? [Y, e to edit, decline, cancel]: y
"""
    )


def test_enter_takes_defaults_and_leaves_out_the_rest() -> None:
    assert ask(Person("Ada", "", "", "", "", "")) == {"name": "Ada", "seat": "w", "insured": False}


def test_editing_offers_what_was_typed() -> None:
    person = Person("Ada", "", "2", "", "", "e", "Bea", "", "", "", "", "")
    assert ask(person) == {"name": "Bea", "seat": "w", "bags": 2, "insured": False}
    assert "name [Ada]: Bea" in person.shown


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["decline"], False),
        (["Cancel"], None),
        ([], None),
        (["Ada", "decline"], False),
        (["Ada", "", "", "", "", "n"], False),
        (["Ada", "", "", "", "", "c"], None),
        (["Ada", "", "", "", "", "decline"], False),
        (["Ada"], None),
    ],
)
def test_a_user_can_decline_or_cancel_anywhere(typed: list[str], answer: object) -> None:
    assert ask(Person(*typed)) is answer


def test_the_words_themselves_are_sent_in_quotes() -> None:
    form = ElicitParams("Say", requested_schema={"properties": {"word": {"type": "string"}}, "required": ["word"]})
    assert ask(Person('"decline"', "y"), form) == {"word": "decline"}


def test_a_form_without_fields_is_a_confirmation() -> None:
    form = ElicitParams("Really?", requested_schema={"type": "object", "properties": {}})
    assert ask(Person("y"), form) == {}
    assert ask(Person("n"), form) is False
    with pytest.raises(Refused, match="run it in a terminal to confirm"):
        ask(Nobody(), form)


def test_answers_fill_forms_without_asking() -> None:
    assert ask(Nobody(), name="Ada", meals="soup,3", bags="1") == {"name": "Ada", "meals": ["soup", "cake"], "bags": 1}
    with pytest.raises(Refused, match=r"answer it with --answer name=\.\.\."):
        ask(Nobody(), bags="1")
    with pytest.raises(Refused, match="--answer bags must be a whole number, not 'two'"):
        ask(Nobody(), name="Ada", bags="two")
    person = Person("Ada", "", "", "", "y")
    assert ask(person, bags="1") == {"name": "Ada", "seat": "w", "bags": 1, "insured": False}
    assert "bags:" not in person.shown


def test_a_default_that_does_not_fit_its_field_is_none() -> None:
    (field,) = fields_of({"properties": {"n": {"type": "integer", "default": "many"}}})
    assert (field.default, field.required) == (None, True)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, " 7 ", 7),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "7", 7),
        ({"type": "boolean"}, "N", False),
        ({"type": "string", "enum": ["1", "2"], "enumNames": ["2", "1"]}, "1", "1"),
        ({"enum": [10, 20]}, "20", 20),
        ({"type": "string", "format": "date"}, "1815-12-10", "1815-12-10"),
        ({"type": "integer"}, "1.5", None),
        ({"type": "number"}, "nan", None),
        ({"type": "boolean"}, "maybe", None),
        ({"type": "string", "format": "date"}, "tomorrow", None),
        ({"type": "string", "format": "email"}, "ada", None),
        ({"type": "string", "format": "uri"}, "no uri", None),
        ({"type": "string", "maxLength": 2}, "abc", None),
        ({"type": "string", "enum": ["a"]}, "2", None),
    ],
)
def test_texts_become_values_of_their_fields(schema: dict[str, Any], text: str, value: object) -> None:
    (field,) = fields_of({"properties": {"x": schema}})
    if value is None:
        with pytest.raises(Unreadable):
            read_value(field, text)
    else:
        found = read_value(field, text)
        assert (found, type(found)) == (value, type(value))


def test_what_a_server_writes_into_a_form_commands_nothing() -> None:
    evil = "\x1b[2Jx\u202e"
    fields = {evil: {"type": "string", "title": evil, "description": evil, "enum": [evil, "b"], "default": evil}}
    person = Person("", "y")
    assert ask(person, ElicitParams(evil, requested_schema={"properties": fields})) == {evil: evil}
    assert not {"\x1b", "\u202e"} & set(person.shown)


def test_no_default_can_look_like_a_question_of_ours() -> None:
    fields = {"name": {"type": "string", "default": "Ada\nCall it? [y]es"}}
    person = Person("", "y")
    assert ask(person, ElicitParams("Who?", requested_schema={"properties": fields})) == {"name": "Ada\nCall it? [y]es"}
    assert "\nCall it?" not in person.shown


def test_a_form_that_asks_for_secrets_is_pointed_out() -> None:
    person = Person()
    ask(person, ElicitParams("Log in", requested_schema={"properties": {"api_key": {"type": "string"}}}))
    assert "Forms must not ask for passwords" in person.shown


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    import webbrowser

    urls: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: urls.append(url) or "works" in url)
    return urls


def page(url: str) -> ElicitParams:
    return ElicitParams("Please pay", mode="url", url=url)


def test_a_page_is_opened_with_consent_only(opened: list[str]) -> None:
    person = Person("y")
    assert ask(person, page("https://bank.example/works?a=1")) is True
    assert opened == ["https://bank.example/works?a=1"]
    assert "\n  https://bank.example/works?a=1\n  host: bank.example\n" in person.shown
    for typed, answer in ((["", "y"], False), (["n"], False), (["cancel"], None), (["decline"], False), ([], None)):
        assert ask(Person(*typed), page("https://bank.example/works")) is answer
    assert len(opened) == 1


def test_a_page_may_be_opened_by_hand(opened: list[str]) -> None:
    person = Person("y", "self")
    assert ask(person, page("https://bank.example/breaks")) is True
    assert "No browser could be started" in person.shown


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "https://", "https://a b/", "https://a\x1b[2J/"]
)
def test_only_web_pages_are_opened(opened: list[str], url: str) -> None:
    person = Person("y")
    assert ask(person, page(url)) is False
    assert not opened
    assert "\x1b" not in person.shown


@pytest.mark.parametrize(
    ("url", "doubt"),
    [
        ("https://xn--pple-43d.com/", "Punycode"),
        ("https://\u0430pple.com/", "outside ASCII"),
        ("https://bank.example@evil.example/", "is not the host"),
        ("https://203.0.113.7/", "IP address"),
        ("http://bank.example/", "not encrypted"),
        ("http://localhost:8080/", "on this computer"),
    ],
)
def test_odd_hosts_are_pointed_out(url: str, doubt: str) -> None:
    assert any(doubt in each for each in doubts_about(url))
    assert doubts_about("https://bank.example/pay") == []


def test_progress_fits_on_its_line() -> None:
    found = ProgressParams(1, 2, 5, "packing\x1b[2J\nmore")
    assert progress_line(found, 80) == r"[########------------]  40%  2/5  packing\x1b[2J more"
    assert progress_line(ProgressParams(1, 2.5), 80) == "... 2.5"
    assert progress_line(ProgressParams(1, 9, 0), 80) == "... 9/0"
    assert len(progress_line(found, 30)) == 29
    assert cut("日本語", 5) == "日本"


# At a terminal.


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_form_at_a_terminal(era: str) -> None:
    with at_terminal("call", TRAVEL, "check_in", "train=EC 7", "--era", era) as terminal:
        terminal.expect("everything (Travel agency) asks:")
        terminal.expect("name: ")
        terminal.type("Ada")
        terminal.expect("born: ")
        terminal.type("1815-12-10")
        terminal.expect("seat [window]: ")
        terminal.type("")
        terminal.expect("Send this to everything (Travel agency)?")
        terminal.type("")
        terminal.expect("Ada, born in 1815, at the window on EC 7\r\n")
        assert terminal.end() == 0


def test_ctrl_c_in_a_form_leaves() -> None:
    for era in ("modern", "legacy"):
        with at_terminal("call", TRAVEL, "check_in", "train=EC 7", "--era", era) as terminal:
            terminal.expect("name: ")
            terminal.process.send_signal(signal.SIGINT)
            terminal.expect("interrupted")
            assert terminal.end() == 130
            assert "Traceback" not in terminal.seen


def test_a_page_at_a_terminal(tmp_path: Path) -> None:
    browser = tmp_path / "browser.py"
    browser.write_text(f"import sys, pathlib; pathlib.Path({str(tmp_path / 'opened')!r}).write_text(sys.argv[1])")
    with at_terminal("call", TRAVEL, "pay", env={"BROWSER": f"{sys.executable} {browser} %s"}) as terminal:
        terminal.expect("host: example.com")
        terminal.expect("[y/N")
        assert not (tmp_path / "opened").exists()
        terminal.type("y")
        terminal.expect("Thank you")
        assert terminal.end() == 0
    assert (tmp_path / "opened").read_text() == "https://example.com/pay"


def test_progress_is_a_bar_that_is_gone_in_the_end() -> None:
    with at_terminal("call", TRAVEL, "wait_for_train", "seconds=1") as terminal:
        terminal.expect("-> wait_for_train seconds=1\r\n")
        bar = terminal.expect("50%")
        assert "\r\x1b[K[#" in bar
        last = terminal.expect("The train is here")
        assert "\x1b[K\x1b[K" not in last
        assert last.endswith("\r\x1b[K<- after " + last.rpartition("<- after ")[2])
        assert terminal.end() == 0


def test_colours_are_for_terminals_that_want_them() -> None:
    with at_terminal("list", TRAVEL, "prompts", env={"NO_COLOR": ""}) as terminal:
        assert terminal.end() == 0
        assert "\x1b[1mtrip\x1b[0m" in terminal.seen
    with at_terminal("list", TRAVEL, "prompts") as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.seen


def test_bytes_stay_off_a_terminal() -> None:
    with at_terminal("read", TRAVEL, "travel://logo") as terminal:
        terminal.expect("[blob travel://logo: image/gif, 35 bytes]")
        assert terminal.end() == 0

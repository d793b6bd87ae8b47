"""Each verb against the examples, over real stdio, in both eras: what a person reads."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest
from shell import DICE, ODD, TRAVEL, Shell

ERAS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
every_era = pytest.mark.parametrize("era", ERAS)


@every_era
def test_call_prints_the_result_and_nothing_else(linkspan: Shell, era: str) -> None:
    assert linkspan("call", DICE, "roll", "sides=1", "count=3", "--era", era) == (0, "[1,1,1]\n", "")


@every_era
def test_call_tells_what_happens_to_those_who_want_to_know(linkspan: Shell, era: str) -> None:
    done = linkspan("call", DICE, "roll", "sides=1", "--era", era, "--verbose")
    assert done.out == "[1]\n"
    assert f"speaks {ERAS[era]} ({era})" in done.err
    assert "dice 1.0.0: started in " in done.err
    assert re.search(r"-> roll sides=1\n +\d\.\d+ -> tools/call #\d", done.err)
    assert re.search(r" <- result of tools/call \(.* ms\)", done.err)
    assert "<- after " in done.err
    assert linkspan("call", DICE, "roll", "--verbose", "--quiet").err == ""


@every_era
def test_verbose_shows_stderr_log_messages_and_progress(linkspan: Shell, era: str) -> None:
    done = linkspan("call", TRAVEL, "plan_tour", 'cities=["Rome","Paris"]', "--era", era, "-v")
    assert (done.status, done.out) == (0, "Rome - Paris\n")
    for line in (
        "everything | tools/call plan_tour took ",
        'everything: log info: {"planned": ["Rome", "Paris"]}\n',
        "everything: progress 1/2  Rome\n",
        "everything: progress 2/2  Paris\n",
    ):
        assert line in done.err


def test_list_shows_what_can_be_used_and_how(linkspan: Shell) -> None:
    done = linkspan("list", DICE)
    assert done == (
        0,
        """tools (1)

  roll - Roll dice [read-only]
    Roll dice.
    sides  integer = 6, 1..1000000  Faces on each die.
    count  integer = 1, 1..1000     How many dice to roll.
    returns array of integer

templates (1)

  dice://odds/{sides} - odds
    The chance of each face.

prompts (1)

  game
    Play a round of dice.
    players
""",
        "",
    )


@every_era
def test_list_shows_the_kinds_that_were_asked_for(linkspan: Shell, era: str) -> None:
    done = linkspan("list", TRAVEL, "prompts", "tools", "--era", era)
    assert "tools (17)" in done.out
    assert "travel_class  1 | 2 = 2                     First or second class." in done.out
    assert 'extras        array of ("bar" | "wifi")     What the train must have.' in done.out
    assert "city   required  Where to." in done.out
    assert "travel://terms" not in done.out
    assert linkspan("list", DICE, "resources").out == "resources: none\n"
    wrong = linkspan("list", DICE, "tool")
    assert (wrong.status, wrong.err) == (
        2,
        "linkspan list: dice has no 'tool' (did you mean 'tools'?); it has roll, odds, dice://odds/{sides}, game\n",
    )


def test_list_long_shows_schemas(linkspan: Shell) -> None:
    done = linkspan("list", DICE, "tools", "--long")
    assert '    input:\n      {\n        "type": "object",\n        "properties": {\n' in done.out
    assert '"maximum": 1000000' in done.out
    assert "\n      }\n    output:\n      {\n" in done.out


@every_era
def test_read_prints_texts_and_pipes_bytes(linkspan: Shell, era: str, tmp_path: Path) -> None:
    assert linkspan("read", DICE, "dice://odds/6", "--era", era).out.endswith("a chance of 1 in 6.\n")
    file = tmp_path / "logo.gif"
    done = linkspan("read", TRAVEL, "travel://logo", "--save", str(file), "-v", "--era", era)
    assert (done.status, done.out) == (0, "")
    assert f"35 bytes saved as {file}" in done.err
    assert file.read_bytes().startswith(b"GIF89a")


def test_read_says_where_to_look_for_resources(linkspan: Shell) -> None:
    done = linkspan("read", DICE, "dice://nothing")
    assert done.status == 1
    assert "hint: `linkspan list TARGET resources templates` lists the resources" in done.err


@every_era
def test_prompt_prints_messages_under_their_roles(linkspan: Shell, era: str) -> None:
    done = linkspan("prompt", TRAVEL, "trip", "city=Rome", "days=2", "--era", era)
    assert done == (0, "user:\n  Plan a relaxed trip to Rome for 2 days.\n", "")
    assert linkspan("prompt", TRAVEL, "check_terms").out == (
        "user:\n  [resource travel://terms: text/plain]\n  No refunds.\n\n"
        "assistant:\n  I have read them.\n\nuser:\n  Are they fair?\n"
    )


@every_era
def test_ping_says_what_the_server_is(linkspan: Shell, era: str) -> None:
    done = linkspan("ping", DICE, "--era", era)
    assert done.status == 0
    assert done.out.startswith("dice 1.0.0\n")
    for words in (f"{ERAS[era]} ({era})", "tools (listChanged)", "Ask before rolling", "connected in", "round trips"):
        assert words in done.out


def test_call_describes_bytes_and_saves_them(linkspan: Shell, tmp_path: Path) -> None:
    done = linkspan("call", TRAVEL, "brochure")
    assert done.out == (
        "Rome is lovely in May.\n[image: image/gif, 35 bytes]\n[audio: audio/wav, 4 bytes]\n"
        "[resource travel://terms: text/plain]\nNo refunds.\n[link travel://departures: departures, application/json]\n"
    )
    done = linkspan("call", "bytes", "--save", str(tmp_path / "new"), "--", *ODD)
    assert "[image: image/png, 0 bytes, not saved: the data is not valid base64]" in done.out
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["pass-wd-1.tar"]
    assert list(tmp_path.iterdir()) == [tmp_path / "new"]


def test_structured_content_stands_in_for_a_text(linkspan: Shell) -> None:
    assert linkspan("call", "wordless", "--", *ODD).out == '{"n": [1, 2]}\n'


TYPED = [
    (
        ["text=5", "either=5", 'some=["a"]', "free=true", "flag=true"],
        '{"text": "5", "either": 5, "some": ["a"], "free": true, "flag": true}',
    ),
    (
        ["text=x=y", "either=null", "some=null", "free=word"],
        '{"text": "x=y", "either": "null", "some": null, "free": "word"}',
    ),
    (["text:=5", "either:=null"], '{"text": 5, "either": null}'),
    (['{"text": "x", "flag": "sure"}'], '{"text": "x", "flag": "sure"}'),
    (["text=@FILE", "some:=@FILE"], '{"text": "[1]\\n", "some": [1]}'),
]


@pytest.mark.parametrize(("typed", "sent"), TYPED)
def test_the_schema_says_what_is_text_and_what_is_json(
    linkspan: Shell, tmp_path: Path, typed: list[str], sent: str
) -> None:
    file = tmp_path / "file.json"
    file.write_text("[1]\n")
    done = linkspan("call", "mixed", *(each.replace("FILE", str(file)) for each in typed), "--", *ODD)
    assert done == (0, f"{sent}\n", "")


def test_arguments_may_come_from_stdin(linkspan: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"a": 7}'))
    assert linkspan("call", "closed", "-", "--", *ODD).out == '{"a": 7}\n'


def test_verbose_tells_an_author_what_does_not_fit_the_schema(linkspan: Shell) -> None:
    done = linkspan("call", "misfit", "-v", "--", *ODD)
    assert done.out == "x\n"
    assert "does not fit the tool's schema: n must be an integer" in done.err


def test_a_server_can_be_named_in_many_ways(linkspan: Shell, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"odd": {"command": ODD[0], "args": ODD[1:]}}}))
    assert linkspan("call", f"{config}:odd", "closed", "a=1").out == '{"a": 1}\n'
    assert linkspan("call", " ".join(ODD), "closed", "a=1").out == '{"a": 1}\n'
    assert linkspan("call", f"{DICE}:server", "roll", "sides=1").out == "[1]\n"


@every_era
def test_answers_and_roots_are_given_on_the_command_line(linkspan: Shell, tmp_path: Path, era: str) -> None:
    answers = ["--answer", "name=Ada", "--answer", "born=1815-12-10", "--answer", "seat=1"]
    done = linkspan("call", TRAVEL, "check_in", "train=EC 7", *answers, "--era", era)
    assert done == (0, "Ada, born in 1815, at the aisle on EC 7\n", "")
    done = linkspan("call", TRAVEL, "where_to_save", "--root", str(tmp_path), "--era", era)
    assert done.out == f'["{tmp_path.as_uri()}"]\n'


ODDS = {"uriTemplate": "dice://odds/{sides}", "name": "odds", "description": "The chance of each face."}
TERMS = {"uri": "travel://terms", "mimeType": "text/plain", "text": "No refunds."}
DOCUMENTS = [
    (["call", DICE, "roll", "sides=1"], {"structuredContent": {"result": [1]}}),
    (["list", DICE, "tools", "templates"], {"resourceTemplates": [ODDS]}),
    (["read", TRAVEL, "travel://terms"], {"contents": [TERMS]}),
    (["prompt", DICE, "game"], {"description": "Play a round of dice."}),
    (["ping", DICE], {"protocolVersion": "2026-07-28", "era": "modern"}),
]


@pytest.mark.parametrize(("arguments", "members"), DOCUMENTS)
def test_json_is_one_document_with_the_result(
    linkspan: Shell, arguments: list[str], members: dict[str, object]
) -> None:
    done = linkspan(*arguments, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json | members == done.json


@pytest.mark.parametrize(("verb", "missing"), [("list", "TARGET"), ("call", "TARGET"), ("prompt", "TARGET, NAME")])
def test_what_is_optional_is_not_called_required(linkspan: Shell, verb: str, missing: str) -> None:
    done = linkspan(verb)
    assert done.status == 2
    assert done.err.endswith(f"error: the following arguments are required: {missing}\n")


def test_list_shows_the_skills_of_a_server(linkspan: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "tides"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tides\ndescription: Read tide tables\n---\n")
    file = tmp_path / "server.py"
    file.write_text(
        "from linkspan import Server\nfrom linkspan.skills import Skills\n"
        f"server = Server('tides', extensions=[Skills({str(tmp_path / 'skills')!r})])\n"
    )
    status, shown, _ = linkspan("list", str(file), "--skills", "--long")
    assert status == 0
    assert shown == "tides  skill://tides/SKILL.md (1 file)\n  Read tide tables\n    SKILL.md\n"

"""Reports among what a server prints: cut anywhere, damaged, and never longer than their bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan.wire.reports import Report, ReportReader, encode_report

CRASH = Report(
    "ERROR", "linkspan.server", "tool 'x' failed", "tools/call", "x", 7, "A8554D", "Traceback ...\nKeyError: 'ü'\n"
)


def read(*pieces: str) -> list[str | Report]:
    """Return what comes of these pieces, with the printed text between two reports in one."""
    reader, found = ReportReader(), list[str | Report]()
    for each in [*(each for piece in pieces for each in reader.receive(piece)), *reader.end()]:
        if found and isinstance(found[-1], str) and isinstance(each, str):
            found[-1] += each
        else:
            found.append(each)
    return found


@given(st.lists(st.one_of(st.text(), st.just(CRASH), st.just("\x1e"), st.just("\x1eLS1 {}\n"))), st.integers(1, 40))
def test_reports_and_text_keep_their_order_in_any_pieces(parts: list[str | Report], size: int) -> None:
    whole = "".join(f"{each}\n" if isinstance(each, str) else encode_report(each) for each in parts)
    found = read(*(whole[at : at + size] for at in range(0, len(whole), size)))
    assert [each for each in found if isinstance(each, Report)] == [each for each in parts if isinstance(each, Report)]
    assert "".join(each for each in found if isinstance(each, str)) == "".join(
        f"{each}\n" for each in parts if isinstance(each, str)
    )


def test_printed_text_does_not_wait_for_the_end_of_its_line() -> None:
    assert ReportReader().receive("Password: ") == ["Password: "]


@pytest.mark.parametrize(
    "line", ["\x1eLS1 {\n", "\x1eLS1 []\n", '\x1eLS1 {"level": 3}\n', "\x1eLS2 {}\n", "\x1e\n", "\x1eLS1 \udc80\n"]
)
def test_a_damaged_report_is_printed_text(line: str) -> None:
    assert read(line + "next") == [line + "next"]


def test_a_report_after_one_that_was_cut_off_is_read() -> None:
    assert read('\x1eLS1 {"level": "ERR' + encode_report(CRASH)) == ['\x1eLS1 {"level": "ERR', CRASH]


def test_a_report_is_bounded_and_keeps_what_was_raised() -> None:
    long = Report("ERROR", "linkspan.server", "x", traceback="ü" * 1_000_000 + "KeyError", printed="\x00" * 1_000_000)
    line = encode_report(long)
    assert len(line) < 256_000
    (found,) = read(line)
    assert isinstance(found, Report)
    assert found.traceback.endswith("KeyError")


def test_a_character_that_no_file_can_hold_is_escaped() -> None:
    (found,) = read(encode_report(Report("ERROR", "x", "no file caf\udce9")))
    assert isinstance(found, Report)
    assert found.text == "no file caf\\udce9"


def test_a_line_without_end_is_not_held_for_ever() -> None:
    reader = ReportReader()
    assert reader.receive("\x1eLS1 " + "x" * 600_000) != []


def test_a_report_loses_its_secrets() -> None:
    report = Report("ERROR", "x", "token=swordfish", traceback="KeyError: 'hunter22'", printed="hunter22\n")
    hidden = report.without(["hunter22"])
    assert "swordfish" not in hidden.text
    assert "hunter22" not in hidden.traceback + hidden.printed

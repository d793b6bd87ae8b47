"""`linkspan completions`, in the real shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from shell import Shell

from linkspan.cli.completions import verbs
from linkspan.cli.main import VERBS


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


CASES = [
    ("lis", {"list"}),
    ("list server.py --era ", {"modern", "legacy"}),
    ("list server.py t", {"tools", "templates"}),
    ("list --era modern server.py --cwd . res", {"resources"}),
    ("call --unc", {"--unchecked"}),
    ("install ze", {"zed"}),
    ("install zed serv", {"server.py"}),
    ("chat --conf", {"--config"}),
    ("read serv", {"server.py"}),
    ("completions z", {"zsh"}),
    ("call server.py --timeout se", set[str]()),
]
"""What is typed after `linkspan`, and the words that complete its end."""


@pytest.fixture
def script(linkspan: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "server.py").touch()
    monkeypatch.chdir(tmp_path)
    done = linkspan("completions", request.param)
    assert (done.status, done.err) == (0, "")
    file = tmp_path / "script"
    file.write_text(done.out)
    return file


def test_every_verb_has_its_options() -> None:
    found = {each.name: each for each in verbs()}
    assert [*found] == [*VERBS]
    assert all(any("--help" in option.names for option in each.options) for each in found.values())
    assert [each.metavar for each in found["call"].positionals] == ["TARGET", "TOOL", "ARGUMENT"]


def test_an_unknown_shell_is_a_wrong_command_line(linkspan: Shell) -> None:
    done = linkspan("completions", "tcsh")
    assert done.status == 2
    assert "choose from 'bash', 'zsh', 'fish'" in done.err.replace("bash, zsh, fish", "'bash', 'zsh', 'fish'")


@needs("bash")
@pytest.mark.parametrize("script", ["bash"], indirect=True)
def test_bash_completes_it(script: Path) -> None:
    lines = ["shopt -s progcomp", f"source {script}", "compopt() { [[ $1 == +o ]] && no_files=1; }"]
    for typed, _ in CASES:
        words = f"linkspan {typed}".split(" ")
        given = " ".join(f"'{each}'" for each in words)
        lines.append(f"COMP_WORDS=({given}) COMP_CWORD={len(words) - 1} no_files=; _linkspan")
        lines.append('echo "${COMPREPLY[*]-}|$no_files"')
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    for (typed, expected), line in zip(CASES, done.stdout.splitlines(), strict=True):
        words, _, no_files = line.partition("|")
        if expected == {"server.py"}:
            assert (words, no_files) == ("", ""), typed  # bash completes files by itself
        else:
            assert {*words.split()} == expected, typed
            assert bool(no_files) is (not expected), typed


@needs("fish")
@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_completes_it(script: Path) -> None:
    lines = [f"source {script}"]
    lines += [f"complete -C 'linkspan {typed}'; echo --" for typed, _ in CASES]
    done = subprocess.run(
        ["fish", "--no-config", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    for (typed, expected), block in zip(CASES, done.stdout.split("--\n"), strict=False):
        assert expected <= {line.partition("\t")[0] for line in block.splitlines()}, typed


@needs("zsh")
@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_completes_it(script: Path, tmp_path: Path) -> None:
    functions = tmp_path / "functions"
    functions.mkdir()
    script.rename(functions / "_linkspan")
    (tmp_path / ".zshrc").write_text(
        f"fpath=({functions} $fpath); autoload -U compinit; compinit -u -D\n"
        "LISTMAX=0; PS1='ready> '; zle_highlight=(none); setopt no_beep auto_list no_list_ambiguous\n"
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "ZDOTDIR": str(tmp_path), "TERM": "dumb", "COLUMNS": "200"}
    process = subprocess.Popen(["zsh", "-i"], stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=tmp_path)
    os.close(slave)
    try:
        until(master, "ready> ")
        for typed, words in CASES:
            if words:
                os.write(master, f"linkspan {typed}\t".encode())
                until(master, *words)
                os.write(master, b"\x15\n")
                until(master, "ready> ")
    finally:
        process.kill()
        process.wait()
        os.close(master)


def until(master: int, *texts: str) -> None:
    """Read until all of the texts came."""
    seen, end = "", time.monotonic() + 60
    while not all(each in seen for each in texts):
        ready, _, _ = select.select([master], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{texts} did not come: {seen!r}"
        seen += os.read(master, 65536).decode("utf-8", "replace")

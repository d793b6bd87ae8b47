"""Commands as people write and read them, and what Windows starts for one: a batch file gets its arguments as they are.

`npx`, `uvx` and most others that npm installs are batch files there. Nothing that an argument holds is a command to `cmd.exe`:
https://flatt.tech/research/posts/batbadbut-you-cant-securely-execute-commands-on-windows/
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Final

_ENDINGS: Final = ".com;.exe;.bat;.cmd"
_BATCH: Final = (".bat", ".cmd")
_PLAIN: Final = r"[A-Za-z0-9#$*+\-./:?@\\_\u00a0-\U0010ffff]+(?<!\\)"
"""A word that `cmd.exe` passes on without quotes."""


def split_command(line: str) -> list[str]:
    """Return the words of a command line, by the rules of this system. Raises: ValueError for a quote that is not closed."""
    return split_windows_line(line) if sys.platform == "win32" else shlex.split(line)


def command_line(words: Sequence[str]) -> str:
    """Return a command as it is typed on this system."""
    if sys.platform == "win32":
        from subprocess import list2cmdline

        return list2cmdline(words)
    return shlex.join(words)


def windows_command(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> str | list[str]:
    """Return what `subprocess.Popen` takes to start `argv` with these variables in this directory.

    Raises: FileNotFoundError; ValueError for an argument that no batch file can get.
    """
    program = find_program(argv[0], env, cwd)
    if program is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    if not program.lower().endswith(_BATCH):
        return [program, *argv[1:]]
    words = " ".join([_batch_word(program, quoted=True), *map(_batch_word, argv[1:])])
    shell = (env.get("SYSTEMROOT") or "C:\\Windows") + "\\System32\\cmd.exe"
    return f'"{shell}" /d /e:on /v:off /s /c "{words}"'


def find_program(name: str, env: Mapping[str, str], cwd: str | None) -> str | None:
    """Return the file that a name stands for: below PATH, by the endings of PATHEXT, and never in the current directory.

    A name with a directory is looked up from `cwd`.
    """
    endings = [each for each in (env.get("PATHEXT") or _ENDINGS).split(";") if each]
    if name.lower().endswith(tuple(each.lower() for each in endings)):
        endings.insert(0, "")
    if re.search(r"[\\/]|^[A-Za-z]:", name):
        folders = [cwd or os.curdir]
        endings.append("")
    else:
        folders = [each for each in (part.strip('"') for part in env.get("PATH", "").split(";")) if os.path.isabs(each)]
    files = (os.path.join(folder, name + ending) for folder in folders for ending in endings)
    return next((os.path.abspath(file) for file in files if os.path.isfile(file)), None)


def _batch_word(word: str, *, quoted: bool = False) -> str:
    """Return a word of a line of `cmd.exe`. Quotes are doubled; an empty piece of %CD% keeps percent signs apart."""
    if re.search(r"[\0\r\n]", word):
        raise ValueError("a batch file cannot be given a line break; start the program that it starts instead")
    if not quoted and re.fullmatch(_PLAIN, word):
        return word
    doubled = re.sub(r'(\\*)("|\Z)', lambda found: found[1] * 2 + found[2] * 2, word)
    return '"' + doubled.replace("%", "%%cd:~,%") + '"'


def split_windows_line(line: str) -> list[str]:
    r"""Return the words of a command line as programs on Windows read theirs: `"` groups words, `\` is a part of paths.

    https://learn.microsoft.com/cpp/c-language/parsing-c-command-line-arguments
    Raises: ValueError for a quote that is not closed.
    """
    words: list[str] = []
    word: str | None = None
    quoted = False
    for slashes, character in re.findall(r"(\\*)([^\\]?)", line):
        if character == '"':
            word = (word or "") + "\\" * (len(slashes) // 2)
            if len(slashes) % 2:
                word += '"'
            else:
                quoted = not quoted
            continue
        splits = character.isspace() and not quoted
        if text := slashes + ("" if splits else character):
            word = (word or "") + text
        if splits and word is not None:
            words.append(word)
            word = None
    if quoted:
        raise ValueError("No closing quotation")
    return words if word is None else [*words, word]

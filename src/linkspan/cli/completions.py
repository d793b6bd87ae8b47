"""`linkspan completions SHELL`: a script that completes the command line in bash, zsh or fish.

It is generated from the parsers of the verbs, so that it knows every option. It completes without starting anything.
"""

from __future__ import annotations

import re
from argparse import SUPPRESS, Action
from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import Final

import msgspec

from linkspan.cli.install import HOSTS
from linkspan.cli.main import VERBS, ParserShown, parser_for
from linkspan.loading import load

_EXAMPLES: Final = """to install it:
  linkspan completions bash > ~/.local/share/bash-completion/completions/linkspan
  linkspan completions zsh > ~/.zfunc/_linkspan         # a directory of $fpath, before compinit
  linkspan completions fish > ~/.config/fish/completions/linkspan.fish"""


class Argument(msgspec.Struct, frozen=True):
    """An option, or an argument without a name, and what completes its value."""

    names: Sequence[str]
    """Empty for an argument without a name."""
    help: str
    metavar: str
    """Empty for an option without a value."""
    words: Sequence[str]
    """All possible values, if there are only these."""
    files: bool
    """Whether the value is a file or a directory."""
    repeats: bool


class Verb(msgspec.Struct, frozen=True):
    """A verb with everything that may follow it."""

    name: str
    summary: str
    options: Sequence[Argument]
    positionals: Sequence[Argument]


def main(arguments: Sequence[str]) -> int:
    """`linkspan completions SHELL`: print the script."""
    about = "Print a script that completes this command line in a shell."
    parser = parser_for("linkspan completions", about, _EXAMPLES, allow_abbrev=False)
    parser.add_argument("shell", choices=[*_SHELLS], help="which shell")
    options = parser.parse_args(list(arguments))
    print(_SHELLS[options.shell]([*verbs()]), end="")
    return 0


def verbs() -> Iterator[Verb]:
    """Yield every verb, as its parser describes it."""
    for name, (function, summary) in VERBS.items():
        module, _, attribute = function.partition(":")
        try:
            getattr(load(f"linkspan.cli.{module}"), attribute)(["--describe"])
        except ParserShown as described:
            actions = described.parser._actions  # pyright: ignore[reportPrivateUsage] - there is no public name for them
            found = [_argument(each) for each in actions if each.help != SUPPRESS]
            options, positionals = ([each for each in found if bool(each.names) is named] for named in (True, False))
            yield Verb(name, summary, options, positionals)


_FILES: Final = {"target", "server", "config", "load", "cwd", "root", "out", "save", "dir"}
"""Arguments whose value is a file or a directory, by the names of their attributes."""
_WORDS: Final[dict[str, Sequence[str]]] = {
    "host": [*HOSTS],
    "kinds": ["tools", "resources", "templates", "prompts"],
}
"""Values of arguments without a name that their verb checks itself, by the names of their attributes."""


def _argument(action: Action) -> Argument:
    named = bool(action.option_strings)
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    words = [str(each) for each in action.choices or ()] or ([] if named else [*_WORDS.get(action.dest, ())])
    repeats = action.nargs in ("*", "+", "...")
    help_ = re.sub(r"\s+", " ", action.help or "").replace("%%", "%")
    takes_value = action.nargs != 0
    files = action.dest in _FILES or (not named and repeats and not words)
    return Argument(action.option_strings, help_, metavar if takes_value else "", words, files, repeats)


# The shells.


def _bash(found: Sequence[Verb]) -> str:
    cases: list[str] = []
    for verb in found:
        options = " ".join(name for each in verb.options for name in each.names)
        takes = " ".join(name for each in verb.options if each.metavar for name in each.names)
        values = [(name, each) for each in verb.options if each.metavar for name in each.names]
        places = [("*" if each.repeats else str(number), each) for number, each in enumerate(verb.positionals)]
        cases += [
            f"    {verb.name})",
            f"        options={quote(options)}",
            f"        takes={quote(takes)}",
            *_bash_case("        case $before in", values),
            "        _linkspan_place",
            *_bash_case("        [[ $before ]] || case $place in", places),
            "        ;;",
        ]
    names = " ".join(each.name for each in found)
    return _BASH.replace("VERBS", quote(f"{names} --help --version")).replace("    CASES\n", "\n".join(cases) + "\n")


def _bash_case(head: str, values: Sequence[tuple[str, Argument]]) -> list[str]:
    """Return what sets the words for each pattern; a value of the user's own has none, and no files either."""
    of: dict[str, list[str]] = {}
    for pattern, each in values:
        does = f"words={quote(' '.join(each.words))}" if each.words else ":" if each.files else "own=1"
        of.setdefault(does, []).append(pattern)
    return [head, *(f"            {'|'.join(patterns)}) {does} ;;" for does, patterns in of.items()), "        esac"]


_BASH: Final = """# bash completion for linkspan

_linkspan_place() {
    # Count the arguments without a name, up to the word that is completed; keep `before` only if it takes a value.
    local at skip=
    for ((at = 2; at < COMP_CWORD; at++)); do
        if [[ $skip ]]; then skip=
        elif [[ ${COMP_WORDS[at]} == -- ]]; then command=1
        elif [[ ${COMP_WORDS[at]} == -* ]]; then [[ " $takes " == *" ${COMP_WORDS[at]} "* ]] && skip=1
        else ((place++)); fi
    done
    [[ $skip ]] || before=
}

_linkspan() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local options= takes= words= own= command= place=0
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W VERBS -- "$word"))
        return
    fi
    case ${COMP_WORDS[1]} in
    CASES
    esac
    [[ $command ]] && return
    [[ $word == -* && ! $before ]] && words=$options
    if [[ $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$word"))
    elif [[ $own ]]; then compopt +o default 2>/dev/null; fi
}

complete -o default -F _linkspan linkspan
"""


def _zsh(found: Sequence[Verb]) -> str:
    cases: list[str] = []
    for verb in found:
        specs: list[str] = []
        for each in verb.options:
            value = f":{_zsh_text(each.metavar)}:{_zsh_values(each)}" if each.metavar else ""
            several = "'*'" if "repeatable" in each.help else f"'({' '.join(each.names)})'"
            names = "{" + ",".join(each.names) + "}" if len(each.names) > 1 else each.names[0]
            specs.append(f"{several}{names}{quote(f'[{_zsh_text(each.help)}]{value}')}")
        for number, each in enumerate(verb.positionals, 1):
            place = "*" if each.repeats else str(number)
            specs.append(quote(f"{place}:{_zsh_text(each.metavar)}:{_zsh_values(each)}"))
        lines = " \\\n            ".join(specs)
        cases.append(f"        {verb.name})\n            _arguments {lines}\n            ;;")
    names = "\n".join(f"        {quote(f'{each.name}:{each.summary}')}" for each in found)
    return _ZSH.replace("VERBS", names).replace("CASES", "\n".join(cases))


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _zsh_values(argument: Argument) -> str:
    return f"({' '.join(argument.words)})" if argument.words else "_files" if argument.files else " "


_ZSH: Final = """#compdef linkspan

_linkspan() {
    local -a verbs
    verbs=(
VERBS
    )
    if (( CURRENT == 2 )); then
        _describe verb verbs
        return
    fi
    local verb=$words[2]
    shift words
    (( CURRENT-- ))
    case $verb in
CASES
    esac
}

if [[ $funcstack[1] == _linkspan ]]; then _linkspan "$@"; else compdef _linkspan linkspan; fi
"""


def _fish(found: Sequence[Verb]) -> str:
    lines = ["# fish completion for linkspan", "complete -c linkspan -n __fish_use_subcommand -f"]
    lines += [
        f"complete -c linkspan -n __fish_use_subcommand -a {each.name} -d {quote(each.summary)}" for each in found
    ]
    for verb in found:
        seen = f"complete -c linkspan -n '__fish_seen_subcommand_from {verb.name}'"
        for each in verb.options:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in each.names)
            lines.append(f"{seen} {names} -d {quote(each.help)}{_fish_values(each)}")
        for number, each in enumerate(verb.positionals, 2):
            if each.words:
                there = f"test (count (commandline -opc)) -{'ge' if each.repeats else 'eq'} {number}"
                place = f"complete -c linkspan -n '__fish_seen_subcommand_from {verb.name}; and {there}'"
                lines.append(f"{place} -f -a {quote(' '.join(each.words))}")
    return "\n".join(lines) + "\n"


def _fish_values(argument: Argument) -> str:
    if argument.words:
        return f" -x -a {quote(' '.join(argument.words))}"
    return "" if not argument.metavar else " -r -F" if argument.files else " -x"


_SHELLS: Final[dict[str, Callable[[Sequence[Verb]], str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

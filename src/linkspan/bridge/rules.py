"""What callers of a bridge may do, and the rights that each has at the servers behind it: from options and from a TOML file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from linkspan.host.consent import Decision, matches


class WrongRules(ValueError):
    """The rules are wrong; the message states what to change."""


class CallerRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules of one principal, or of all who have a scope."""

    allow: list[str] = []
    ask: list[str] = []
    deny: list[str] = []
    otherwise: Decision | None = None
    key: str | None = None
    """The SHA-256 of the key by which a principal is known, in hexadecimal."""
    scopes: list[str] = []
    """What the key grants."""
    tokens: dict[str, str] = {}
    """By server, the variable of the environment with the token that the principal has there."""


class Rules(msgspec.Struct, frozen=True):
    """The rules of a bridge.

    A `deny` that concerns a caller holds first. Then those of the principal count, then those of their scopes, then the rest;
    `otherwise` counts after all patterns.
    """

    allow: list[str] = []
    ask: list[str] = []
    deny: list[str] = []
    otherwise: Decision = "allow"
    principals: dict[str, CallerRules] = {}
    scopes: dict[str, CallerRules] = {}

    def decide(self, principal: str | None, scopes: frozenset[str], server: str, tool: str) -> Decision:
        """Return what happens when a caller calls this tool."""
        mine = [self.principals[principal]] if principal in self.principals else []
        mine += [rules for scope, rules in self.scopes.items() if scope in scopes]
        every: list[CallerRules | Rules] = [*mine, self]
        said: list[Decision] = [found for each in every if (found := _said(each, server, tool)) is not None]
        if "deny" in said:
            return "deny"
        otherwise: list[Decision] = [each.otherwise for each in mine if each.otherwise is not None]
        decisions: list[Decision] = [*said, *otherwise, self.otherwise]
        return decisions[0]

    @property
    def are_there(self) -> bool:
        """Whether anything is not simply allowed."""
        return self != Rules(allow=self.allow, deny=self.deny)

    def token(self, principal: str | None, server: str) -> str | None:
        """Return the token that a principal has at a server; None without one."""
        rules = self.principals.get(principal or "")
        variable = rules.tokens.get(server) if rules is not None else None
        return os.environ.get(variable) if variable is not None else None

    @property
    def keys(self) -> Mapping[str, tuple[str, list[str]]]:
        """The principals that are known by keys, with their scopes, by the SHA-256 of the key."""
        return {each.key: (name, each.scopes) for name, each in self.principals.items() if each.key is not None}

    def with_tokens(self, server: str) -> bool:
        """Whether principals have tokens of their own at a server."""
        return any(server in each.tokens for each in self.principals.values())


def _said(rules: CallerRules | Rules, server: str, tool: str) -> Decision | None:
    """Return what the patterns of some rules say of a tool."""
    said: tuple[tuple[Decision, list[str]], ...] = (("deny", rules.deny), ("ask", rules.ask), ("allow", rules.allow))
    return next((each for each, patterns in said if any(matches(every, server, tool) for every in patterns)), None)


def read_rules(
    path: str | Path | None, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()
) -> Rules:
    """Return the rules of options, and of a file if there is one. Raises: WrongRules."""
    found = Rules()
    if path is not None:
        import tomllib

        try:
            members: dict[str, Any] = tomllib.loads(Path(path).read_text("utf-8"))
            found = msgspec.convert({name: each for name, each in members.items() if name in _NAMES}, Rules)
        except OSError as error:
            raise WrongRules(f"{path} cannot be read: {error.strerror or error}") from None
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise WrongRules(f"{path}: {error}") from None
    return msgspec.structs.replace(
        found, allow=[*allow, *found.allow], ask=[*ask, *found.ask], deny=[*deny, *found.deny]
    )


_NAMES = Rules.__struct_fields__

"""Untrusted text: escape control and invisible characters, and leave out secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Final

from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object

REDACTED: Final = "[redacted]"

_SHORTEST: Final = 6
"""A shorter secret would be found in innocent words."""

_DEEPEST: Final = 300
_WORD: Final = 16
"""Letters that a plain word after `Bearer` or `Basic` may have."""

_PROTOCOL: Final = frozenset(
    {
        "cursor",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/subscriptionId",
        "jsonrpc",
        "method",
        "nextCursor",
        "progressToken",
        "protocolVersion",
        "requestState",
    }
)
"""Members by which the two sides find each other again: never touched."""

_SECRET_NAME: Final = (
    r"(?:(?:api|access|private|secret|signing|encryption|secret[ _-]?access)[ _-]?key|(?<!progress)(?<!progress[_-])token"
    r"|secrets?|passwords?|passwd|credentials?|(?<![a-z])jwt|sess(?:ion)?[ _-]?id"
    r"|(?:client|saml)[_-]assertion|(?:code|pkce)[_-]verifier|(?:device|authorization|auth)[_-]code"
    r"|(?!(?-i:(?<![A-Za-z0-9_-])PWD|(?<=(?<![A-Za-z0-9_-])OLD)PWD))pwd"  # a shell's PWD and OLDPWD are directories
    r"|(?<=[_-])pass|(?<![a-z0-9_-])pass(?=\\*[\"']|\s*=|\Z))"
)
_WHOLE_LINE_NAME: Final = r"(?:authorization|cookies?|passphrase)"
_NAME: Final = f"(?:{_SECRET_NAME}|{_WHOLE_LINE_NAME})(?:[_-]?(?:hash|value|header))?"

_NAME_WORDS: Final = (
    *("key", "token", "secret", "pass", "credential", "authorization", "cookie", "pwd", "jwt", "sess"),
    *("assertion", "verifier", "_code", "-code"),
)
"""One of these is in every name."""

_WELL_KNOWN: Final = {
    "sk-": r"(?:(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{8,}|[A-Za-z0-9_-]{20,})",
    **dict.fromkeys(("gho_", "ghp_", "ghr_", "ghs_", "ghu_"), "[A-Za-z0-9]{8,}"),
    "github_pat_": "[A-Za-z0-9_]{8,}",
    "glpat-": "[A-Za-z0-9_-]{8,}",
    "xox": "[abeoprs]-[A-Za-z0-9-]{8,}",
    "AKIA": "[A-Z0-9]{12,}",
    "ASIA": "[A-Z0-9]{12,}",
    "AIza": "[A-Za-z0-9_-]{16,}",
    "hf_": "[A-Za-z0-9]{16,}",
    "npm_": "[A-Za-z0-9]{16,}",
    "eyJ": r"[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)*",
}
"""How tokens begin that are known by that, and how they go on."""

_QUOTED: Final = (
    r'"(?:[^"\\\n]|\\.)*+"?'
    r"|'(?:[^'\\\n]|\\.)*+'?"
    r"|(?P<escaped>\\+[\"'])(?:[^\\\"\n]|(?!(?P=escaped))\\++.)*+(?:(?P=escaped))?"
)
"""A value in quotes, or in the escaped quotes of JSON inside JSON; its end may have been cut off."""

_BARE: Final = r"[^\s\"'`,;&<>(){}\[\]|\\]++"
_PROSE: Final = r"(?:[A-Z]?[a-z']{1,15} ){2}"
"""`token: The token to use` is a sentence about a token."""


@cache
def _private_key() -> re.Pattern[str]:
    return re.compile(
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))*+"
        r"(?:-----END [A-Z0-9 ]{1,60}-----)?"
    )


@cache
def _url_password() -> re.Pattern[str]:
    return re.compile(r"(?P<kept>://[^\s/:@\"']*+:)[^\s/\"']+@")


@cache
def _redirect_code() -> re.Pattern[str]:
    return re.compile(r"(?P<kept>[?&]code=)[^&\s\"'<>]++")


@cache
def _well_known() -> re.Pattern[str]:
    tokens = "|".join(prefix + rest for prefix, rest in _WELL_KNOWN.items())
    return re.compile(rf"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))(?:{tokens})")


@cache
def _whole_line() -> re.Pattern[str]:
    return re.compile(rf"(?P<kept>{_WHOLE_LINE_NAME}[\"']?\s*+:\s*+)[^\s\"'\\\[{{][^\r\n\"'\\]*+", re.IGNORECASE)


@cache
def _assignment() -> re.Pattern[str]:
    return re.compile(
        rf"(?P<kept>{_NAME}\\*+[\"']?\s*+(?:=>|:=|[:=])\s*+)"
        rf"(?:(?P<quoted>{_QUOTED})|(?!(?-i:{_PROSE}))(?!(?:null|none|true|false|undefined)\b)"
        rf"(?:(?:bearer|basic|digest|dpop) )?{_BARE})",
        re.IGNORECASE | re.DOTALL,
    )


@cache
def _option() -> re.Pattern[str]:
    return re.compile(
        rf"(?P<kept>(?<!\S)--[a-z-]{{0,40}}?{_NAME}[ \t]++)(?!-)(?:(?P<quoted>{_QUOTED})|{_BARE})",
        re.IGNORECASE | re.DOTALL,
    )


@cache
def _scheme() -> re.Pattern[str]:
    return re.compile(r"\b(?P<kept>(?:Bearer|Basic|DPoP)[ \t]++)(?P<value>[A-Za-z0-9._~+/=-]+)", re.IGNORECASE)


@cache
def _secret_name() -> re.Pattern[str]:
    return re.compile(rf"{_NAME}\Z", re.IGNORECASE)


@lru_cache(64)
def _given(secrets: frozenset[str]) -> re.Pattern[str] | None:
    """One pattern for all of them, the longest first, also as they look inside JSON."""
    texts = {each for each in secrets if len(each) >= _SHORTEST}
    texts |= {json.dumps(each)[1:-1] for each in texts} | {json.dumps(each, ensure_ascii=False)[1:-1] for each in texts}
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with its secrets replaced by `[redacted]`.

    Hidden are the given `secrets` of six characters and more, and what looks like one: values of keys such as
    `api_key`, `token` and `password`, `Bearer` and `Basic` credentials, tokens with a well-known prefix, passwords in
    URLs, and private keys.
    """
    return _redact(text, _given(frozenset(secrets)))


def redact_json(value: JSON, secrets: Iterable[str] = ()) -> JSON:
    """Return a JSON value (builtins) with its secrets replaced; the members of the protocol stay as they are.

    Texts and numbers under a key that looks secret are hidden whole, other texts as `redact` does it.
    """
    return _redact_value(value, _given(frozenset(secrets)), 0)


def is_secret_name(name: object) -> bool:
    """Return whether what has this name is a secret, such as the `password` of a form or the variable `API_TOKEN`."""
    return isinstance(name, str) and _secret_name().search(name) is not None


def is_secret_field(name: str, schema: JSONObject) -> bool:
    """Return whether a field of a form wants a secret: by its name, its title, its description or its format."""
    if schema.get("format") == "password" or schema.get("writeOnly") is True or is_secret_name(name):
        return True
    title, described = schema.get("title"), schema.get("description")
    texts = [name, title if isinstance(title, str) else "", described if isinstance(described, str) else ""]
    return _secret_field().search("\n".join(texts)) is not None


@cache
def _secret_field() -> re.Pattern[str]:
    return re.compile(
        r"passw|passphrase|passcode|\bpwd\b|secret|(?<!progress)(?:\b|_)token\b|api.?key|\bpin\b|credential|\bcv[vc]\b|\bjwt\b",
        re.IGNORECASE,
    )


class Redactor:
    """Hides the secrets of one conversation: what looks like one, and what was answered to a form that asked for one.

    Give it every message, in order: the form comes before its answer, and what was answered may come back in any later one.
    """

    def __init__(self, secrets: Iterable[str] = (), *, on: bool = True) -> None:
        """Hide `secrets` besides; with `on=False` hide nothing."""
        self._secrets = frozenset(secrets)
        self._on = on
        self._fields: set[str] = set()
        self._answered = False

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        return _redact(text, _given(self._secrets)) if self._on else text

    def message(self, message: JSON) -> JSON:
        """Return a message (builtins), or any part of one, without its secrets."""
        if not self._on:
            return message
        return _redact_value(self._without_answers(message, 0), _given(self._secrets), 0)

    def _without_answers(self, value: JSON, depth: int) -> JSON:
        if depth > _DEEPEST:
            return REDACTED
        if is_array(value):
            return [self._without_answers(each, depth + 1) for each in value]
        if not is_object(value):
            return value
        form: JSON = value.get("requestedSchema")
        if is_object(form) and is_object(fields := form.get("properties")):
            self._fields |= {name for name, each in fields.items() if is_object(each) and is_secret_field(name, each)}
        found: JSONObject = {name: self._without_answers(each, depth + 1) for name, each in value.items()}
        answers: JSON = found.get("content")
        if "action" in found and is_object(answers):
            found["content"] = {name: self._hidden(name, each) for name, each in answers.items()}
        if self._answered and "requestState" in found:  # it may be signed only: who knows base64 can read the answers
            found["requestState"] = REDACTED
        return found

    def _hidden(self, name: str, answer: JSON) -> JSON:
        if answer is None or not (name in self._fields or is_secret_name(name)):
            return answer
        self._answered = True
        if isinstance(answer, str | int | float) and not isinstance(answer, bool):
            self._secrets |= {str(answer)}
        return REDACTED


def _redact(text: str, given: re.Pattern[str] | None) -> str:
    # The patterns are slow and looking for a word is fast: large texts mostly need no pattern.
    if given is not None:
        text = given.sub(REDACTED, text)
    text = _private_key().sub(REDACTED, text)
    text = _url_password().sub(rf"\g<kept>{REDACTED}@", text)
    if "code=" in text:
        text = _redirect_code().sub(rf"\g<kept>{REDACTED}", text)
    lowered = text.casefold()
    named = _mentions(lowered, _NAME_WORDS)
    if named and (":" in text or "=" in text.rstrip("=")):  # base64 ends so, and has every short word in it somewhere
        text = _whole_line().sub(rf"\g<kept>{REDACTED}", text)
        text = _assignment().sub(_hide_value, text)
    if named and "--" in text:
        text = _option().sub(_hide_value, text)
    if _mentions(lowered, ("bearer", "basic", "dpop")):
        text = _scheme().sub(_hide_credentials, text)
    return _well_known().sub(REDACTED, text) if _mentions(text, _WELL_KNOWN) else text


def _mentions(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _hide_value(found: re.Match[str]) -> str:
    """Keep the key and the quotes."""
    quoted = found["quoted"]
    if quoted is None:
        return f"{found['kept']}{REDACTED}"
    quote = found["escaped"] or quoted[0]
    return f"{found['kept']}{quote}{REDACTED}{quote if quoted.endswith(quote) and len(quoted) > len(quote) else ''}"


def _hide_credentials(found: re.Match[str]) -> str:
    value = found["value"]
    return found[0] if _is_word(value) else f"{found['kept']}{REDACTED}"


def _is_word(value: str) -> bool:
    letters = re.sub(r"[./-]", "", value)
    return (
        len(letters) < _WORD and letters.isalpha() and (letters[1:].islower() or letters.isupper() or len(letters) < 2)
    )


def _redact_value(value: JSON, given: re.Pattern[str] | None, depth: int) -> JSON:
    if isinstance(value, str):
        return _redact(value, given)
    if depth > _DEEPEST:
        return REDACTED
    if is_array(value):
        return [_redact_value(each, given, depth + 1) for each in value]
    if is_object(value):
        return _redact_object(value, given, depth)
    return value


def _redact_object(members: JSONObject, given: re.Pattern[str] | None, depth: int) -> JSONObject:
    redacted: JSONObject = {}
    labelled = is_secret_name(members.get("name")) or is_secret_name(members.get("key"))
    for name, value in members.items():
        if name in _PROTOCOL or (name == "id" and not depth):
            redacted[name] = value
        elif is_secret_name(name) or (labelled and name == "value"):
            redacted[_redact(name, given)] = _hide(value, given, depth + 1)
        else:
            redacted[_redact(name, given)] = _redact_value(value, given, depth + 1)
    return redacted


def _hide(value: JSON, given: re.Pattern[str] | None, depth: int) -> JSON:
    """Hide a text, a number or each of a list. An object under such a name is more likely a schema: look inside."""
    if value is None or isinstance(value, bool) or value == "":
        return value
    if isinstance(value, str | int | float):
        return REDACTED
    if is_array(value):
        return [REDACTED if isinstance(each, str) else _redact_value(each, given, depth + 1) for each in value]
    return _redact_value(value, given, depth)


_HIDDEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""C0 except tab and newline, DEL and C1; line and paragraph separators; what turns the direction of text (Trojan Source);
halves of characters; and all that Unicode calls default ignorable: zero-width characters, joiners, fillers, variation selectors,
tags, which people do not see and models read. https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point"""

_BLANK: Final = "\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
"""All that is blank and not the space: people do not see which of them it is, nor how many stand at an end."""

_JOINERS: Final = "\u200c\u200d"
_PRESENTATION: Final = "\ufe0e\ufe0f"
"""The variation selectors that choose text or emoji."""
_EMOJI: Final = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
"""Blocks in which emoji are, and few letters."""
_KEYCAP: Final = "\u20e3"


@cache
def hidden() -> re.Pattern[str]:
    """Return what finds the characters that `neutral` escapes."""
    return re.compile(f"[{_HIDDEN}]")


@cache
def invisible() -> re.Pattern[str]:
    """Return what finds the characters that `revealed` escapes."""
    return re.compile(f"[{_HIDDEN}{_BLANK}]")


@cache
def _emoji() -> re.Pattern[str]:
    return re.compile(f"[{_EMOJI}]")


def neutral(text: str, before: str = "") -> str:
    r"""Return a text with every command and every hidden character written as `\x1b` or `\u202e`.

    `before` is what came before the text, if it is a part of a longer one: two characters are enough.
    """
    text = text.replace("\r\n", "\n")
    whole, shift = (before + text, len(before)) if before else (text, 0)
    return hidden().sub(lambda found: found[0] if belongs(whole, found.start() + shift) else _escape(found), text)


def revealed(text: str) -> str:
    """Return a text with every command and every hidden character escaped, those too that `neutral` leaves, and blanks."""
    return invisible().sub(_escape, text.replace("\r\n", "\n"))


def neutral_json(value: JSON) -> JSON:
    """Return a JSON value with all its texts, names included, neutralised."""
    if isinstance(value, str):
        return neutral(value)
    if is_array(value):
        return [neutral_json(each) for each in value]
    if is_object(value):
        return {neutral(key): neutral_json(each) for key, each in value.items()}
    return value


def one_line(text: str, limit: int = 0) -> str:
    """Return a text, neutralised, on one line; of at most `limit` characters if that is not 0."""
    found = neutral(" ".join(text.split()))
    return clip(found, limit, "...") if limit else found


def revealed_line(text: str, limit: int = 0) -> str:
    """Return a text on one line with nothing hidden: see `revealed`."""
    found = " ".join(re.split(r"[ \t\n]+", revealed(text).strip(" \t\n")))
    return clip(found, limit, "...") if limit else found


def belongs(text: str, place: int) -> bool:
    """Return whether the hidden character at `place` is one that people write: after an emoji, or inside a word."""
    letter, last, following = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if letter in _PRESENTATION:
        return _is_emoji(last) or (following == _KEYCAP and last != "" and last in "0123456789#*")
    if letter not in _JOINERS or not last or not following:
        return False
    if _is_emoji(following):
        return _is_emoji(last) or (last == _PRESENTATION[1] and _is_emoji(text[place - 2 : place - 1]))
    return _is_of_a_word(last) and _is_of_a_word(following)


def _is_emoji(letter: str) -> bool:
    return _emoji().match(letter) is not None


def _is_of_a_word(letter: str) -> bool:
    """Return whether that is a letter, or a mark on one, outside ASCII, whose words need no joiners."""
    from unicodedata import category

    return not letter.isascii() and category(letter)[0] in "LM" and hidden().match(letter) is None


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"

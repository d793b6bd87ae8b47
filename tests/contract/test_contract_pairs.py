"""Pairs of contracts at random: what is not said to break clients does not. Another implementation of JSON Schema judges."""

from __future__ import annotations

import copy
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from linkspan.contract.comparing import changes
from linkspan.contract.narrowing import differences
from linkspan.contract.snapshot import Snapshot, collected, read, written

NAMES = ("a", "b", "c")
SCALARS: list[Any] = [None, True, False, 0, 1, 2, 3.5, -7, 10, "", "a", "ab", "abc", "2026-11-27"]
KINDS = (
    *("string", "string", "integer", "number", "boolean", "null", "choices", "constant", "open", "array", "object"),
    *("anyOf", "oneOf", "allOf", "not", "types", "reference", "condition"),
)
NESTED = ("array", "object", "anyOf", "oneOf", "allOf", "not", "condition")


def maybe(chance: random.Random, often: float, **members: Any) -> dict[str, Any]:
    """Return each of some keywords or not; a value that can be called is made anew."""
    return {key: each() if callable(each) else each for key, each in members.items() if chance.random() < often}


class Maker:
    """Makes schemas, small changes of them, and values."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def document(self) -> dict[str, Any]:
        """A schema of an object, with definitions."""
        found = self.an_object(0)
        found["$defs"] = {name: self.part(2) for name in ("X", "Y")}
        return found

    def part(self, depth: int) -> Any:
        chance = self.chance
        kind = chance.choice(KINDS)
        if depth > 2 and kind in NESTED:
            kind = "string"
        found = self.of_kind(kind, depth + 1)
        if isinstance(found, dict):
            found |= maybe(chance, 0.05, title="A title", description="Words.", default=1, **{"x-unknown": True})
        return found

    def of_kind(self, kind: str, depth: int) -> Any:
        chance = self.chance
        match kind:
            case "string":
                most, least = chance.randrange(4), chance.randrange(3)
                pattern = chance.choice(["^a", "b"])
                return {"type": "string"} | maybe(chance, 0.2, maxLength=most, minLength=least, pattern=pattern)
            case "integer" | "number":
                bounds = {key: chance.randrange(-8, 12) for key in ("minimum", "exclusiveMinimum", "maximum")}
                step = chance.choice([1, 2, 4, 0.5])
                return {"type": kind} | maybe(chance, 0.2, **bounds, exclusiveMaximum=9, multipleOf=step)
            case "choices":
                return {"enum": chance.sample(SCALARS[:13], chance.randrange(1, 4))} | maybe(chance, 0.2, type="string")
            case "constant":
                return {"const": chance.choice(SCALARS)}
            case "open":
                return chance.choice([True, {}, False])
            case "array":
                return {"type": "array"} | maybe(
                    chance,
                    0.25,
                    items=lambda: self.part(depth),
                    prefixItems=lambda: [self.part(depth) for _ in range(chance.randrange(1, 3))],
                    uniqueItems=True,
                    minItems=chance.randrange(3),
                    maxItems=chance.randrange(4),
                    contains=lambda: self.part(depth),
                )
            case "object":
                return self.an_object(depth)
            case "anyOf" | "oneOf" | "allOf":
                return {kind: [self.part(depth) for _ in range(chance.randrange(1, 4))]} | maybe(
                    chance, 0.2, type=chance.choice(["string", "object"])
                )
            case "not":
                return {"not": self.part(depth)}
            case "types":
                return {"type": chance.sample(["string", "null", "integer", "number", "object", "array"], 2)}
            case "reference":
                return {"$ref": f"#/$defs/{chance.choice('XY')}"} | maybe(chance, 0.2, minLength=1)
            case "condition":
                return {"if": self.part(depth), "then": self.part(depth)}
            case _:
                return {"type": kind}

    def an_object(self, depth: int) -> dict[str, Any]:
        chance = self.chance
        found: dict[str, Any] = {"type": "object"}
        found["properties"] = {name: self.part(depth + 1) for name in NAMES if chance.random() < 0.6}
        found |= maybe(chance, 0.4, required=[name for name in NAMES if chance.random() < 0.4])
        found |= maybe(
            chance, 0.5, additionalProperties=lambda: False if chance.random() < 0.7 else self.part(depth + 1)
        )
        return found | maybe(
            chance,
            0.06,
            minProperties=chance.randrange(3),
            maxProperties=chance.randrange(4),
            patternProperties=lambda: {"^[ad]": self.part(depth + 1)},
            propertyNames={"maxLength": 1},
            dependentRequired={"a": ["b"]},
            unevaluatedProperties=False,
        )

    def changed(self, schema: Any) -> Any:
        """Return a schema with one or several small changes."""
        found = copy.deepcopy(schema)
        for _ in range(self.chance.randrange(1, 4)):
            self.change(found)
        return found

    def change(self, schema: Any) -> None:
        chance = self.chance
        part, key = chance.choice(list(places(schema)))
        each = part[key]
        holds_schemas = key in ("properties", "$defs", "patternProperties")
        if holds_schemas:
            each[chance.choice(NAMES if key == "properties" else [*each] or ["^b"])] = self.part(2)
        elif key == "required":
            part[key] = [name for name in NAMES if chance.random() < 0.4]
        elif isinstance(each, bool) or key in ("pattern", "enum", "const", "type", "title", "description", "default"):
            if isinstance(part, dict) and key not in ("type", "X", "Y"):
                del part[key]
        elif isinstance(each, int):
            part[key] = max(each + chance.choice([-1, 1, 2]), 0 if "m" in str(key) else -9) or 1
        elif isinstance(each, dict) and key != "dependentRequired" and chance.random() < 0.5:
            self.refine(each)
        elif isinstance(each, list) and each and chance.random() < 0.7:
            each[chance.randrange(len(each))] = self.part(2)
        elif isinstance(part, dict) and key not in ("$ref", "X", "Y") and chance.random() < 0.5:
            del part[key]

    def refine(self, schema: dict[str, Any]) -> None:
        """Add to a schema, or make a union of it."""
        chance = self.chance
        if chance.random() < 0.3:
            old = dict(schema)
            schema.clear()
            schema["anyOf"] = [old, {"type": "null"}]
            return
        more = self.part(2)
        if isinstance(more, dict):
            schema |= more

    def value(self, schema: Any, document: Any, depth: int = 0) -> Any:
        """Return a value that a schema may accept."""
        chance = self.chance
        if not isinstance(schema, dict) or depth > 8 or chance.random() < 0.06:
            return chance.choice([*SCALARS, [], [1], ["a", "a"], {}, {"a": 1}, {"b": "x", "d": 5}])
        if "$ref" in schema:
            return self.value(document["$defs"].get(schema["$ref"][-1]), document, depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return chance.choice(schema["enum"])
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self.value(chance.choice(schema[key]), document, depth + 1)
        if "then" in schema:
            return self.value(schema["then"], document, depth + 1)
        kinds = schema.get("type", "object" if "properties" in schema else None)
        kind = chance.choice(kinds) if isinstance(kinds, list) else kinds
        match kind:
            case "object":
                members = schema.get("properties", {})
                wanted = schema.get("required", [])
                names = [name for name in (*NAMES, "d") if name in wanted or chance.random() < 0.4]
                other = schema.get("additionalProperties", True)
                if other is False:
                    names = [each for each in names if each in members]
                return {name: self.value(members.get(name, other), document, depth + 1) for name in names}
            case "array":
                first, items = schema.get("prefixItems", []), schema.get("items", True)
                size = chance.randrange(schema.get("minItems", 0), schema.get("minItems", 0) + 3)
                return [self.value(first[at] if at < len(first) else items, document, depth + 1) for at in range(size)]
            case "string":
                return chance.choice(["", "a", "ab", "abc", "b", "aaaa"])
            case "integer":
                return chance.choice([-7, 0, 1, 2, 4, 8, 10, 3.0])
            case "number":
                return chance.choice([-7.5, 0, 1, 2, 3.5, 4, 10])
            case "boolean":
                return chance.random() < 0.5
            case "null":
                return None
            case _:
                return self.value(True, document, depth + 1)


def places(schema: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place within a schema: what holds it, and its key there."""
    for key, each in list(schema.items()) if isinstance(schema, dict) else list(enumerate(schema)):
        yield schema, key
        if isinstance(each, dict | list) and key not in ("enum", "required", "dependentRequired"):
            yield from places(each)


def has_name(value: Any, names: set[str]) -> bool:
    """Return whether an object within a value has a member of some names."""
    if isinstance(value, dict):
        return bool(names & value.keys()) or any(has_name(each, names) for each in value.values())
    return isinstance(value, list) and any(has_name(each, names) for each in value)


def contract(arguments: Any, result: Any) -> Snapshot:
    """A server with one tool, as it is read from its lock."""
    tool = {"name": "book", "inputSchema": arguments, "outputSchema": result}
    return read(written(Snapshot("ferries", items={"tool": collected("tool", [tool])})), "tools.lock")


def judged(found: Any, of: str) -> str:
    """Return what changes say of arguments or of a result: `breaking`, `unsure` or `fine`."""
    of_it = [each for each in found if each.words.startswith((of, f"its {of}"))]
    if any(each.level == "breaking" for each in of_it):
        return "breaking"
    return "unsure" if any(each.code in ("C33", "C34") for each in of_it) else "fine"


def is_broken(maker: Maker, given: Any, taken: Any, unnamed: set[str], tries: int) -> Any:
    """Return a value that one schema accepts, and another one refuses; None if none was found among some tries."""
    gives, takes = jsonschema_rs.Draft202012Validator(given), jsonschema_rs.Draft202012Validator(taken)
    for _ in range(tries):
        value = maker.value(given, given)
        if gives.is_valid(value) and not takes.is_valid(value) and not has_name(value, unnamed):
            return [value]
    return None


def check_contracts(seed: int, pairs: int, tries: int = 30) -> Counter[str]:
    """Compare pairs of contracts; return how often each verdict came. Raises: AssertionError for one that is wrong."""
    maker, counts = Maker(random.Random(seed)), Counter[str]()
    for _ in range(pairs):
        arguments, result = maker.document(), maker.document()
        arguments_now, result_now = maker.changed(arguments), maker.changed(result)
        found = changes(contract(arguments, result), contract(arguments_now, result_now))
        sides = (("argument", arguments, arguments_now), ("result", result_now, result))
        for of, given, taken in sides:
            verdict = judged(found, of)
            counts[f"{of} {verdict}"] += 1
            # a member that had no name, and was taken as it came, is new: nobody is held to have sent it
            new = differences(given, taken) if of == "argument" else []
            unnamed = {each.path[-1] for each in new if each.kind == "added" and each.effect == "unknown"}
            broken = is_broken(maker, given, taken, unnamed, tries)
            if broken is not None:
                counts[f"{of} {verdict}, a value is refused"] += 1
                assert verdict != "fine", json.dumps([of, given, taken, broken, [str(each) for each in found]])
    return counts


def test_no_client_is_broken_by_what_is_said_to_be_fine() -> None:
    counts = check_contracts(20261127, int(os.environ.get("LINKSPAN_PAIRS", "1000")))
    for of in ("argument", "result"):
        assert min(counts[f"{of} {each}"] for each in ("fine", "breaking", "unsure")) > 100, counts
        assert counts[f"{of} breaking, a value is refused"] > 50, counts

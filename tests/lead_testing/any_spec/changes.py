"""One field of a spec that is set, with why the API server must refuse it: read out of a CRD's schema."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
Path = tuple[str | int, ...]  # below spec; a number is a place in a list

TAKEN_AWAY = None  # as a value: the field is absent
WRONG_TYPE: dict[str, Any] = {"string": 7, "integer": "seven", "boolean": "yes", "object": [], "array": {}}
# Of each field with a pattern, those that fit it are tried.
WORDS = (
    "a",
    "town-2",
    "full_pretrain",
    "datasets/town",
    "1Gi",
    "2.5",
    "s3://bucket/runs/key",
    "lead-wandb-a",
    "0" * 64,
    "",
)
RAW = "\u202e ../$(X)\n"
MAP_KEYS = {"requests": "cpu", "limits": "cpu", "config": "batch_size"}  # elsewhere any label's key


@dataclass(frozen=True)
class Change:
    """A field and what it is set to; `bad` is why that must be refused, empty where it may be taken."""

    path: Path
    value: Any
    bad: str

    @property
    def field(self) -> str:
        """Names the field as an API server does."""
        return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)

    def meets(self, other: "Change") -> bool:
        """Tells whether one of the two fields lies in the other, or is the other."""
        return all(mine == theirs for mine, theirs in zip(self.path, other.path, strict=False))

    def __str__(self) -> str:
        return f"{self.field} = {json.dumps(self.value)[:80]} ({self.bad or 'fine'})"


def changes_of(schema: Schema, path: Path = ()) -> Iterator[Change]:
    """Yields changes of every field of an object schema, those of lists and maps in it too."""
    for name, child in schema.get("properties", {}).items():
        yield from _of_field(child, (*path, name))
    for name in schema.get("required", ()):
        yield Change((*path, name), TAKEN_AWAY, "required")
    yield Change((*path, "bogus"), 1, "unknown field")


def put(spec: dict[str, Any], schema: Schema, change: Change) -> None:
    """Sets the field in `spec`; objects and entries on the way are made with no more than what they must have."""
    place: Any = spec
    for part, following in zip(change.path, (*change.path[1:], None), strict=True):
        if following is None:
            break
        schema = schema["items"] if isinstance(part, int) else _child(schema, part)
        if isinstance(part, int):
            place += [_least(schema)] * (part + 1 - len(place))
        else:
            place.setdefault(part, _least(schema))
        place = place[part]
    last = change.path[-1]
    if change.value is TAKEN_AWAY:
        place.pop(last, None)
    elif isinstance(last, int) and last == len(place):
        place.append(copy.deepcopy(change.value))
    else:
        place[last] = copy.deepcopy(change.value)


def _of_field(child: Schema, here: Path) -> Iterator[Change]:
    kind = child.get("type", "")
    if kind in WRONG_TYPE or child.get("x-kubernetes-int-or-string"):
        yield Change(here, WRONG_TYPE.get(kind, True), "wrong type")
    yield from (Change(here, value, bad) for value, bad in _values(child, kind))
    if kind == "object" and "properties" in child:
        yield from changes_of(child, here)
    elif kind == "object":
        yield from _of_map(child, here)
    elif kind == "array":
        yield from _of_list(child, here)


def _of_map(child: Schema, here: Path) -> Iterator[Change]:
    key = MAP_KEYS.get(str(here[-1]), "team.example/a")
    if "maxProperties" in child:
        many = {f"{key}{number}": "1" for number in range(child["maxProperties"] + 1)}
        yield Change(here, many, "too many entries")
    if isinstance(child.get("additionalProperties"), dict):
        yield from _of_field(child["additionalProperties"], (*here, key))


def _of_list(child: Schema, here: Path) -> Iterator[Change]:
    least, items = child.get("minItems", 0), child["items"]
    if least:
        yield Change(here, [], "too few entries")
    if "maxItems" in child:
        yield Change(here, [_least(items)] * (child["maxItems"] + 1), "too many entries")
    if items["type"] == "object":
        yield Change((*here, 0), "a", "wrong type")
        yield from changes_of(items, (*here, 0))
    else:
        yield from _of_field(items, (*here, 0))


def _values(child: Schema, kind: str) -> Iterator[tuple[Any, str]]:
    """Yields values at, inside and beyond the bounds of one field that is no object and no list."""
    if "enum" in child:
        yield from ((value, "") for value in child["enum"])
        yield "Bogus", "not in enum"
        return
    low, high = child.get("minimum"), child.get("maximum")
    yield from ([(low, ""), (low - 1, "below minimum")] if low is not None else [])
    yield from ([(high, ""), (high + 1, "above maximum")] if high is not None else [])
    if kind == "boolean":
        yield from ((value, "") for value in (True, False))
    if "maxLength" in child:
        yield "a" * (child["maxLength"] + 1), "too long"
        yield from ((word, "") for word in WORDS if _fits(word, child))
    if "pattern" in child:
        yield RAW, "pattern"
    if child.get("minLength"):
        yield "", "too short"


def _fits(word: str, child: Schema) -> bool:
    long_enough = child.get("minLength", 0) <= len(word) <= child["maxLength"]
    return long_enough and re.search(child.get("pattern", ""), word) is not None


def _child(schema: Schema, name: str) -> Schema:
    known: Schema = schema.get("properties", {})
    found: Schema = known.get(name) or schema["additionalProperties"]
    return found


def _least(schema: Schema) -> Any:
    """Returns the smallest value that a schema takes."""
    kind = schema.get("type", "string")
    if kind == "object":
        return {name: _least(_child(schema, name)) for name in schema.get("required", ())}
    if kind == "array":
        return [_least(schema["items"]) for _ in range(schema.get("minItems", 0))]
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "integer":
        return schema.get("minimum", 1)
    return False if kind == "boolean" else next(word for word in WORDS if _fits(word, schema))

"""What is parsed at once is what slicing finds, byte for byte and rejection for rejection; and ordinary objects are."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from lead_operator.kube import object_reader
from lead_operator.kube.object_reader import (
    KEPT_CONFIG_BYTES,
    MAX_METADATA_BYTES,
    REJECTION,
    SIZE,
    Unreadable,
    read_event,
    read_identity,
    read_page,
    read_resource,
)
from lead_operator.kube.whole_document import SMALL_BYTES, nests_deeper, parse_whole
from lead_operator.names import Annotation
from lead_operator.resources.recipe_config import MAX_CONFIG_DEPTH, OmittedConfig
from lead_testing.makers import a_cache_body, a_run_body
from lead_testing.poison import nested

Reader = Callable[[], Any]
TEXTS = ("", "x", "<b> & c", 'quo"te', "\\", "}]{[,:", "é☃\U0001f697", "\u2028", "\x01\t", "k" * 40)
NUMBERS = (0, -1, 2**53, 2**63, 1.5, 1e-9, 0.1, -0.0, 1e-6)
RAW_NUMBERS = ("1" + "0" * 30, "1e400", "NaN", "-0", "1.0", "1E2", "01", "-", "Infinity", "9" * 500)


def as_the_server_writes(value: Any) -> str:
    """Returns JSON as Go writes it: keys in order, no spaces, and three characters that HTML knows escaped."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def any_value(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(6 if depth else 3)
    if kind == 0:
        return chance.choice((None, True, *NUMBERS))
    if kind < 3:
        return chance.choice(TEXTS)
    if kind == 3:
        return [any_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    return {chance.choice(TEXTS) + str(n): any_value(chance, depth - 1) for n in range(chance.randrange(4))}


def any_config(chance: random.Random) -> Any:
    kind = chance.randrange(8)
    if kind == 0:
        return json.loads(nested(MAX_CONFIG_DEPTH + chance.randrange(-2, 3), mappings=chance.random() < 0.5))
    if kind == 1:
        return {"a": "x" * (KEPT_CONFIG_BYTES - 8 + chance.randrange(-4, 4))}
    if kind == 2:
        return {"a": "<" * (KEPT_CONFIG_BYTES // 6 - chance.randrange(4)), "b": "x" * chance.randrange(8)}
    if kind == 3:
        return chance.choice(([1], "text", 5, None, []))
    return {f"key{number}": any_value(chance, 3) for number in range(chance.randrange(6))}


def any_object(chance: random.Random) -> dict[str, Any]:
    body = chance.choice((a_run_body, a_cache_body))()
    metadata, spec = body["metadata"], body["spec"]
    metadata["resourceVersion"] = "7"
    metadata["managedFields"] = [{"fieldsV1": {"f:spec": {f"f:{any_value(chance, 0)}": {}}}, "manager": "kubectl"}]
    metadata["annotations"] = {"applied": json.dumps(any_value(chance, 3)) + "\n"}
    if chance.random() < 0.5:
        metadata["annotations"][Annotation.CLOSED_LOOP] = chance.choice((*TEXTS, "long" * 40, None, 7, ["x"]))
    if chance.random() < 0.7:
        spec["config"] = any_config(chance)
    if chance.random() < 0.3:
        staged = [{"name": str(n)} | ({"config": any_config(chance)} if n else {}) for n in range(chance.randrange(4))]
        spec["stages"] = chance.choice((staged, staged, staged, staged, {}, "text", [1]))
    if chance.random() < 0.6:
        body["status"] = chance.choice(({"phase": "Running", "any": any_value(chance, 5)}, [], "text", None))
    if chance.random() < 0.3:
        many = MAX_METADATA_BYTES // 54 + chance.randrange(-2, 3)
        metadata["finalizers"] = chance.choice((["a/b"], ["f" * 51] * many, "text", [1], [{"<": "&"}], None))
    if chance.random() < 0.1:
        metadata["name"] = chance.choice(("<", "n", "☃")) * chance.choice((168, 169, 170, 171, 340, 342, 1021, 1023))
    if chance.random() < 0.05:
        metadata[chance.choice(("uid", "generation", "resourceVersion"))] = chance.choice(([1], {}, None, True, 1.5))
    if chance.random() < 0.05:
        metadata.pop(chance.choice(("uid", "name", "resourceVersion")))
    if chance.random() < 0.05:
        body[chance.choice(("spec", "metadata", "status", "kind"))] = any_value(chance, 1)
    if chance.random() < 0.05:
        metadata["annotations"]["fill"] = ""
        missing = SMALL_BYTES - len(as_the_server_writes(body).encode()) + chance.randrange(-2, 3)
        metadata["annotations"]["fill"] = "x" * max(0, missing)
    return body


def any_bytes(chance: random.Random, body: dict[str, Any]) -> bytes:
    kind = chance.randrange(14)
    text = as_the_server_writes(body)
    if kind == 0:
        text = json.dumps(body, indent=chance.choice((None, 1)), ensure_ascii=chance.random() < 0.5)
    if kind == 1:  # a key in disguise
        key = chance.choice(("spec", "config", "metadata", "name", "status", "stages", "finalizers"))
        text = text.replace(f'"{key}":', f'"\\u{ord(key[0]):04x}{key[1:]}":', 1)
    if kind == 2:  # a key twice
        key = chance.choice(("spec", "config", "metadata", "name", "status", "stages", "uid", "datasets"))
        again = chance.choice((nested(40), nested(1_100), "1", "{}", "[]", '"x"', '{"config":{"a":1}}'))
        text = text.replace(f'"{key}":', f'"{key}":{again},"{key}":', 1)
    if kind == 3:
        text = re.sub(r"(?<=[:\[,])-?\d[\d.e-]*", lambda _: chance.choice(RAW_NUMBERS), text, count=1)
    if kind == 4:
        text = text.replace('"kubectl"', chance.choice(('"\\ud800"', '"\\/"', '"\\u0041"', nested(300), nested(1_100))))
    raw = bytearray(text.encode())
    if kind == 5:
        for _ in range(chance.randrange(1, 4)):
            raw[chance.randrange(len(raw))] = chance.choice(b'[]{}",:\\ 0\xff\x00u')
    if kind == 6:
        raw = raw[: chance.randrange(len(raw))] + chance.choice((b"", b"}", b'"}}'))
    after = chance.choice((b" x", b"\x00", b"}", b"\n\n")) if chance.random() < 0.1 else b"\n"
    return chance.choice((b"", b" ", b"")) + bytes(raw) + after


def outcome(read: Reader) -> Any:
    """Returns all that a reader says: what it returns, in order, with the digests of what it omits; or its error."""
    try:
        found = read()
    except Unreadable as error:
        return "Unreadable", str(error)
    return found, repr(found), [each.sha256 for each in omitted(found)]


def omitted(found: Any) -> list[OmittedConfig]:
    spec = found.get("spec", {}) if isinstance(found, dict) else {}
    stages = spec.get("stages") or []
    configs = [spec.get("config"), *(each.get("config") for each in stages if isinstance(each, dict))]
    return [each for each in configs if isinstance(each, OmittedConfig)]


def both_ways(monkeypatch: pytest.MonkeyPatch, read: Reader) -> tuple[Any, Any]:
    at_once = outcome(read)
    with monkeypatch.context() as patch:
        for name in ("parse_whole", "split_page", "split_event"):
            patch.setattr(object_reader, name, lambda raw: None)
        return at_once, outcome(read)


def test_whatever_an_object_holds_both_ways_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit: S11"""
    chance, at_once, rejected, total = random.Random(16), 0, set[str](), 2_000
    for _ in range(total):
        raw = any_bytes(chance, any_object(chance))
        at_once += parse_whole(raw) is not None
        for read in (
            lambda: read_resource(raw),  # noqa: B023
            lambda: read_resource(raw, whole=True),  # noqa: B023
            lambda: read_identity(raw),  # noqa: B023
        ):
            fast, sliced = both_ways(monkeypatch, read)
            assert fast == sliced, raw
            if isinstance(fast[0], dict) and REJECTION in fast[0]:
                rejected.add(fast[0][REJECTION].reason)
    assert at_once > total / 3
    assert rejected == {"ConfigTooDeep", "MetadataTooLarge", "SpecUnreadable"}


def test_whatever_a_page_or_an_event_holds_both_ways_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit: S11"""
    chance = random.Random(17)
    for _ in range(500):
        items = [any_bytes(chance, any_object(chance)) for _ in range(chance.randrange(4))]
        if chance.random() < 0.2:
            items.append(b'{"apiVersion":"v","a":[],"kind":"x","b":[{"c":1},{"apiVersion":"w"}]}')
        if chance.random() < 0.2:
            items.append(b'{"apiVersion":"v","large":' + nested(20_000).encode() + b"}")
        page = b'{"apiVersion":"v","items":[' + b",".join(items) + b'],"kind":"L","metadata":{"resourceVersion":"9"}}\n'
        event = b'{"type":"ADDED","object":' + b",".join(items) + b"}" + chance.choice((b"", b"\n", b"}", b"]"))
        for read in (lambda: read_page(page), lambda: read_event(event)):  # noqa: B023
            fast, sliced = both_ways(monkeypatch, read)
            if fast[0] == sliced[0] == "Unreadable":
                continue
            assert fast[0] == sliced[0], (page, event)


def test_what_the_server_sends_of_an_ordinary_object_is_parsed_at_once() -> None:
    fields = {f"f:key{number}": {"f:nested": {}} for number in range(60)}
    body = a_run_body(config={"lr": 0.0003, "note": "<a> & b"}, stages=[{"name": "a", "config": {"b": 1}}])
    body["metadata"] |= {"resourceVersion": "7", "managedFields": [{"fieldsV1": {"f:spec": fields}}]}
    raw = as_the_server_writes(body).encode() + b"\n"
    assert parse_whole(raw) is not None
    assert read_resource(raw)["spec"] == body["spec"]


def test_depth_is_told_without_recursion() -> None:
    """Audit: B2"""
    for depth in (2, 5, MAX_CONFIG_DEPTH, MAX_CONFIG_DEPTH + 1, 1_000):
        for mappings in (False, True):
            value = orjson.loads(nested(depth, mappings=mappings))
            assert nests_deeper(value, MAX_CONFIG_DEPTH) == (depth > MAX_CONFIG_DEPTH)


@pytest.mark.parametrize("part", ["spec", "status", "finalizers"])
@pytest.mark.parametrize("depth", [250, 260, 1_000, 5_000])
def test_a_part_that_is_deeper_than_its_schema_lets_it_be_fails_nothing(part: str, depth: int) -> None:
    """Audit: S11"""
    body = a_run_body()
    body["metadata"]["resourceVersion"] = "7"
    (body["metadata"] if part == "finalizers" else body)[part] = ["@@"] if part == "finalizers" else {"deep": "@@"}
    found = read_resource(as_the_server_writes(body).replace('"@@"', nested(depth)).encode())
    assert found["metadata"]["name"] == "night-drive" and found[SIZE] < 2_000

"""What the operator reads is what stands there; what is too much is named; and nothing that stands there ends it."""

import json
import random
import string
from typing import Any

import pytest

from lead_operator.decisions.training_run.view import hash_config
from lead_operator.kube.intern import share_strings
from lead_operator.kube.object_reader import (
    KEPT_CONFIG_BYTES,
    MAX_METADATA_BYTES,
    MAX_SPEC_BYTES,
    MAX_STATUS_BYTES,
    REJECTION,
    Unreadable,
    read_event,
    read_identity,
    read_page,
    read_resource,
)
from lead_operator.resources.recipe_config import (
    MAX_CONFIG_BYTES,
    MAX_CONFIG_DEPTH,
    ConfigOmitted,
    OmittedConfig,
    config_sha256,
    require_config,
)
from lead_operator.resources.training_run import parse_training_run
from lead_protocol.json_slices import JsonText, NotJson
from lead_testing.makers import a_cache_body, a_run_body
from lead_testing.poison import nested

CONFIG = {"lr": 0.1, "model": {"width": [1, 2, {"deep": None}]}, 'quo"te\\': "}]{["}


def wire(body: dict[str, Any], config: str = "") -> bytes:
    """Returns a body as the API server sends it; `config` stands for spec.config as text."""
    metadata = body["metadata"] | {"resourceVersion": "7", "annotations": {"a": "{[\\\""}, "labels": {"b": "c"},
                                   "managedFields": [{"fieldsV1": {"f:spec": {"f:config": {}}}}]}  # fmt: skip
    text = json.dumps(body | {"metadata": metadata}, sort_keys=True, separators=(",", ":"))
    return (text.replace(json.dumps("@@"), config) if config else text).encode()


def with_config(config: str) -> bytes:
    return wire(a_run_body(config={"at": "@@"}), config="1").replace(
        b'"config":{"at":1}', b'"config":' + config.encode(), 1
    )


@pytest.mark.parametrize("body", [a_run_body(config=CONFIG), a_cache_body(config=CONFIG)])
def test_all_that_is_read_is_there_and_nothing_else(body: dict[str, Any]) -> None:
    body["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    found = read_resource(wire(body))
    assert (found["spec"], found["status"], found["kind"]) == (body["spec"], body["status"], body["kind"])
    assert found["metadata"] == body["metadata"] | {"resourceVersion": "7"}
    assert REJECTION not in found


def test_a_config_that_is_not_small_is_omitted_and_hashes_as_if_it_were_there() -> None:
    keys = {f"key{number}": "x" * 40 for number in range(100)}
    body = a_run_body(config=keys, stages=[{"name": "a", "config": {"b": 1}}])
    omitted, whole = read_resource(wire(body)), read_resource(wire(body), whole=True)
    assert isinstance(omitted["spec"]["config"], OmittedConfig) and REJECTION not in omitted
    assert (omitted["spec"]["config"], omitted["spec"]["stages"][0]["config"]) == ({}, {})
    assert whole["spec"] == body["spec"]
    hashes = {hash_config(parse_training_run(share_strings(each))) for each in (omitted, whole, body)}
    assert len(hashes) == 1
    assert config_sha256(keys) == omitted["spec"]["config"].sha256
    with pytest.raises(ConfigOmitted):
        require_config(parse_training_run(omitted).config)
    assert len(json.dumps(keys)) > KEPT_CONFIG_BYTES


@pytest.mark.parametrize("mappings", [False, True])
@pytest.mark.parametrize("depth", [MAX_CONFIG_DEPTH + 1, 100, 1_000, 10_000, 100_000])
def test_a_config_of_any_depth_is_named(depth: int, mappings: bool) -> None:
    """Audit: B2
    Audit: S11
    """
    config = nested(depth, mappings=mappings)
    found = read_resource(with_config(config))
    reason = "ConfigTooDeep" if len(config) <= MAX_CONFIG_BYTES else "ConfigTooLarge"
    assert found[REJECTION].reason == reason and "spec.config" in found[REJECTION].message
    assert found["metadata"]["name"] == "night-drive" and found["spec"]["datasets"] == [{"cacheRef": {"name": "towns"}}]


def test_the_deepest_and_the_largest_that_are_served() -> None:
    assert REJECTION not in read_resource(with_config(nested(MAX_CONFIG_DEPTH)))
    most = '{"a":"' + "x" * (MAX_CONFIG_BYTES - 8) + '"}'
    assert REJECTION not in read_resource(with_config(most))
    found = read_resource(with_config(most.replace("x", "xx", 1)))
    assert found[REJECTION].reason == "ConfigTooLarge"
    assert f"takes {MAX_CONFIG_BYTES + 1} bytes" in found[REJECTION].message


@pytest.mark.parametrize(
    "config",
    ['{"a":"\\ud800"}', '{"a":1e400}', '{"a":NaN}', '{"a":-}', '{"a":01}', "[1]", '{"a":"\x01"}', '{"a":1,}', '"text"'],
)
def test_a_config_that_no_parser_takes_is_named(config: str) -> None:
    """Audit: S11"""
    found = read_resource(with_config(config))
    assert found[REJECTION].reason == "SpecUnreadable" and found["metadata"]["name"] == "night-drive"


def test_an_integer_of_any_length_is_read_or_named() -> None:
    for digits in (18, 19, 20, 400, 60_000):
        found = read_resource(with_config('{"a":' + "9" * digits + "}"))
        assert found["metadata"]["name"] == "night-drive"


def test_every_part_has_a_limit_and_none_fails_the_object() -> None:
    """Audit: S-2"""
    body = a_run_body()
    body["metadata"]["finalizers"] = ["a.example/" + "f" * 50] * 5_000
    assert len(json.dumps(body["metadata"])) > MAX_METADATA_BYTES
    found = read_resource(wire(body))
    assert found[REJECTION].reason == "MetadataTooLarge"
    body = a_run_body()
    body["spec"]["unknown"] = "x" * MAX_SPEC_BYTES
    assert read_resource(wire(body))[REJECTION].reason == "SpecTooLarge"
    body = a_run_body()
    body["status"] = {"reason": "x" * MAX_STATUS_BYTES}
    found = read_resource(wire(body))
    assert found["status"] == {} and REJECTION not in found  # rebuilt, as one that was erased
    body = a_run_body()
    body["metadata"] |= {"ownerReferences": [{"uid": str(number)} for number in range(10_000)]}
    assert "ownerReferences" not in read_resource(wire(body))["metadata"]


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"metadata":{}}', b'{"metadata":[]}', b'{"metadata":{"name":[1]}}', b"\xff"]
)
def test_bytes_that_are_nobodys_are_unreadable(raw: bytes) -> None:
    for read in (read_resource, read_identity, read_page, read_event):
        with pytest.raises(Unreadable):
            read(raw)  # type: ignore[operator]


def test_a_page_and_an_event_come_apart_whatever_is_in_them() -> None:
    """Audit: B2"""
    deep, plain = with_config(nested(20_000)), wire(a_cache_body())
    items, metadata = read_page(
        b'{"kind":"List","metadata":{"resourceVersion":"9"},"items":[' + deep + b"," + plain + b"]}"
    )
    assert items == [deep, plain] and metadata == {"resourceVersion": "9"}
    change, found = read_event(b'{"type":"ADDED","object":' + deep + b"}\n")
    assert (change, found) == ("ADDED", deep)
    assert read_identity(deep)["metadata"].keys() == {"name", "namespace", "uid", "resourceVersion"}


def test_slices_of_any_json_are_those_of_a_parser() -> None:
    chance = random.Random(7)
    for _ in range(500):
        value = {f"k{number}": any_json(chance, 6) for number in range(chance.randrange(4))}
        raw = json.dumps(value, indent=chance.choice((None, 1)), ensure_ascii=chance.random() < 0.5).encode()
        text = JsonText(raw)
        found = {json.loads(b'"' + key + b'"'): json.loads(raw[a:b]) for key, a, b in text.members()}
        assert found == value
        for _, start, _ in text.members():
            if raw[start : start + 1] == b"[":
                assert [json.loads(raw[a:b]) for a, b in text.elements(start)] == json.loads(
                    raw[start : text._end_of(start)]
                )


def test_bytes_that_are_cut_or_changed_end_in_a_value_error() -> None:
    """Audit: S11"""
    chance = random.Random(8)
    for _ in range(3_000):
        raw = bytearray(json.dumps({"a": any_json(chance, 5), "b": any_json(chance, 5)}).encode())
        for _ in range(chance.randrange(4)):
            raw[chance.randrange(len(raw))] = chance.choice(b'[]{}",:\\ 0\xff')
        try:
            list(JsonText(bytes(raw[: chance.randrange(1, len(raw) + 1)])).members())
        except NotJson:
            continue


def test_many_nests_come_to_an_end_in_either_way_of_counting() -> None:
    for nests in (10, 5_000):
        raw = b'{"a":[' + b'[[["]]]"]]],' * nests + b'1],"b":2}'
        assert [raw[a:b][:5] for _, a, b in JsonText(raw).members()] == [b'[[[["', b"2"]
        with pytest.raises(NotJson):
            list(JsonText(raw[:-12]).members())


def test_strings_are_shared_without_recursion() -> None:
    """Audit: B2"""
    value: Any = "deep"
    for _ in range(100_000):
        value = [value]
    copied = share_strings({"a": value, "b": OmittedConfig("x")})
    assert copied["b"].sha256 == "x"
    for _ in range(100_000):
        copied = copied["a"] if isinstance(copied, dict) else copied[0]
    assert copied == ["deep"] or copied == "deep"
    while isinstance(value, list):  # as deep as it is, its end must not recurse either
        value = value[0]


def any_json(chance: random.Random, depth: int) -> Any:
    kind = chance.randrange(7 if depth else 4)
    if kind == 0:
        return chance.choice((None, True, False, 0, -1, 2**53, 1.5, 1e-9))
    if kind < 4:
        return "".join(chance.choice(string.printable + '"\\{}[]é☃') for _ in range(chance.randrange(8)))
    if kind == 4:
        return [any_json(chance, depth - 1) for _ in range(chance.randrange(5))]
    return {str(chance.random()): any_json(chance, depth - 1) for _ in range(chance.randrange(5))}

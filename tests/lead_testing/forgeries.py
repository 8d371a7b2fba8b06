"""Records that a pod's key may write and that are made to be large in whoever reads them, as bytes of any size."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from lead_protocol.manifests import (
    MAX_CONTAINERS,
    MAX_FILES,
    MAX_VALUES,
    CacheManifest,
    RouteCounts,
    ShardEntry,
    StoredObject,
    is_bloated,
)
from lead_protocol.object_keys import InstanceKeys

SHA = "5" * 64
ROOM = 4096  # for what a document says beside its filling
SHORT, LONG = 8, 900  # characters of a key


def _repeated(before: bytes, item: bytes, after: bytes, size: int) -> bytes:
    return before + item * ((size - len(before) - len(after)) // len(item)) + after


def _named(before: bytes, item: str, after: bytes, size: int) -> bytes:
    """Returns many members, each with a name of its own: `item` has a place for a number of eight digits."""
    count = (size - len(before) - len(after)) // len(item % 0)
    return before + "".join(item % number for number in range(count)).encode() + after


# What stands in a forged document beside what belongs there: by structure, of `size` bytes.
STRUCTURES: Mapping[str, Callable[[int], bytes]] = {
    "empty lists": lambda size: _repeated(b'"x":[', b"[],", b"1]", size),
    "deep lists": lambda size: b'"x":' + b"[" * (size // 2 - 4) + b"]" * (size // 2 - 4),
    "small objects": lambda size: _repeated(b'"x":[', b'{"a":1},', b"1]", size),
    "wide object": lambda size: _named(b'"x":{', '"k%08d":{},', b'"z":1}', size),
    "small strings": lambda size: _named(b'"x":[', '"%08d",', b"1]", size),
    "one string": lambda size: _repeated(b'"x":"', b"x", b'"', size),
    "numbers": lambda size: _repeated(b'"x":[', b"1,", b"1]", size),
    "long keys": lambda size: _named(b'"x":{', '"' + "k" * LONG + '%08d":1,', b'"z":1}', size),
    "duplicate keys": lambda size: _repeated(b'"x":{', b'"a":[],', b'"z":1}', size),
}


def padded(document: Mapping[str, Any], structure: str, size: int) -> bytes:
    """Returns a document with a member that nobody asked for, `size` bytes in all or a little less."""
    honest = json.dumps(document).encode()[:-1] + b","
    assert len(honest) < ROOM
    return honest + _filling(structure, size - ROOM) + b"}"


@cache
def _filling(structure: str, size: int) -> bytes:
    return STRUCTURES[structure](size)


def a_checkpoint(keys: InstanceKeys, step: int, *, files: int = 1, name_length: int = SHORT) -> dict[str, Any]:
    """Returns what a manifest of a run's own checkpoint says, with as many files as it is told, which are not there."""
    folder = keys.checkpoint(step, 1, "nonce")
    named = {f"{number:0{min(name_length, 250)}d}": f"{folder}{number:0{name_length}d}" for number in range(files)}
    return {
        "run_uid": keys.uid, "stage": keys.stage, "seed": keys.seed, "attempt": 1, "nonce": "nonce", "step": step,
        "epoch": 1, "step_in_epoch": 0, "parent_sha256": None, "recipe": "lead", "config_sha256": SHA,
        "dataset_digests": [SHA], "world_size": 1, "torch_version": "2", "parameters_sha256": SHA, "saved_at": "",
        "files": {name: {"key": key, "size": 4, "sha256": SHA} for name, key in named.items()},
        "metrics": {"loss": 0.5},
    }  # fmt: skip


def most_files(keys: InstanceKeys, step: int) -> bytes:
    """Returns a valid manifest of as many files as one may have, with the longest keys."""
    return json.dumps(a_checkpoint(keys, step, files=MAX_FILES, name_length=LONG)).encode()


def a_cache_manifest(shards: int = 3, **members: Any) -> bytes:
    """Returns a manifest of a cache of so many shards, with other members where they are given."""
    stored = StoredObject(key="caches/a/shards/00001.shard", size=134_217_728, sha256=SHA)
    manifest = CacheManifest(
        digest=SHA, recipe="lead", builder="1", config={"a": [1, {"b": "}]"}]}, source_sha256=SHA,
        routes=RouteCounts(total=5, kept=4, reasons={"short": 1}), routes_object=stored, collections={},
        shards=[ShardEntry(object=stored, records=7)] * shards, metas=[stored] * 5, samples=21, size_bytes=99,
    )  # fmt: skip
    return json.dumps(manifest.model_dump() | members).encode()


def most_shards() -> bytes:
    """Returns a manifest of as many shards as are parsed, none of them an object of its cache."""
    document = json.loads(a_cache_manifest(shards=1, metas=[]))
    names = (f"caches/{number:05d}" for number in range(MAX_CONTAINERS // 2 - 10))
    document["shards"] = [{"object": {"key": name, "size": 1, "sha256": SHA}, "records": 1} for name in names]
    data = json.dumps(document).encode()
    assert not is_bloated(data)
    return data


def most_metas() -> bytes:
    """Returns a manifest of 16 MiB whose list of metas is one of long strings."""
    document = json.loads(a_cache_manifest(shards=1))
    document["metas"] = [f"{number:058d}" for number in range(MAX_VALUES - 200)]
    data = json.dumps(document).encode()
    assert not is_bloated(data)
    return data

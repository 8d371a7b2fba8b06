"""A manifest as large as any may be costs the operator its bytes, and one that is none costs nobody anything."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lead_operator.bucket.cache_facts import cache_facts, read_cache_facts
from lead_operator.bucket.checkpoint_gc import (
    MAX_READ_BYTES,
    GCMemory,
    GCRequest,
    sweep_and_forget,
    sweep_portion,
)
from lead_operator.bucket.instance_records import FEWEST_MANIFESTS, MAX_MANIFESTS, read_instances
from lead_operator.bucket.record_reader import RecordReader, Records
from lead_protocol.manifests import (
    MAX_CHECKPOINT_MANIFEST_BYTES,
    MAX_COUNT,
    MAX_ENTRIES,
    MAX_MANIFEST_BYTES,
    is_bloated,
    parse_cache_manifest,
    parse_checkpoint_manifest,
)
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.forgeries import SHA, a_cache_manifest, most_files, most_metas, padded
from lead_testing.makers import RUN_UID, SETTINGS

RUN = InstanceKeys("team-a", RUN_UID, "train", 0)
KEY = "caches/team-a/MANIFEST.json"
READ = """
import sys
from pathlib import Path
from lead_operator.bucket.cache_facts import read_cache_facts
from lead_operator.bucket.record_reader import RecordReader, Records
from lead_protocol.store.folder import FolderStore

def most_kib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

before = most_kib()
reader = RecordReader(FolderStore(Path(sys.argv[1])), Records(), "caches/", 10)
assert reader.parsed(sys.argv[2], read_cache_facts, 2**24).digest == "5" * 64
print(most_kib() - before)
"""


def test_what_is_read_is_what_the_manifest_says() -> None:
    facts = cache_facts(a_cache_manifest())
    assert (facts.digest, facts.source_sha256, facts.shards) == (SHA, SHA, 3)
    assert (facts.routes_total, facts.routes_kept, facts.route_reasons) == (5, 4, {"short": 1})
    assert (facts.samples, facts.size_bytes) == (21, 99)


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(b'"config": {"a": [' + b"[]," * 5_400_000 + b"1]}", id="empty lists"),
        pytest.param(b'"config": ' + b"[" * 8_000_000 + b"]" * 8_000_000, id="one deep list"),
        pytest.param(b'"shards": [' + b"[]," * 5_400_000 + b"1]", id="shards that are none"),
        pytest.param(b'"metas": [' + b'{"a":1},' * 2_000_000 + b"1]", id="small objects"),
    ],
)
def test_sixteen_forged_mebibytes_cost_no_more_than_a_few_times_their_bytes(tmp_path: Path, member: bytes) -> None:
    """Audit: S-2"""
    name = member.split(b":", 1)[0].strip(b'" ').decode()
    honest = {key: value for key, value in json.loads(a_cache_manifest()).items() if key != name}
    store = FolderStore(tmp_path)
    store.put(KEY, json.dumps(honest).encode()[:-1] + b"," + member + b"}")
    assert (tmp_path / KEY).stat().st_size <= MAX_MANIFEST_BYTES
    cost = subprocess.run([sys.executable, "-c", READ, str(tmp_path), KEY], capture_output=True, text=True, check=True)
    assert int(cost.stdout) < 5 * MAX_MANIFEST_BYTES // 1024


def test_a_staged_manifest_of_too_many_values_is_refused_unparsed() -> None:
    """Audit: S-2"""
    assert not is_bloated(a_cache_manifest(shards=32_000))
    assert is_bloated(b'{"config":{"a":[' + b"[]," * 5_000_000 + b"1]}}")
    assert is_bloated(b'{"config":{"a":[' + b"1," * 5_000_000 + b"1]}}")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{", b"\xff", b'{"digest": "\\ud800"}',
        a_cache_manifest(samples=10**30), a_cache_manifest(size_bytes=MAX_COUNT + 1), a_cache_manifest(samples=-1),
        a_cache_manifest(digest="x"), a_cache_manifest()[:-40],
        a_cache_manifest(routes={"total": 1, "kept": 1, "reasons": [1]}),
        a_cache_manifest(routes={"total": 1, "kept": 1, "reasons": {"r" * 70_000: 1}}), b" " * 1000,
    ],
)  # fmt: skip
def test_what_is_no_manifest_is_of_no_digest(data: bytes) -> None:
    """Audit: S-2"""
    assert read_cache_facts(data).digest == ""


@pytest.mark.parametrize(
    "bloated",
    [
        {"metrics": {f"m{number}": 0.5 for number in range(MAX_ENTRIES + 1)}},
        {"parts": {f"p{number}": "x" for number in range(MAX_ENTRIES + 1)}},
        {"dataset_digests": [str(number) for number in range(MAX_ENTRIES + 1)]},
        {"dataset_manifests": [str(number) for number in range(MAX_ENTRIES + 1)]},
        {"nonce": "n" * 300}, {"saved_at": "s" * 300},
    ],
)  # fmt: skip
def test_what_is_kept_of_a_checkpoints_manifest_is_bounded(bloated: dict[str, Any]) -> None:
    """A megabyte of metrics was kept as ten for each run. Audit: S-2"""
    honest: dict[str, Any] = {
        "run_uid": "u", "stage": "s", "seed": 0, "attempt": 1, "nonce": "n", "step": 15, "epoch": 2, "recipe": "lead",
        "step_in_epoch": 0, "parent_sha256": None, "config_sha256": SHA, "dataset_digests": [SHA], "world_size": 1,
        "torch_version": "2", "parameters_sha256": SHA, "saved_at": "", "files": {}, "metrics": {"loss": 0.5},
    }  # fmt: skip
    assert parse_checkpoint_manifest(json.dumps(honest).encode()).metrics == {"loss": 0.5}
    with pytest.raises(ValidationError):
        parse_checkpoint_manifest(json.dumps(honest | bloated).encode())


@pytest.mark.parametrize("data", [b'{"x":[' + b"[]," * 80_000 + b"1]}", most_metas(), padded({}, "numbers", 2**18)])
def test_what_is_refused_is_not_held_by_the_error(data: bytes) -> None:
    """A member that was missing kept the whole document once more, as objects: 2.9 GiB of thirty. Audit: S-2"""
    for parse in (parse_checkpoint_manifest, parse_cache_manifest):
        with pytest.raises(ValidationError) as refused:
            parse(data)
        assert refused.value.error_count() <= 20
        assert all(len(str(error["input"])) < 100 for error in refused.value.errors())


def test_of_manifests_the_operator_keeps_facts_alone_and_of_the_newest(tmp_path: Path) -> None:
    """Audit: S-2"""
    store, records = FolderStore(tmp_path), Records()
    for number in range(MAX_MANIFESTS + 5):  # newer ones, each of another step than its name's
        store.put(RUN.manifest(100 + number, 0), b"{}" if number % 100 else most_files(RUN, 7))
    store.put(RUN.manifest(99, 0), most_files(RUN, 99))
    store.put(f"{RUN.manifests_prefix}{'k' * 200}.json", b"{}")
    reader = RecordReader(store, records, RUN.prefix, 20_000)
    control = RecordReader(store, records, f"control/{RUN.namespace}/", 10)
    [found] = read_instances(reader, control, RUN.namespace, RUN.uid, (("train", 0),))
    assert (len(found.manifests), found.checkpoint) == (MAX_MANIFESTS, None)
    assert found.manifests[-1] == RUN.manifest(100 + MAX_MANIFESTS + 4, 0)
    assert {type(kept) for _, kept in records.parsed.values()} == {type(None)}
    seeds = tuple(("train", seed) for seed in range(100))  # a hundred times as many instances keep no more of each
    found, *others = read_instances(reader, control, RUN.namespace, RUN.uid, seeds)
    assert len(found.manifests) == FEWEST_MANIFESTS and not any(each.manifests for each in others)
    assert found.manifests[-1] == RUN.manifest(100 + MAX_MANIFESTS + 4, 0)


def test_retention_reads_manifests_up_to_a_size_and_keeps_few(tmp_path: Path) -> None:
    """Two thousand of one run took gigabytes. Audit: S-2"""
    store, memory = FolderStore(tmp_path), GCMemory()
    steps = range(100, 100 + 2 * MAX_READ_BYTES // len(most_files(RUN, 100)))
    for step in steps:
        store.put(RUN.manifest(step, 0), most_files(RUN, step))
    manifests = tuple(RUN.manifest(step, 0) for step in steps)
    profile = SETTINGS.storage_profiles["default"]
    request = GCRequest(profile, RUN, manifests, keep_last=3, keep_best=0, live_attempt=1, done=False)
    assert sweep_portion(store, request, memory)
    most = MAX_READ_BYTES + MAX_CHECKPOINT_MANIFEST_BYTES
    assert sum(read.size_bytes for read in memory.read.values()) <= most
    assert store.head(manifests[-3]) is not None and store.head(manifests[-4]) is None
    assert store.head(manifests[0]) is not None
    sweep_and_forget(store, request, memory)
    assert memory.read == {}

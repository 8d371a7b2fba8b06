"""The two commit records: a checkpoint exists when its manifest does, a cache exists when its MANIFEST.json does.

Both are strict JSON, create-only, at most MAX_MANIFEST_BYTES, and name every object with size and SHA-256.
"""

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import FailFast, Field, StringConstraints, ValidationError
from pydantic_core import InitErrorDetails

from lead_protocol.json_slices import JsonText, NotJson
from lead_protocol.store.object_store import ObjectStore
from lead_protocol.strict_model import StrictModel

MAX_MANIFEST_BYTES = 16 * 1024 * 1024
MAX_CHECKPOINT_MANIFEST_BYTES = 256 * 1024  # one of ten files has 4 KiB
MAX_CONTAINERS = 65_000  # lists and objects in a manifest of a cache: 32,000 files, which is 4 TB of shards
MAX_VALUES = 2 * MAX_CONTAINERS

MAX_ENTRY_BYTES = 4096  # of a file in a manifest of a cache, which takes 250
MAX_MEMBER_BYTES = 256 * 1024  # of everything in it but its lists of files

MAX_REASONS = 1024  # route verdicts of one cache
MAX_FACTS, MAX_FACT_NUMBERS = 16, 64  # that a preparation states of a cache
MAX_ATTEMPT = 10**6
MAX_FILES = 64  # of one checkpoint, which has ten
MAX_ENTRIES = 1024  # of any other list or mapping of its manifest: parsed, each takes ten times its bytes
MAX_COUNT = 10**15  # of anything: sums of a few thousand still fit into 64 bits

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Step = Annotated[int, Field(ge=0, lt=10**12)]  # twelve digits of a key
_Key = Annotated[str, StringConstraints(max_length=1024)]
_Name = Annotated[str, StringConstraints(max_length=256)]


Manifest = TypeVar("Manifest", bound=StrictModel)


class StoredObject(StrictModel):
    """One object a manifest vouches for."""

    key: _Key  # below the storage prefix
    size: _Count
    sha256: Sha256


class CheckpointManifest(StrictModel):
    """The commit of one checkpoint of one stage instance, or of the report with which an evaluation ends."""

    format: Literal["lead-checkpoint/1"] = "lead-checkpoint/1"
    run_uid: _Name
    stage: _Name
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)]
    attempt: Annotated[int, Field(ge=0, le=MAX_ATTEMPT)]
    nonce: _Name
    step: _Step  # optimizer steps completed
    epoch: _Step  # epochs completed
    step_in_epoch: _Step  # 0 at an epoch's end
    final: bool = False  # the stage ends with it: after the last epoch, or early
    is_report: bool = False  # of an evaluation: its files hold no weights, its step counts batches
    parent_sha256: Sha256 | None  # of the manifest this attempt resumed from or committed before
    recipe: _Name
    config_sha256: Sha256
    dataset_digests: Annotated[list[_Name], Field(max_length=MAX_ENTRIES)]
    # SHA-256 of each cache's manifest, "" where unknown
    dataset_manifests: Annotated[list[_Name], Field(max_length=MAX_ENTRIES)] = Field(default_factory=list)
    world_size: _Count
    torch_version: _Name
    git_revision: _Name = ""  # of the trainer's code, empty where it is not known
    micro_batches: _Count = 1  # in which each batch was cut to fit into memory
    best_by: _Name = "loss"  # the metric that ranks the checkpoints of this instance
    best_is_greatest: bool = False
    # file name by part: model, optimizer, ema, clipper …
    parts: Annotated[dict[_Name, _Name], Field(max_length=MAX_ENTRIES)] = Field(default_factory=dict)
    parameters_sha256: Sha256  # over every parameter and buffer in order: ranks compare it
    files: Annotated[dict[_Name, StoredObject], Field(max_length=MAX_FILES)]  # by LEAD's file name
    metrics: Annotated[dict[_Name, float], Field(max_length=MAX_ENTRIES)] = Field(default_factory=dict)
    saved_at: _Name  # RFC 3339, UTC, for people only

    @property
    def weights_name(self) -> str:
        """Name of the file with the weights that validation judged; empty where it holds none."""
        named = [self.parts.get(part, "") for part in ("ema", "model")]
        return "" if self.is_report else next((name for name in named if name in self.files), "")


def parse_checkpoint_manifest(data: bytes) -> CheckpointManifest:
    """Returns the manifest in `data`, without keys of newer trainers; raises pydantic's ValidationError."""
    return _parse(CheckpointManifest, data)


def checkpoint_fault(manifest: CheckpointManifest, prefix: str) -> str:
    """Returns why a manifest cannot be the commit of a checkpoint below `prefix`; empty where it can."""
    if not manifest.files:
        return "it names no files"
    if manifest.parts and manifest.parts.get("model") not in manifest.files:
        return "the file of its part `model` is not among its files"
    outside = next((stored.key for stored in manifest.files.values() if not stored.key.startswith(prefix)), None)
    return f"it names {outside[:200]}, outside {prefix}" if outside is not None else ""


def read_checkpoint_manifest(store: ObjectStore, key: str) -> CheckpointManifest:
    """Returns the manifest below `key`; raises StoreError, and pydantic's ValidationError for what is none."""
    return parse_checkpoint_manifest(store.get(key, max_bytes=MAX_CHECKPOINT_MANIFEST_BYTES))


class RouteCounts(StrictModel):
    """How many routes were kept, and why the others were not."""

    total: _Count
    kept: _Count
    reasons: Annotated[dict[_Name, _Count], Field(max_length=MAX_REASONS)] = Field(default_factory=dict)


class CollectionEntry(StrictModel):
    """One bucket collection of a cache."""

    object: StoredObject
    samples: _Count
    buckets: _Count


class ShardEntry(StrictModel):
    """One shard of a cache."""

    object: StoredObject
    records: _Count


_Numbers = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=MAX_FACT_NUMBERS)]


class CacheManifest(StrictModel):
    """The commit of one cache: what readers start from."""

    format: Literal["lead-cache/1"] = "lead-cache/1"
    digest: Sha256
    recipe: str
    builder: str  # preparation code version
    config: dict[str, Any]  # every key the preparation read, with its value
    source_sha256: Sha256  # of the sorted source listing (relative key, size, etag)
    routes: RouteCounts
    routes_object: StoredObject
    collections: dict[str, CollectionEntry]
    shards: Annotated[list[ShardEntry], FailFast()]  # of many that are none, each would be an error of its own
    metas: Annotated[list[StoredObject], FailFast()]
    samples: _Count  # records in all shards
    size_bytes: _Count
    facts: Annotated[dict[_Name, _Numbers], Field(max_length=MAX_FACTS)] = Field(default_factory=dict)  # of all samples

    @property
    def objects(self) -> list[StoredObject]:
        """Every object of the cache but the manifest itself."""
        tables = [self.routes_object, *(entry.object for entry in self.collections.values())]
        return [*(entry.object for entry in self.shards), *self.metas, *tables]


def parse_cache_manifest(data: bytes) -> CacheManifest:
    """Returns the manifest in `data`, without keys of newer builders; raises pydantic's ValidationError."""
    return _parse(CacheManifest, data, lists=(b"shards", b"metas"))


def _parse(model: type[Manifest], data: bytes, lists: Collection[bytes] = ()) -> Manifest:
    """First checks for what is missing or too long: pydantic's errors hold a copy of all that they are about."""
    _check_members(model, data, lists)
    return model.model_validate_json(data, extra="ignore")


def _check_members(model: type[StrictModel], data: bytes, lists: Collection[bytes]) -> None:
    missing, text = {name.encode() for name, field in model.model_fields.items() if field.is_required()}, JsonText(data)
    try:
        for key, start, end in text.members():
            missing.discard(key)
            if key in lists and data[start : start + 1] == b"[":
                longest = max((last - first for first, last in text.elements(start)), default=0)
                _refuse_longer(model, key, longest, MAX_ENTRY_BYTES)
            else:
                _refuse_longer(model, key, end - start, MAX_MEMBER_BYTES)
    except NotJson as error:
        raise _invalid(model, "json_invalid", error=str(error)) from error
    if missing:
        raise _invalid(model, "missing", *(name.decode() for name in sorted(missing)))


def _refuse_longer(model: type[StrictModel], key: bytes, length: int, most: int) -> None:
    if length > most:
        raise _invalid(model, "bytes_too_long", key[:64].decode(errors="replace"), max_length=most)


def _invalid(model: type[StrictModel], kind: str, *names: str, **context: Any) -> ValidationError:
    faults = [InitErrorDetails(type=kind, loc=(name,), ctx=context, input=None) for name in names or ("",)]
    return ValidationError.from_exception_data(model.__name__, faults)


def is_bloated(data: bytes) -> bool:
    """Returns whether a manifest holds more values than any cache has: parsed, they take fifty times its bytes."""
    return sum(map(data.count, (b"[", b"{"))) > MAX_CONTAINERS or data.count(b",") > MAX_VALUES


def sha256_hex(data: bytes) -> str:
    """Returns the SHA-256 of `data` as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, read in pieces, as 64 hex digits; raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

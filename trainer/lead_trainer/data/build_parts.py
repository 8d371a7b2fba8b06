"""The create-only record that one part of a cache is complete: what lets a restarted build skip it."""

from pydantic import Field, ValidationError

from lead_protocol.manifests import StoredObject
from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.object_store import ObjectNotFound, ObjectStore
from lead_protocol.strict_model import StrictModel
from lead_trainer.errors import BadData

MAX_RECORD_BYTES = 64 * 1024


class PartRecord(StrictModel):
    """A complete part: its shard and, unless no route fell to it, its metas."""

    shard: StoredObject
    records: int
    metas: StoredObject | None
    counts: dict[str, list[int]] = Field(default_factory=dict)  # of the shard's records, by a preparation that counts

    @property
    def objects(self) -> list[StoredObject]:
        """The objects of the part."""
        return [self.shard] if self.metas is None else [self.shard, self.metas]

    @property
    def size_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(item.size for item in self.objects)


def part_record(store: ObjectStore, keys: CacheKeys, number: int) -> PartRecord | None:
    """Returns the record of a part whose objects are there with the right sizes, else None."""
    key = keys.shard_record(number)
    try:
        record = PartRecord.model_validate_json(store.get(key, max_bytes=MAX_RECORD_BYTES))
    except ObjectNotFound:
        return None
    except ValidationError as error:
        raise BadData(f"{store.url}/{key} is not a record of a cache part; delete it and build again") from error
    for item in record.objects:
        info = store.head(keys.as_staged(item.key))
        if info is None or info.size != item.size:
            return None
    return record

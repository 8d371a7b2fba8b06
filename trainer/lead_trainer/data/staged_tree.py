"""A raw tree together with what earlier stages of the same build made of its samples; called by `build`.

Stages write below the digest that their build is going to have. So what they made of a source that has changed since is
never found by a later stage, and `lacking` reports it before anything is made of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.object_store import ObjectCorrupt, ObjectNotFound, ObjectStore
from lead_trainer.contract.raw_data import SampleKey, SourceFile, SourceTree
from lead_trainer.data.record import MAX_RECORD_BYTES, CorruptRecord, decode_record
from lead_trainer.errors import BadData


@dataclass(eq=False)  # preparations keep what they have opened of a tree, by the tree itself
class StagedTree:
    """A source tree that also holds the outputs of complete stages."""

    whole: SourceTree
    store: ObjectStore
    keys: CacheKeys
    stages: tuple[str, ...]  # that are complete
    pieces: dict[str, bytes] = field(default_factory=dict)  # what a scan needs of each, where pods share the scan
    _numbers: dict[SampleKey, int] = field(default_factory=dict)

    def files(self) -> Sequence[SourceFile]:
        """Returns every raw file, sorted by path; outputs are none: they do not change the digest."""
        return self.whole.files()

    def read(self, path: str) -> bytes:
        """Returns one raw file's bytes."""
        return self.whole.read(path)

    def local_file(self, path: str) -> Path:
        """Returns where one file lies on this machine's disk."""
        return self.whole.local_file(path)

    def number(self, samples: Sequence[SampleKey]) -> None:
        """Takes the samples of the scan; before it nothing was made of any."""
        self._numbers.update({sample: number for number, sample in enumerate(samples)})

    def lacking(self, numbers: Iterable[int]) -> str:
        """Returns which complete stage made nothing of some of these samples, "" where all is there."""
        wanted = set(numbers)
        for stage in self.stages:
            if missing := wanted - outputs_there(self.store, self.keys, stage):
                return f"stage {stage} made nothing of {len(missing)} samples: the source has changed since it began"
        return ""

    def made(self, stage: str, sample: SampleKey) -> Mapping[str, bytes] | None:
        """Returns what a stage made of a sample, None where the build has no such stage before this one."""
        number = self._numbers.get(sample)
        if stage not in self.stages or number is None:
            return None
        key = self.keys.stage_output(stage, number)
        try:
            record = decode_record(self.store.get(key, max_bytes=MAX_RECORD_BYTES))
        except (ObjectNotFound, ObjectCorrupt, CorruptRecord) as error:
            raise BadData(f"{self.store.url}/{key}: {error}; delete it and build again") from error
        if record.sample_id != number:
            raise BadData(f"{self.store.url}/{key} is of sample {record.sample_id}; delete it and build again")
        return {name: bytes(value) for name, value in record.fields.items()}


def outputs_there(store: ObjectStore, keys: CacheKeys, stage: str) -> set[int]:
    """Returns the numbers of the samples of which a stage has made something."""
    prefix = keys.stage_prefix(stage)
    names = (info.key.removeprefix(prefix) for info in store.list(prefix))
    return {int(name) for name in names if name.isascii() and name.isdigit()}

"""The loader's batches made by torch's DataLoader: for samples whose decoding holds the GIL, and to compare with.

Same order, same samples, same errors. The epoch travels with each index, so worker processes that live on never replay
an old one. Workers are forked: samples and their cache need not be pickled, and share the parent's open files.
"""

import copy
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from lead_protocol.store.object_store import StoreError
from lead_trainer.contract.samples import Batch, Sample
from lead_trainer.data.batch_slots import Collate
from lead_trainer.data.device_batch import to_device
from lead_trainer.data.loader import STUCK_AFTER_S, Loader
from lead_trainer.data.loader_stats import STAGES, LoaderClock
from lead_trainer.data.retrying_source import RetryingSource, decoded_sample, rephrased
from lead_trainer.data.shared_counters import SharedCounters
from lead_trainer.data.small_ints import SmallInts
from lead_trainer.errors import BadConfig, StuckLoader, TrainerError

_LOST_WORKER = re.compile(r"DataLoader (worker \(pid|timed out)")  # torch's wording


class ProcessLoader(Loader):
    """A Loader whose samples are loaded by `threads` worker processes."""

    def __init__(self, *values: Any, **options: Any) -> None:
        """Takes what a Loader takes."""
        super().__init__(*values, **options)
        self._clock = LoaderClock(SharedCounters(STAGES))

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Yields this rank's batches from `start_step` on; raises StuckLoader when a worker dies or stands still."""
        loader: DataLoader[Any] = DataLoader(
            _Numbered(RetryingSource(self._source, self._limits.store_outage_s, self._clock)),
            batch_sampler=_Steps(self._rows(epoch, start_step), epoch),
            num_workers=self._threads,
            prefetch_factor=max(1, -(-self._ahead // self._threads)),
            collate_fn=_Collated(self._collate, self._clock),
            multiprocessing_context="fork",
            pin_memory=self._device.type == "cuda",
            timeout=self._limits.stuck_after_s,
        )
        waiting = iter(loader)
        try:
            while True:
                batch, lost = None, None
                with self._clock.stage("wait"):
                    try:
                        batch = next(waiting, None)
                    except Exception as error:
                        lost = _worded(error)
                if lost is not None:
                    raise lost  # not where it was caught: its context would hold `waiting` too
                if batch is None:
                    return
                if isinstance(batch, _Failed):
                    raise batch.error
                self._clock.handed_over()
                yield self._on_this_device(batch)
                self._clock.asked()
        finally:
            # With its last reference; left to the garbage collector its queues may go first, and each process is waited
            # for in vain, by whichever thread collects.
            del waiting

    def _on_this_device(self, batch: Batch) -> Batch:
        batch = to_device(batch, self._device)
        return self._on_device(batch) if self._on_device else batch


@dataclass(frozen=True)
class _Failed:
    """An error on its way from a worker process, as the loop should see it."""

    error: Exception

    @classmethod
    def of(cls, error: Exception) -> "_Failed":
        """Returns an error in transit; raises one that torch can report, with the traceback of its process.

        What does not pickle would be lost silently, and the loop would wait for it, so its text is sent.
        """
        if isinstance(error, (TrainerError, StoreError)):
            return cls(error if _pickles(error) else rephrased(error, str(error), _pickles))
        if _pickles(type(error)):
            raise error
        picklable = rephrased(error, f"{type(error).__name__}: {error}", _pickles)
        for note in getattr(error, "__notes__", []):
            picklable.add_note(note)
        return cls(picklable)


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value)
        copy.copy(value)  # recreates it as the parent would: its class may need more arguments than it keeps
    except Exception:  # of any class: what is asked is whether there is none
        return False
    return True


class _Numbered(Dataset[Any]):
    def __init__(self, source: RetryingSource) -> None:
        self._source = source

    def __getitem__(self, item: tuple[int, int]) -> Sample | _Failed:
        try:
            sample = self._source.load(*item)
            with self._source.clock.stage("load"):
                return decoded_sample(self._source.source, item[0], sample)
        except Exception as error:  # by the sample's name, or a fault of the machine
            return _Failed.of(error)


class _Steps(Sampler[list[tuple[int, int]]]):
    def __init__(self, rows: SmallInts, epoch: int) -> None:
        self._rows, self._epoch = rows, epoch

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return ([(int(index), self._epoch) for index in indices] for indices in self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class _Collated:
    def __init__(self, collate: Collate, clock: LoaderClock) -> None:
        self._collate, self._clock = collate, clock

    def __call__(self, samples: list[Sample | _Failed]) -> Batch | _Failed:
        loaded: list[Sample] = []
        for sample in samples:
            if isinstance(sample, _Failed):
                return sample
            loaded.append(sample)
        try:
            with self._clock.stage("copy"):
                return self._collate(loaded)
        except Exception as error:
            return _Failed.of(error)


def loader_named(name: str) -> type[Loader]:
    """Returns the loader that a stage asks for; raises BadConfig for an unknown name."""
    kinds: dict[str, type[Loader]] = {"ring": Loader, "process": ProcessLoader}
    if name not in kinds:
        raise BadConfig(f"loader: found {name!r}, expected one of {', '.join(kinds)}")
    return kinds[name]


def _worded(error: Exception) -> Exception:
    """Returns an error of torch's DataLoader as the loop should see it, without frames that hold the iterator."""
    if not (isinstance(error, RuntimeError) and _LOST_WORKER.search(str(error))):
        return error.with_traceback(None)
    return StuckLoader(
        f"a loader process died or stood still ({error}); was it killed for memory? Lower the number of loader "
        f"processes or raise the pod's memory; samples may take {STUCK_AFTER_S:.0f} s at most"
    )

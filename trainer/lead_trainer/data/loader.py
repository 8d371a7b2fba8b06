"""Batches in training order, made ahead by threads: same seed, same batches, for any thread count and any restart.

    order (pure) → threads load samples into the rows of a slot → last row: batch, on the device → the loop

A few more threads (`shards_ahead`) fetch the shards of the epoch in the order of their first use. The loop asks for an
epoch from a step on; nothing before that step is loaded. One loader a rank. `process_loader` makes the same batches
with torch's DataLoader, without fetching ahead.
"""

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from lead_protocol.store.object_store import StoreError
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.results import returned
from lead_trainer.contract.samples import Batch, Indices, Sample, Samples
from lead_trainer.data.batch_slots import Collate, RowKeys, Slot, SlotRing, compared_keys
from lead_trainer.data.device_batch import to_device
from lead_trainer.data.loader_stats import LoaderClock, LoaderStats, stage_scalars
from lead_trainer.data.loader_threads import LoaderThreads
from lead_trainer.data.node_shares import RankShare, grouped_in_sections, nodes_order, refuse_uneven_sections
from lead_trainer.data.retrying_source import RetryingSource, naming, sample_name
from lead_trainer.data.sample_order import rank_batch_size, steps_in_epoch
from lead_trainer.data.shards_ahead import ShardsAhead
from lead_trainer.data.small_ints import SmallInts
from lead_trainer.errors import StuckLoader

BATCHES_AHEAD = 2
STUCK_AFTER_S = 540.0  # before the other ranks give up on this one (engine.ddp.GRADIENT_TIMEOUT_S)
SAMPLE_OUTAGE_S = 360.0  # how long one sample waits for a store that is away; its last try ends before it is stuck
_STOP_WAIT_S = 60.0


OnDevice = Callable[[Batch], Batch]


@dataclass(frozen=True)
class LoaderLimits:
    """How long things may take before they are an error, in seconds."""

    stuck_after_s: float = STUCK_AFTER_S
    store_outage_s: float = SAMPLE_OUTAGE_S


class Loader:
    """Batches of one rank."""

    def __init__(
        self,
        source: Samples,
        collate: Collate,
        *,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        canonical_nodes: int = 1,
        threads: int = 1,
        batches_ahead: int = BATCHES_AHEAD,
        device: torch.device | None = None,
        on_device: OnDevice | None = None,
        limits: LoaderLimits | None = None,
    ) -> None:
        """`batch_size` is global; raises BadConfig unless the ranks, and the canonical nodes, share it evenly.

        Batches come on `device` (default: CPU), where `on_device` turns them into what the model reads.
        """
        self._source = source
        self._collate = collate
        self._batch_size = batch_size
        self._rank_size = rank_batch_size(batch_size, world_size)
        refuse_uneven_sections(batch_size, canonical_nodes)
        self._seed = seed
        self._share = RankShare(batch_size, rank, world_size, canonical_nodes)
        self._threads = max(1, threads)
        self._ahead = max(1, batches_ahead)
        self._device = device or torch.device("cpu")
        self._on_device = on_device
        self._limits = limits or LoaderLimits()
        on_gpu = self._device.type == "cuda"
        self._ring = SlotRing(self._rank_size, self._ahead + 2, pinned=on_gpu)
        self._stream = torch.cuda.Stream(self._device) if on_gpu else None  # type: ignore[no-untyped-call]
        self._keys = RowKeys()
        self._keys_lock = threading.Lock()
        self._clock = LoaderClock()
        self._reported = LoaderStats()

    @property
    def threads(self) -> int:
        """How many threads, or processes, load samples."""
        return self._threads

    def steps_per_epoch(self, epoch: int) -> int:
        """Returns the number of batches of an epoch, the same on every rank; raises BadData where there is none."""
        return steps_in_epoch(len(self._source.epoch_draw(epoch)), self._batch_size)

    def sample_indices(self, epoch: int, start_step: int = 0) -> Iterator[SmallInts]:
        """Yields this rank's sample indices of each batch."""
        return iter(self._rows(epoch, start_step))

    def _rows(self, epoch: int, start_step: int) -> SmallInts:
        """Returns this rank's samples from a step on, (steps, rows); the epoch's order is kept by nobody."""
        return self._share.rows(self._order(epoch), start_step)

    def _order(self, epoch: int) -> Indices:
        """Returns the samples of an epoch in training order, of all ranks."""
        ordered_as, size, nodes = self._source.order_epoch(epoch), self._batch_size, self._share.canonical_nodes
        order = self._source.composed_order(ordered_as, size, nodes)
        if order is None:
            draw = self._source.epoch_draw(ordered_as)
            order = nodes_order(draw, self._seed, ordered_as, self._source.shards_of(draw), size, nodes)
        lengths = self._source.group_lengths()
        if lengths is not None:
            order = grouped_in_sections(order, lengths, size, nodes, self._seed, ordered_as)
        return order

    def _begun(self, epoch: int, start_step: int) -> tuple[Iterator[SmallInts], ShardsAhead]:
        """Returns this rank's samples of each batch, and the fetching of the shards that its group of ranks needs."""
        order = self._order(epoch)
        ahead = ShardsAhead(self._source, self._share.group_rows(order, start_step).reshape(-1))
        return iter(self._share.rows(order, start_step)), ahead

    def batches(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Yields this rank's batches from `start_step` on; a failing sample is raised with its name, at its place.

        Raises StuckLoader when a sample makes no progress for too long. Memory of a batch is used again once nothing
        refers to it.
        """
        wanted, ahead = self._begun(epoch, start_step)
        threads = LoaderThreads(self._threads)
        pending: deque[_Pending] = deque()
        stop_wait_s = _STOP_WAIT_S
        try:
            self._begin_more(threads, pending, wanted, epoch, self._ahead)
            while pending:
                batch = self._finished(pending[0])
                self._ring.give_back(pending.popleft().slot)
                self._begin_more(threads, pending, wanted, epoch, self._ahead)
                if pending:
                    self._send(pending[0])  # while the step runs; more of them would only fill the GPU's memory
                self._clock.handed_over()
                yield batch
                del batch  # or the slot would count as held while the next batch is awaited
                self._clock.asked()
        except (StuckLoader, StoreError):  # threads may wait for the disk or the store for long
            stop_wait_s = 0.0
            raise
        finally:
            for item in pending:
                item.abandoned = True
            threads.stop(stop_wait_s)
            ahead.stop()

    def stats(self) -> LoaderStats:
        """Returns where the time went since the loader was made."""
        return self._clock.read()

    def stage_scalars(self) -> dict[str, float]:
        """Returns what each stage took a batch since the last call, for the event files."""
        before, self._reported = self._reported, self._clock.read()
        return stage_scalars(before, self._reported)

    def _begin_more(
        self, threads: LoaderThreads, pending: "deque[_Pending]", wanted: Iterator[SmallInts], epoch: int, ahead: int
    ) -> None:
        while len(pending) < ahead and (indices := next(wanted, None)) is not None:
            item = _Pending([int(index) for index in indices], epoch, self._ring.take())
            pending.append(item)
            for row in range(len(item.indices)):
                threads.submit(lambda item=item, row=row: self._fill(item, row))  # type: ignore[misc]

    def _fill(self, item: "_Pending", row: int) -> None:
        """Loads one sample into its row, in a thread; whoever fills the last row makes the batch."""
        if not item.abandoned:
            item.begin(row)
            try:
                sample = self._load(item.indices[row], item.epoch, item)
                with self._clock.stage("load"), naming(self._source, item.indices[row]):
                    item.slot.put(row, sample, self._keys)
            except BaseException as error:
                item.errors[row] = error
        if item.end(row):
            try:
                if not item.errors and not item.abandoned:
                    item.batch = self._made(item.slot)
            except BaseException as error:
                item.errors[len(item.indices)] = error
            item.done.set()

    def _made(self, slot: Slot) -> Batch:
        with self._clock.stage("copy"):
            keys = self._keys
            batch = slot.batch(self._collate, keys)
            if keys.keys is None and not keys.whole:
                with self._keys_lock:
                    if self._keys == RowKeys():
                        self._keys = compared_keys(self._collate, slot.samples(), batch)
                if self._keys.whole or any(not self._keys.allows(key) for key in batch):
                    batch = self._collate(slot.samples())
        on_cpu = self._stream is None
        return self._on_device(batch) if on_cpu and self._on_device else batch

    def _send(self, item: "_Pending") -> None:
        """Starts copying a finished batch to the GPU on a stream of its own, once."""
        if self._stream is None or item.slot.copied is not None or item.errors or not item.done.is_set():
            return
        with torch.cuda.stream(self._stream):
            item.batch = to_device(item.batch, self._device)
            item.slot.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            item.slot.copied.record(self._stream)

    def _finished(self, item: "_Pending") -> Batch:
        """Waits for a batch; raises its first error by row, or StuckLoader."""
        with self._clock.stage("wait"):
            while not item.done.wait(min(1.0, self._limits.stuck_after_s / 4)):
                self._refuse_stuck(item)
        if item.errors:
            raise item.errors[min(item.errors)]
        self._send(item)
        batch = item.batch
        item.batch = {}
        if self._stream is None:
            return batch
        assert item.slot.copied is not None
        now = torch.cuda.current_stream(self._device)
        now.wait_event(item.slot.copied)
        for value in batch.values():
            if isinstance(value, torch.Tensor):
                value.record_stream(now)
        return self._on_device(batch) if self._on_device else batch

    def _refuse_stuck(self, item: "_Pending") -> None:
        now = time.monotonic()
        for row, (since, thread) in sorted(item.running().items()):
            if now - since > self._limits.stuck_after_s:
                for error in list(item.errors.values()):
                    if isinstance(error, StoreError):
                        raise error  # which is what the others wait for too
                raise StuckLoader(
                    f"sample {self._name(item.indices[row])} has been loading for {now - since:.0f} s "
                    f"({_place(thread)}); its thread is blocked: check the disk of the session cache and the store"
                )

    def _load(self, index: int, epoch: int, item: "_Pending") -> Sample:
        retrying = RetryingSource(self._source, self._limits.store_outage_s, self._clock)
        return retrying.load(index, epoch, lambda: item.abandoned)

    def _name(self, index: int) -> str:
        return sample_name(self._source, index)


@dataclass
class _Pending:
    """One batch that threads are at."""

    indices: list[int]
    epoch: int
    slot: Slot
    batch: Batch = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)
    done: threading.Event = field(default_factory=threading.Event)
    abandoned: bool = False
    _running: dict[int, tuple[float, int]] = field(default_factory=dict)
    _left: int = -1
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, row: int) -> None:
        """Notes which thread is at a row, and since when."""
        with self._lock:
            self._running[row] = (time.monotonic(), threading.get_ident())

    def end(self, row: int) -> bool:
        """Notes the end of a row; returns whether it was the last."""
        with self._lock:
            self._running.pop(row, None)
            self._left = (len(self.indices) if self._left < 0 else self._left) - 1
            return self._left == 0

    def running(self) -> dict[int, tuple[float, int]]:
        """Returns since when, and by which thread, rows are being loaded."""
        with self._lock:
            return dict(self._running)


def on_device_of(recipe: Recipe[Any], config: Any) -> OnDevice | None:
    """Returns what a recipe does to a batch on the device, None where it does nothing."""
    finish = recipe.on_device
    if finish is None:
        return None
    return lambda batch: returned(recipe.name, "on_device", finish(batch, config), dict)


def _place(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "its thread has ended"
    last = traceback.extract_stack(frame)[-1]
    return f"at {last.name}, {last.filename}:{last.lineno}"

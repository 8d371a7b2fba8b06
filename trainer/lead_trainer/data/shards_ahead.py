"""Fetches the shards of an epoch to the node in the order of their first use, beside the threads that load samples.

Used by `loader` for sources whose samples lie in shards. Nothing depends on it: whoever loads a sample fetches its
shard too, and waits for one that is on its way.
"""

import threading
from collections.abc import Iterator

import structlog

from lead_protocol.store.object_store import StoreError
from lead_trainer.contract.samples import Indices, Samples
from lead_trainer.data.record import CorruptRecord
from lead_trainer.data.sample_order import in_turn

log = structlog.get_logger(__name__)

AT_ONCE = 2  # one download alone waits for its store and its disk by turns
AGAIN_S = 30.0  # after which a shard is asked for again that the store or the disk did not let through
STOP_WAIT_S = 2.0  # a shard on its way is no reason to keep a checkpoint waiting


class ShardsAhead:
    """The fetching of one epoch, from its making to its stop; daemon threads, so that none keeps a process alive."""

    def __init__(self, source: Samples, order: Indices, *, again_s: float = AGAIN_S) -> None:
        """`order`: the samples that are left of the epoch. Does nothing for a source that does not lie in shards."""
        self._stopped = threading.Event()
        self._again_s = again_s
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._begun = threading.Event()  # the first shard has the link for itself: the first batch waits for it
        lie_in = source.shards_of(order)
        if lie_in is None:
            return
        shards = in_turn(lie_in)
        turns = iter(shards.tolist())
        for number in range(min(AT_ONCE, len(shards))):
            thread = threading.Thread(
                target=self._work, args=(source, turns, number == 0), name=f"lead-shards-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Begins no more and waits a moment for what is on its way."""
        self._stopped.set()
        self._begun.set()
        for thread in self._threads:
            thread.join(STOP_WAIT_S / len(self._threads))

    def _work(self, source: Samples, turns: Iterator[int], first: bool) -> None:
        if not first:
            self._begun.wait()
        while not self._stopped.is_set():
            with self._lock:
                shard = next(turns, None)
            if shard is None:
                return
            while not self._fetched(source, shard):
                if self._stopped.wait(self._again_s):
                    return

    def _fetched(self, source: Samples, shard: int) -> bool:
        """Returns whether nothing more is to be done for a shard."""
        try:
            return source.fetch_shard(shard)
        except StoreError as error:
            log.info("shard was not fetched ahead; it is tried again", shard=shard, error=str(error))
            return False
        except CorruptRecord as error:
            log.info("shard was not fetched ahead; its first sample fetches it", shard=shard, error=str(error))
            return True
        finally:
            self._begun.set()

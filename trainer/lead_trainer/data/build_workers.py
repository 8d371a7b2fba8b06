"""The records of a part, encoded by processes (decoding and compressing is work for cores) or, for few, by threads.

Processes are forked, so tree, scan and recipe need not be pickled. One that dies ends the build with the names of the
samples it may have been at. Used by `build`.
"""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice

from lead_trainer.cpu_limit import cpu_share
from lead_trainer.data.damaged_samples import Made, caught, whole
from lead_trainer.data.ordered_pool import ordered_map
from lead_trainer.errors import TrainerError

SAMPLES_A_PROCESS = 64  # with fewer, starting a process costs more than it saves
Encoded = tuple[int, bytes]
_encode: Callable[[int], Made] | None = None  # of this forked worker


class LostBuildWorker(TrainerError):
    """A process that made records died; the message names the samples in question."""


def encode_all(
    numbers: Sequence[int], encode: Callable[[int], Encoded], name: Callable[[int], str], *, threads: int,
    processes: int | None = None,
) -> Iterator[Encoded]:  # fmt: skip
    """Yields encode(number) in order; `processes` None: as many as there are cores and work for them.

    Raises what `encode` raises, BadData once every other damaged sample is known too, and LostBuildWorker.
    """
    yield from whole(_made(numbers, partial(caught, encode), name, threads, processes), name)


def _made(
    numbers: Sequence[int], encode: Callable[[int], Made], name: Callable[[int], str], threads: int,
    processes: int | None,
) -> Iterator[Made]:  # fmt: skip
    if processes is None:
        processes = min(cpu_share(), len(numbers) // SAMPLES_A_PROCESS)
    if processes < 2:
        yield from ordered_map(encode, numbers, threads)
        return
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), initializer=_adopt, initargs=(encode,))
    waiting: deque[tuple[int, Future[Made]]] = deque()
    source = iter(numbers)
    try:
        waiting.extend((number, pool.submit(_work, number)) for number in islice(source, 2 * processes))
        while waiting:
            _, future = waiting[0]
            result = future.result()
            waiting.popleft()
            waiting.extend((number, pool.submit(_work, number)) for number in islice(source, 1))
            yield result
    except BrokenProcessPool as error:
        at = ", ".join(name(number) for number, _ in list(waiting)[: 2 * processes])
        raise LostBuildWorker(
            f"a process of the build died while samples {at} were made; was it killed for memory? "
            "Give the build more memory, or fewer cores, and let it run again: finished parts are kept"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _adopt(encode: Callable[[int], Made]) -> None:
    global _encode
    _encode = encode


def _work(number: int) -> Made:
    assert _encode is not None
    return _encode(number)

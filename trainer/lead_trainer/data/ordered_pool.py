"""Work done by several threads and handed over in order, never more than a window ahead; used by builder and loader."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered_map(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, window: int = 0
) -> Iterator[Result]:
    """Yields work(item) in the items' order; the first exception is raised at its place and ends the iteration.

    At most `window` items (default: two a thread) are begun ahead of the consumer. Closing the iterator stops the
    threads after the items they are at.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, threads), thread_name_prefix="lead-data")
    waiting: deque[Future[Result]] = deque()
    source = iter(items)
    try:
        waiting.extend(pool.submit(work, item) for item in islice(source, max(1, window or 2 * threads)))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in islice(source, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

"""Runs a few transfers ahead in threads and yields their results in order; called by `s3.py`, knows nothing of S3."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_in_order(
    work: Callable[[_Item], _Result], items: Iterable[_Item], *, parallel: int
) -> Generator[_Result, None, None]:
    """Yields `work(item)` for each item in order, with at most `parallel` running; the first error ends it.

    Items are drawn only as they are started, so at most `parallel` + 1 of them are in memory.
    """
    with ThreadPoolExecutor(parallel, thread_name_prefix="transfer") as pool:
        running: deque[Future[_Result]] = deque()
        try:
            for item in items:
                running.append(pool.submit(work, item))
                if len(running) >= parallel:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()

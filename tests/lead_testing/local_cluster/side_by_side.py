"""Runs jobs in threads that an interrupt waits for as little as their main thread does."""

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

Job = Callable[[], object]


def run_side_by_side(jobs: Sequence[Job], at_once: int) -> None:
    """Runs jobs, `at_once` at a time and first those named first; raises the first error while others still run."""
    waiting: SimpleQueue[Job] = SimpleQueue()
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    for job in jobs:
        waiting.put(job)

    def work() -> None:
        while True:
            try:
                job = waiting.get_nowait()
            except Empty:
                return
            try:
                job()
            except BaseException as error:  # raised again by whoever waits
                ended.put(error)
                return
            ended.put(None)

    for _ in range(min(at_once, len(jobs))):
        threading.Thread(target=work, daemon=True).start()
    for _ in jobs:
        if (error := ended.get()) is not None:
            raise error

"""A few daemon threads that run tasks in the order they were given; used by `loader`.

Unlike concurrent.futures, a thread that never comes back does not keep the process from ending: that is what lets the
loader report a blocked sample instead of hanging with it.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

Task = Callable[[], None]


class LoaderThreads:
    """Threads and their queue; tasks answer for their own exceptions."""

    def __init__(self, count: int) -> None:
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, name=f"lead-data-{number}", daemon=True)
            for number in range(max(1, count))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Task) -> None:
        """Queues a task."""
        self._tasks.put(task)

    def stop(self, wait_s: float) -> None:
        """Drops the tasks not yet begun and waits at most `wait_s` seconds for the ones that are."""
        self._stopped = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(wait_s)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            if not self._stopped:
                task()

"""One piece of work in a thread beside the steps, whose result or error the step loop asks for later."""

import contextvars
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Work that runs from now on; the thread ends with the process, whatever it is doing."""

    def __init__(self, work: Callable[[], Result], name: str) -> None:
        self._work = work
        self._result: Result | None = None
        self._error: BaseException | None = None
        context = contextvars.copy_context()  # log lines name run and rank
        self._thread = threading.Thread(target=lambda: context.run(self._run), name=name, daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether `result` answers at once."""
        return not self._thread.is_alive()

    @property
    def error(self) -> BaseException | None:
        """What the work has raised, if anything."""
        return self._error

    def wait(self, timeout_s: float | None = None) -> None:
        """Waits for the end, at most so long."""
        self._thread.join(timeout_s)

    def result(self) -> Result:
        """Waits for the end and returns what the work returned, or raises what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

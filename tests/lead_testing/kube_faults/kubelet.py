"""Starts the operator again whenever it is dead, as kubelet does; counts how often."""

import os
import signal
import threading
from types import TracebackType
from typing import Self

from lead_testing.operator_process import KILLED, OperatorProcess

PASS_S = 0.05


class Kubelet:
    """A context manager around one operator: inside it the operator runs, whatever ends it."""

    def __init__(self, operator: OperatorProcess, environment: dict[str, str] | None = None) -> None:
        self.exits: list[int] = []  # statuses of the lives that ended, kills apart
        self.kills = 0
        self._operator = operator
        self._environment = environment or {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def __enter__(self) -> Self:
        self._operator.start(**self._environment)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30)
        self._operator.kill()

    @property
    def restarts(self) -> int:
        """How often the operator had to be started again."""
        return self.kills + len(self.exits)

    def kill(self) -> None:
        """Kills the operator as kill -9 does; it comes back at once."""
        os.kill(self._operator.pid, signal.SIGKILL)

    def _run(self) -> None:
        while not self._stop.wait(PASS_S):
            status = self._operator.exit_status()
            if status is None:
                continue
            if status in (KILLED, -signal.SIGKILL):
                self.kills += 1
            else:
                self.exits.append(status)
            self._operator.kill()  # collects the dead
            self._operator.start(**self._environment)

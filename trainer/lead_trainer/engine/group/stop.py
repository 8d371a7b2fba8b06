"""SIGTERM as a question that is asked at step boundaries: somebody wants this attempt to end with a checkpoint."""

import os
import signal
from types import FrameType


class StopFlag:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        self.raised = False
        self._listens_later = False

    def listen_later(self) -> None:
        """Listens from `trained` on.

        Until then a signal ends the process, wherever it is: there is nothing to commit, and a rank that waits for its
        group, or within a library, could not check the flag.
        """
        self._listens_later = True

    def trained(self) -> None:
        """Notes that from now on there may be something to commit; must be called on the main thread."""
        if self._listens_later:
            self._listens_later = False
            self.listen()

    def listen(self) -> None:
        """Lets SIGTERM and SIGINT raise the flag from now on; must be called on the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._raise)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.raised and number == signal.SIGINT:
            raise KeyboardInterrupt  # a person who presses twice does not want to wait for a checkpoint
        if number == signal.SIGINT:
            os.write(2, b"stopping after this step; press again to end at once\n")  # print may be under way
        self.raised = True

"""SIGTERM as a question that is asked at step boundaries: somebody wants this attempt to end with a checkpoint."""

import os
import signal
from types import FrameType


class StopFlag:
    """Whether this process was asked to stop."""

    def __init__(self) -> None:
        self.raised = False

    def listen(self) -> None:
        """Lets SIGTERM and SIGINT raise the flag; must be called on the main thread.

        From when somebody asks for the flag: until then a signal ends the process, as there is nothing to commit.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._raise)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.raised and number == signal.SIGINT:
            raise KeyboardInterrupt  # a person who presses twice does not want to wait for a checkpoint
        if number == signal.SIGINT:
            os.write(2, b"stopping after this step; press again to end at once\n")  # print may be under way
        self.raised = True

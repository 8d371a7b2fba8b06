"""Tells a person what happens now and since when; called by every slow step, decides nothing."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

HEARTBEAT_S = 30.0

_started = time.monotonic()


def say(text: str) -> None:
    """Prints one line with the seconds since this process began."""
    print(f"[{time.monotonic() - _started:7.1f} s] {text}", flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Announces a step, repeats it every 30 s while it lasts, and says how long it took."""
    say(f"{text} …")
    began = time.monotonic()
    finished = threading.Event()

    def heartbeat() -> None:
        while not finished.wait(HEARTBEAT_S):
            say(f"  still {text} ({time.monotonic() - began:.0f} s)")

    beat = threading.Thread(target=heartbeat, daemon=True)
    beat.start()
    try:
        yield
        say(f"  done {text} ({time.monotonic() - began:.1f} s)")
    finally:
        finished.set()
        beat.join()

"""Tells a person what happens now, since when, and how far all of it is; called by every slow step, decides nothing.

    expect({"kube-apiserver": 180, "image trainer": 300})
    with step("building kube-apiserver", "kube-apiserver"): …     # [   12.3 s   0 %] building kube-apiserver …

Shares are of the expected seconds, so that one program in nine may be a third of the way.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

HEARTBEAT_S = 30.0

_started = time.monotonic()
_expected_s: dict[str, float] = {}
_done: set[str] = set()
_running: dict[str, float] = {}  # since when


def expect(work: Mapping[str, float]) -> None:
    """Names the slow steps that lie ahead and the seconds that each is expected to take; lines tell a share then."""
    _expected_s.update(work)


def finish(name: str) -> None:
    """Counts a step as done, also one that there was no need for."""
    _running.pop(name, None)
    _done.add(name)


def percent() -> int | None:
    """Returns the share of the expected time is behind, None for none; a running step counts up to its own."""
    total = sum(_expected_s.values())
    if not total:
        return None
    behind = sum(seconds for name, seconds in _expected_s.items() if name in _done)
    now = time.monotonic()
    behind += sum(min(now - since, _expected_s.get(name, 0.0)) for name, since in list(_running.items()))
    return int(100 * behind / total)


def duration(seconds: float) -> str:
    """Returns seconds as people say them: 40 s, 3 min."""
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"


def say(text: str) -> None:
    """Prints one line with the seconds since this process began and, where it is known, the share that is done."""
    share = percent()
    told = "" if share is None else f" {share:3d} %"
    print(f"[{time.monotonic() - _started:7.1f} s{told}] {text}", flush=True)


@contextmanager
def step(text: str, name: str = "") -> Iterator[None]:
    """Announces a step, repeats it every 30 s while it lasts, and says how long it took; `name` as `expect` has it."""
    began = time.monotonic()
    if name:
        _running[name] = began
    say(f"{text} …")
    finished = threading.Event()

    def heartbeat() -> None:
        while not finished.wait(HEARTBEAT_S):
            say(f"  still {text} ({time.monotonic() - began:.0f} s)")

    beat = threading.Thread(target=heartbeat, daemon=True)
    beat.start()
    try:
        yield
        if name:
            finish(name)
        say(f"  done {text} ({time.monotonic() - began:.1f} s)")
    finally:
        finished.set()
        beat.join()

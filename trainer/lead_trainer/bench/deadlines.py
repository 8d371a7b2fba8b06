"""How much work is done until a deadline, by threads or by processes; used by every stage."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from multiprocessing import get_context
from typing import TypeVar

from lead_trainer.data.shared_counters import SharedCounters
from lead_trainer.errors import StuckLoader

REPORT_EVERY_S = 5.0
Item = TypeVar("Item")


def each_until(
    work: Callable[[Item], object],
    items: Sequence[Item],
    threads: int,
    seconds: float,
    report: Callable[[], None] = lambda: None,
) -> float:
    """Works on one item after the other in threads, begins none after `seconds`; returns how long it took.

    What is begun is finished, meanwhile `report` is called every few seconds. Each thread works on one item at least.
    """
    begin, numbers, lock = time.perf_counter(), itertools.count(), threading.Lock()

    def repeat() -> None:
        while True:
            with lock:
                number = next(numbers)
            if number >= len(items) or (number >= threads and time.perf_counter() - begin > seconds):
                return
            work(items[number])

    with ThreadPoolExecutor(threads) as pool:
        left = {pool.submit(repeat) for _ in range(threads)}
        while left:
            done, left = wait(left, timeout=REPORT_EVERY_S)
            for future in done:
                future.result()
            if left:
                report()
    return time.perf_counter() - begin


def rate_of_threads(work: Callable[[int], object], threads: int, seconds: float) -> float:
    """Returns calls a second of `work`, whose argument counts them, in threads over about `seconds`."""
    numbers, done, lock = itertools.count(), 0, threading.Lock()
    begin = time.perf_counter()

    def repeat() -> None:
        nonlocal done
        count = 0
        while time.perf_counter() - begin < seconds:
            work(next(numbers))
            count += 1
        with lock:
            done += count

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(repeat) for _ in range(threads)]:
            future.result()
    return max(1, done) / (time.perf_counter() - begin)


def rate_of_processes(work: Callable[[int], object], processes: int, seconds: float) -> float:
    """Returns calls a second of `work` in forked processes over about `seconds`; raises StuckLoader where one ends."""
    done, begin = SharedCounters(["calls"]), time.perf_counter()

    def repeat(first: int) -> None:
        for number in itertools.count(first, processes):
            work(number)
            done.add({"calls": 1})
            if time.perf_counter() - begin > seconds:
                return

    children = [get_context("fork").Process(target=repeat, args=(first,)) for first in range(processes)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    if any(child.exitcode for child in children):
        raise StuckLoader("a process that decodes samples ended with an error, which is detail above")
    return done.read()["calls"] / (time.perf_counter() - begin)

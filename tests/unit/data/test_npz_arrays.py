"""Threads of a build that read `.npz` files side by side read them right."""

import gc
import io
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from lead_trainer.recipes.npz_arrays import npz_arrays

THREADS, FILES = 4, 100


@pytest.fixture
def restless() -> Iterator[None]:
    """Lets threads change wherever they can: at each collection of garbage, of which there are as many as go."""

    def told(phase: str, info: object) -> None:
        pass

    before = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1)
    gc.callbacks.append(told)
    yield
    gc.callbacks.remove(told)
    sys.setswitchinterval(before[0])
    gc.set_threshold(*before[1])


@pytest.mark.usefixtures("restless")
def test_no_thread_meets_the_parsing_of_another() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, picture=np.arange(48, dtype=np.uint8).reshape(4, 4, 3), time=np.zeros(3))
    errors: list[BaseException] = []
    sums: list[int] = []

    def read() -> None:
        try:
            for _ in range(FILES):
                with npz_arrays(buffer.getvalue()) as stored:
                    sums.append(int(stored["picture"].sum()) + len(stored["time"]))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and sums == [48 * 47 // 2 + 3] * THREADS * FILES

"""One sample of a source, however it is loaded: a store that is away is waited for, an error names its sample."""

import errno
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from lead_protocol.store.object_store import StoreError, StoreFull, StoreUnavailable
from lead_trainer.contract.samples import Sample, Samples
from lead_trainer.data.jpeg_picture import decoded
from lead_trainer.data.loader_stats import LoaderClock
from lead_trainer.errors import BadData, TrainerError

_LONGEST_PAUSE_S = 10.0
_OF_THE_MACHINE = {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.ESTALE}


@dataclass(frozen=True)
class RetryingSource:
    """A source whose store may be away for up to `outage_s` seconds a sample."""

    source: Samples
    outage_s: float
    clock: LoaderClock

    def load(self, index: int, epoch: int, abandoned: Callable[[], bool] = lambda: False) -> Sample:
        """Returns one sample; raises what its source raises, by the sample's name, and gives up once `abandoned`.

        A fault of memory or disk stays what it is: not the sample is to blame.
        """
        deadline, pause_s = time.monotonic() + self.outage_s, 0.5
        while True:
            try:
                with self.clock.stage("load"):
                    return self.source.load(index, epoch)
            except (StoreUnavailable, StoreFull):
                if abandoned() or time.monotonic() + pause_s > deadline:
                    raise  # names the object, and its class decides the exit code
                with self.clock.stage("outage"):
                    time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except Exception as error:
                if is_of_the_machine(error):
                    error.add_note(f"while loading sample {sample_name(self.source, index)}")
                    raise
                raise named(error, sample_name(self.source, index)) from error


def is_of_the_machine(error: Exception) -> bool:
    """Returns whether an error is about memory or disk, so that the same sample may load elsewhere or later."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _OF_THE_MACHINE)


@contextmanager
def naming(source: Samples, index: int) -> Iterator[None]:
    """Raises bad data of its body by the sample's name; a fault of memory or device stays what it is."""
    try:
        yield
    except TrainerError as error:
        raise named(error, sample_name(source, index)) from error


def decoded_sample(source: Samples, index: int, sample: Sample) -> Sample:
    """Returns a sample with pixels for pictures; raises BadData by its name for a broken one."""
    with naming(source, index):
        return {key: decoded(value) for key, value in sample.items()}


def named(error: Exception, name: str) -> Exception:
    """Returns the error of a sample with the sample's name; errors of the store name their object already."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, TrainerError):
        return rephrased(error, f"sample {name}: {error}")
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""  # of the recipe, most often
    return BadData(f"sample {name}: {type(error).__name__}: {error}{where}")


def rephrased(error: Exception, text: str, usable: Callable[[Exception], bool] = lambda found: True) -> Exception:
    """Returns an error of the same class with the message `text` and the same exit code.

    Of the nearest ancestor where the class takes more than a text, or where such an error is not `usable`.
    """
    for kind in type(error).__mro__[: type(error).__mro__.index(Exception)]:
        with suppress(Exception):  # of a class that a recipe or library made
            found: Exception = kind(text)
            if isinstance(error, TrainerError):
                found.exit_code = error.exit_code  # type: ignore[attr-defined]
            if usable(found):
                return found
    return RuntimeError(text)


def sample_name(source: Samples, index: int) -> str:
    """Returns what a sample is called in messages."""
    name = source.name(index)
    return str(index) if name == str(index) else f"{index} ({name})"

"""Temporary credentials that are renewed well before they end; one renewal at a time, shared by a process's threads.

Renewal begins at a random point around two thirds of their life, so that the pods of a group do not all ask at once.
While the STS is away the old ones are used until they end; after that every call fails as if the store were away.
A refusal is believed once it has lasted for a while: behind an STS that runs, an identity provider may still start.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from lead_protocol.store.credentials import Credentials, NotGranted
from lead_protocol.store.object_store import StoreDenied, StoreError, StoreUnavailable
from lead_protocol.store.s3_answers import TryAgain

EARLIEST, LATEST = 0.55, 0.75  # share of the life at which renewal begins
END_MARGIN_S = 10.0  # so long before their end they are not used: a request takes time
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0  # while the old ones are good
LONGEST_PAUSE_WITHOUT_S = 5.0
REFUSED_S = 30.0  # so long an STS must have refused before that is a person's to change
EXCHANGE_S = 10.0  # of one exchange, at most
FRESH_S = 300.0  # a denial that names no cause replaces no younger credentials

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Session:
    """Temporary credentials and how long they live, in seconds from when they were obtained."""

    credentials: Credentials
    life_s: float


@dataclass(frozen=True)
class _Held:
    """A session, by this process's clock."""

    credentials: Credentials
    obtained: float
    renew_at: float
    end: float


class RenewedCredentials:
    """Keeps one session of `obtain` alive."""

    changes = True

    def __init__(
        self,
        obtain: Callable[[float], Session],
        source: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: random.Random | None = None,
    ) -> None:
        """`obtain(timeout_s)` asks once; it raises TryAgain, or a StoreError where a person must act."""
        self._obtain, self._source, self._clock = obtain, source, clock
        self._jitter = jitter or random.Random()  # own generator: the global one belongs to the training
        self._held: _Held | None = None
        self._renewal = (os.getpid(), threading.Lock())
        self._failures, self._failed = 0, ""  # since the last session, and what the last failure was
        self._failed_at = self._not_before = 0.0
        self._refused_since: float | None = None

    @property
    def source(self) -> str:
        """Where the credentials come from."""
        return self._source

    def current(self, timeout_s: float) -> Credentials:
        """Returns credentials that are good now; raises TryAgain while none can be had, StoreDenied when refused."""
        held = self._held
        if held is not None and self._clock() < held.renew_at:
            return held.credentials
        if held is not None and self._clock() < held.end:
            return self._renewed_early(held, timeout_s).credentials
        return self._renewed_now(held, timeout_s).credentials

    def replaced(self, refused: Credentials, *, of_key: bool | None, since: float) -> bool:
        """Obtains others where the refused ones themselves may be why: once for a call, at once for all threads."""
        held = self._held
        if of_key is False:
            return False
        if held is None or held.credentials != refused:
            return True  # another thread renews them, or has
        if held.obtained >= since:
            return False
        if of_key is None:
            return self._clock() - held.obtained >= FRESH_S and self._renewed_early(held, EXCHANGE_S) is not held
        _log.warning("the store refuses the %s before they end; others are asked for", self._source)
        self._not_before = min(self._not_before, self._clock())
        self._held = None
        return True

    def _renewed_early(self, held: _Held, timeout_s: float) -> _Held:
        """Returns others where they can be had now and nobody else asks for them, else `held`, which is still good."""
        lock = self._lock()
        if self._clock() < self._not_before or not lock.acquire(blocking=False):
            return held
        try:
            if self._held is held:
                return self._exchange(timeout_s, good=True)
        except (TryAgain, StoreError) as error:
            left_s = held.end - self._clock()
            _log.warning(
                "the %s are not renewed for now; they are good for %.0f s more: %s", self._source, left_s, error
            )
        finally:
            lock.release()
        return held

    def _renewed_now(self, held: _Held | None, timeout_s: float) -> _Held:
        lock = self._lock()
        if not lock.acquire(timeout=max(0.0, timeout_s)):
            raise TryAgain(f"another thread still asks for the {self._source}", uncertain=False)
        try:
            found = self._held
            if found is not None and found is not held:
                return found  # another thread was faster
            if self._failed and self._clock() < min(self._not_before, self._failed_at + LONGEST_PAUSE_WITHOUT_S):
                raise TryAgain(self._failed, uncertain=False)
            return self._exchange(timeout_s, good=False)
        finally:
            lock.release()

    def _exchange(self, timeout_s: float, *, good: bool) -> _Held:
        try:
            session = self._obtain(min(timeout_s, EXCHANGE_S))
        except (TryAgain, StoreUnavailable, StoreDenied) as error:
            self._note(error, good=good)
            if isinstance(error, StoreDenied) and self._is_believed():
                raise NotGranted(str(error)) from error
            raise TryAgain(str(error), uncertain=False) from error
        now = self._clock()
        renew_at = now + session.life_s * self._jitter.uniform(EARLIEST, LATEST)
        end = now + session.life_s - min(END_MARGIN_S, session.life_s / 4)
        found = self._held = _Held(session.credentials, now, renew_at, end)
        self._failures, self._failed, self._refused_since = 0, "", None
        return found

    def _note(self, error: Exception, *, good: bool) -> None:
        now, longest = self._clock(), LONGEST_PAUSE_S if good else LONGEST_PAUSE_WITHOUT_S
        pause_s = min(longest, FIRST_PAUSE_S * 2.0 ** min(self._failures, 16))
        self._not_before = now + pause_s * self._jitter.uniform(0.5, 1.0)
        self._failures, self._failed, self._failed_at = self._failures + 1, str(error), now
        if not isinstance(error, StoreDenied):
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now

    def _is_believed(self) -> bool:
        return self._refused_since is not None and self._clock() - self._refused_since >= REFUSED_S

    def _lock(self) -> threading.Lock:
        """Returns this process's lock: in a forked child another thread of the parent may hold the old one for ever."""
        if self._renewal[0] != os.getpid():
            self._renewal = (os.getpid(), threading.Lock())
        return self._renewal[1]

"""The key pair a client signs with, read anew from its files when the store refuses it; called by `s3_requests.py`.

A rotated key is refused from one moment to the next, while its successor reaches the files that the kubelet mounts up
to two minutes later. So a process may wait for it, if the store took its key before: a key that was never good is
somebody's mistake, and told at once. So is what a good key may not do, as soon as it is known to be still good.
"""

import logging
import time

from lead_protocol.store.object_store import StoreDenied, StoreError
from lead_protocol.store.s3_target import KeyPair, S3Limits, S3Target

_log = logging.getLogger(__name__)


class SigningKey:
    """The newest key pair that is known; shared by the threads of a process."""

    def __init__(self, target: S3Target, limits: S3Limits) -> None:
        self.pair: KeyPair = (target.access_key, target.secret_key)
        self._read_again, self._limits = target.read_again, limits
        self._taken_at: float | None = None  # when the last request that the store took was sent
        self._refused_since: float | None = None

    def accepted(self, sent_at: float) -> None:
        """Notes that the store took it with a request that was sent at that time (monotonic)."""
        self._taken_at, self._refused_since = sent_at, None

    def may_try_again(self, refused: KeyPair, denial: StoreDenied, since: float) -> bool:
        """Returns whether to send a request again: at once by another pair, else after a pause, while one may come.

        `since`: when the call was first refused (monotonic); others may be taken meanwhile, so each has its own wait.
        """
        self._read()
        if self.pair != refused:
            return True
        if denial.of_key is False or self._taken_at is None or self._read_again is None:
            return False
        if denial.of_key is None and self._taken_at > since:
            return False
        now, wait_s, began = time.monotonic(), self._limits.rotation_s, self._refused_since  # other threads reset it
        if began is None:
            began = self._refused_since = now
            _log.warning("the key that was good is refused; another is waited for, up to %.0f s: %s", wait_s, denial)
        if now - min(since, began) >= wait_s:
            return False
        time.sleep(self._limits.longest_pause_s)
        return True

    def _read(self) -> None:
        if self._read_again is None:
            return
        try:
            self.pair = self._read_again()
        except StoreError as error:  # the denial itself is what a person must see
            _log.warning("the refused key cannot be read again: %s", error)

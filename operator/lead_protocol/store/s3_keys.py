"""The credentials a client signs with, and what follows when they are refused; called by `s3_requests.py`.

A rotated key is refused from one moment to the next, while its successor reaches the files that the kubelet mounts up
to two minutes later; temporary credentials may end early. So a process takes others where there are any, and may wait
for them, if the store took its key before: a key that was never good is somebody's mistake, and reported at once. So is
what a good key may not do, as soon as it is known to be still good.
"""

import logging
import time

from lead_protocol.store.credentials import Credentials, CredentialsProvider, NotGranted
from lead_protocol.store.object_store import StoreDenied, StoreError
from lead_protocol.store.s3_target import S3Limits
from lead_protocol.store.trusted_pool import Untrusted

_log = logging.getLogger(__name__)


class SigningKey:
    """The newest credentials that are known; shared by the threads of a process."""

    def __init__(self, provider: CredentialsProvider, limits: S3Limits) -> None:
        self._provider, self._limits = provider, limits
        self.latest: Credentials | None = None  # that a request was signed with
        self._taken_at: float | None = None  # when the last request that the store took was sent
        self._refused_since: float | None = None

    @property
    def source(self) -> str:
        """Where the credentials come from, for messages."""
        return self._provider.source

    def current(self, timeout_s: float) -> Credentials:
        """Returns what to sign with now; raises TryAgain or a StoreError where there is nothing."""
        self.latest = self._provider.current(timeout_s)
        return self.latest

    def accepted(self, sent_at: float) -> None:
        """Notes that the store took it with a request that was sent at that time (monotonic)."""
        self._taken_at, self._refused_since = sent_at, None

    def may_try_again(self, refused: Credentials | None, denial: StoreDenied, since: float) -> bool:
        """Returns whether to send a request again: at once by another pair, else after a pause, while one may come.

        `since`: when the call was first refused (monotonic); others may be taken meanwhile, so each has its own wait.
        """
        of_server = isinstance(denial, Untrusted)
        of_these = not isinstance(denial, Untrusted | NotGranted)
        if of_these and refused is not None and self._replaced(refused, denial, since):
            return True
        if denial.of_key is False or self._taken_at is None or not (of_server or self._provider.changes):
            return False
        if denial.of_key is None and self._taken_at > since:
            return False
        now, wait_s, began = time.monotonic(), self._limits.rotation_s, self._refused_since  # other threads reset it
        if began is None:
            began = self._refused_since = now
            _log.warning("what was good is refused; a change is waited for, up to %.0f s: %s", wait_s, denial)
        if now - min(since, began) >= wait_s:
            return False
        time.sleep(self._limits.longest_pause_s)
        return True

    def _replaced(self, refused: Credentials, denial: StoreDenied, since: float) -> bool:
        try:
            return self._provider.replaced(refused, of_key=denial.of_key, since=since)
        except StoreError as error:  # the denial itself is what a person must see
            _log.warning("the refused key cannot be read again: %s", error)
            return False

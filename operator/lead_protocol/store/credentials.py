"""What S3 requests are signed with, and where that comes from; read by `s3_keys.py`, shared by a process's threads.

Messages name where credentials come from; no key and no token is ever part of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lead_protocol.store.object_store import StoreDenied


@dataclass(frozen=True)
class Credentials:
    """A key pair; temporary ones have a session token too."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


class NotGranted(StoreDenied):
    """There are no credentials to sign with: whoever grants them refuses."""

    def __init__(self, message: str) -> None:
        super().__init__(message, of_key=True)


class CredentialsProvider(Protocol):
    """Credentials that may change while a process lives; safe to share between threads."""

    @property
    def source(self) -> str:
        """Where the credentials come from, for messages: `static credentials of …`, `webIdentity credentials of …`."""

    @property
    def changes(self) -> bool:
        """Whether others may come without a restart: then a refused key that was good may be waited for."""

    def current(self, timeout_s: float) -> Credentials:
        """Returns what to sign with, after at most about `timeout_s`; raises TryAgain or a StoreError."""

    def replaced(self, refused: Credentials, *, of_key: bool | None, since: float) -> bool:
        """Fetches others than the denied ones; returns whether a request can be signed again. Raises a StoreError.

        `of_key` as in StoreDenied. `since` (monotonic): when the store refused the call first; what was obtained later
        and is refused too is not replaced for the same call again.
        """


class FixedCredentials:
    """Credentials that stay: of the environment, or given by a caller."""

    changes = False

    def __init__(self, credentials: Credentials, source: str = "static credentials") -> None:
        self._credentials, self._source = credentials, source

    @property
    def source(self) -> str:
        """Where the credentials come from."""
        return self._source

    def current(self, timeout_s: float) -> Credentials:
        """Returns them."""
        return self._credentials

    def replaced(self, refused: Credentials, *, of_key: bool | None, since: float) -> bool:
        """Returns False: there are no others."""
        return False


class ReadCredentials:
    """Static credentials of mounted files, read again when the store refuses them."""

    changes = True

    def __init__(self, read: Callable[[], Credentials], source: str) -> None:
        """Reads them once; `read` raises a StoreError where a file is missing."""
        self._read, self._source = read, source
        self._credentials = read()

    @property
    def source(self) -> str:
        """Where the credentials come from."""
        return self._source

    def current(self, timeout_s: float) -> Credentials:
        """Returns the ones read last."""
        return self._credentials

    def replaced(self, refused: Credentials, *, of_key: bool | None, since: float) -> bool:
        """Reads the files again; returns whether they hold others."""
        self._credentials = self._read()
        return self._credentials != refused

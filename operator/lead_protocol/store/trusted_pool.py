"""Connections that trust one CA file, which may change while a process lives; called by `s3_requests.py` and the STS.

A pool belongs to one process: a forked child gets its own. The CA is in memory as part of its connections, so a pool
whose file has changed is replaced after a TLS failure; an authority is rotated by giving the file both for a while.
"""

import hashlib
import os
import ssl
import threading
from pathlib import Path

import urllib3

from lead_protocol.store.object_store import StoreDenied

CONNECTIONS = 32


class Untrusted(StoreDenied):
    """The server's certificate is not one that this process trusts, or it does not use TLS."""


def ended_by_the_server(error: urllib3.exceptions.SSLError) -> bool:
    """Returns whether the server only went away, like one that restarts; it has shown nothing to distrust."""
    return any(isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError) for cause in error.args)


class TrustedPool:
    """One urllib3 pool per process, for the CA file as it was when the pool was made."""

    def __init__(self, ca_file: Path | None) -> None:
        """Without a file, or while it does not exist, the system's authorities are trusted."""
        self._ca_file = ca_file
        self._lock = threading.Lock()
        self._pools: dict[int, tuple[urllib3.PoolManager, str]] = {}  # by process, with the file's SHA-256

    def get(self) -> urllib3.PoolManager:
        """Returns this process's pool."""
        with self._lock:
            found = self._pools.get(os.getpid())
            if found is None:
                found = self._made()
                self._pools = {os.getpid(): found}
            return found[0]

    def reload(self, failed: urllib3.PoolManager) -> bool:
        """Returns whether another pool is there than the one whose TLS failed, because the CA file has changed."""
        with self._lock:
            pool, digest = self._pools.get(os.getpid(), (None, ""))
            if pool is not failed:
                return True
            if _digest(self._ca_file) == digest:
                return False
            self._pools = {os.getpid(): self._made()}
            return True

    def _made(self) -> tuple[urllib3.PoolManager, str]:
        digest = _digest(self._ca_file)
        ca_certs = str(self._ca_file) if digest else None
        pool = urllib3.PoolManager(maxsize=CONNECTIONS, retries=False, cert_reqs="CERT_REQUIRED", ca_certs=ca_certs)
        return pool, digest


def _digest(file: Path | None) -> str:
    """Returns the file's SHA-256, empty where there is none or it cannot be read."""
    try:
        return "" if file is None else hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""

"""TCP ports of the loopback: free ones for servers that are about to start, and one where nobody ever answers.

Standard library only: the local cluster starts before any package is installed.
"""

import contextlib
import errno
import os
import random
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"
# Below those that the kernel gives to whoever asks for any (ip_local_port_range) and the node ports of Kubernetes:
# else a port could be somebody's connection before its server has started.
FIRST, END = 20_000, 30_000

_draw = random.SystemRandom()  # a seed that a test sets, or a fork, must not make two processes draw the same


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listened on a moment ago; all are held until all are known, so they differ."""
    found, ours = list[int](), _own_ports()
    with contextlib.ExitStack() as held:
        for port in _draw.sample(ours, len(ours)):
            probe = held.enter_context(socket.socket())
            try:
                probe.bind((HOST, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(errno.EADDRINUSE, f"of {len(ours)} ports from {FIRST} to {END - 1} fewer than {count} are free")


def free_port() -> int:
    """Returns one port that nobody listened on a moment ago."""
    return free_ports(1)[0]


@contextlib.contextmanager
def dead_port() -> Iterator[int]:
    """A port that refuses connections while the context lasts: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield int(taken.getsockname()[1])


def _own_ports() -> range:
    """Returns the ports that only this worker of pytest-xdist draws from, or all where there is none."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return range(FIRST + number % workers, END, workers)

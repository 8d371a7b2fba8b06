"""TCP ports of the loopback: free ones for servers that are about to start, and one where nobody ever answers.

Standard library only: the local cluster starts before any package is installed.
"""

import contextlib
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listened on a moment ago; all are held until all are known, so they differ."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def free_port() -> int:
    """Returns one port that nobody listened on a moment ago."""
    return free_ports(1)[0]


@contextlib.contextmanager
def dead_port() -> Iterator[int]:
    """A port that refuses connections while the context lasts: it is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        yield int(taken.getsockname()[1])

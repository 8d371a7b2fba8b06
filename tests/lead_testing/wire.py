"""A TCP wire between the operator's client and the API server that can go silent: open, but nothing arrives any more.

That is what a lost route or a dead peer without a reset looks like. TLS passes through unread.
"""

import asyncio
from types import TracebackType
from typing import Self


class Wire:
    """An async context manager; `silence` deafens the connections that exist, `cut` all that are to come as well."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._dead = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.silence()
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """Lets every open connection stay open and carry nothing from now on."""
        for pump in self._pumps:
            pump.cancel()

    def cut(self) -> None:
        """Silences what is open and what will be opened, until `mend`."""
        self._dead = True
        self.silence()

    def mend(self) -> None:
        """Lets new connections through again."""
        self._dead = False

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self._dead:
            return
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream)
        self._writers.append(to_server)
        for source, target in ((reader, to_server), (from_server, writer)):
            pump = asyncio.create_task(_pump(source, target))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        target.close()
    except OSError:
        target.close()  # one side has hung up: so does the other

"""A network between a client and a server that can be cut and mended: needs no rights.

Rule: as a real one does, it loses nothing and ends nothing by itself. While it is cut,
connections are still made, and what was sent is on its way: it arrives when it is mended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

HOST: Final = "127.0.0.1"
PIECE_BYTES: Final = 64 * 1024


class CuttableNetwork:
    """From a port of its own to *port*, both on loopback."""

    def __init__(self, port: int) -> None:
        self.port = 0  # known once entered
        self._to_port = port
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cuttable network")

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()

    def cut(self) -> None:
        self._call(self._whole.clear)

    def mend(self) -> None:
        self._call(self._whole.set)

    def _call(self, what: Callable[[], None]) -> None:
        """When it returns, it is so."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(what)
        self._loop.call_soon_threadsafe(done.set)
        done.wait()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending, self._whole = asyncio.Event(), asyncio.Event()
        self._whole.set()
        self._streams: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accepted, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._ending.wait()
        server.close()
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        self._streams.add(own)
        far: asyncio.StreamWriter | None = None
        try:
            await self._whole.wait()
            with suppress(OSError):  # nobody listens there: it hangs up
                far_reader, far = await asyncio.open_connection(HOST, self._to_port)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._carry(reader, far))
                    both.create_task(self._carry(far_reader, writer))
        finally:
            self._streams.discard(own)
            for end in (writer, far):
                if end is not None:
                    end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):  # an end that is gone: the other is closed, too
            while piece := await reader.read(PIECE_BYTES):
                await self._whole.wait()
                writer.write(piece)
                await writer.drain()
        await self._whole.wait()
        with suppress(OSError):
            writer.write_eof()

"""A server of frontiers in a process of its own, to be killed: `python -m
tests.harness.served_process FOLDER CLOCK_FILE`. Its clock is what stands in the file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from crawler.data.data_dir import DataDir
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.frontier.port import FrontierLimits
from crawler.model.types import CrawlerError
from crawler.urlfrontier.frontier_crawls import FrontierCrawls
from crawler.urlfrontier.server import FrontierServer, ServerAccess


async def serve(folder: Path, clock_file: Path) -> None:
    def now() -> float:
        return float(clock_file.read_text())

    def fail(error: CrawlerError) -> None:
        raise error

    room = DiskRoom(WaitWarnings(), str(folder), lambda: False)
    crawls = FrontierCrawls(DataDir(folder), FrontierLimits(), now, room, fail)
    server = FrontierServer(crawls, ServerAccess(), now)
    print(await server.start("127.0.0.1", 0), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))

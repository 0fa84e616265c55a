"""A process that delivers what is finished, until it is done or killed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import s3fs  # type: ignore[import-untyped]  # noqa: F401 - a life begins sooner with it loaded

from crawler.archive.destinations import FolderStore, Store, read_address
from tests.delivering import delivery, object_store
from tests.servers.s3 import environment


def live(data: Path, url: str, port: int) -> None:
    os.environ.update(environment(port))
    address = read_address(url)
    store: Store = FolderStore(address) if address.is_folder else object_store(url)
    asyncio.run(delivery(data, store).close())

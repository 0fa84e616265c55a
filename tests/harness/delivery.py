"""Deliver archive files in tests: a data directory with finished files, a delivery with short
intervals, and a process that runs one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import s3fs  # type: ignore[import-untyped]  # noqa: F401 - a forked process begins sooner with it loaded

from crawler.archive.delivery import Delivery, DeliveryLimits
from crawler.archive.delivery_stores import FolderStore, ObjectStore, Store, read_address
from crawler.archive.warc_file import open_name
from tests.servers.s3 import environment

PATIENCE_S = 60.0
PART_BYTES = 5 * 1024 * 1024  # no less is a part for S3
IN_PARTS_BYTES = 2 * PART_BYTES + 100_000
QUICK = DeliveryLimits(
    waiting_bytes=1_000_000_000,
    poll_interval_s=0.01,
    backoff_base_s=0.01,
    backoff_max_s=0.05,
    stall_timeout_s=PATIENCE_S,
)


def finish(data: Path, stem: str, warc_bytes: int = 3000) -> dict[str, bytes]:
    """Finished files in *data*, by the names they will have in the store. The same stem gives the
    same bytes."""
    random = Random(stem)
    folder = data / "warc"
    folder.mkdir(exist_ok=True, parents=True)
    sizes = {".cdxj": 100, ".parquet": 1000, ".warc.gz": warc_bytes}
    files = {f"warc/{stem}{suffix}": random.randbytes(size) for suffix, size in sizes.items()}
    for name, content in files.items():
        open_name(data / name).write_bytes(content)
    for name in files:  # the WARC file last, as its writer does
        open_name(data / name).rename(data / name)
    return files


def is_empty(data: Path) -> bool:
    return not any((data / "warc").iterdir())


def local(data: Path) -> dict[str, bytes]:
    return {f"warc/{file.name}": file.read_bytes() for file in sorted((data / "warc").iterdir())}


def object_store(url: str) -> ObjectStore:
    return ObjectStore(read_address(url), part_bytes=PART_BYTES, attempts=1)


def delivery(data: Path, store: Store, **rules: float) -> Delivery:
    made = Delivery(data, store, replace(QUICK, **rules), Random(1))  # type: ignore[arg-type]  # numbers
    made.begin()
    return made


def under(prefix: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}/{name}": content for name, content in files.items()}


def deliver(data: Path, url: str, port: int) -> None:
    """Deliver what is finished in *data*; the target of a process that may be killed."""
    os.environ.update(environment(port))
    address = read_address(url)
    store: Store = FolderStore(address) if address.is_folder else object_store(url)
    asyncio.run(delivery(data, store).close())

"""What the tests of delivery have in common: a data directory with finished files, and a delivery
that does not take its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

from crawler.archive.delivery import Delivery, DeliveryRules
from crawler.archive.destinations import ObjectStore, Store, read_address
from crawler.archive.files import open_name

PATIENCE_S = 60.0
PART_BYTES = 5 * 1024 * 1024  # no less is a part for S3
IN_PARTS_BYTES = 2 * PART_BYTES + 100_000
QUICK = DeliveryRules(
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


def wait_until(is_so: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.005)


def under(prefix: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}/{name}": content for name, content in files.items()}

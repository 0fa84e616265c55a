"""Who this worker is, across its lives: kept in its data directory.

Rule: the directory is locked by one process, so what the file says of the last session is of a
dead one, unless the directory is a copy: it keeps which one it is.
"""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import Final

import msgspec

from crawler.model.types import DataDirError

_FILE: Final = "worker.json"


class WorkerFile(msgspec.Struct, frozen=True):
    name: str
    session: str  # of the life that wrote it
    directory: str = ""  # device and inode; empty: nobody has looked
    crawl: str = ""  # CRAWLER_FRONTIER_NAME; empty: nobody has looked
    key_seed: int = 0  # of that crawl, which no other has
    # What Redis knew of this name when this was written; it may never have heard of `session`.
    before: str = ""


def read_worker(path: Path) -> WorkerFile | None:
    """None: no shared crawl was begun in the data directory *path*."""
    try:
        return msgspec.json.decode((path / _FILE).read_bytes(), type=WorkerFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as broken:
        raise DataDirError(f"{path / _FILE} cannot be read: {broken}") from broken


def next_session(last: WorkerFile | None, wanted_name: str, path: Path) -> WorkerFile:
    """*wanted_name* empty: the one it had, or a new one."""
    name = wanted_name or (last.name if last else _new_name())
    return WorkerFile(name, f"{name}.{secrets.token_hex(4)}", _directory(path))


def is_copy(last: WorkerFile, path: Path) -> bool:
    """Whether *last* was written in another directory: this one was copied, restored or moved."""
    return last.directory not in ("", _directory(path))


def refuse_other_crawl(last: WorkerFile | None, path: Path, crawl: str, key_seed: int) -> None:
    """Raise DataDirError if *last* took part in another crawl: what waits in its outbox is keyed
    for that one, and what it has archived would be fetched again."""
    if last and last.crawl and (last.crawl, last.key_seed) != (crawl, key_seed):
        raise DataDirError(
            f"{path} belongs to another crawl ({last.crawl}), not to the one that is {crawl} in"
            " Redis now: choose another CRAWLER_DATA_DIR, or set CRAWLER_FRONTIER_URL and"
            " CRAWLER_FRONTIER_NAME as they were"
        )


def write_worker(path: Path, worker: WorkerFile) -> None:
    """Durable when it returns."""
    draft = path / f"{_FILE}.new"
    try:
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(worker))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path / _FILE)
    except OSError as refused:
        raise DataDirError(f"{path / _FILE} cannot be written: {refused}") from refused


def _directory(path: Path) -> str:
    found = path.stat()
    return f"{found.st_dev}:{found.st_ino}"


def _new_name() -> str:
    machine = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())
    return f"{machine[:40] or 'worker'}-{secrets.token_hex(3)}"

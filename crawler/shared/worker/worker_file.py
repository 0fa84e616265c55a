"""The worker's name and session, kept in its data directory from one start to the next.

Rule: one process locks the directory, so the session in the file is dead, unless the directory is a
copy: the file also holds the identity of its directory, to detect that.
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
    session: str  # the one that wrote the file
    directory: str = ""  # device and inode; empty if not known
    crawl: str = ""  # CRAWLER_FRONTIER_NAME; empty if not known
    key_seed: int = 0  # of that crawl; no two crawls have the same
    # The session under this name in Redis when this was written; `session` may not have got there.
    before: str = ""


def read_worker(path: Path) -> WorkerFile | None:
    """Read the file in the data directory *path*. Returns None if it had no shared crawl."""
    try:
        return msgspec.json.decode((path / _FILE).read_bytes(), type=WorkerFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as broken:
        raise DataDirError(f"{path / _FILE} cannot be read: {broken}") from broken


def next_session(last: WorkerFile | None, wanted_name: str, path: Path) -> WorkerFile:
    """Make a new session. If *wanted_name* is empty the last name is kept, or a new one made."""
    name = wanted_name or (last.name if last else _new_name())
    return WorkerFile(name, f"{name}.{secrets.token_hex(4)}", _directory(path))


def is_copy(last: WorkerFile, path: Path) -> bool:
    """Return whether *last* was written in another directory, so that *path* was copied, restored
    or moved."""
    return last.directory not in ("", _directory(path))


def refuse_other_crawl(last: WorkerFile | None, path: Path, crawl: str, key_seed: int) -> None:
    """Raise DataDirError if *last* is of another crawl: the links in its outbox have keys of that
    crawl, and its archived pages would be fetched again."""
    if last and last.crawl and (last.crawl, last.key_seed) != (crawl, key_seed):
        raise DataDirError(
            f"{path} belongs to another crawl ({last.crawl}), not to the one that is {crawl} in"
            " Redis now: choose another CRAWLER_DATA_DIR, or set CRAWLER_FRONTIER_URL and"
            " CRAWLER_FRONTIER_NAME as they were"
        )


def write_worker(path: Path, worker: WorkerFile) -> None:
    """Write the file. It is durable when this returns."""
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

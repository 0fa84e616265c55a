"""Requests of `scrapy frontier snapshot` to the crawl that uses a data directory: a file for each.

Rule: the file of a request stays on disk until it is answered, or withdrawn.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from crawler.data.files import replace_file


class SnapshotRequest(msgspec.Struct, frozen=True):
    """Copy the moment to a new folder of the data directory. Answered with why it failed; empty if
    it did not."""

    folder: str  # its name


_SNAPSHOT: Final = ".snapshot"
_ANSWER: Final = ".snapshotted"


def write_request(path: Path, request: SnapshotRequest) -> Path:
    """Write *request* to the data directory *path* and return its file. Raises OSError."""
    file = path / f"{secrets.token_hex(8)}{_SNAPSHOT}"
    replace_file(file, msgspec.json.encode(request))
    return file


def open_requests(path: Path) -> list[Path]:
    """Return the files of requests that are not answered."""
    return [file for file in path.iterdir() if file.suffix == _SNAPSHOT]


def read(file: Path) -> SnapshotRequest | None:
    """Return the request, or None if *file* is no request, or was withdrawn."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=SnapshotRequest)
    return None


def is_open(file: Path) -> bool:
    """Return whether the request *file* is neither answered nor withdrawn."""
    return file.exists()


def write_answer(file: Path, answer: str) -> None:
    """Answer the request *file*. Raises OSError."""
    replace_file(_answer_of(file), msgspec.json.encode(answer))
    file.unlink(missing_ok=True)


def is_answered(file: Path) -> bool:
    return _answer_of(file).exists()


def take_answer(file: Path) -> str | None:
    """Remove the answer to the request *file* and return it, or None if there is none yet."""
    answered = _answer_of(file)
    if not answered.exists():
        return None
    answer = msgspec.json.decode(answered.read_bytes(), type=str)
    answered.unlink()
    return answer


def withdraw_snapshots(path: Path) -> None:
    """Remove the requests for snapshots, and the answers to them."""
    for file in path.iterdir():
        if file.suffix in (_SNAPSHOT, _ANSWER):
            file.unlink(missing_ok=True)


def _answer_of(file: Path) -> Path:
    return file.with_suffix(_ANSWER)

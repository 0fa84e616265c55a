"""Requests to the crawl that uses a data directory to put dead letters back: a file for each.

Rule: the file of a request stays on disk until it is answered. A request that is read twice puts
back the letters that are left.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

_REQUEST: Final = ".retry"
_ANSWER: Final = ".retried"


class RetryRequest(msgspec.Struct, frozen=True):
    key: int | None  # of the URL; None: all dead letters


def write_request(path: Path, key: int | None) -> Path:
    """Write a request to the data directory *path* and return its file. Raises OSError."""
    file = path / f"{secrets.token_hex(8)}{_REQUEST}"
    _write(file, msgspec.json.encode(RetryRequest(key)))
    return file


def open_requests(path: Path) -> list[Path]:
    """Return the files of requests that are not answered."""
    return [file for file in path.iterdir() if file.suffix == _REQUEST]


def read(file: Path) -> RetryRequest | None:
    """Return the request, or None if *file* is no request, or was withdrawn."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=RetryRequest)
    return None


def write_answer(file: Path, put_back: int) -> None:
    """Answer the request *file* with the number of letters *put_back*. Raises OSError."""
    _write(file.with_suffix(_ANSWER), b"%d" % put_back)
    file.unlink(missing_ok=True)


def take_answer(file: Path) -> int | None:
    """Remove the answer to *file* and return how many letters were put back, or None if there is
    no answer yet."""
    answered = file.with_suffix(_ANSWER)
    if not answered.exists():
        return None
    put_back = int(answered.read_bytes())
    answered.unlink()
    return put_back


def _write(file: Path, content: bytes) -> None:
    draft = file.with_suffix(".draft")
    with draft.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)

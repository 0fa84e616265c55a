"""Requests to put dead letters back, to the crawl that has a data directory in use: a file each.

Rule: a request is on disk before its answer is waited for, and stays until then; taken twice, it
puts back what is left.
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
    key: int | None  # of the URL; None: all


def ask(path: Path, key: int | None) -> Path:
    """The request, written to the data directory at *path*. Raises OSError."""
    file = path / f"{secrets.token_hex(8)}{_REQUEST}"
    _write(file, msgspec.json.encode(RetryRequest(key)))
    return file


def waiting(path: Path) -> list[Path]:
    """Requests that are not answered."""
    return [file for file in path.iterdir() if file.suffix == _REQUEST]


def read(file: Path) -> RetryRequest | None:
    """None: it is none of ours, or was withdrawn."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=RetryRequest)
    return None


def answer(file: Path, put_back: int) -> None:
    """So many letters were put back for *file*. Raises OSError."""
    _write(file.with_suffix(_ANSWER), b"%d" % put_back)
    file.unlink(missing_ok=True)


def take_answer(file: Path) -> int | None:
    """How many letters were put back. None: it is not answered yet."""
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

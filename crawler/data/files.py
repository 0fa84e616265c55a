"""Files that survive a kill and a power cut."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from crawler.model.types import ConfigError


def replace_file(file: Path, content: bytes, mode: int = 0o666) -> None:
    """Write *content* in the place of *file*, all of it or nothing. Raises OSError."""
    draft = file.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb"
    ) as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Sync *folder*, so that the names of its files survive a power cut. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_lines(file: Path, lines: Iterable[bytes]) -> None:
    """Write *lines* into a new *file*, which has its name when all are there. Raises ConfigError if
    it cannot be written."""
    draft = file.with_name(file.name + ".draft")
    try:
        with draft.open("wb") as out:
            out.writelines(line + b"\n" for line in lines)
        draft.replace(file)
    except OSError as refused:
        raise ConfigError(f"{file} cannot be written: {refused.strerror}") from refused
    finally:
        draft.unlink(missing_ok=True)


def refuse_existing(out: str | None) -> None:
    """Raise ConfigError if *out*, the file that a user has named by -o, is there: it would be
    replaced."""
    if out == "":
        raise ConfigError("-o names no file")
    if out is not None and Path(out).exists():
        raise ConfigError(f"{out} exists: remove it, or name another file with -o")

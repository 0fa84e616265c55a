"""Files that survive a kill and a power cut."""

from __future__ import annotations

import os
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


def refuse_existing(out: str | None) -> None:
    """Raise ConfigError if *out*, the file that a user has named by -o, is there: it would be
    replaced."""
    if out and Path(out).exists():
        raise ConfigError(f"{out} exists: remove it, or name another file with -o")

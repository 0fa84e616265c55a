"""The folder of the index: immutable runs, and a manifest that names those in use.

Rule: a run is whole and on disk before the manifest names it, the manifest is replaced in one step,
and a run is removed only when the manifest does not name it. So a crash leaves the index as it was
before or after a change; other runs are removed when it is opened.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from xxhash import xxh3_64_hexdigest

from crawler.model.types import (
    DataDirError,
    StoreFull,
    StoreUnavailable,
)

VERSION: Final = 1
_MANIFEST: Final = "manifest.json"
_DRAFT: Final = ".draft"


class FileRecord(msgspec.Struct, frozen=True):
    size: int
    xxh3: str


class RunRecord(msgspec.Struct, frozen=True):
    name: str
    fingerprints: int  # distinct
    pages: int
    orders: int  # 4 or 10
    start_bits: int
    files: dict[str, FileRecord]


class Manifest(msgspec.Struct, frozen=True):
    whole: bool = True  # False: it is being rebuilt
    runs: tuple[RunRecord, ...] = ()  # oldest first
    next: int = 0  # number of the next run


class _Sealed(msgspec.Struct, frozen=True):
    """The file of the manifest, with a checksum, as the files of a run have."""

    version: int
    xxh3: str  # of the manifest
    manifest: msgspec.Raw


class IndexFolder:
    """The folder of the index on disk: its manifest, runs and drafts."""

    def __init__(self, path: Path) -> None:
        """Raises DataDirError if *path* cannot be made."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirError(f"{path} cannot be made: {error.strerror}") from error

    def load(self) -> Manifest | None:
        """Return the manifest, or None if there is no index yet. Raises DataDirError if it is
        damaged, or of another version."""
        file = self.path / _MANIFEST
        try:
            sealed = msgspec.json.decode(file.read_bytes(), type=_Sealed)
            if sealed.version != VERSION:
                raise self.damaged(
                    f"{file} is of version {sealed.version}, this one reads {VERSION}"
                )
            if xxh3_64_hexdigest(sealed.manifest) != sealed.xxh3:
                raise self.damaged(f"{file} is damaged")
            return msgspec.json.decode(sealed.manifest, type=Manifest)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise self.damaged(f"{file} cannot be read ({error})") from error

    def save(self, manifest: Manifest) -> None:
        file = self.path / _MANIFEST
        draft = file.with_suffix(_DRAFT)
        packed = msgspec.json.encode(manifest)
        sealed = _Sealed(VERSION, xxh3_64_hexdigest(packed), msgspec.Raw(packed))
        with draft.open("wb") as out:
            out.write(msgspec.json.encode(sealed))
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
        _sync(self.path)

    def begin(self, name: str) -> Path:
        """Make and return an empty draft folder for the run *name*, until `commit`."""
        draft = self.path / (name + _DRAFT)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        return draft

    def commit(self, name: str) -> None:
        """Turn the draft of *name*, whose files are on disk, into a run."""
        draft = self.path / (name + _DRAFT)
        _sync(draft)
        draft.rename(self.path / name)
        _sync(self.path)

    def discard_draft(self, name: str) -> None:
        """Remove the draft of *name*."""
        shutil.rmtree(self.path / (name + _DRAFT), ignore_errors=True)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path / name, ignore_errors=True)

    def sweep(self, live: set[str]) -> None:
        """Remove runs and drafts that a crash has left."""
        for found in self.path.iterdir():
            if found.is_dir() and found.name not in live:
                self.remove(found.name)

    def damaged(self, what: str) -> DataDirError:
        return DataDirError(
            f"{what}. Delete the folder {self.path}: the index of near-duplicates is made again"
            " from the claims of the pages, and nothing is lost"
        )


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """Turn an OSError into StoreFull or StoreUnavailable."""
    try:
        yield
    except OSError as error:
        kind = StoreFull if error.errno == errno.ENOSPC else StoreUnavailable
        raise kind(f"the index of near-duplicates cannot be written: {error}") from error


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLimits:
    """Sizes of the index. They affect speed and memory, never the result; tests make them tiny."""

    # The newest pages are compared one by one, 2,048 in 4 us; this many become a run on disk.
    newest_pages: int = 2048
    # Batches of the newest pages that may wait to be written; with more, callers of `add` wait.
    max_waiting_batches: int = 8
    # Runs written while older ones are merged, before these new ones are merged too.
    max_runs_during_merge: int = 8
    # A run is merged with the newer ones when they have a fourth of its pages: every page is
    # written 13 times on its way to 1e7 (2 us), and 3 or 4 runs are searched, 5 at most.
    merge_ratio: int = 4
    # Fingerprints of each run that a merge holds in memory.
    piece_fingerprints: int = 1 << 16
    # A run with more fingerprints has ten orders: with four, a search would compare more than 30
    # in each.
    ten_orders: int = 2_000_000
    # Of a longer stretch (0.2 ms to compare), only fingerprints that can be near are read.
    max_stretch: int = 1 << 16

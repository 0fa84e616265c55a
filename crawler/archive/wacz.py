"""Packs an archive into one WACZ 1.1 file, which ReplayWeb.page and others open.

Rule: memory is bounded, whatever the size: WARC files are copied unchanged, their indexes merged.
The package `wacz` is not used: it keeps every page in memory and reads all files three times.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from time import gmtime
from typing import IO, Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import msgspec

from crawler.archive.cdxj import SUFFIX, SortedLines
from crawler.archive.warc_file import companion_path, open_name
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError, StoreUnavailable

VERSION: Final = "1.1.1"  # of the format
BLOCK_LINES: Final = 1024  # of the index, packed together
COPY_BYTES: Final = 1024 * 1024
INDEX: Final = "indexes/index.cdx.gz"
_GZIP: Final = 31  # zlib's number for it


@dataclass(frozen=True, slots=True)
class PageLine:
    """An entry of the page list of a WACZ file."""

    url: str
    at: str  # 2026-01-02T03:04:05Z
    title: str = ""
    text: str = ""  # by which a reader of the package searches
    is_seed: bool = False


@dataclass(frozen=True, slots=True)
class Labels:
    """What people read first of a package; empty: they are not given."""

    title: str = ""
    description: str = ""


class _Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the page list."""

    id: str
    url: str
    ts: str
    title: str = ""
    seed: bool = False
    text: str = ""


class _Resource(msgspec.Struct, frozen=True):
    name: str
    path: str
    hash: str
    bytes: int


class _Package(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """datapackage.json."""

    profile: str
    title: str
    description: str = ""
    created: str
    wacz_version: str
    software: str
    mainPageUrl: str = ""  # the format's names
    mainPageDate: str = ""
    resources: list[_Resource]


class Wacz:
    """A WACZ file that is being written."""

    def __init__(self, file: ZipFile, now: float) -> None:
        self._file = file
        self._date = gmtime(now)
        self._resources: list[_Resource] = []
        self._main: PageLine | None = None  # the first seed of the page list

    def add_archive(self, warc: Path) -> None:
        with warc.open("rb") as source, self._entry(f"archive/{warc.name}", ZIP_STORED) as entry:
            while piece := source.read(COPY_BYTES):
                entry.write(piece)

    def add_index(self, lines: Iterator[str]) -> None:
        """Write the sorted *lines* in compressed blocks, and an index of the blocks' first keys."""
        begins = ['!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}\n']
        offset = 0
        with self._entry(INDEX, ZIP_STORED) as entry:
            while block := list(islice(lines, BLOCK_LINES)):
                packed = _gzipped("".join(block).encode())
                entry.write(packed)
                key = block[0].partition(" {")[0]
                digest = sha256(packed).hexdigest()
                begins.append(
                    f'{key} {{"offset": {offset}, "length": {len(packed)},'
                    f' "digest": "sha256:{digest}", "filename": "index.cdx.gz"}}\n'
                )
                offset += len(packed)
        with self._entry("indexes/index.idx", ZIP_DEFLATED) as entry:
            entry.write("".join(begins).encode())

    def add_pages(self, pages: Iterable[PageLine], *, have_texts: bool) -> int:
        """Write the page list and return how many pages it has."""
        count = 0
        with self._entry("pages/pages.jsonl", ZIP_DEFLATED) as entry:
            head = {"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}
            entry.write(msgspec.json.encode({**head, "hasText": have_texts}) + b"\n")
            for count, page in enumerate(pages, 1):
                if page.is_seed and self._main is None:
                    self._main = page
                line = _Page(f"{count:x}", page.url, page.at, page.title, page.is_seed, page.text)
                entry.write(msgspec.json.encode(line) + b"\n")
        return count

    def add_description(self, labels: Labels, software: str) -> None:
        """Write the description of the package. Call it last."""
        created = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z".format(*self._date[:6])
        description = _Package(
            profile="data-package",
            title=labels.title,
            description=labels.description,
            created=created,
            wacz_version=VERSION,
            software=software,
            mainPageUrl=self._main.url if self._main else "",
            mainPageDate=self._main.at if self._main else "",
            resources=self._resources,
        )
        package = msgspec.json.format(msgspec.json.encode(description), indent=2)
        digest = {"path": "datapackage.json", "hash": f"sha256:{sha256(package).hexdigest()}"}
        for name, content in (
            ("datapackage.json", package),
            ("datapackage-digest.json", msgspec.json.encode(digest)),
        ):
            with self._file.open(self._info(name, ZIP_DEFLATED), "w") as entry:
                entry.write(content)

    @contextmanager
    def _entry(self, path: str, compression: int) -> Iterator[_Hashed]:
        with self._file.open(self._info(path, compression), "w", force_zip64=True) as entry:
            hashed = _Hashed(entry)
            yield hashed
        name = path.rpartition("/")[2].lower()
        digest = f"sha256:{hashed.digest.hexdigest()}"
        self._resources.append(_Resource(name, path, digest, hashed.size_bytes))

    def _info(self, path: str, compression: int) -> ZipInfo:
        info = ZipInfo(path, self._date[:6])
        info.compress_type = compression
        info.external_attr = 0o644 << 16
        return info


class _Hashed:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = sha256()
        self.size_bytes = 0

    def write(self, piece: bytes) -> None:
        self._file.write(piece)
        self.digest.update(piece)
        self.size_bytes += len(piece)


@contextmanager
def pack_files(out: Path, now: float) -> Iterator[Wacz]:
    """Yield a WACZ file that is renamed to *out* when it is complete. Raises DataDirError if *out*
    exists already, and StoreUnavailable."""
    unfinished = open_name(out)
    if out.exists():
        raise DataDirError(f"{out} is there already; remove it, or name another file")
    try:
        with unfinished.open("wb") as file, ZipFile(file, "w", allowZip64=True) as packed:
            yield Wacz(packed, now)
        unfinished.rename(out)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def merged_index(warcs: Sequence[Path], scratch: Path) -> Iterator[Iterator[str]]:
    """Yield the lines of all indexes of *warcs*, sorted. Temporary files are made in the folder of
    *scratch*. Raises DataDirError if a file has no index."""
    lines = SortedLines(scratch)
    try:
        for warc in warcs:
            for line in _index_of(warc):
                lines.add(line)
        yield lines.sorted()
    finally:
        lines.discard()


def _index_of(warc: Path) -> Iterator[str]:
    try:
        with companion_path(warc, SUFFIX).open(encoding="ascii", newline="\n") as index:
            yield from index
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise DataDirError(
            f"{warc.name} has no index, or not one of ours; make it: {PROGRAM} archive index"
        ) from error


def _gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=_GZIP)
    return packer.compress(data) + packer.flush()

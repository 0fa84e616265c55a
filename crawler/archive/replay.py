"""Finds the exchanges of a replayed crawl in WARC files, by URL, method and request body.

Rule: an exchange is returned as it was recorded, with its time, its address and its truncation.
The latest of several answers to the same request counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from crawler.archive.cdxj import (
    SUFFIX,
    key_of,
    timestamp,
)
from crawler.archive.lookup import (
    Entry,
    entries,
    entries_for_key,
    warc_files,
)
from crawler.archive.reader import (
    ArchivedCapture,
    DamagedFile,
    Record,
    is_metadata_of,
    metadata,
    read_capture,
    records,
)
from crawler.archive.record_bytes import (
    END,
    NOT_MODIFIED,
    STATUS_LINE,
    as_received,
    uri,
)
from crawler.archive.warc_file import WARC_SUFFIX, companion_path
from crawler.model.page import Exchange, Truncated
from crawler.model.types import ConfigError, DataDirError

MAX_BODY_BYTES: Final = (
    1024 * 1024 * 1024
)  # of a body; the crawl that fetched it held it in memory too
_BESIDE_BYTES: Final = 16 * 1024 * 1024  # of a request, or of an answer's metadata
_MOST_DIGITS: Final = 9  # of milliseconds: a week


def replay_files(path: Path) -> list[Path]:
    """Return *path* itself, or all WARC files below it. Raises ConfigError if there is none."""
    if path.is_dir():
        folders = [path, *(below for below in path.rglob("*") if below.is_dir())]
        found = [file for folder in folders for file in warc_files(folder)]
    else:
        found = [path] if path.is_file() else []
    if not found:
        what = f"holds no {WARC_SUFFIX} file" if path.is_dir() else "is not there"
        raise ConfigError(f"CRAWLER_REPLAY is {str(path)!r}, which {what}")
    return found


class Replay:
    """The recorded exchanges of a file or folder.

    Cost: a file with an index takes no memory, and a few reads for each URL. A file without one is
    read once, and each of its captures kept in memory: 0.8 kB.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError, DataDirError."""
        self.files = replay_files(path)
        self._indexed = [file for file in self.files if companion_path(file, SUFFIX).exists()]
        self._in_memory: defaultdict[str, list[Entry]] = defaultdict(list)
        for file in self.files:
            if file not in self._indexed:
                for entry in entries(file):
                    self._in_memory[entry.url].append(entry)
        if not (self._indexed or self._in_memory):
            raise ConfigError(f"CRAWLER_REPLAY is {str(path)!r}, where no answer can be read")

    def find(self, url: str, method: str = "GET", body: bytes = b"") -> Exchange | None:
        """Return the latest exchange of that request. Returns None if the request was not sent or
        its answer is not in these files. Raises DataDirError."""
        for entry in reversed(self._captures(url)):
            exchange = self._exchange(entry)
            if exchange is not None and _method_and_body(exchange) == (method.encode(), body):
                return exchange
        return None

    def _captures(self, url: str) -> list[Entry]:
        """Return the captures of *url*, the oldest first."""
        written, key = uri(url), key_of(url)
        by_index = (entry for file in self._indexed for entry in entries_for_key(file, key))
        found = [entry for entry in by_index if entry.url == written]
        return sorted([*found, *self._in_memory.get(written, ())], key=Entry.time_key)

    def _exchange(self, entry: Entry) -> Exchange | None:
        found = _read_capture(entry)
        answer, body = found.answer, found.answer.body
        if answer.profile == NOT_MODIFIED:
            return None  # the answer to another question than for the page
        if answer.kind == "revisit":
            original = self._original(answer)
            if original is None:
                return None
            body = _read_capture(original).answer.body
        request_head, end, request_body = found.request.partition(END)
        return Exchange(
            url=answer.url,
            at=answer.fetched_at,
            duration_s=_ms(answer) / 1000,
            request_head=request_head + end,
            request_body=request_body,
            head=as_received(answer.head, unquote_to_bytes(answer.metadata_value(STATUS_LINE))),
            body=body,
            ip=answer.ip,
            tls=found.tls,
            truncated=_truncated(answer),
        )

    def _original(self, revisit: ArchivedCapture) -> Entry | None:
        """Return the capture that *revisit* repeats, or None if these files do not hold it."""
        at = timestamp(revisit.refers_date)
        named = self._captures(revisit.refers_to)
        exact = (each for each in named if each.timestamp == at and not each.is_revisit)
        return next(exact, None)


class _FoundCapture(NamedTuple):
    answer: ArchivedCapture
    tls: str
    request: bytes  # empty if it was not archived


def _read_capture(entry: Entry) -> _FoundCapture:
    try:
        with entry.file.open("rb") as file:
            file.seek(entry.place.offset)
            return _join_records(records(file), entry.place.file)
    except (StopIteration, DamagedFile, OSError) as error:
        raise DataDirError(
            f"{entry.file} cannot be read at {entry.place.offset}: {error or 'it ends there'}"
        ) from error


def _join_records(following: Iterator[Record], name: str) -> _FoundCapture:
    """Return an answer with the records that follow it about the same fetch."""
    record = next(following)
    tls = _tls(record)
    answer, request, noted = read_capture(record, name, MAX_BODY_BYTES), b"", b""
    # A crash may have cut off these records; the answer before them is complete.
    with suppress(DamagedFile):
        for record in following:
            if record.kind == "request":
                request = record.read_all(_BESIDE_BYTES)
            elif is_metadata_of(record, answer.url):
                noted = record.read_all(_BESIDE_BYTES)
            else:
                break
    return _FoundCapture(replace(answer, metadata=metadata(noted)), tls, request)


def _method_and_body(exchange: Exchange) -> tuple[bytes, bytes]:
    """Return the request's method and body; a request that was not archived counts as GET."""
    return exchange.request_line.partition(b" ")[0] or b"GET", exchange.request_body


def _tls(record: Record) -> str:
    """Return for example "TLSv1.3"; empty without TLS, or if the record does not name it."""
    protocols = (value for name, value in record.fields if name.lower() == "warc-protocol")
    return next((f"TLSv{value[4:]}" for value in protocols if value.startswith("tls/")), "")


def _ms(answer: ArchivedCapture) -> int:
    written = answer.metadata_value("fetchTimeMs")
    return int(written) if written.isdecimal() and len(written) <= _MOST_DIGITS else 0


def _truncated(answer: ArchivedCapture) -> Truncated:
    # A revisit is always marked as truncated: its record has no body, its answer was complete.
    if answer.kind == "revisit":
        return Truncated.NO
    known = answer.truncated in list(Truncated)
    return Truncated(answer.truncated) if known else Truncated.UNSPECIFIED

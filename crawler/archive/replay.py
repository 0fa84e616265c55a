"""What a replay answers from: exchanges out of WARC files, by the URL and what was asked of it.

Rule: nothing is made up. An exchange is what it was, its time and address and what it lacked
included; of several answers to one question the latest counts.
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
from crawler.archive.files import WARC_SUFFIX, companion_path
from crawler.archive.lookup import (
    Entry,
    entries,
    entries_of,
    warc_files,
)
from crawler.archive.reader import (
    Damaged,
    Record,
    Stored,
    metadata,
    records,
    stored,
)
from crawler.archive.record_bytes import (
    END,
    NOT_MODIFIED,
    STATUS_LINE,
    as_received,
    uri,
)
from crawler.model.page import Exchange, Truncated
from crawler.model.types import ConfigError, DataDirError

MOST_BYTES: Final = 1024 * 1024 * 1024  # of a body: whoever fetched it held it in memory too
_BESIDE_BYTES: Final = 16 * 1024 * 1024  # of a request, or of what is known of an answer
_MOST_DIGITS: Final = 9  # of milliseconds: a week


def replay_files(path: Path) -> list[Path]:
    """The WARC file that *path* is, or all that are below it. Raises ConfigError: none."""
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
    """Cost: a file with its index beside it takes no memory, and a few reads a URL. One without
    is read once, and each of its captures kept in mind: 0.8 kB."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError, DataDirError."""
        self.files = replay_files(path)
        self._indexed = [file for file in self.files if companion_path(file, SUFFIX).exists()]
        self._in_mind: defaultdict[str, list[Entry]] = defaultdict(list)
        for file in self.files:
            if file not in self._indexed:
                for entry in entries(file):
                    self._in_mind[entry.url].append(entry)
        if not (self._indexed or self._in_mind):
            raise ConfigError(f"CRAWLER_REPLAY is {str(path)!r}, where no answer can be read")

    def find(self, url: str, method: str = "GET", body: bytes = b"") -> Exchange | None:
        """None: that was not asked, or its answer is not here. Raises DataDirError."""
        for entry in reversed(self._captures(url)):
            exchange = self._exchange(entry)
            if exchange is not None and _question(exchange) == (method.encode(), body):
                return exchange
        return None

    def _captures(self, url: str) -> list[Entry]:
        """The oldest first."""
        written, key = uri(url), key_of(url)
        by_index = (entry for file in self._indexed for entry in entries_of(file, key))
        found = [entry for entry in by_index if entry.url == written]
        return sorted([*found, *self._in_mind.get(written, ())], key=Entry.in_time)

    def _exchange(self, entry: Entry) -> Exchange | None:
        found = _found(entry)
        answer, body = found.answer, found.answer.body
        if answer.kind == "revisit" and answer.profile != NOT_MODIFIED:
            original = self._original(answer)
            if original is None:
                return None
            body = _found(original).answer.body
        request_head, end, request_body = found.request.partition(END)
        return Exchange(
            url=answer.url,
            at=answer.fetched_at,
            duration_s=_ms(answer) / 1000,
            request_head=request_head + end,
            request_body=request_body,
            head=as_received(answer.head, unquote_to_bytes(answer.noted(STATUS_LINE))),
            body=body,
            ip=answer.ip,
            tls=found.tls,
            truncated=_truncated(answer),
        )

    def _original(self, revisit: Stored) -> Entry | None:
        """None: it is in another file, which is not here."""
        at = timestamp(revisit.refers_date)
        named = self._captures(revisit.refers_to)
        exact = (each for each in named if each.timestamp == at and not each.is_revisit)
        return next(exact, None)


class _Found(NamedTuple):
    answer: Stored
    tls: str
    request: bytes  # empty: not kept


def _found(entry: Entry) -> _Found:
    try:
        with entry.file.open("rb") as file:
            file.seek(entry.place.offset)
            return _together(records(file), entry.place.file)
    except (StopIteration, Damaged, OSError) as error:
        raise DataDirError(
            f"{entry.file} cannot be read at {entry.place.offset}: {error or 'it ends there'}"
        ) from error


def _together(following: Iterator[Record], name: str) -> _Found:
    """An answer, and what was written after it about the same fetch."""
    record = next(following)
    tls = _tls(record)
    answer, request, noted = stored(record, name, MOST_BYTES), b"", b""
    # What a crash has left of them may be torn, and the answer is whole.
    with suppress(Damaged):
        for record in following:
            if record.kind == "request":
                request = record.read_all(_BESIDE_BYTES)
            elif record.kind == "metadata":
                noted = record.read_all(_BESIDE_BYTES)
            else:
                break
    return _Found(replace(answer, metadata=metadata(noted)), tls, request)


def _question(exchange: Exchange) -> tuple[bytes, bytes]:
    """Its method and body. Where the request was not kept, it was a plain one."""
    return exchange.request_line.partition(b" ")[0] or b"GET", exchange.request_body


def _tls(record: Record) -> str:
    """ "TLSv1.3"; empty: none, or it does not say."""
    said = (value for name, value in record.fields if name.lower() == "warc-protocol")
    return next((f"TLSv{value[4:]}" for value in said if value.startswith("tls/")), "")


def _ms(answer: Stored) -> int:
    said = answer.noted("fetchTimeMs")
    return int(said) if said.isdecimal() and len(said) <= _MOST_DIGITS else 0


def _truncated(answer: Stored) -> Truncated:
    # Of a revisit it is the record that lacks a body; the answer was whole.
    if answer.kind == "revisit":
        return Truncated.NO
    known = answer.truncated in list(Truncated)
    return Truncated(answer.truncated) if known else Truncated.UNSPECIFIED

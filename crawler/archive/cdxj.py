"""The index beside each WARC file: a line for each response, revisit and DOM, sorted for pywb.

Rule: the lines are those that cdxj-indexer writes for these records of the file. So a line states
what a reader takes from the record, even if the crawl knew better.
"""

from __future__ import annotations

import gzip
import heapq
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from crawler.archive import record_bytes as fields
from crawler.archive.capture import (
    DOM,
    PAGE_INFO,
    RecordPlace,
    ResponseRecord,
    StoredCapture,
)
from crawler.archive.reader import HEADLESS, ArchivedCapture, DamagedFile, captures
from crawler.archive.warc_file import companion_path, open_name
from crawler.data.files import sync_folder
from crawler.model.types import DataDirError, StoreUnavailable, store_error
from crawler.model.url import authority_of

# The index key of a URL is the one that pywb and cdxj-indexer search by. They use the package
# `surt`, which is under the AGPL, ten times as slow, and sends DNS queries for hosts that look like
# numbers. Tests compare our keys with its keys.
_PORTS: Final = {"http": "80", "https": "443"}
_WWW: Final = re.compile(r"www\d*\.")
_SAFE: Final = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"  # all printable characters except # and %
_NESTED: Final = re.compile(rb"%(?:25)+")
_ASP_SESSION: Final = (
    re.compile(r"(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)"),
    re.compile(r"(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)"),
)
_SESSIONS: Final = (
    re.compile(r"(.*)jsessionid=[0-9a-z]{32}(?:&(.*))?"),
    re.compile(r"(.*)phpsessid=[0-9a-z]{32}(?:&(.*))?"),
    re.compile(r"(.*)sid=[0-9a-z]{32}(?:&(.*))?"),
    re.compile(r"(.*)aspsessionid[a-z]{8}=[a-z]{24}(?:&(.*))?"),
    re.compile(r"(.*)cfid=[^&]+&cftoken=[^&]+(?:&(.*))?"),
)
_MAY_HAVE_SESSION: Final = re.compile(r"sid=|sessionid|cfid=")


def surt(url: str) -> str:
    """Return the index key of a fetch form: the host reversed, and the rest normalized."""
    authority = authority_of(url)
    path, query = _path_and_query(url[len(authority) :])
    return f"{_reversed(authority)}{path}{query}"


def _urn_key(urn: str, url: str) -> str:
    """Return the index key of what stands under *urn* for the page at *url*, a fetch form."""
    authority = authority_of(url)
    path, query = _path_and_query(url[len(authority) :])
    return f"{urn}{authority}{path.removesuffix('/')}{query}"


def _path_and_query(target: str) -> tuple[str, str]:
    path, mark, query = target.partition("?")
    if mark and (query := _query(query)):
        return _path(path), f"?{query}"
    return _path(path), ""


@lru_cache(maxsize=1024)  # hosts with pages under way
def _reversed(authority: str) -> str:
    scheme, _, host = authority.partition("://")
    if host.startswith("["):
        name, _, port = host[1:].partition("]")
        port = port[1:]
    else:
        name, _, port = host.partition(":")
    name = name.replace("..", ".").strip(".").lower()
    if www := _WWW.match(name):
        name = name[www.end() :]
    name = ",".join(name.split(".")[::-1])
    return f"{name})" if port in ("", "0", _PORTS.get(scheme)) else f"{name}:{port})"


def _path(path: str) -> str:
    if "%" in path:
        path = _normal(_unescaped(path))
        path = quote_from_bytes(path.encode("latin-1"), _SAFE)
    else:
        path = _normal(path)
    path = path.lower()
    if ".aspx" in path:
        for pattern in _ASP_SESSION:
            if found := pattern.fullmatch(path):
                path = found[1] + found[2]
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


def _normal(path: str) -> str:
    """Return *path* without empty segments and dot segments, which a fetch form may have only after
    unescaping."""
    if "/." not in path and "//" not in path:
        return path
    kept: list[str] = []
    for segment in path.split("/")[1:]:
        if segment == ".." and kept:
            kept.pop()
        elif segment != ".":
            kept.append(segment)
    *directories, last = kept or [""]
    return "".join(["/", *(f"{each}/" for each in directories if each), last])


def _query(query: str) -> str:
    if "%" in query:
        query = quote_from_bytes(_unescaped(query).encode("latin-1"), _SAFE)
    query = _without_session(query.lower())
    if "&" not in query:
        return query
    return "&".join("=".join(pair) for pair in sorted(a.split("=", 1) for a in query.split("&")))


def _without_session(query: str) -> str:
    if _MAY_HAVE_SESSION.search(query):
        for pattern in _SESSIONS:
            if found := pattern.fullmatch(query):
                query = found[1] + (found[2] or "")
    return query


def _unescaped(text: str) -> str:
    """Return *text* unescaped until no escape is left, with one character for each byte."""
    before, found = b"", text.encode("latin-1")
    while found != before:
        # Nested escapes are removed at once, because a URL may nest a thousand of them.
        before, found = found, unquote_to_bytes(_NESTED.sub(b"%", found))
    return found.decode("latin-1")


RUN_CHARS: Final = 16 * 1024 * 1024
MAX_RUNS: Final = 64  # files open at once


class SortedLines:
    """Sorts lines of ASCII, each with its line end, in bounded memory: sorted runs in unnamed
    temporary files are merged at the end. Discard it after StoreUnavailable from any call."""

    def __init__(self, final: Path, run_chars: int = RUN_CHARS) -> None:
        self._final = final
        self._run_chars = run_chars
        self._lines: list[str] = []
        self._chars = 0
        self._runs: list[IO[str]] = []

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line)
        if self._chars >= self._run_chars:
            self._store_run()

    def sorted(self) -> Iterator[str]:
        """Return all lines without writing the file. Call it once, and `discard` after it."""
        return self._merged()

    def finish(self) -> None:
        """Write and sync the file, and rename it to its final name, replacing an existing file."""
        path = open_name(self._final)
        try:
            with path.open("w", encoding="ascii", newline="\n") as file:
                file.writelines(self._merged())
                file.flush()
                os.fsync(file.fileno())
            path.replace(self._final)
            sync_folder(self._final.parent)
        except OSError as error:
            raise _unavailable(path, error) from error
        self._clear()

    def discard(self) -> None:
        self._clear()
        with suppress(OSError):
            open_name(self._final).unlink()

    def _store_run(self) -> None:
        if len(self._runs) < MAX_RUNS:
            self._runs.append(self._run(sorted(self._lines)))
        else:
            merged = self._run(self._merged())
            self._clear()
            self._runs.append(merged)
        self._lines, self._chars = [], 0

    def _run(self, lines: Iterable[str]) -> IO[str]:
        with ExitStack() as opened:
            try:
                run = opened.enter_context(
                    TemporaryFile("w+", encoding="ascii", newline="\n", dir=self._final.parent)
                )
                run.writelines(lines)
                run.flush()  # a full disk raises here
            except OSError as error:
                raise _unavailable(self._final, error) from error
            opened.pop_all()
        return run

    def _merged(self) -> Iterator[str]:
        self._lines.sort()
        for run in self._runs:
            run.seek(0)
        return heapq.merge(*self._runs, self._lines) if self._runs else iter(self._lines)

    def _clear(self) -> None:
        for run in self._runs:
            run.close()
        self._runs, self._lines, self._chars = [], [], 0


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return store_error(f"cannot write {path}", error)


SUFFIX: Final = ".cdxj"
REVISIT: Final = "warc/revisit"
_TYPE: Final = re.compile(rb"\r\ncontent-type[ \t]*:([^\n]*)", re.IGNORECASE)
_SIGNS: Final = str.maketrans("", "", "-:T")
_DIGITS: Final = re.compile("[0-9]{14}")
_NO_DIGITS: Final = re.compile("[^0-9]+")
_TYPE_ENDS: Final = re.compile(r"[;\s]")


class CdxjCompanion:
    """Implements crawler.archive.warc_file.Companion."""

    suffix = SUFFIX
    is_slow = False

    def __init__(self, run_chars: int = RUN_CHARS) -> None:
        self._run_chars = run_chars
        self._lines: SortedLines | None = None

    def begin(self, warc: Path) -> None:
        self._lines = SortedLines(companion_path(warc, SUFFIX), self._run_chars)

    def add(self, written: StoredCapture) -> None:
        if self._lines is not None:
            capture = written.capture
            url, date = fields.uri(capture.url), fields.warc_date(capture.fetched_at)
            self._lines.add(index_line(url, date, written.answer, written.place))
            if capture.dom is not None and written.dom is not None:
                url, dom = fields.uri(DOM + capture.url), fields.dom_answer(capture.dom)
                self._lines.add(index_line(url, date, dom, written.dom))

    def add_stored(self, stored: ArchivedCapture) -> None:
        if self._lines is not None:
            self._lines.add(_line_of(stored))

    def finish(self) -> None:
        if self._lines is not None:
            self._lines.finish()
            self._lines = None

    def discard(self) -> None:
        if self._lines is not None:
            self._lines.discard()
            self._lines = None

    def rebuild(self, warc: Path, content: Path) -> None:
        lines = SortedLines(companion_path(warc, SUFFIX), self._run_chars)
        try:
            for one in captures(warc, content, most_bytes=0):
                lines.add(_line_of(one))
            lines.finish()
        except (DamagedFile, StoreUnavailable):
            lines.discard()
            raise
        except OSError as error:
            lines.discard()
            raise StoreUnavailable(f"cannot read {content}: {error.strerror or error}") from error


def index_line(url: str, date: str, answer: ResponseRecord, place: RecordPlace) -> str:
    """Return the index line of an answer. *url* and *date* are as written in the record."""
    type_ = REVISIT if answer.kind == "revisit" else _media_type(answer.head)
    status = None if answer.kind in HEADLESS else _status(answer.head)
    digest = answer.payload_sha1
    return (
        f'{key_of(url)} {timestamp(date)} {{"url": {_quoted(url)}'
        + ("" if type_ is None else f', "mime": {_quoted(type_)}')
        + ("" if status is None else f', "status": {_quoted(status)}')
        + (f', "digest": "{fields.sha1_label(digest)}"' if digest else "")
        + f', "length": "{place.length}", "offset": "{place.offset}"'
        + f', "filename": {_quoted(place.file)}}}\n'
    )


def _line_of(stored: ArchivedCapture) -> str:
    return index_line(stored.url, stored.date, stored.answer, stored.place)


def key_of(url: str) -> str:
    """Return the index key of *url*, or the URL itself if it has no fetch form."""
    written = fields.uri(url)
    try:
        for urn in (PAGE_INFO, DOM):
            if written.startswith(urn):
                return _urn_key(urn, written.removeprefix(urn))
        return surt(written)
    except ValueError:
        return written


def timestamp(date: str) -> str:
    """Return the 14 digits of a WARC-Date."""
    found = date[:19].translate(_SIGNS)
    return found if _DIGITS.fullmatch(found) else _NO_DIGITS.sub("", date)[:14]


def _status(head: bytes) -> str | None:
    """Return the status code as sent, or None if there is neither status nor header."""
    line, _, rest = head.partition(b"\r\n")
    status = _text(line)[len("HTTP/1.1") :].strip()
    return status.split(" ", 1)[0] if status or _has_header(rest.split(b"\r\n")) else None


def _has_header(lines: list[bytes]) -> bool:
    """Whether warcio finds a header: a line that begins with white space continues the one before
    it."""
    return any(
        b":" in line and (number == 0 or not line.startswith((b" ", b"\t")))
        for number, line in enumerate(lines)
    )


def _media_type(head: bytes) -> str | None:
    found = _TYPE.search(head)
    return _type_of(found[1]) if found else None


@lru_cache(maxsize=64)  # many hosts declare the same few
def _type_of(value: bytes) -> str:
    return _TYPE_ENDS.split(_text(value).strip(), maxsplit=1)[0]


def _text(line: bytes) -> str:
    """Return *line* as warcio decodes it."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _quoted(value: str) -> str:
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return json.dumps(value)


class IndexFact(msgspec.Struct, frozen=True, gc=False):
    """What a line of an index says, of this crawler or another."""

    url: str
    mime: str = ""  # "warc/revisit" for a revisit
    status: str | int = ""
    digest: str = ""
    offset: str | int = ""
    filename: str = ""


_decode_fact = msgspec.json.Decoder(IndexFact).decode


def indexed_urls(file: Path) -> Iterator[str]:
    """Yield the URL of each line of an index. Raises DataDirError as `index_facts` does."""
    return (fact.url for _, fact in index_facts(file))


def index_facts(file: Path) -> Iterator[tuple[str, IndexFact]]:
    """Yield timestamp and facts of each line of an index, plain or gzip. Raises DataDirError, which
    names the line, if one is no index line."""
    opened = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                begin, found, fields_of_line = line.partition(b" {")
                if not line.strip() or line.startswith(b"!"):  # of a ZipNum index: its head
                    continue
                if not found:
                    raise DataDirError(f"{file}, line {number}: no index line (CDXJ)")
                try:
                    fact = _decode_fact(b"{" + fields_of_line)
                except msgspec.MsgspecError as error:
                    raise DataDirError(f"{file}, line {number}: {error}") from error
                yield begin.rpartition(b" ")[2].decode("latin-1"), fact
    except (OSError, EOFError, zlib.error) as error:
        raise DataDirError(f"{file} cannot be read: {error}") from error

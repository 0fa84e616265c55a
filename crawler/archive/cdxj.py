"""The index beside each WARC file: a line for each response and revisit, sorted for pywb.

Rule: the very lines that cdxj-indexer writes of the file. So what they say of an answer is what a
reader takes from its record, not what we know of it.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from crawler.archive import record_bytes as fields
from crawler.archive.capture import (
    RecordPlace,
    ResponseRecord,
    StoredCapture,
)
from crawler.archive.files import companion_path, open_name, sync_folder
from crawler.archive.reader import Damaged, Stored, captures
from crawler.model.types import StoreUnavailable, refused_write
from crawler.model.url import authority_of

# The key under which an index has a URL: its host backwards, the rest in one spelling.
#
# Rule: pure, and the same key as pywb and cdxj-indexer make of any URL that we fetch, for they
# search by it. Theirs is the package `surt`: under the AGPL, ten times as slow, and it asks the
# resolver about hosts that look like numbers. It is the judge of this file, in tests.

_PORTS: Final = {"http": "80", "https": "443"}
_WWW: Final = re.compile(r"www\d*\.")
_SAFE: Final = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"  # all that is printed, but for # and %
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
    """Of a fetch form."""
    authority = authority_of(url)
    path, mark, query = url[len(authority) :].partition("?")
    key = _reversed(authority) + _path(path)
    if mark and (query := _query(query)):
        return f"{key}?{query}"
    return key


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
    """Without dot segments and empty ones. (A fetch form has no dot segments; unescaped it may.)"""
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
    """Until nothing is escaped any more; a character is a byte."""
    before, found = b"", text.encode("latin-1")
    while found != before:
        # Escapes of escapes in one go: a URL may have a thousand of them in each other.
        before, found = found, unquote_to_bytes(_NESTED.sub(b"%", found))
    return found.decode("latin-1")


# A file of sorted lines, made of lines that come in any order.
#
# Rule: bounded memory. What has gathered is sorted and put away in a file without a name, which
# goes
# with its process; in the end all are merged.

RUN_CHARS: Final = 16 * 1024 * 1024
MOST_RUNS: Final = 64  # files open at once


class SortedLines:
    """Lines of ASCII, each with its end. StoreUnavailable from any call: discard it."""

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
            self._put_away()

    def sorted(self) -> Iterator[str]:
        """All of them, once; without a file. Call `discard` after it."""
        return self._merged()

    def finish(self) -> None:
        """Forced to the disk, then called by its name, in place of one that has it."""
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
        self._forget()

    def discard(self) -> None:
        self._forget()
        with suppress(OSError):
            open_name(self._final).unlink()

    def _put_away(self) -> None:
        if len(self._runs) < MOST_RUNS:
            self._runs.append(self._run(sorted(self._lines)))
        else:
            merged = self._run(self._merged())
            self._forget()
            self._runs.append(merged)
        self._lines, self._chars = [], 0

    def _run(self, lines: Iterable[str]) -> IO[str]:
        with ExitStack() as opened:
            try:
                run = opened.enter_context(
                    TemporaryFile("w+", encoding="ascii", newline="\n", dir=self._final.parent)
                )
                run.writelines(lines)
                run.flush()  # what does not fit is found here
            except OSError as error:
                raise _unavailable(self._final, error) from error
            opened.pop_all()
        return run

    def _merged(self) -> Iterator[str]:
        self._lines.sort()
        for run in self._runs:
            run.seek(0)
        return heapq.merge(*self._runs, self._lines) if self._runs else iter(self._lines)

    def _forget(self) -> None:
        for run in self._runs:
            run.close()
        self._runs, self._lines, self._chars = [], [], 0


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return refused_write(f"cannot write {path}", error)


SUFFIX: Final = ".cdxj"
REVISIT: Final = "warc/revisit"
_TYPE: Final = re.compile(rb"\r\ncontent-type[ \t]*:([^\n]*)", re.IGNORECASE)
_SIGNS: Final = str.maketrans("", "", "-:T")
_DIGITS: Final = re.compile("[0-9]{14}")
_NO_DIGITS: Final = re.compile("[^0-9]+")
_TYPE_ENDS: Final = re.compile(r"[;\s]")


class CdxjCompanion:
    """Implements storage.warc.companions.Companion."""

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
            url, date = fields.uri(capture.url), fields.date(capture.fetched_at)
            self._lines.add(index_line(url, date, written.answer, written.place))

    def add_again(self, stored: Stored) -> None:
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
        except (Damaged, StoreUnavailable):
            lines.discard()
            raise
        except OSError as error:
            lines.discard()
            raise StoreUnavailable(f"cannot read {content}: {error.strerror or error}") from error


def index_line(url: str, date: str, answer: ResponseRecord, place: RecordPlace) -> str:
    """*url*, *date*: as they are written in the record."""
    type_ = REVISIT if answer.kind == "revisit" else _media_type(answer.head)
    status, digest = _status(answer.head), answer.payload_sha1
    return (
        f'{key_of(url)} {timestamp(date)} {{"url": {_quoted(url)}'
        + ("" if type_ is None else f', "mime": {_quoted(type_)}')
        + ("" if status is None else f', "status": {_quoted(status)}')
        + (f', "digest": "{fields.labelled(digest)}"' if digest else "")
        + f', "length": "{place.length}", "offset": "{place.offset}"'
        + f', "filename": {_quoted(place.file)}}}\n'
    )


def _line_of(stored: Stored) -> str:
    return index_line(stored.url, stored.date, stored.answer, stored.place)


def key_of(url: str) -> str:
    """Of what is no URL of ours: itself."""
    written = fields.uri(url)
    try:
        return surt(written)
    except ValueError:
        return written


def timestamp(date: str) -> str:
    """Its 14 digits."""
    found = date[:19].translate(_SIGNS)
    return found if _DIGITS.fullmatch(found) else _NO_DIGITS.sub("", date)[:14]


def _status(head: bytes) -> str | None:
    """Its code, as sent. None: there is neither status nor header."""
    line, *rest = head.split(b"\r\n")
    said = _text(line)[len("HTTP/1.1") :].strip()
    return said.split(" ", 1)[0] if said or _has_header(rest) else None


def _has_header(lines: list[bytes]) -> bool:
    """As warcio reads them: one that begins with white space continues the one before it."""
    return any(
        b":" in line and (number == 0 or not line.startswith((b" ", b"\t")))
        for number, line in enumerate(lines)
    )


def _media_type(head: bytes) -> str | None:
    found = _TYPE.search(head)
    return _TYPE_ENDS.split(_text(found[1]).strip(), maxsplit=1)[0] if found else None


def _text(line: bytes) -> str:
    """As warcio reads it."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def _quoted(value: str) -> str:
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return json.dumps(value)

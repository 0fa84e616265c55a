"""The index beside each WARC file: a line for each response and revisit, sorted for pywb.

Rule: the very lines that cdxj-indexer writes of the file. So what they say of an answer is what a
reader takes from its record, not what we know of it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from crawler.core.errors import StoreUnavailable
from crawler.storage.warc import fields
from crawler.storage.warc.capture import Answer, RecordPlace, Written
from crawler.storage.warc.companions import beside
from crawler.storage.warc.members import Damaged
from crawler.storage.warc.sorting import RUN_CHARS, SortedLines
from crawler.storage.warc.stored import Stored, captures
from crawler.storage.warc.surt import surt

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
        self._lines = SortedLines(beside(warc, SUFFIX), self._run_chars)

    def add(self, written: Written) -> None:
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
        lines = SortedLines(beside(warc, SUFFIX), self._run_chars)
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


def index_line(url: str, date: str, answer: Answer, place: RecordPlace) -> str:
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

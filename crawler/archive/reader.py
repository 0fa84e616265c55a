"""Reads WARC files: gzip members, records, and captures with their metadata.

Rule: memory is bounded, whatever a member inflates to, and a record that does not match its head is
DamagedFile. No library is used, because the place of any damage must be known (fastwarc skips
damage silently, warcio continues behind it).
"""

from __future__ import annotations

import re
from base64 import b32decode
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor, IsalError

from crawler.archive.capture import DOM, AnswerKind, RecordPlace, ResponseRecord
from crawler.archive.record_bytes import MAX_HEAD_BYTES, resource_head
from crawler.model.page import head_fields
from crawler.model.types import CrawlerError
from crawler.page.encodings import codings_of, undo_codings

READ_BYTES: Final = 64 * 1024
INFLATE_BYTES: Final = 1024 * 1024  # the most that is inflated at once
MAX_PLAIN_HEAD_BYTES: Final = 64 * 1024  # of a record that is not compressed
_PLAIN: Final = b"W"  # the first byte of "WARC/1.0", with which gzip does not begin
_END: Final = b"\r\n\r\n"
_HEAD: Final = re.compile(rb".*?\r\n\r\n", re.DOTALL).match
_CONTENT_LENGTH: Final = re.compile(
    rb"(?is).*?\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n"
).match


class DamagedFile(CrawlerError):
    """The file cannot be read from here on. Caller: keep what came before."""


class Member:
    """One gzip member. `end` is its end in the file, once all its pieces are read."""

    def __init__(self, file: BinaryIO, rest: bytes, read_bytes: int) -> None:
        self._file = file
        self._rest = rest
        self._read_bytes = read_bytes
        self._inflater = IgzipDecompressor(flag=DECOMP_GZIP)
        self.offset = file.tell() - len(rest)

    def pieces(self) -> Iterator[bytes]:
        """Yield the rest of the member. Raises DamagedFile if it is no gzip, or ends early."""
        inflater = self._inflater
        while not inflater.eof:
            if inflater.needs_input:
                self._rest = self._rest or self._file.read(self._read_bytes)
                if not self._rest:
                    raise DamagedFile(f"the record at {self.offset} is cut off")
            try:
                piece = inflater.decompress(self._rest, INFLATE_BYTES)
            except IsalError as error:  # type: ignore[misc]  # isal's stub says an instance; it is a class
                raise DamagedFile(f"the record at {self.offset} is no gzip: {error}") from error
            self._rest = b""
            if piece:
                yield piece

    @property
    def rest(self) -> bytes:
        """The bytes of the file that were read beyond the member's end."""
        return self._inflater.unused_data

    @property
    def end(self) -> int:
        return self._file.tell() - len(self.rest)


class PlainMember:
    """A record of an uncompressed file, whose head states its length. Has the methods of Member."""

    def __init__(self, file: BinaryIO, rest: bytes, read_bytes: int) -> None:
        self._file = file
        self.rest = rest
        self._read_bytes = read_bytes
        self._left: int | None = None  # None until its head was read
        self.offset = file.tell() - len(rest)

    def pieces(self) -> Iterator[bytes]:
        """Yield the rest of the record. Raises DamagedFile if it has no head, or ends early."""
        if self._left is None:
            self._left = self._length()
        while self._left:
            if not self.rest:
                self._fill()
            piece, self.rest = self.rest[: self._left], self.rest[self._left :]
            self._left -= len(piece)
            yield piece

    def _length(self) -> int:
        while not (found := _HEAD(self.rest)) and len(self.rest) <= MAX_PLAIN_HEAD_BYTES:
            self._fill()
        if not found or found.end() > MAX_PLAIN_HEAD_BYTES:
            raise DamagedFile(f"the record at {self.offset} is no WARC record")
        length = _CONTENT_LENGTH(found[0])
        return found.end() + (int(length[1]) if length else 0) + len(_END)

    def _fill(self) -> None:
        read = self._file.read(self._read_bytes)
        if not read:
            raise DamagedFile(f"the record at {self.offset} is cut off")
        self.rest += read

    @property
    def end(self) -> int:
        return self._file.tell() - len(self.rest)


def members(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[Member | PlainMember]:
    """Yield the members from the position of *file*. What the caller does not read of one is
    skipped. Raises DamagedFile, and OSError as *file* does."""
    rest = file.read(read_bytes)
    kind = PlainMember if rest[:1] == _PLAIN else Member
    while rest:
        member = kind(file, rest, read_bytes)
        yield member
        for _ in member.pieces():
            pass
        rest = member.rest or file.read(read_bytes)


MAX_FIELDS_BYTES: Final = 64 * 1024  # of a record's own head; ours are below 8 kB
_PIECE_BYTES: Final = 1024 * 1024
_VERSION: Final = re.compile(rb"WARC/1\.[01](?:\r\n|\Z)")
_SIZE: Final = re.compile(rb"\r\nContent-Length:([^\r\n]*)", re.IGNORECASE)
_KIND: Final = re.compile(rb"\r\nWARC-Type:([^\r\n]*)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")


class Record:
    """One WARC record. Its block can be read once, before the next record is read."""

    def __init__(self, member: Member | PlainMember) -> None:
        """Raises DamagedFile."""
        self._member = member
        self._pieces = member.pieces()
        self.offset = member.offset
        self._length: int | None = None  # None until `finish`
        self._head, self._ahead = self._split_head()
        length = self._search_head(_SIZE, "Content-Length")
        if not (_VERSION.match(self._head) and _LENGTH.fullmatch(length)):
            raise self._damaged("is no WARC record")
        self.size_bytes = self._left = int(length)  # of its block

    @property
    def head_bytes(self) -> int:
        """The length of the record's own head, with its blank line."""
        return len(self._head) + len(_END)

    @cached_property
    def fields(self) -> list[tuple[str, str]]:
        lines = self._head.decode(errors="replace").split("\r\n")[1:]
        parted = (line.partition(":") for line in lines)
        return [(name.strip(), value.strip()) for name, _, value in parted]

    def field(self, name: str) -> str:
        """Return the first field called *name*, or "". WARC 1.0 puts URIs in angle brackets, which
        are removed."""
        value = self._by_name.get(name.lower(), "")
        is_bracketed = name.endswith("-URI") and value[:1] == "<" and value[-1:] == ">"
        return value[1:-1] if is_bracketed else value

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {name.lower(): value for name, value in reversed(self.fields)}

    @property
    def kind(self) -> str:
        """The WARC-Type; empty if the record has none."""
        return self._search_head(_KIND, "WARC-Type")

    def _search_head(self, pattern: re.Pattern[bytes], name: str) -> str:
        """Return the field as `field` does. It saves 15 us for a record of which no other field is
        needed, as for most."""
        found = pattern.search(self._head)
        return found[1].decode(errors="replace").strip() if found else self.field(name)

    def read(self, most_bytes: int = _PIECE_BYTES) -> bytes:
        """Return at most *most_bytes* of the rest of the block; empty at its end."""
        wanted = min(most_bytes, self._left)
        if wanted and not self._ahead:
            self._ahead = next(self._pieces, b"")
            if not self._ahead:
                raise self._damaged("is shorter than it says")
        piece, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
        self._left -= len(piece)
        return piece

    def read_all(self, most_bytes: int) -> bytes:
        """Return the rest of the block up to *most_bytes*."""
        pieces = []
        while piece := self.read(most_bytes):
            pieces.append(piece)
            most_bytes -= len(piece)
        return b"".join(pieces)

    def finish(self) -> int:
        """Skip the rest and return the record's length in the file. Raises DamagedFile if it does
        not end as it must, or its checksum is wrong."""
        if self._length is not None:
            return self._length
        while self.read():
            pass
        tail, self._ahead = self._ahead, b""
        for piece in self._pieces:
            tail += piece
            if len(tail) > len(_END):
                break
        if tail not in (_END, b""):
            raise self._damaged("is longer than it says")
        self._length = self._member.end - self.offset
        return self._length

    def _split_head(self) -> tuple[bytes, bytes]:
        """Return the record's head, and the bytes that were read beyond it."""
        read = b""
        while len(read) <= MAX_FIELDS_BYTES and (piece := next(self._pieces, b"")):
            head, end, ahead = (read := read + piece).partition(_END)
            if end and len(head) <= MAX_FIELDS_BYTES:
                return head, ahead
        raise self._damaged("is no WARC record")

    def _damaged(self, what: str) -> DamagedFile:
        return DamagedFile(f"the record at {self.offset} {what}")


def records(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[Record]:
    """Yield the records from the position of *file*, which must be the beginning of one. Raises
    DamagedFile after the last complete record, and OSError as *file* does."""
    for member in members(file, read_bytes):
        record = Record(member)
        yield record
        record.finish()


_ANSWER_KINDS: Final[Mapping[str, AnswerKind]] = MappingProxyType(
    {"response": "response", "revisit": "revisit", "resource": "resource"}
)
HEADLESS: Final = ("resource", "conversion")
"""Kinds of answers without an HTTP head."""
_INFO_BYTES: Final = 64 * 1024
_METADATA_BYTES: Final = 16 * 1024 * 1024
_SHA1_HEX: Final = 40


def answer_kind(record: Record) -> AnswerKind | None:
    """Return what kind of answer *record* is; None: none, it has no line in the index. Conversions
    of other programs are none: WET files have the text of a page under the page's own URL."""
    if record.kind == "conversion":
        return "conversion" if record.field("WARC-Target-URI").startswith(DOM) else None
    return _ANSWER_KINDS.get(record.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedCapture:
    """A capture read from the archive: a response or revisit with its metadata, or the DOM of one.
    Arrow: archive -> reader."""

    kind: AnswerKind
    url: str
    date: str  # as written: WARC-Date
    place: RecordPlace
    head: bytes  # of HTTP, up to and with the blank line
    body: bytes  # content-encoded as received; a revisit has none
    body_cut: bool = False  # whether the record holds more of it
    payload_sha1: bytes = b""  # for a revisit: of the payload it repeats
    ip: str = ""
    truncated: str = ""  # always "length" for a revisit
    profile: str = ""  # for a revisit: why it is one
    refers_to: str = ""  # for a revisit: the URL of its original; for a DOM: that of its page
    refers_date: str = ""  # when that was fetched
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def fetched_at(self) -> float:
        """The time of the fetch in epoch seconds; 0 if it cannot be read."""
        return epoch(self.date)

    @property
    def answer(self) -> ResponseRecord:
        return ResponseRecord(self.kind, self.head, self.payload_sha1)

    def metadata_value(self, name: str) -> str:
        """Return the first metadata value called *name*, or ""."""
        return next((value for key, value in self.metadata if key == name), "")


def captures(warc: Path, content: Path, most_bytes: int) -> Iterator[ArchivedCapture]:
    """Yield the captures in *content*, which is, or will be, called *warc*, with at most
    *most_bytes* of each body. Raises DamagedFile after the last complete record, OSError."""
    with content.open("rb") as file:
        yield from captures_in(file, warc.name, most_bytes)


def captures_in(
    file: BinaryIO,
    name: str,
    most_bytes: int,
    whole: Callable[[int], None] | None = None,
    *,
    with_metadata: bool = True,
) -> Generator[ArchivedCapture, None, None]:
    """Yield captures as `captures` does. *whole* is called with the end of each complete record of
    any kind."""
    answer: ArchivedCapture | None = None
    damage: DamagedFile | None = None
    try:
        for record in records(file):
            if answer_kind(record) is not None:
                following = read_capture(record, name, most_bytes)
                if answer is not None:
                    yield answer
                answer = following
            elif with_metadata and answer is not None and is_metadata_of(record, answer.url):
                noted = metadata(record.read_all(_METADATA_BYTES))
                record.finish()
                answer = replace(answer, metadata=noted)
            end = record.offset + record.finish()
            if whole is not None:
                whole(end)
    except DamagedFile as found:
        damage = found
    if answer is not None:
        yield answer
    if damage is not None:
        raise damage


def with_doms(
    found: Iterator[ArchivedCapture],
) -> Iterator[tuple[ArchivedCapture, ArchivedCapture | None]]:
    """Yield each answer of a file with the DOM that a browser has made of it, or None. A DOM whose
    answer is not there is left out. Raises DamagedFile after the last complete record."""
    answer: ArchivedCapture | None = None
    damage: DamagedFile | None = None
    try:
        for each in found:
            if answer is not None:
                is_of_it = each.kind == "conversion" and each.refers_to == answer.url
                yield answer, each if is_of_it else None
            answer = None if each.kind == "conversion" else each
    except DamagedFile as at:
        damage = at
    if answer is not None:
        yield answer, None
    if damage is not None:
        raise damage


def read_capture(record: Record, name: str, most_bytes: int) -> ArchivedCapture:
    """Return the answer in *record*, of the file called *name*. Raises DamagedFile."""
    kind = answer_kind(record)
    if kind is None:
        raise DamagedFile(f"the record at {record.offset} is no answer")
    read = record.read_all(MAX_HEAD_BYTES + most_bytes)
    if kind in HEADLESS:
        read = head_of_resource(record) + read
    head, end, body = read.partition(_END)
    body_cut = bool(record.read(1)) or len(body) > most_bytes
    return ArchivedCapture(
        kind=kind,
        url=record.field("WARC-Target-URI"),
        date=record.field("WARC-Date"),
        place=RecordPlace(name, record.offset, record.finish()),
        head=head + end,
        body=body[:most_bytes],
        body_cut=body_cut,
        payload_sha1=sha1_of(record.field("WARC-Payload-Digest")),
        ip=record.field("WARC-IP-Address"),
        truncated=record.field("WARC-Truncated"),
        profile=record.field("WARC-Profile"),
        refers_to=record.field("WARC-Refers-To-Target-URI"),
        refers_date=record.field("WARC-Refers-To-Date"),
    )


def is_metadata_of(record: Record, url: str) -> bool:
    """Return whether *record*, which follows an answer to *url*, is its metadata. A tombstone may
    stand there too, and names no URL."""
    return record.kind == "metadata" and record.field("WARC-Target-URI") == url


def is_tombstone(record: Record) -> bool:
    """Return whether *record* stands in the place of deleted ones (purge.py)."""
    return record.kind == "metadata" and not record.field("WARC-Target-URI")


def head_of_resource(record: Record) -> bytes:
    """Return an HTTP head for a resource or a DOM."""
    return resource_head(record.field("Content-Type").encode("latin-1", "replace"))


def metadata(block: bytes) -> tuple[tuple[str, str], ...]:
    """Return the fields of an `application/warc-fields` block."""
    lines = block.decode(errors="replace").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return tuple((name, value.strip()) for name, _, value in pairs)


def info_value(content: Path, name: str) -> str:
    """Return the field *name* of the first record of a file, if that is a `warcinfo`; or "". Raises
    OSError."""
    with content.open("rb") as file, suppress(DamagedFile):
        for record in records(file):
            if record.kind == "warcinfo":
                fields = metadata(record.read_all(_INFO_BYTES))
                return next((value for key, value in fields if key == name), "")
            break
    return ""


def sha1_of(label: str) -> bytes:
    """Return the digest in "sha1:" and base 32, or base 16 as other programs write it; empty if
    *label* is no SHA-1."""
    algorithm, _, digits = label.partition(":")
    if algorithm.lower() == "sha1":
        with suppress(ValueError):
            is_hex = len(digits) == _SHA1_HEX
            return bytes.fromhex(digits) if is_hex else b32decode(digits, casefold=True)
    return b""


def epoch(date: str) -> float:
    """Return the epoch seconds of a WARC-Date, or 0 if it is none."""
    try:
        return datetime.fromisoformat(date).timestamp()
    except ValueError:
        return 0.0


BodyLimit = Callable[[bytes | None, str], int]
"""Content-Type, URL -> the most bytes that are kept of a decoded body."""


def decoded_body(stored: ArchivedCapture, room: BodyLimit) -> bytes:
    """Return the body without its content codings, as the crawl decoded it."""
    headers = head_fields(stored.head)
    codings = codings_of(values(headers, b"content-encoding"))
    if not codings:
        return stored.body
    declared = (values(headers, b"content-type") or [b""])[-1]  # the last, as Scrapy has it
    return undo_codings(stored.body, codings, room(declared or None, stored.url)).body


def values(headers: list[tuple[bytes, bytes]], lower_name: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == lower_name]


def status_of(head: bytes) -> int:
    """Return the HTTP status, or 0 if *head* has none."""
    words = head.partition(b"\n")[0].split()[1:2]
    return int(words[0]) if words and words[0].isdigit() else 0

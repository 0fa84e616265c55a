"""Gzip members one after the other, each inflated piece by piece; or records that are not
compressed.

Rule: bounded memory, whatever a member inflates to. A file is read from its start: a body may
hold anything, also bytes that look like the beginning of a member.
"""

from __future__ import annotations

import re
from base64 import b32decode
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, Final, Literal

from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor, IsalError

from crawler.archive.capture import RecordPlace, ResponseRecord
from crawler.archive.record_bytes import MAX_HEAD_BYTES
from crawler.model.page import head_fields
from crawler.model.types import CrawlerError
from crawler.policy.encodings import codings_of, decoded

READ_BYTES: Final = 64 * 1024
INFLATE_BYTES: Final = 1024 * 1024  # of a member at once
MAX_PLAIN_HEAD_BYTES: Final = 64 * 1024  # of a record that is not compressed
_PLAIN: Final = b"W"  # of "WARC/1.0"; gzip begins otherwise
_END: Final = b"\r\n\r\n"
_HEAD: Final = re.compile(rb".*?\r\n\r\n", re.DOTALL).match
_CONTENT_LENGTH: Final = re.compile(
    rb"(?is).*?\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n"
).match


class Damaged(CrawlerError):
    """From here on the file cannot be read. Caller: keep what came before."""


class Member:
    """One of them. `end`: where it ends in the file, once all its pieces are taken."""

    def __init__(self, file: BinaryIO, rest: bytes, read_bytes: int) -> None:
        self._file = file
        self._rest = rest
        self._read_bytes = read_bytes
        self._inflater = IgzipDecompressor(flag=DECOMP_GZIP)
        self.offset = file.tell() - len(rest)

    def pieces(self) -> Iterator[bytes]:
        """What is left of it. Raises Damaged: it is no gzip, or ends early."""
        inflater = self._inflater
        while not inflater.eof:
            if inflater.needs_input:
                self._rest = self._rest or self._file.read(self._read_bytes)
                if not self._rest:
                    raise Damaged(f"the record at {self.offset} is cut off")
            try:
                piece = inflater.decompress(self._rest, INFLATE_BYTES)
            except IsalError as error:  # type: ignore[misc]  # isal's stub says an instance; it is a class
                raise Damaged(f"the record at {self.offset} is no gzip: {error}") from error
            self._rest = b""
            if piece:
                yield piece

    @property
    def rest(self) -> bytes:
        """What was read of the file beyond its end."""
        return self._inflater.unused_data

    @property
    def end(self) -> int:
        return self._file.tell() - len(self.rest)


class PlainMember:
    """A record of a file that is not compressed: its head says how long it is. `end`: as above."""

    def __init__(self, file: BinaryIO, rest: bytes, read_bytes: int) -> None:
        self._file = file
        self.rest = rest
        self._read_bytes = read_bytes
        self._left: int | None = None  # None: its head is not read
        self.offset = file.tell() - len(rest)

    def pieces(self) -> Iterator[bytes]:
        """What is left of it. Raises Damaged: it has no head, or ends early."""
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
            raise Damaged(f"the record at {self.offset} is no WARC record")
        length = _CONTENT_LENGTH(found[0])
        return found.end() + (int(length[1]) if length else 0) + len(_END)

    def _fill(self) -> None:
        read = self._file.read(self._read_bytes)
        if not read:
            raise Damaged(f"the record at {self.offset} is cut off")
        self.rest += read

    @property
    def end(self) -> int:
        return self._file.tell() - len(self.rest)


def members(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[Member | PlainMember]:
    """From where *file* stands. What a caller leaves of one is passed over. Raises Damaged, and
    OSError as *file* does."""
    rest = file.read(read_bytes)
    kind = PlainMember if rest[:1] == _PLAIN else Member
    while rest:
        member = kind(file, rest, read_bytes)
        yield member
        for _ in member.pieces():
            pass
        rest = member.rest or file.read(read_bytes)


# WARC files read back, record by record.
#
# Rule: bounded memory, and nothing is believed: a record that is not what its head says is Damaged.
# By our own hand, because it must name the place of any damage (fastwarc passes over it in silence,
# warcio goes on behind it), and inflates with isal.

MAX_FIELDS_BYTES: Final = 64 * 1024  # of a record's own head; ours are below 8 kB
_PIECE_BYTES: Final = 1024 * 1024
_VERSION: Final = re.compile(rb"WARC/1\.[01](?:\r\n|\Z)")
_SIZE: Final = re.compile(rb"\r\nContent-Length:([^\r\n]*)", re.IGNORECASE)
_KIND: Final = re.compile(rb"\r\nWARC-Type:([^\r\n]*)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")


class Record:
    """One of them. Its block can be read once, and until the next record is asked for."""

    def __init__(self, member: Member | PlainMember) -> None:
        """Raises Damaged."""
        self._member = member
        self._pieces = member.pieces()
        self.offset = member.offset
        self._length: int | None = None  # once it is finished
        self._head, self._ahead = self._parted()
        length = self._quickly(_SIZE, "Content-Length")
        if not (_VERSION.match(self._head) and _LENGTH.fullmatch(length)):
            raise self._damaged("is no WARC record")
        self.size_bytes = self._left = int(length)  # of its block

    @cached_property
    def fields(self) -> list[tuple[str, str]]:
        lines = self._head.decode(errors="replace").split("\r\n")[1:]
        parted = (line.partition(":") for line in lines)
        return [(name.strip(), value.strip()) for name, _, value in parted]

    def field(self, name: str) -> str:
        """The first of that name; empty: there is none. WARC 1.0 put URIs in angle brackets."""
        value = self._named.get(name.lower(), "")
        is_bracketed = name.endswith("-URI") and value[:1] == "<" and value[-1:] == ">"
        return value[1:-1] if is_bracketed else value

    @cached_property
    def _named(self) -> dict[str, str]:
        return {name.lower(): value for name, value in reversed(self.fields)}

    @property
    def kind(self) -> str:
        """Empty: it does not say."""
        return self._quickly(_KIND, "WARC-Type")

    def _quickly(self, pattern: re.Pattern[bytes], name: str) -> str:
        """As `field`, but of most records nothing else is asked, and this is 15 us less."""
        found = pattern.search(self._head)
        return found[1].decode(errors="replace").strip() if found else self.field(name)

    def read(self, most_bytes: int = _PIECE_BYTES) -> bytes:
        """Of the rest of its block, so many at most; empty: it is at its end."""
        wanted = min(most_bytes, self._left)
        if wanted and not self._ahead:
            self._ahead = next(self._pieces, b"")
            if not self._ahead:
                raise self._damaged("is shorter than it says")
        piece, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
        self._left -= len(piece)
        return piece

    def read_all(self, most_bytes: int) -> bytes:
        """As `read`; as many as there are, up to that limit."""
        pieces = []
        while piece := self.read(most_bytes):
            pieces.append(piece)
            most_bytes -= len(piece)
        return b"".join(pieces)

    def finish(self) -> int:
        """Pass over what is left; its length in the file. Raises Damaged: it does not end
        as it must, or its checksum is wrong."""
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

    def _parted(self) -> tuple[bytes, bytes]:
        """Its head, and what was read beyond."""
        read = b""
        while len(read) <= MAX_FIELDS_BYTES and (piece := next(self._pieces, b"")):
            head, end, ahead = (read := read + piece).partition(_END)
            if end and len(head) <= MAX_FIELDS_BYTES:
                return head, ahead
        raise self._damaged("is no WARC record")

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"the record at {self.offset} {what}")


def records(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[Record]:
    """From where *file* stands, which must be the beginning of one. Raises Damaged, after all
    that is whole was given; and OSError, as *file* does."""
    for member in members(file, read_bytes):
        record = Record(member)
        yield record
        record.finish()


# Captures as the archive holds them: an answer with what was written beside it.
#
# Rule: what `Capture` was, as far as its records say so; bodies up to a limit of the caller's.

ANSWERS: Final = frozenset({"response", "revisit", "resource"})
_METADATA_BYTES: Final = 16 * 1024 * 1024
_SHA1_HEX: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One response or revisit. Arrow: archive -> reader."""

    kind: Literal["response", "revisit"]
    url: str
    date: str  # as written: WARC-Date
    place: RecordPlace
    head: bytes  # of HTTP, up to and with the blank line
    body: bytes  # content-encoded as it came; of a revisit: none
    body_cut: bool = False  # there is more of it in the record
    payload_sha1: bytes = b""  # of a revisit: of what it stands for
    ip: str = ""
    truncated: str = ""  # of a revisit this is always "length"
    profile: str = ""  # of a revisit: why it is one
    refers_to: str = ""  # of a revisit: the URL of its original
    refers_date: str = ""  # and when that was fetched
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def fetched_at(self) -> float:
        """Epoch seconds; 0: its date cannot be read."""
        return epoch(self.date)

    @property
    def answer(self) -> ResponseRecord:
        return ResponseRecord(self.kind, self.head, self.payload_sha1)

    def noted(self, name: str) -> str:
        """Of its metadata, the first of that name; empty: there is none."""
        return next((value for key, value in self.metadata if key == name), "")


def captures(warc: Path, content: Path, most_bytes: int) -> Iterator[Stored]:
    """All of *content*, which is, or will be, called *warc*. Of a body *most_bytes* are read.
    Raises Damaged after the last whole record, OSError."""
    with content.open("rb") as file:
        yield from captures_in(file, warc.name, most_bytes)


def captures_in(
    file: BinaryIO,
    name: str,
    most_bytes: int,
    whole: Callable[[int], None] | None = None,
    *,
    with_metadata: bool = True,
) -> Generator[Stored, None, None]:
    """As `captures`. *whole*, if any, is called with the end of each record, of whatever kind."""
    answer: Stored | None = None
    damage: Damaged | None = None
    try:
        for record in records(file):
            if record.kind in ANSWERS:
                following = stored(record, name, most_bytes)
                if answer is not None:
                    yield answer
                answer = following
            elif with_metadata and record.kind == "metadata" and answer is not None:
                noted = metadata(record.read_all(_METADATA_BYTES))
                record.finish()
                answer = replace(answer, metadata=noted)
            end = record.offset + record.finish()
            if whole is not None:
                whole(end)
    except Damaged as found:
        damage = found
    if answer is not None:
        yield answer
    if damage is not None:
        raise damage


def stored(record: Record, name: str, most_bytes: int) -> Stored:
    """The answer in *record*, of the file called *name*. Raises Damaged."""
    read = record.read_all(MAX_HEAD_BYTES + most_bytes)
    if record.kind == "resource":
        read = head_of_resource(record) + read
    head, end, body = read.partition(_END)
    body_cut = bool(record.read(1)) or len(body) > most_bytes
    return Stored(
        kind="revisit" if record.kind == "revisit" else "response",
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


def head_of_resource(record: Record) -> bytes:
    """What HTTP would have said of what another tool archived without it."""
    content_type = record.field("Content-Type").encode("latin-1", "replace")
    return b"HTTP/1.1 200 OK\r\nContent-Type: " + content_type + _END


def metadata(block: bytes) -> tuple[tuple[str, str], ...]:
    """The fields of an `application/warc-fields` block."""
    lines = block.decode(errors="replace").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return tuple((name, value.strip()) for name, _, value in pairs)


def sha1_of(label: str) -> bytes:
    """Of "sha1:" and base 32, or base 16 as others write it; empty: it is none."""
    algorithm, _, digits = label.partition(":")
    if algorithm.lower() == "sha1":
        with suppress(ValueError):
            is_hex = len(digits) == _SHA1_HEX
            return bytes.fromhex(digits) if is_hex else b32decode(digits, casefold=True)
    return b""


def epoch(date: str) -> float:
    """Of a WARC-Date; 0: it is none."""
    try:
        return datetime.fromisoformat(date).timestamp()
    except ValueError:
        return 0.0


# Bodies of stored answers, without their content codings; and what their heads say.
#
# Rule: pure, and the same as when they were fetched.

Room = Callable[[bytes | None, str], int]
"""Content-Type, URL -> bytes kept of a body."""


def decoded_body(stored: Stored, room: Room) -> bytes:
    headers = head_fields(stored.head)
    codings = codings_of(values(headers, b"content-encoding"))
    if not codings:
        return stored.body
    declared = (values(headers, b"content-type") or [b""])[-1]  # the last, as Scrapy has it
    return decoded(stored.body, codings, room(declared or None, stored.url)).body


def values(headers: list[tuple[bytes, bytes]], lower_name: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() == lower_name]


def status_of(head: bytes) -> int:
    """0: it says none."""
    words = head.partition(b"\n")[0].split()[1:2]
    return int(words[0]) if words and words[0].isdigit() else 0

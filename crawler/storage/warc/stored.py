"""Captures as the archive holds them: an answer with what was written beside it.

Rule: what `Capture` was, as far as its records say so; bodies up to a limit of the caller's.
"""

from __future__ import annotations

from base64 import b32decode
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, Literal

from crawler.storage.warc.capture import Answer, RecordPlace
from crawler.storage.warc.head import MAX_HEAD_BYTES
from crawler.storage.warc.members import Damaged
from crawler.storage.warc.reading import Record, records

ANSWERS: Final = frozenset({"response", "revisit", "resource"})
_METADATA_BYTES: Final = 16 * 1024 * 1024
_SHA1_HEX: Final = 40
_END: Final = b"\r\n\r\n"


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
    def answer(self) -> Answer:
        return Answer(self.kind, self.head, self.payload_sha1)

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
    whole: Callable[[int], None] = lambda end: None,
    *,
    with_metadata: bool = True,
) -> Generator[Stored, None, None]:
    """As `captures`. *whole* hears where each record ends, of whatever kind."""
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
            whole(record.offset + record.finish())
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

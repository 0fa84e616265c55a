"""WARC files read back, record by record.

Rule: bounded memory, and nothing is believed: a record that is not what its head says is Damaged.
By our own hand, because it must name the place of any damage (fastwarc passes over it in silence,
warcio goes on behind it), and inflates with isal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import BinaryIO, Final

from crawler.storage.warc.members import READ_BYTES, Damaged, Member, PlainMember, members

MAX_FIELDS_BYTES: Final = 64 * 1024  # of a record's own head; ours are below 8 kB
_PIECE_BYTES: Final = 1024 * 1024
_VERSION: Final = re.compile(rb"WARC/1\.[01](?:\r\n|\Z)")
_SIZE: Final = re.compile(rb"\r\nContent-Length:([^\r\n]*)", re.IGNORECASE)
_KIND: Final = re.compile(rb"\r\nWARC-Type:([^\r\n]*)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_END: Final = b"\r\n\r\n"


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

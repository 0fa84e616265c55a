"""What the crawl and a process that parses say to each other, over one socket.

Rule: a message is its length (4 bytes) and as much msgpack; a body follows its question as it is,
so that 64 MB are not copied once more.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from crawler.core.parsed import Parsed, Source

LENGTH: Final = struct.Struct(">I")
# Text and links at the limits of bounds.py take 33 MB at most.
MAX_ANSWER_BYTES: Final = 48 * 1024 * 1024
BEGUN: Final = b"\x01"  # the child's first word: it is up, the time of a body can begin


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Parse the *length* bytes that follow, by the parser at *path*."""

    path: str
    source: Source  # without its body
    length: int


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What came of it: *parsed*, or why not."""

    parsed: Parsed | None = None
    unreadable: str = ""  # the parser's own refusal
    fault: str = ""  # what the parser threw, by name; it is broken then
    said: str = ""


ENCODER: Final = msgspec.msgpack.Encoder()
QUESTIONS: Final = msgspec.msgpack.Decoder(Question)
ANSWERS: Final = msgspec.msgpack.Decoder(Answer)


def framed(message: Question | Answer) -> bytes:
    packed = ENCODER.encode(message)
    return LENGTH.pack(len(packed)) + packed

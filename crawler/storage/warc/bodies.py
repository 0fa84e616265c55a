"""Bodies of stored answers, without their content codings; and what their heads say.

Rule: pure, and the same as when they were fetched.
"""

from __future__ import annotations

from collections.abc import Callable

from crawler.core.exchange import head_fields
from crawler.policy.codings import codings_of, decoded
from crawler.storage.warc.stored import Stored

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

"""From an exchange to its archive record."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1

from crawler.core.exchange import Exchange
from crawler.core.types import Claim
from crawler.storage.warc.archive import Archive
from crawler.storage.warc.capture import Capture


async def archived(
    exchange: Exchange | None,
    archive: Archive | None,
    duplicate_of: Claim | None = None,
    body_sha1: bytes = b"",
    metadata: Sequence[tuple[str, str]] = (),
) -> str:
    """Where its record lies ("file:offset"), once it is durable. Empty: none is kept, or nobody
    saw it cross the wire. Raises StoreUnavailable."""
    if archive is None or exchange is None:
        return ""
    capture = Capture(
        url=exchange.url,
        fetched_at=exchange.at,
        ip=exchange.ip,
        request=exchange.request_head + exchange.request_body,
        head=exchange.head,
        body=exchange.body,
        body_sha1=body_sha1,
        truncated=exchange.truncated.value,
        duplicate_of=duplicate_of,
        metadata=metadata,
    )
    return str(await archive.append(capture))


def wire_sha1(exchange: Exchange | None, body: bytes, digest: bytes) -> bytes:
    """Of the body as it is archived. *digest*: SHA-1 of *body*, the decoded one. Empty: nobody has
    it, or nobody will ask."""
    if exchange is None or not digest:
        return b""
    if body == exchange.body:
        return digest
    return sha1(exchange.body, usedforsecurity=False).digest()

"""The calls of the scripts on what workers share beside their frontiers: which page owns a content,
fingerprints of pages, and whose links wait on a disk.

Rule: no connection here.
"""

from __future__ import annotations

from crawler.model.types import Claim
from crawler.shared.client import Call
from crawler.shared.codec import pack_claim


def shard_of_digest(digest: bytes, shards: int) -> int:
    return int.from_bytes(digest[:8]) % shards


class ContentCalls:
    """Makes the calls of one session."""

    def __init__(self, session: str, shards: int) -> None:
        self.shards = shards
        self._session = session

    def reservation_owner(self, lease: int) -> str:
        return f"{self._session}/{lease}"

    def reserve(self, digest: bytes, lease: int, hold_s: float) -> Call:
        args = (digest, self.reservation_owner(lease), int(hold_s * 1000))
        return Call(shard_of_digest(digest, self.shards), "reserve_content", args)

    def find_owner(self, mark: bytes) -> Call:
        """Ask for the claim on the digest with this *mark* (`codec.bucket_mark`)."""
        return Call(shard_of_digest(mark, self.shards), "owner_of_content", (mark,))

    def claim(self, digest: bytes, lease: int, claim: Claim | None) -> Call:
        """Claim a content, or if *claim* is None, end its reservation."""
        file, packed = ("", b"") if claim is None else pack_claim(claim)
        args = (digest, self.reservation_owner(lease), file, packed)
        return Call(shard_of_digest(digest, self.shards), "claim_content", args)

    def note_outbox(self, shard: int, worker: str, has_links: bool) -> Call:
        """Note whether links wait on the disk of *worker*."""
        return Call(shard, "outbox", (worker, int(has_links)))

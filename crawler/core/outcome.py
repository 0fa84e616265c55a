"""What came of a lease, as one line of the outcome log. Kept for people and for `why`."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float  # epoch seconds
    url: str
    host: str
    fate: str  # done | retry | moved | put_back | dead | refused
    status: int | None = None  # of the answer; None: there was none
    reason: str = ""  # robots, duplicate, timeout...; a rule's or an error's own words
    seconds: float = 0.0  # the fetch, from before the request to the last byte
    size: int = 0  # bytes of the body as it crossed the wire
    attempts: int = 0
    depth: int = 0
    record: str = ""  # "file:offset" in the archive
    target: str = ""  # moved: where to
    original: str = ""  # the URL whose content it repeats, exactly or nearly
    bits: int | None = None  # nearly: of 64 bits that differ


encode_outcome = msgspec.json.Encoder().encode
decode_outcome = msgspec.json.Decoder(Outcome).decode

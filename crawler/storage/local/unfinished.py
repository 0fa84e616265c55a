"""What open leases had archived already when their process died.

Rule: the answer to each is in the archive, and nobody knows: it would be stored twice, and what is
near to it not marked. So its content is claimed for it before the frontier and the index of
near-duplicates open; fetched again it is found stored. Doing it twice changes nothing, so dying
here loses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Final

from crawler.core.errors import DataDirError
from crawler.core.page import Flaw
from crawler.core.types import Claim, Purpose
from crawler.scheduler import keys
from crawler.scheduler.ports import OrderedStore
from crawler.scheduler.records import OpenRecord, decode_open, encode
from crawler.storage.warc.bodies import Room, decoded_body, status_of
from crawler.storage.warc.cdxj import key_of
from crawler.storage.warc.companions import WARC_SUFFIX
from crawler.storage.warc.lookup import Entry, entries_of
from crawler.storage.warc.members import Damaged
from crawler.storage.warc.stored import Stored, captures_in, sha1_of

_PAGE: Final = 1000  # leases read at once
_CLOCK_S: Final = 3600.0  # by so much a file system's clock may be behind ours (guess)
_NO_PAGE: Final = 0  # as in pipelines.archive
_SIMHASH: Final = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Reading:
    """As the crawl read what it fetched."""

    room: Room
    most_bytes: int  # the most that `room` says


def claim_unfinished(store: OrderedStore, folder: Path, reading: Reading) -> int:
    """How many claims were written. WARC files in *folder* must have been recovered. Raises
    StoreUnavailable, DataDirError."""
    leases = [each for each in _open(store) if each.candidate.purpose is Purpose.PAGE]
    if not leases:
        return 0
    new = [claim for claim in _found(leases, folder, reading) if _is_new(store, claim)]
    # The first record of the same content is the original.
    claims = {claim.digest: claim for claim in sorted(new, key=lambda each: each.at, reverse=True)}
    store.write(dict(pair for claim in claims.values() for pair in _records(claim)))
    return len(claims)


def _found(leases: list[OpenRecord], folder: Path, reading: Reading) -> Iterator[Claim]:
    since = min(each.taken_at for each in leases) - _CLOCK_S
    files = [file for file in sorted(folder.glob(f"*{WARC_SUFFIX}")) if _written_at(file) >= since]
    for url in sorted({each.candidate.url for each in leases}):
        yield from _claims(files, url, reading)


def _is_new(store: OrderedStore, claim: Claim) -> bool:
    return store.get(keys.DIGEST + claim.digest) is None


def _records(claim: Claim) -> Iterator[tuple[bytes, bytes | None]]:
    """As the frontier writes them at a finish."""
    yield keys.DIGEST + claim.digest, encode(claim)
    if claim.simhash is not None:
        yield keys.NEAR + claim.digest, keys.numbered(b"", claim.simhash)


def _open(store: OrderedStore) -> Iterator[OpenRecord]:
    start = keys.OPEN
    while pairs := store.scan(start, keys.after(keys.OPEN), _PAGE):
        yield from (decode_open(packed) for _, packed in pairs)
        start = pairs[-1][0] + b"\0"


def _claims(files: list[Path], url: str, reading: Reading) -> Iterator[Claim]:
    for file in files:
        for entry in entries_of(file, key_of(url)):
            if entry.url == url and not entry.is_revisit:
                stored = _read(entry, reading.most_bytes)
                claim = _claim(stored, reading.room) if stored is not None else None
                if claim is not None:
                    yield claim


def _read(entry: Entry, most_bytes: int) -> Stored | None:
    """With its metadata. None: it cannot be read."""
    with suppress(Damaged, OSError), entry.file.open("rb") as file:
        file.seek(entry.place.offset)
        with closing(captures_in(file, entry.place.file, most_bytes)) as found:
            return next(found, None)
    return None


def _claim(stored: Stored, room: Room) -> Claim | None:
    """None: there is nothing to claim."""
    if not stored.body:
        return None
    digest = sha1_of(stored.noted("content-digest"))
    if not digest:  # it is not coded, or was cut off from what was noted
        digest = sha1(decoded_body(stored, room), usedforsecurity=False).digest()
    return Claim(
        digest,
        stored.url,
        str(stored.place),
        stored.fetched_at,
        stored.payload_sha1,
        _status(stored),
        _simhash(stored),
    )


def _status(stored: Stored) -> int:
    """As the crawl would have claimed it."""
    flaw = stored.noted("flaw")
    if flaw == Flaw.SOFT_404:
        return 404
    return _NO_PAGE if flaw or stored.noted("alias-of") else status_of(stored.head)


def _simhash(stored: Stored) -> int | None:
    """None: it is nobody's original, has too little text, or was cut off from what was noted."""
    noted = stored.noted("simhash")
    is_original = not stored.noted("flaw") and not stored.noted("alias-of")
    return int(noted, 16) if is_original and _SIMHASH.fullmatch(noted) else None


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError as error:
        raise DataDirError(f"cannot look at {file}: {error.strerror or error}") from error

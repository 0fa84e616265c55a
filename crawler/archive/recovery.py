"""What a dead process left unfinished, made whole: when a crawl starts, before it writes anything,
or by a command, at any time.

Rule: a file is kept up to its last whole record and no longer, and never one that a living
process holds. It is read from its start, once: a body may hold anything, also bytes that look
like the beginning of a record. Bounded memory, and 10 to 16 s of CPU a gigabyte: what takes longer
is marked as owed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import sha1
from math import inf
from pathlib import Path
from typing import BinaryIO, Final

from msgspec.structs import replace

from crawler.archive.cdxj import key_of
from crawler.archive.files import (
    OPEN_SUFFIX,
    WARC_SUFFIX,
    Companion,
    clear,
    lock,
    mark_missing,
)
from crawler.archive.lookup import Entry, entries_of
from crawler.archive.reader import (
    Damaged,
    Room,
    Stored,
    captures_in,
    decoded_body,
    sha1_of,
    status_of,
)
from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import (
    OpenRecord,
    decode_open,
    encode,
)
from crawler.model.page import Flaw
from crawler.model.types import (
    Candidate,
    Claim,
    DataDirError,
    Purpose,
)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of one file."""

    file: str  # its final name
    records: int  # kept; 0: there was none, and the file is gone
    kept_bytes: int
    cut_bytes: int


@dataclass(slots=True)
class _WholeRecords:
    """The records that are."""

    count: int = 0
    bytes: int = 0

    def add(self, end: int) -> None:
        self.count, self.bytes = self.count + 1, end


def recover(folder: Path, companions: Sequence[Companion] = ()) -> list[Recovered]:
    """Mend and finish every WARC file in *folder* that no process holds. Of its *companions* the
    quick ones are made, the slow ones owed. Raises DataDirError, StoreUnavailable."""
    tried = [recover_one(path, companions) for path in left_open(folder)]
    for companion in companions:
        clear(folder, companion.suffix)
    return [each for each in tried if each is not None]


def left_open(folder: Path) -> list[Path]:
    """WARC files in *folder* that are not finished, whoever holds them."""
    return sorted(folder.glob(f"*{WARC_SUFFIX}{OPEN_SUFFIX}"))


def recover_one(path: Path, companions: Sequence[Companion]) -> Recovered | None:
    """None: its process lives. Raises DataDirError, StoreUnavailable."""
    try:
        with path.open("r+b") as file:
            return _mend(file, path, companions) if lock(file.fileno(), path) else None
    except FileNotFoundError:
        return None  # it has just been finished
    except OSError as error:
        raise DataDirError(f"cannot recover {path}: {error.strerror or error}") from error


def _mend(file: BinaryIO, path: Path, companions: Sequence[Companion]) -> Recovered:
    final = path.with_name(path.name.removesuffix(OPEN_SUFFIX))
    quick = [companion for companion in companions if not companion.is_slow]
    try:
        whole = _read(file, final, quick)
        cut_bytes = os.fstat(file.fileno()).st_size - whole.bytes
        if not whole.count:
            path.unlink()
        elif final.exists():
            raise DataDirError(
                f"cannot recover {path}: {final.name} is there already; move one away"
            )
        else:
            file.truncate(whole.bytes)
            os.fsync(file.fileno())
            for companion in companions:
                if companion.is_slow:
                    mark_missing(final, companion.suffix)
                else:
                    companion.finish()
            path.rename(final)
    finally:
        for companion in quick:
            companion.discard()  # nothing, once it is finished
    return Recovered(final.name, whole.count, whole.bytes, cut_bytes)


def _read(file: BinaryIO, final: Path, companions: Sequence[Companion]) -> _WholeRecords:
    """The *companions* get its captures on the way."""
    whole = _WholeRecords()
    for companion in companions:
        companion.begin(final)
    with suppress(Damaged):
        for one in captures_in(file, final.name, 0, whole.add, with_metadata=False):
            for companion in companions:
                companion.add_again(one)
    return whole


# What open leases had archived already when their process died.
#
# Rule: the answer to each is in the archive, and nobody knows: it would be stored twice, and what
# is
# near to it not marked. So its content is claimed for it before the frontier and the index of
# near-duplicates open; fetched again it is found stored. Doing it twice changes nothing, so dying
# here loses nothing.

_PAGE: Final = 1000  # leases read at once
_CLOCK_S: Final = 3600.0  # by so much a file system's clock may be behind ours (guess)
_NO_PAGE: Final = 0  # as in pipelines.archive
_SIMHASH: Final = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ReadingRules:
    """As the crawl read what it fetched."""

    room: Room
    most_bytes: int  # the most that `room` says
    is_all_here: bool = True  # no file was brought elsewhere


@dataclass(frozen=True, slots=True)
class Archived:
    """What the archive has of some leases."""

    claims: Sequence[Claim]  # on each content, of its first record
    urls: Collection[str]  # that were answered under them, with or without a body
    is_all_here: bool

    def may_have(self, candidate: Candidate) -> bool:
        """Whether an answer to it. That to a spider's own request stands under whatever URL it
        had."""
        if candidate.purpose is not Purpose.PAGE:
            return False
        return not self.is_all_here or bool(candidate.request) or candidate.url in self.urls


def look(leases: Iterable[OpenRecord], folder: Path, reading: ReadingRules) -> Archived:
    """WARC files in *folder* must have been recovered: one that is still open is in another
    process' hands (`scrapy archive index`), and may have anything. Raises DataDirError."""
    # Before the finished ones are listed: it may become one of them meanwhile.
    is_all_here = reading.is_all_here and not left_open(folder)
    taken: dict[str, float] = {}
    for each in leases:
        if each.candidate.purpose is Purpose.PAGE:
            taken[each.candidate.url] = min(each.taken_at, taken.get(each.candidate.url, inf))
    since = min(taken.values(), default=inf) - _CLOCK_S
    files = [file for file in sorted(folder.glob(f"*{WARC_SUFFIX}")) if _written_at(file) >= since]
    urls: set[str] = set()
    claims: list[Claim] = []
    for url in sorted(taken):
        for stored in _stored(files, url, reading.most_bytes):
            claims += _claims(stored, reading.room)
            if stored.fetched_at >= taken[url] - _CLOCK_S:
                urls.add(url)
    claims.sort(key=lambda each: each.at, reverse=True)
    firsts = {claim.digest: claim for claim in claims}
    return Archived([*firsts.values()], urls, is_all_here)


def claim_unfinished(store: OrderedStore, folder: Path, reading: ReadingRules) -> int:
    """How many claims were written. Raises StoreUnavailable, DataDirError."""
    leases = dict(_open(store))
    found = look(leases.values(), folder, reading)
    claims = [each for each in found.claims if store.get(keys.DIGEST + each.digest) is None]
    changes = dict(pair for claim in claims for pair in _records(claim))
    for key, lease in leases.items():
        if found.may_have(lease.candidate):
            lost = replace(lease.candidate, lost=True)
            changes[key] = encode(replace(lease, candidate=lost))
    store.write(changes)
    return len(claims)


def _records(claim: Claim) -> Iterator[tuple[bytes, bytes | None]]:
    """As the frontier writes them at a finish."""
    yield keys.DIGEST + claim.digest, encode(claim)
    if claim.simhash is not None:
        yield keys.NEAR + claim.digest, keys.numbered(b"", claim.simhash)


def _open(store: OrderedStore) -> Iterator[tuple[bytes, OpenRecord]]:
    start = keys.OPEN
    while pairs := store.scan(start, keys.after(keys.OPEN), _PAGE):
        yield from ((key, decode_open(packed)) for key, packed in pairs)
        start = pairs[-1][0] + b"\0"


def _stored(files: list[Path], url: str, most_bytes: int) -> Iterator[Stored]:
    """All answers to *url* that are no revisits."""
    for file in files:
        for entry in entries_of(file, key_of(url)):
            if entry.url == url and not entry.is_revisit:
                stored = _read_unfinished(entry, most_bytes)
                if stored is not None:
                    yield stored


def _read_unfinished(entry: Entry, most_bytes: int) -> Stored | None:
    """With its metadata. None: it cannot be read."""
    with suppress(Damaged, OSError), entry.file.open("rb") as file:
        file.seek(entry.place.offset)
        with closing(captures_in(file, entry.place.file, most_bytes)) as found:
            return next(found, None)
    return None


def _claims(stored: Stored, room: Room) -> Iterator[Claim]:
    """None without a body."""
    if not stored.body:
        return
    digest = sha1_of(stored.noted("content-digest"))
    if not digest:  # it is not coded, or was cut off from what was noted
        digest = sha1(decoded_body(stored, room), usedforsecurity=False).digest()
    yield Claim(
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

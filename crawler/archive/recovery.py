"""Recovers the WARC files and claims of a dead process: when a crawl starts, or by a command.

Rule: an unfinished file that no living process holds is cut behind its last complete record. It is
read once from its start, for a body may hold bytes that look like a record. This takes bounded
memory and 10 to 16 s of CPU for each gigabyte; a companion that takes longer is marked as missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from math import inf
from pathlib import Path
from typing import BinaryIO, Final

from msgspec.structs import replace

from crawler.archive.cdxj import key_of
from crawler.archive.columns_companion import BESIDE, RENDERED
from crawler.archive.lookup import entries_for_key, read_with_dom
from crawler.archive.reader import (
    ArchivedCapture,
    BodyLimit,
    DamagedFile,
    captures_in,
    decoded_body,
    sha1_of,
    status_of,
)
from crawler.archive.warc_file import (
    OPEN_SUFFIX,
    WARC_SUFFIX,
    Companion,
    lock,
    mark_missing,
    remove_unfinished_companions,
)
from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import (
    OpenRecord,
    decode_open,
    encode,
)
from crawler.frontier.staging import all_records
from crawler.model.page import Flaw
from crawler.model.types import (
    IN_NO_BODY,
    Candidate,
    Claim,
    DataDirError,
    Purpose,
)


@dataclass(frozen=True, slots=True)
class RecoveredFile:
    """The result of the recovery of one file."""

    file: str  # its final name
    records: int  # kept; if 0, the file had none and was removed
    kept_bytes: int
    cut_bytes: int


@dataclass(slots=True)
class _WholeRecords:
    """The number and the total size of a file's complete records."""

    on_read: Callable[[int], None] | None  # called with the bytes of each record
    count: int = 0
    bytes: int = 0

    def add(self, end: int) -> None:
        if self.on_read is not None:
            self.on_read(end - self.bytes)
        self.count, self.bytes = self.count + 1, end


def recover(
    folder: Path,
    companions: Sequence[Companion] = (),
    on_read: Callable[[int], None] | None = None,
) -> list[RecoveredFile]:
    """Repair and finish every WARC file in *folder* that no process holds. Fast *companions* are
    made, slow ones marked as missing. *on_read* is called with the bytes of each record. Raises
    DataDirError, StoreUnavailable."""
    tried = [recover_one(path, companions, on_read) for path in unfinished_files(folder)]
    for companion in companions:
        remove_unfinished_companions(folder, companion.suffix)
    return [each for each in tried if each is not None]


def unfinished_files(folder: Path) -> list[Path]:
    """Return the unfinished WARC files in *folder*, whether or not a process holds them."""
    return sorted(folder.glob(f"*{WARC_SUFFIX}{OPEN_SUFFIX}"))


def recover_one(
    path: Path, companions: Sequence[Companion], on_read: Callable[[int], None] | None = None
) -> RecoveredFile | None:
    """Recover one file. Returns None if a living process holds it or has just finished it. Raises
    DataDirError, StoreUnavailable."""
    try:
        with path.open("r+b") as file:
            is_ours = lock(file.fileno(), path)
            return _repair(file, path, companions, on_read) if is_ours else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataDirError(f"cannot recover {path}: {error.strerror or error}") from error


def _repair(
    file: BinaryIO,
    path: Path,
    companions: Sequence[Companion],
    on_read: Callable[[int], None] | None,
) -> RecoveredFile:
    final = path.with_name(path.name.removesuffix(OPEN_SUFFIX))
    quick = [companion for companion in companions if not companion.is_slow]
    try:
        whole = _read(file, final, quick, on_read)
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
            companion.discard()  # does nothing if the companion is finished
    return RecoveredFile(final.name, whole.count, whole.bytes, cut_bytes)


def _read(
    file: BinaryIO,
    final: Path,
    companions: Sequence[Companion],
    on_read: Callable[[int], None] | None,
) -> _WholeRecords:
    """Return the complete records of *file*, and add its captures to the *companions*."""
    whole = _WholeRecords(on_read)
    for companion in companions:
        companion.begin(final)
    with suppress(DamagedFile):
        for one in captures_in(file, final.name, 0, whole.add, with_metadata=False):
            for companion in companions:
                companion.add_stored(one)
    return whole


# The process may have died after it archived the answers to open leases. Their content is claimed
# before the frontier and the index of near-duplicates open, so that a second fetch finds it stored
# and does not archive it twice. Claiming it again changes nothing.
_CLOCK_S: Final = 3600.0  # how far a file system's clock may be behind ours (guess)
_NO_PAGE: Final = 0  # as in crawler/pipelines.py
_SIMHASH: Final = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class ReadingLimits:
    """The limits with which the crawl decoded bodies."""

    max_body_bytes: BodyLimit
    max_bytes: int  # the most that `max_body_bytes` returns
    is_complete: bool = True  # no file was delivered to a store


@dataclass(frozen=True, slots=True)
class ArchivedAnswers:
    """The archived answers to some open leases."""

    claims: Sequence[Claim]  # one for each content, of its first record
    urls: Collection[str]  # of the leases that were answered, with or without a body
    is_complete: bool

    def may_have(self, candidate: Candidate) -> bool:
        """Whether the archive may hold an answer to *candidate*. A spider's own request may have
        been archived under any URL."""
        if candidate.purpose is not Purpose.PAGE:
            return False
        return not self.is_complete or bool(candidate.request) or candidate.url in self.urls


def find_archived_answers(
    leases: Iterable[OpenRecord], folder: Path, reading: ReadingLimits
) -> ArchivedAnswers:
    """Return what *folder* holds of the answers to *leases*. Its WARC files must have been
    recovered: one that is still open is held by another process (`scrapy archive index`), and may
    hold any answer. Raises DataDirError."""
    # Open files are listed before finished ones, because one may be finished in between.
    is_all_here = reading.is_complete and not unfinished_files(folder)
    taken: dict[str, float] = {}
    for each in leases:
        if each.candidate.purpose is Purpose.PAGE:
            taken[each.candidate.url] = min(each.taken_at, taken.get(each.candidate.url, inf))
    since = min(taken.values(), default=inf) - _CLOCK_S
    files = [file for file in sorted(folder.glob(f"*{WARC_SUFFIX}")) if _written_at(file) >= since]
    urls: set[str] = set()
    claims: list[Claim] = []
    for url in sorted(taken):
        for stored, dom in _stored(files, url, reading.max_bytes):
            claims += _claims(stored, dom, reading.max_body_bytes)
            if stored.fetched_at >= taken[url] - _CLOCK_S:
                urls.add(url)
    claims.sort(key=lambda each: each.at, reverse=True)
    firsts = {claim.digest: claim for claim in claims}
    return ArchivedAnswers([*firsts.values()], urls, is_all_here)


def claim_unfinished(store: OrderedStore, folder: Path, reading: ReadingLimits) -> int:
    """Claim the archived answers of open leases, and return how many claims were written. Raises
    StoreUnavailable, DataDirError."""
    leases = dict(_open(store))
    found = find_archived_answers(leases.values(), folder, reading)
    claims = [each for each in found.claims if store.get(keys.DIGEST + each.digest) is None]
    numbers = {lease.candidate.url: keys.number_of(key) for key, lease in leases.items()}
    changes: dict[bytes, bytes | None] = {}
    for claim in claims:
        _write_claim(store, claim, numbers[claim.url], changes)
    for key, lease in leases.items():
        if found.may_have(lease.candidate):
            lost = replace(lease.candidate, may_be_archived=True)
            changes[key] = encode(replace(lease, candidate=lost))
    store.write(changes)
    return len(claims)


def _write_claim(
    store: OrderedStore, claim: Claim, lease_id: int, changes: dict[bytes, bytes | None]
) -> None:
    """Add to *changes* what the frontier writes for *claim* when a lease is finished."""
    changes[keys.DIGEST + claim.digest] = encode(claim)
    if claim.simhash is not None:
        log = keys.print_log(lease_id)
        logged = changes.get(log) or store.get(log) or b""
        changes[log] = logged + keys.packed_print(claim.simhash)
        changes[keys.page_of_print(claim.simhash, lease_id)] = claim.digest


def _open(store: OrderedStore) -> Iterator[tuple[bytes, OpenRecord]]:
    return ((key, decode_open(packed)) for key, packed in all_records(store, keys.OPEN))


def _stored(
    files: list[Path], url: str, most_bytes: int
) -> Iterator[tuple[ArchivedCapture, ArchivedCapture | None]]:
    """Yield all answers to *url*, as a page, that are no revisits, or have a DOM."""
    for file in files:
        for entry in entries_for_key(file, key_of(url)):
            found = read_with_dom(entry, most_bytes) if entry.url == url else None
            if found is None or found[0].metadata_value(BESIDE):
                continue
            if found[1] is not None or not entry.is_revisit:
                yield found


def _claims(
    stored: ArchivedCapture, dom: ArchivedCapture | None, room: BodyLimit
) -> Iterator[Claim]:
    """Yield the claim on the content of *stored*; none if it has no body. Of a rendered page that
    is its DOM: if the crash cut it off, or another page had it, there is none."""
    wire_sha1 = stored.payload_sha1
    if dom is not None:
        digest, wire_sha1 = dom.payload_sha1, IN_NO_BODY
    elif stored.metadata_value(RENDERED) or not stored.body:
        return
    else:
        digest = sha1_of(stored.metadata_value("content-digest"))
    if not digest:  # the body has no content coding, or the crash cut off the metadata
        digest = sha1(decoded_body(stored, room), usedforsecurity=False).digest()
    yield Claim(
        digest,
        stored.url,
        str(stored.place),
        stored.fetched_at,
        wire_sha1,
        _status(stored),
        _simhash(stored),
    )


def _status(stored: ArchivedCapture) -> int:
    """Return the status with which the crawl would have claimed it."""
    flaw = stored.metadata_value("flaw")
    if flaw == Flaw.SOFT_404:
        return 404
    return _NO_PAGE if flaw or stored.metadata_value("alias-of") else status_of(stored.head)


def _simhash(stored: ArchivedCapture) -> int | None:
    """Return its fingerprint. Returns None if it is no original, has too little text, or if the
    crash cut off the metadata."""
    noted = stored.metadata_value("simhash")
    is_original = not stored.metadata_value("flaw") and not stored.metadata_value("alias-of")
    return int(noted, 16) if is_original and _SIMHASH.fullmatch(noted) else None


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError as error:
        raise DataDirError(f"cannot look at {file}: {error.strerror or error}") from error

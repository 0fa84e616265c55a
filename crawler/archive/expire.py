"""Removes whole WARC files that are old, with their indexes; their columns stay.

Rule: a file stays as long as a record in a file that stays names one of its records. One that may
go is first noted in `expired.json`, in each store; from then on no new record names one of its
(`ExpiredFiles`). It is removed at a later look, which judges again, its index first. So a process
may be killed between any two steps: what is noted and still there is removed by the next look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from crawler.archive.cdxj import SUFFIX as INDEX
from crawler.archive.cdxj import timestamp
from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.delivery import FOLDER
from crawler.archive.delivery_stores import DRAFT_SUFFIX, Store, replace_stored
from crawler.archive.purge import has_own_index, indexed, named_errors, warcs_in
from crawler.archive.reader import DamagedFile, Record, records
from crawler.archive.warc_file import OPEN_SUFFIX, WARC_SUFFIX, companion_path
from crawler.model.types import CrawlerError, DataDirError, StoreUnavailable

logger = logging.getLogger(__name__)

LIST: Final = "expired.json"
"""The names of all files that have gone or are to go, in the folder of each store."""
SCRATCH: Final = "expire"
"""The folder of a data directory with what was read of each file."""
ROUND_S: Final = 3600.0
"""Between two looks of a crawl, and so from the note of a file to its removal: longer than any page
is under way, whose record may name one of the file."""

Names = NDArray[np.uint64]


class ExpiredFile(msgspec.Struct, frozen=True):
    """A WARC file that has gone, or is to go."""

    file: str
    first: str  # the times of its oldest and its newest answer, 14 digits
    last: str
    noted_at: float  # epoch seconds


@dataclass(frozen=True, slots=True)
class ExpiryResult:
    """What became of one old file."""

    file: str
    what: str  # removed | noted | kept
    named: int = 0  # of its answers, by records that stay


class ExpiredFiles:
    """What a crawl asks about records before it refers to them. Another thread may `note`."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._times: tuple[tuple[float, float], ...] = ()

    def note(self, files: Collection[ExpiredFile]) -> None:
        self._times = tuple((_epoch(each.first), _epoch(each.last) + 1) for each in files)
        self._names = frozenset(each.file for each in files)

    def has(self, record: str) -> bool:
        """Return whether *record*, "file:offset", is in a file that has gone or is to go."""
        return bool(self._names) and record.rpartition(":")[0] in self._names

    def may_have(self, at: float) -> bool:
        """Return whether an answer of that time, epoch seconds, may be in such a file."""
        return any(first <= at <= last for first, last in self._times)


def read_expired(stores: Iterable[Store]) -> dict[str, ExpiredFile]:
    """Return what the lists of *stores* have, by name. Raises DataDirError, StoreUnavailable."""
    found: dict[str, ExpiredFile] = {}
    for store in stores:
        with suppress(FileNotFoundError), store.open(LIST) as file:
            try:
                listed = msgspec.json.decode(file.read(), type=list[ExpiredFile])
            except msgspec.MsgspecError as error:
                raise DataDirError(f"{LIST} in {store} cannot be read: {error}") from error
            found |= {each.file: each for each in listed}
    return found


class _FileFacts(msgspec.Struct, frozen=True):
    """What is kept of one WARC file. Answers are hashes of URL and time."""

    first: str = ""  # 14 digits; empty: it has no answer
    last: str = ""
    answers: bytes = b""  # of 8 bytes each: those that a revisit may name
    named: bytes = b""  # those that its revisits name


@dataclass(frozen=True, slots=True)
class _File:
    store: Store
    name: str  # in its store
    facts: _FileFacts
    is_old: bool

    @property
    def file(self) -> str:
        return Path(self.name).name


@dataclass(slots=True)
class Retention:
    """Looks at the files of *stores*, which may go, and of *waiting*, which have yet to be brought
    to one of these. *data* is the data directory in which it keeps what it has read."""

    stores: Sequence[Store]
    waiting: Sequence[Store]
    data: Path
    _read: dict[str, _FileFacts] = field(default_factory=dict)

    def look(
        self, before: float, now: float, grace_s: float, *, is_trial: bool = False
    ) -> list[ExpiryResult]:
        """Note the files of which all answers are older than *before*, epoch seconds, and that no
        other file needs; remove those noted for *grace_s*. With *is_trial* change nothing, and
        return what would be removed. Raises DataDirError, StoreUnavailable, ConfigError."""
        noted = read_expired([*self.stores, *self.waiting])
        files = list(self._files(_stamp(before), noted))
        kept = _kept(files)
        done = [ExpiryResult(file, "kept", count) for file, count in kept.items()]
        going = [each for each in files if each.is_old and each.file not in kept]
        if is_trial:
            return [*done, *(ExpiryResult(each.file, "removed") for each in going)]
        new = {
            each.file: ExpiredFile(each.file, each.facts.first, each.facts.last, now)
            for each in going
            if each.file not in noted
        }
        if new or self._is_unknown_somewhere(noted):
            self._write([*noted.values(), *new.values()])
        noted |= new
        due = {each.file for each in going if now - noted[each.file].noted_at >= grace_s}
        # What another names that is not due yet waits for that, too.
        waits = due & _kept([replace(each, is_old=each.file in due) for each in files]).keys()
        # The newest first: records name older ones.
        for each in sorted(going, key=lambda each: each.facts.last, reverse=True):
            is_removed = each.file in due - waits
            if is_removed:
                self._remove(each)
            done.append(ExpiryResult(each.file, "removed" if is_removed else "noted"))
        return done

    def _files(self, before: str, noted: Mapping[str, ExpiredFile]) -> Iterator[_File]:
        """Yield all files with what they have and name. Of those noted whose index has gone, too,
        nothing is known any more: they are to go."""
        present = [(store, store.names(FOLDER)) for store in self.stores]
        waiting = {Path(name).name for store in self.waiting for name in store.names(FOLDER)}
        for store in self.waiting:
            for name in warcs_in(store):
                with suppress(FileNotFoundError):  # finished or delivered since
                    yield _File(store, name, self._facts(store, name), is_old=False)
        for store, names in present:
            beside = set(names)
            for name in warcs_in(store):
                was = noted.get(Path(name).name)
                if was is not None and _companion(name, INDEX) not in beside:
                    yield _File(store, name, _FileFacts(was.first, was.last), is_old=True)
                    continue
                with suppress(FileNotFoundError):
                    facts = self._facts(store, name)
                    may_go = name.endswith(WARC_SUFFIX) and _has_own_answers(store, name, facts)
                    is_done = not beside & {
                        _companion(name, suffix) + end
                        for suffix in (INDEX, COLUMNS)
                        for end in (OPEN_SUFFIX, DRAFT_SUFFIX)
                    }
                    is_whole = is_done and Path(name).name not in waiting
                    yield _File(store, name, facts, may_go and is_whole and facts.last < before)

    def _facts(self, store: Store, name: str) -> _FileFacts:
        """Return what a file has and names; of a finished one it is read once."""
        kept = self.data / SCRATCH / f"{Path(name).name}.facts"
        if not name.endswith(WARC_SUFFIX):
            return _facts_of(store, name)
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.msgpack.decode(kept.read_bytes(), type=_FileFacts)
        facts = _facts_of(store, name)
        try:
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(msgspec.msgpack.encode(facts))
        except OSError as error:
            raise StoreUnavailable(f"cannot write {kept}: {error.strerror or error}") from error
        return facts

    def _is_unknown_somewhere(self, noted: Mapping[str, ExpiredFile]) -> bool:
        return any(read_expired([each]) != noted for each in (*self.stores, *self.waiting))

    def _write(self, listed: Sequence[ExpiredFile]) -> None:
        draft = self.data / SCRATCH / LIST
        try:
            draft.parent.mkdir(exist_ok=True)
            draft.write_bytes(msgspec.json.encode(listed))
        except OSError as error:
            raise StoreUnavailable(f"cannot write {draft}: {error.strerror or error}") from error
        for store in (*self.stores, *self.waiting):
            replace_stored(store, draft, LIST, lambda: None)

    def _remove(self, old: _File) -> None:
        # An index never names a file that is gone. What was read of it goes last.
        old.store.discard(_companion(old.name, INDEX))
        old.store.discard(old.name)
        with suppress(OSError):
            (self.data / SCRATCH / f"{old.file}.facts").unlink()


def _kept(files: Sequence[_File]) -> dict[str, int]:
    """Return the old files that stay, with how many of their answers are named by what stays."""
    named = [_names(each.facts.named) for each in files if not each.is_old]
    kept: dict[str, int] = {}
    # A record names older ones, so nearly always one pass finds all.
    old = sorted((each for each in files if each.is_old), key=lambda each: each.facts.last)
    while True:
        every = np.unique(np.concatenate([np.empty(0, np.uint64), *named]))
        found = [each for each in old if each.file not in kept]
        more = {
            each.file: count
            for each in found
            if (count := int(np.isin(_names(each.facts.answers), every).sum()))
        }
        if not more:
            return kept
        kept |= more
        named += [_names(each.facts.named) for each in found if each.file in more]


def _facts_of(store: Store, name: str) -> _FileFacts:
    """Read what a file has and names: by its index, where it is ours and has one. Raises
    DataDirError, StoreUnavailable, FileNotFoundError."""
    answers, named, times = [], [], []
    with named_errors(name), store.open(name) as file:
        if has_own_index(store, name):
            revisits = []
            for entry in indexed(store, name):
                times.append(entry.timestamp)
                if entry.is_revisit:
                    revisits.append(entry.place.offset)
                else:
                    answers.append(_hash(entry.url, entry.timestamp))
            for offset in sorted(revisits):
                file.seek(offset)
                named.append(_named_by(next(records(file))))
        else:
            with suppress(DamagedFile):  # one being written may end within a record
                named += [_named_by(each) for each in records(file) if each.kind == "revisit"]
    first, last = min(times, default=""), max(times, default="")
    return _FileFacts(first, last, _packed(answers), _packed(named))


def _named_by(revisit: Record) -> int:
    date = timestamp(revisit.field("WARC-Refers-To-Date"))
    return _hash(revisit.field("WARC-Refers-To-Target-URI"), date)


def _hash(url: str, time: str) -> int:
    return xxh3_64_intdigest(f"{time} {url}".encode(errors="replace"))


def _packed(hashes: Sequence[int]) -> bytes:
    return np.unique(np.array(hashes, np.uint64)).tobytes()


def _names(packed: bytes) -> Names:
    return np.frombuffer(packed, np.uint64)


def _has_own_answers(store: Store, name: str, facts: _FileFacts) -> bool:
    return bool(facts.last) and has_own_index(store, name)


def _companion(name: str, suffix: str) -> str:
    return str(companion_path(Path(name), suffix))


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%d%H%M%S")


def _epoch(time: str) -> float:
    return datetime.strptime(f"{time}+0000", "%Y%m%d%H%M%S%z").timestamp()


class ExpiryWork:
    """Looks at the files of a crawl each hour, in a thread, from `begin` to `close`."""

    def __init__(
        self,
        retention: Retention,
        keep_s: float,
        expired: ExpiredFiles,
        now: Callable[[], float],
        round_s: float = ROUND_S,
    ) -> None:
        self._retention = retention
        self._keep_s = keep_s
        self._expired = expired
        self._now = now
        self._round_s = round_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="expiry", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the work, after the file that is being looked at."""
        self._ending.set()

    def _work(self) -> None:
        while not self._ending.is_set():
            try:
                self._look()
            except CrawlerError as error:  # the next look tries again
                logger.warning("Old files of the archive were not all removed: %s", error)
            self._ending.wait(self._round_s)

    def _look(self) -> None:
        now = self._now()
        found = self._retention.look(now - self._keep_s, now, self._round_s)
        noted = read_expired([*self._retention.stores, *self._retention.waiting])
        self._expired.note(noted.values())
        removed = [each.file for each in found if each.what == "removed"]
        if removed:
            logger.info("Removed from the archive, as they were old: %s", ", ".join(removed))

"""Checks the records, digests and indexes of an archive.

Rule: each file is read once, in bounded memory, and its faults are reported with place and advice.
Revisits without an original are reported after all files were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha1
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from crawler.archive.capture import AnswerKind, RecordPlace, ResponseRecord
from crawler.archive.cdxj import (
    SUFFIX,
    SortedLines,
    index_line,
    key_of,
    timestamp,
)
from crawler.archive.earlier_crawls import EarlierCrawls
from crawler.archive.reader import (
    HEADLESS,
    DamagedFile,
    Record,
    answer_kind,
    head_of_resource,
    records,
    sha1_of,
)
from crawler.archive.record_bytes import MAX_HEAD_BYTES, sha1_label
from crawler.archive.warc_file import OPEN_SUFFIX, companion_path
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError

KINDS: Final = frozenset(
    {"warcinfo", "response", "revisit", "request", "metadata", "resource", "conversion"}
)
"""The record types of WARC 1.1, whichever program wrote them."""
_END: Final = b"\r\n\r\n"
_HAS, _WANTS = "0", "1"  # in this order


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of an archive: where it is, what is wrong, and what to do."""

    where: str  # a file, or "file:offset"
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result for one file, read to its end or to where it is damaged."""

    file: str
    records: int
    captures: int
    faults: tuple[Fault, ...]


class ArchiveChecker:
    """Checks one archive, file by file. Use it in a `with` of `open_checker`."""

    def __init__(self, scratch: Path, earlier: Sequence[EarlierCrawls]) -> None:
        self._scratch = scratch
        self._earlier = earlier
        self._claims = SortedLines(scratch / "claims")

    def check_file(self, path: Path, *, is_being_written: bool) -> CheckResult:
        """Check *path* as it is now. Raises DataDirError if it cannot be read at all."""
        lines = SortedLines(self._scratch / "index")
        faults: list[Fault] = []
        count, captures = 0, 0
        name = path.name.removesuffix(OPEN_SUFFIX)
        try:
            with path.open("rb") as file:
                for record in records(file):
                    checked = _RecordCheck(record, name)
                    count += 1
                    captures += checked.is_capture
                    faults += checked.faults
                    self._note(lines, checked)
        except DamagedFile as damage:
            if not is_being_written:
                faults.append(Fault(name, str(damage), _ADVICE_CUT))
        except OSError as error:
            raise DataDirError(f"cannot read {path}: {error.strerror or error}") from error
        faults += _file_faults(path, lines, is_being_written)
        lines.discard()
        return CheckResult(name, count, captures, tuple(faults))

    def _note(self, lines: SortedLines, checked: _RecordCheck) -> None:
        if checked.line is not None:
            lines.add(checked.line)
            refers_to = checked.refers_to
            if not (refers_to and any(each.has(*refers_to) for each in self._earlier)):
                self._claims.add(checked.claim)

    def orphans(self) -> Iterator[Fault]:
        """Yield the revisits whose original is in no file."""
        for _, claims in groupby(self._claims.sorted(), key=lambda line: line.split(" ", 2)[:2]):
            held: set[str] = set()
            for line in claims:
                _, _, is_wanted, digest, place = line.rstrip("\n").split(" ", 4)
                if is_wanted == _HAS:
                    held.add(digest)
                elif digest not in held and not (digest == "-" and held):
                    yield Fault(place, "a revisit whose original is in no file here")

    def close(self) -> None:
        self._claims.discard()


@contextmanager
def open_checker(earlier: Sequence[EarlierCrawls] = ()) -> Iterator[ArchiveChecker]:
    """Yield a checker. Its temporary files take a few MB for each GB checked. A revisit of what
    *earlier* crawls have is none without an original."""
    with TemporaryDirectory(prefix="gossamer-check-") as scratch:
        check = ArchiveChecker(Path(scratch), earlier)
        try:
            yield check
        finally:
            check.close()


class _RecordCheck:
    """One record with its faults and its index line."""

    def __init__(self, record: Record, file: str) -> None:
        """Raises DamagedFile."""
        self._record = record
        self._where = f"{file}:{record.offset}"
        self.faults: list[Fault] = []
        self.line: str | None = None  # of the index; None if the record is no answer
        self.claim = ""
        self.refers_to: tuple[bytes, str, str] | None = None  # of a revisit: digest, URL, time
        self._kind = answer_kind(record)
        self.is_capture = self._kind not in (None, "conversion")
        if record.kind not in KINDS:
            self._fault(f"a record of kind {record.kind or '(none)'}, which is not known")
        if record.kind == "warcinfo" and record.field("WARC-Filename") != file:
            self._fault(f"names another file: {record.field('WARC-Filename')}", _ADVICE_RENAMED)
        head = self._digests()
        place = RecordPlace(file, record.offset, record.finish())
        if self._kind is not None:
            self._index(self._kind, head, place)

    def _digests(self) -> bytes:
        """Compare the digests and return the HTTP head, which is empty if there is no answer."""
        is_headless = self._kind in HEADLESS
        has_head = self._kind is not None and not is_headless
        begin = self._record.read_all(MAX_HEAD_BYTES) if has_head else b""
        head, end, rest = begin.partition(_END)
        block, payload = sha1(begin, usedforsecurity=False), sha1(rest, usedforsecurity=False)
        while piece := self._record.read():
            block.update(piece)
            payload.update(piece)
        self._compare("WARC-Block-Digest", block.digest())
        if self._kind == "response" or is_headless:
            self._compare("WARC-Payload-Digest", payload.digest())
        return head_of_resource(self._record) if is_headless else head + end

    def _compare(self, name: str, found: bytes) -> None:
        declared = self._record.field(name)
        # Other programs may use another algorithm, which is not checked.
        is_sha1 = declared.lower().startswith("sha1:")
        if is_sha1 and sha1_of(declared) != found:
            self._fault(
                f"its {name} is {declared}, its content has {sha1_label(found)}", _ADVICE_CHANGED
            )

    def _index(self, kind: AnswerKind, head: bytes, place: RecordPlace) -> None:
        record = self._record
        digest = sha1_of(record.field("WARC-Payload-Digest"))
        is_revisit = kind == "revisit"
        answer = ResponseRecord(kind, head, digest)
        url, date = record.field("WARC-Target-URI"), record.field("WARC-Date")
        self.line = index_line(url, date, answer, place)
        if is_revisit:
            url = record.field("WARC-Refers-To-Target-URI")
            date = record.field("WARC-Refers-To-Date")
            self.refers_to = (digest, url, timestamp(date))
        label = sha1_label(digest) if digest else "-"
        rest = f"{_WANTS if is_revisit else _HAS} {label} {place}"
        self.claim = f"{key_of(url) or '-'} {timestamp(date) or '-'} {rest}\n"

    def _fault(self, what: str, advice: str = "") -> None:
        self.faults.append(Fault(self._where, what, advice))


def _file_faults(path: Path, lines: SortedLines, is_being_written: bool) -> Iterator[Fault]:
    if is_being_written:
        return
    if path.name.endswith(OPEN_SUFFIX):
        yield Fault(path.name, "left unfinished by a process that died", _ADVICE_UNFINISHED)
        return
    index = companion_path(path, SUFFIX)
    try:
        with index.open(encoding="ascii", errors="replace", newline="\n") as file:
            if not _are_same_lines(file, lines.sorted()):
                yield Fault(index.name, f"does not match {path.name}", _ADVICE_INDEX)
    except FileNotFoundError:
        yield Fault(path.name, "has no index", _ADVICE_INDEX)


def _are_same_lines(these: Iterable[str], those: Iterator[str]) -> bool:
    return all(line == next(those, None) for line in these) and next(those, None) is None


_ADVICE_INDEX: Final = f"make it again: {PROGRAM} archive index"
_ADVICE_UNFINISHED: Final = "the next run repairs it"
_ADVICE_CUT: Final = "records before it are good; fetch a copy of the file from where you keep one"
_ADVICE_CHANGED: Final = "the file was changed after it was written; fetch a copy of it"
_ADVICE_RENAMED: Final = "give the file its original name again, which indexes and claims refer to"

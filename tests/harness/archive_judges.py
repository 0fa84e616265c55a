"""Read our archives with other people's software: warcio, fastwarc, cdxj-indexer, wacz, pyarrow and
DuckDB.

Rule: what a WARC file holds is what warcio and fastwarc both read in it; nothing of ours reads it.
"""

from __future__ import annotations

import gzip
import io
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecord
from warcio.archiveiterator import (  # type: ignore[import-untyped]  # it ships no types
    ArchiveIterator as WarcioIterator,
)

from crawler.archive.check import open_checker
from crawler.archive.warc_file import companion_path
from tests.harness.commands import run

with warnings.catch_warnings():
    # Of the package surt that it needs: its patterns are no raw strings.
    warnings.simplefilter("ignore", DeprecationWarning)
    from cdxj_indexer.main import CDXJIndexer  # type: ignore[import-untyped]  # it ships no types
    from surt import surt as judged_surt  # type: ignore[import-untyped]  # it ships no types

# As it comes it would also unpack each body, though digests are of what was sent: 12 s for the
# bombs of the hostile crawl, and an error (1.8.1) at brotli where Google's package is installed.
_INDEXED = "response,revisit,resource,conversion"
_WARCIO = (
    "from warcio.bufferedreaders import BufferedReader\n"
    "BufferedReader.get_supported_decompressors = classmethod(lambda reader: ())\n"
    "from warcio.cli import main; main()"
)


@dataclass(frozen=True)
class Read:
    """One record as a reader sees it."""

    offset: int
    fields: dict[str, str]
    block: bytes  # with the HTTP head, if it has one
    payload: bytes
    headers: tuple[tuple[bytes, bytes], ...]  # of HTTP, by fastwarc, which keeps the bytes

    @property
    def kind(self) -> str:
        return self.fields["WARC-Type"]

    @property
    def url(self) -> str:
        return self.fields["WARC-Target-URI"]


def read(data: bytes) -> list[Read]:
    """Return every record of a compressed WARC. Fail on anything that warcio or fastwarc rejects: a
    torn gzip member, a wrong digest, a record that runs on, a difference between the two."""
    gzip.decompress(data)
    blocks = _warcio(data, parse=False)
    payloads = _warcio(data, parse=True)
    records = [
        _by_fastwarc(record, block) for record, block in zip(_fastwarc(data), blocks, strict=True)
    ]
    assert [(r.offset, r.fields, r.payload) for r in records] == payloads
    return records


def read_file(path: Path) -> list[Read]:
    return read(path.read_bytes())


def read_folder(folder: Path) -> dict[tuple[str, int], Read]:
    """All records of all finished files, by file name and offset."""
    return {
        (path.name, record.offset): record
        for path in sorted(folder.glob("*.warc.gz"))
        for record in read_file(path)
    }


def archived(data: Path) -> dict[tuple[str, str], tuple[dict[str, str], bytes]]:
    """Each record but its identity, by kind and URL."""
    identity = ("WARC-Record-ID", "WARC-Concurrent-To", "WARC-Refers-To")
    return {
        (read.kind, read.url): (
            {name: value for name, value in read.fields.items() if name not in identity},
            read.block,
        )
        for read in read_folder(data / "warc").values()
        # What leads to itself was fetched again and again; it is replayed as it was at last.
        if read.kind != "warcinfo" and not read.url.endswith("/ring")
    }


def answers(data: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    """`archived`, where of several copies any may be the original: each answer by its head and its
    body's digest, whether its record is a response or a revisit."""
    of_revisits = ("WARC-Profile", "WARC-Refers-To-Target-URI", "WARC-Refers-To-Date")
    of_kind = ("WARC-Type", "WARC-Block-Digest", "Content-Length", *of_revisits)
    found: dict[tuple[str, str], tuple[Any, ...]] = {}
    for (kind, url), (fields, block) in archived(data).items():
        if kind in ("response", "revisit"):
            kept = {name: value for name, value in fields.items() if name not in of_kind}
            if kind == "revisit":
                assert kept.pop("WARC-Truncated") == "length", "it lacks the body only"
            found["answer", url] = (kept, block.partition(b"\r\n\r\n")[0])
        elif kind == "metadata":
            lines = block.split(b"\r\n")
            noted = [line for line in lines if not line.startswith(b"near-duplicate-")]
            found[kind, url] = (noted,)
        else:
            found[kind, url] = (fields, block)
    return found


def marked(records: Iterable[Read]) -> set[str]:
    """Return the names of answers whose metadata marks them as possible repeats."""
    notes = (one for one in records if one.kind == "metadata")
    marks = {one.fields["WARC-Concurrent-To"]: (one.url, one.block.decode()) for one in notes}
    return {name for name, (url, text) in marks.items() if f"may-repeat: {url}\r\n" in text}


def _warcio(data: bytes, *, parse: bool) -> list[tuple[int, dict[str, str], bytes]]:
    found = []
    iterator = WarcioIterator(
        io.BytesIO(data), no_record_parse=not parse, check_digests="raise" if parse else False
    )
    for record in iterator:
        content = record.raw_stream.read()
        fields = dict(record.rec_headers.headers)
        found.append((iterator.get_record_offset(), fields, content))
    assert iterator.err_count == 0
    return found


def _fastwarc(data: bytes) -> FastIterator:
    # A block digest that does not fit makes fastwarc pass over the record: the count shows it.
    return FastIterator(io.BytesIO(data), verify_digests=True)


def _by_fastwarc(record: WarcRecord, block: tuple[int, dict[str, str], bytes]) -> Read:
    if record.headers.get("WARC-Type") == "response":
        assert record.verify_payload_digest()
    headers = record.http_headers.items_bytes() if record.http_headers is not None else ()
    fields = dict(record.headers.items())
    return Read(record.stream_pos, fields, block[2], record.reader.read(), tuple(headers))


def judged_by_programs(folder: Path) -> None:
    """Check that `warcio check` and `fastwarc check` find no fault in any file."""
    for path in sorted(folder.glob("*.warc.gz")):
        checked = run([sys.executable, "-c", _WARCIO, "check", "-v", str(path)])
        assert checked.returncode == 0, checked.stdout + checked.stderr
        lines = {line.strip() for line in checked.stdout.splitlines() if line.startswith("    ")}
        assert lines <= {"digest pass", "digest present but not checked (revisit)"}
        # Of a payload it would compare a revisit's digest with the body that a revisit has not.
        fast = Path(sys.executable).with_name("fastwarc")
        checked = run([str(fast), "check", "--quiet", str(path)])
        assert checked.returncode == 0, checked.stdout + checked.stderr


def judged_index(path: Path) -> str:
    """Its lines, sorted."""
    out = io.StringIO()
    with warnings.catch_warnings():
        # It closes no file of its own for a record without a digest.
        warnings.simplefilter("ignore", ResourceWarning)
        CDXJIndexer(out, [str(path)], sort=True, records=_INDEXED).process_all()
    return out.getvalue()


def judged_key(url: str) -> str:
    key = judged_surt(url)
    assert isinstance(key, str)
    return key


def judged_archive(folder: Path) -> None:
    """Check that every file has the index that cdxj-indexer makes, and that our own check finds no
    fault."""
    with open_checker() as check:
        for warc in sorted(folder.glob("*.warc.gz")):
            index = companion_path(warc, ".cdxj").read_text(encoding="ascii")
            assert index == judged_index(warc), warc
            assert check.check_file(warc, is_being_written=False).faults == ()
        assert list(check.orphans()) == []


def judged_package(package: Path) -> None:
    judge = run([str(Path(sys.executable).with_name("wacz")), "validate", "-f", str(package)])
    assert judge.returncode == 0 and "Validation succeeded" in judge.stdout, judge.stdout


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a columns file by pyarrow, each value as Python has it."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def query(sql: str, **values: object) -> list[tuple[Any, ...]]:
    """The answer of DuckDB, which may not download extensions."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as judge:
        judge.execute("SET TimeZone = 'UTC'")
        return judge.execute(sql, values or None).fetchall()

"""What other people's tools read in our archives."""

from __future__ import annotations

from pathlib import Path

from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from warcio.archiveiterator import ArchiveIterator as WarcioIterator


def archived_by_warcio(folder: Path) -> dict[str, list[str]]:
    """Record types by target URL. Every record is read to its end, digests checked."""
    found: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.warc.gz")):
        with file.open("rb") as stream:
            for record in WarcioIterator(stream, check_digests="raise"):
                record.content_stream().read()
                kind, url = record.rec_type, record.rec_headers.get_header("WARC-Target-URI")
                if kind in ("response", "revisit"):
                    found.setdefault(url, []).append(kind)
    return found


def archived_by_fastwarc(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    kinds = WarcRecordType.response | WarcRecordType.revisit
    for file in sorted(folder.glob("*.warc.gz")):
        with file.open("rb") as stream:
            for record in FastIterator(stream, record_types=kinds):
                assert record.verify_block_digest(consume=False), record.headers["WARC-Target-URI"]
                record.reader.read()
                found.setdefault(record.headers["WARC-Target-URI"], []).append(
                    record.record_type.name
                )
    return found

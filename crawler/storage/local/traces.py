"""What a crawl leaves in its data directory beside the frontier: the log of outcomes, the archive.

Rule: read beside the crawl that writes it, in bounded memory; without a directory there is none.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from crawler.core.outcome import Outcome
from crawler.core.types import HostKey
from crawler.storage.local.datadir import OUTCOMES, WARC
from crawler.storage.local.outcome_log import read_outcomes
from crawler.storage.warc.openfile import open_name

_HEAD_BYTES: Final = 64 * 1024  # of a WARC record; ours are below 4 kB
_REFERS: Final = b"WARC-Refers-To-Target-URI:"


class Traces:
    def __init__(self, path: Path) -> None:
        """*path*: the data directory."""
        self._path = path

    def outcomes(self, host: HostKey, is_it: Callable[[str], bool]) -> list[Outcome]:
        """What came of the leases of one URL of *host*, which *is_it* knows; oldest first."""
        log = read_outcomes(self._path / OUTCOMES)
        return [each for each in log if each.host == host and is_it(each.url)]

    def original(self, record: str) -> str:
        """The URL whose content the archive record at "file:offset" stands for as a revisit;
        empty if it is none, or gone."""
        name, _, offset = record.rpartition(":")
        if not name or Path(name).name != name or not offset.isdigit():
            return ""
        final = self._path / WARC / name
        for file in (final, open_name(final)):
            with suppress(OSError, EOFError, zlib.error):
                return _refers_to(file, int(offset))
        return ""


def _refers_to(file: Path, offset: int) -> str:
    with file.open("rb") as archive:
        archive.seek(offset)
        head = gzip.GzipFile(fileobj=archive).read(_HEAD_BYTES).partition(b"\r\n\r\n")[0]
    for line in head.split(b"\r\n"):
        if line.startswith(_REFERS):
            return line.removeprefix(_REFERS).strip().decode("ascii", "replace")
    return ""

"""The child process that rebuilds columns files while the crawl runs.

Rule: it may be killed at any moment, because a columns file stays marked as missing until it is
complete. It ends with the process that started it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from crawler.archive.columns_companion import ColumnsCompanion
from crawler.archive.warc_file import rebuild_lock
from crawler.config.settings import ContentSettings, FetchSettings, read_config
from crawler.content.parsing import rebuild_settings

_NICENESS: Final = 10  # the crawl has priority


class BodyCaps(msgspec.Struct):
    """The limits of bodies in FetchSettings."""

    html_max_bytes: int
    pdf_max_bytes: int
    sitemap_max_bytes: int
    other_max_bytes: int


class RebuildJob(msgspec.Struct):
    """The columns files to rebuild. Arrow: crawl -> process."""

    warcs: list[str]
    content: ContentSettings
    caps: BodyCaps


class RebuiltFile(msgspec.Struct):
    """The result for one file. Arrow: process -> crawl."""

    warc: str
    seconds: float
    fault: str = ""  # empty if it was rebuilt


def main() -> None:
    os.nice(_NICENESS)
    with os.fdopen(os.dup(0), "rb", buffering=0) as inward:
        job = msgspec.json.decode(inward.readline(), type=RebuildJob)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    config = replace(read_config({}), content=job.content, fetch=_fetch(job.caps))
    companion = ColumnsCompanion(rebuild_settings(config))
    for warc in job.warcs:
        began_at = monotonic()
        fault = _rebuild(companion, Path(warc))
        _send(RebuiltFile(warc, monotonic() - began_at, fault))


def _fetch(caps: BodyCaps) -> FetchSettings:
    return FetchSettings(
        html_max_bytes=caps.html_max_bytes,
        pdf_max_bytes=caps.pdf_max_bytes,
        sitemap_max_bytes=caps.sitemap_max_bytes,
        other_max_bytes=caps.other_max_bytes,
    )


def _rebuild(companion: ColumnsCompanion, warc: Path) -> str:
    try:
        with rebuild_lock(warc) as is_ours:
            if not is_ours:
                return "another process is at it"
            companion.rebuild(warc, warc)
    except Exception as error:  # a plug-in may raise anything; the next file may succeed
        return f"{type(error).__name__}: {error}"
    return ""


def _send(rebuilt: RebuiltFile) -> None:
    os.write(1, msgspec.json.encode(rebuilt) + b"\n")


def _end_with_starter() -> None:
    """Exit when the input ends, because then the parent process has ended."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()

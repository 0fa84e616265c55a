"""The process that makes columns again while the crawl runs.

Rule: it may be killed at any moment, and loses nothing: what is owed stays marked until it is
whole. It ends with the process that started it.
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
from crawler.archive.files import held
from crawler.config.settings import ContentSettings, FetchSettings, read_config
from crawler.content.parsing import again

_NICER: Final = 10  # the crawl comes first


class BodyCaps(msgspec.Struct):
    """Of core.config.Fetch."""

    html_max_bytes: int
    pdf_max_bytes: int
    sitemap_max_bytes: int
    other_max_bytes: int


class RebuildJob(msgspec.Struct):
    """What is to be made. Arrow: crawl -> process."""

    warcs: list[str]
    content: ContentSettings
    caps: BodyCaps


class RebuiltFile(msgspec.Struct):
    """What came of one file. Arrow: process -> crawl."""

    warc: str
    seconds: float
    fault: str = ""  # empty: none


def main() -> None:
    os.nice(_NICER)
    with os.fdopen(os.dup(0), "rb", buffering=0) as inward:
        orders = msgspec.json.decode(inward.readline(), type=RebuildJob)
    threading.Thread(target=_end_with_starter, daemon=True).start()
    config = replace(read_config({}), content=orders.content, fetch=_fetch(orders.caps))
    companion = ColumnsCompanion(again(config))
    for warc in orders.warcs:
        began_at = monotonic()
        fault = _made(companion, Path(warc))
        _tell(RebuiltFile(warc, monotonic() - began_at, fault))


def _fetch(caps: BodyCaps) -> FetchSettings:
    return FetchSettings(
        html_max_bytes=caps.html_max_bytes,
        pdf_max_bytes=caps.pdf_max_bytes,
        sitemap_max_bytes=caps.sitemap_max_bytes,
        other_max_bytes=caps.other_max_bytes,
    )


def _made(companion: ColumnsCompanion, warc: Path) -> str:
    try:
        with held(warc) as is_ours:
            if not is_ours:
                return "another process is at it"
            companion.rebuild(warc, warc)
    except Exception as error:  # a parser may be anybody's; the next file is not its fault
        return f"{type(error).__name__}: {error}"
    return ""


def _tell(made: RebuiltFile) -> None:
    os.write(1, msgspec.json.encode(made) + b"\n")


def _end_with_starter() -> None:
    """Nothing more is said to us: an end of our input is the end of who started us."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    main()

"""The settings about content: what is read of a page, what counts as a copy, what is kept.

Rule: as in config.py, of which these groups are a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crawler.core.choices import NearDuplicates
from crawler.core.kinds import choice, class_path, flag, many, number, or_none, text, whole
from crawler.core.knobs import knob
from crawler.core.parsed import LinkKind

MEGABYTE: Final = 1024 * 1024
GIGABYTE: Final = 1024 * MEGABYTE
FOLLOWED: Final = tuple(kind for kind in LinkKind if kind not in (LinkKind.MEDIA, LinkKind.TEXT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Which links of a page are followed."""

    follow_kinds: tuple[LinkKind, ...] = knob(
        FOLLOWED, many(choice(LinkKind)), "Links that are followed, by where they stand."
    )
    follow_sitemaps: bool = knob(
        True, flag(), "Fetch the sitemaps that robots.txt names, after everything else."
    )
    follow_duplicates: bool = knob(
        False, flag(), "Also follow the links of a page whose content is stored already."
    )
    respect_nofollow: bool = knob(
        True, flag(), "Leave links marked nofollow, on the link, the page or in X-Robots-Tag."
    )
    respect_noindex: bool = knob(
        True, flag(), "Do not archive pages marked noindex; their links are followed."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What counts as a page, and what as a copy."""

    parsers: tuple[str, ...] = knob(
        (), many(class_path()), "Parsers of your own; they go before those that are installed."
    )
    parse_timeout_s: float = knob(
        20.0,
        number("seconds", least=0.1),
        "Longest processor time for a page that is parsed apart (PDF, feeds, long ones).",
    )
    parse_max_bytes: int = knob(
        # guess: pdfium reads most PDFs of 64 MB in less
        512 * MEGABYTE,
        whole("bytes", least=64 * MEGABYTE),
        "Most memory of each process that parses apart.",
    )
    soft_404: bool = knob(
        True, flag(), "Ask a host once for a name it cannot have, where its pages look like errors."
    )
    near_duplicates: NearDuplicates = knob(
        NearDuplicates.FOLLOW,
        choice(NearDuplicates),
        "Pages with nearly the same text: marked, stored, followed; or less, or not looked for.",
    )
    near_max_bits: int = knob(
        3, whole("bits", most=3), "So many of the 64 bits of two fingerprints may differ."
    )
    near_min_words: int = knob(
        # facts of the field: fewer than 50 words say little; such pages are compared by hash only
        50,
        whole("words", least=3),
        "A page with fewer words has no fingerprint.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """When URLs of one pattern (digits, dates, queries folded) are enough."""

    pattern_max_pages: int | None = knob(
        10_000, or_none(whole("pages", least=1)), "Most pages fetched of one pattern of a host."
    )
    pattern_barren_pages: int | None = knob(
        # guess, revisit: a calendar costs a host so many pages, and a list with few new is kept
        100,
        or_none(whole("pages", least=1)),
        "A pattern is left after so many pages in a row with nothing new.",
    )
    pattern_probe_s: float = knob(
        3600.0, number("seconds", least=1), "One page of a pattern that was left is tried again."
    )
    calendar_from_year: int = knob(
        1990, whole("year"), "A date in a URL before this year is taken for a calendar's."
    )
    calendar_ahead_days: int = knob(
        400, whole("days"), "A date in a URL further ahead is taken for a calendar's."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What is kept on disk, and how safely."""

    data_dir: str = knob(
        "crawl-data",
        text("a path", "path", r"[^\0]+"),
        "Everything of a crawl is under this directory; JOBDIR counts if this is not set.",
    )
    warc: bool = knob(True, flag(), "Archive what is fetched, as WARC files.")
    warc_max_bytes: int = knob(
        GIGABYTE,
        whole("bytes", least=MEGABYTE),
        "A WARC file this long is closed and the next begun.",
    )
    columns: bool = knob(
        True, flag(), "Write text and columns of the pages beside each WARC file, as Parquet."
    )
    archive_url: str = knob(
        "",
        text("a URL such as s3://bucket/folder, or nothing", "URL", r"|[a-z][a-z0-9+.-]*://\S+"),
        "Where finished files are brought, by fsspec (s3, gs, az...); empty: they stay here.",
    )
    archive_waiting_bytes: int = knob(
        10 * GIGABYTE,
        whole("bytes", least=MEGABYTE),
        "Finished files that may wait for that store; with more, fetching waits.",
    )
    fsync: bool = knob(
        True,
        flag(),
        "What is done survives a power cut too, not only the death of the process.",
    )
    fsync_every_s: float = knob(
        1.0,
        number("seconds", least=0.01),
        "With CRAWLER_FSYNC, time between two syncs; a page is done after the next one.",
    )

"""What `scrapy report` does: the report on a site, made of what its crawl has kept.

Rule: it needs no lock and changes nothing, also while the crawl runs. It replaces its own file in
the data directory, and no other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from crawler.config.settings import read_config
from crawler.data.data_dir import SITE_REPORT
from crawler.data.files import refuse_existing, replace_file
from crawler.model.types import CrawlerError, StoreUnavailable
from crawler.report.messages import print_error
from crawler.view.archive import archive_in, archive_of


def run(args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Do what *args* ask for and return the exit status. Raises UsageError."""
    if not args or args[0] != "site":
        raise UsageError("say what: site", print_help=False)
    unknown = next((each for each in args if each.startswith("-")), None)
    if unknown:
        raise UsageError(f"unknown option {unknown}")
    try:
        _site(args[1:], opts, settings)
    except CrawlerError as error:
        print_error(error)
        return 1
    return 0


def _site(folders: list[str], opts: argparse.Namespace, settings: BaseSettings) -> None:
    from crawler.report.site_report import site_html, site_text  # noqa: PLC0415  # DuckDB: 60 ms
    from crawler.view.site import site_report  # noqa: PLC0415  # as well

    out = Path(opts.out) if opts.out else None
    refuse_existing(opts.out)
    if folders:
        places = [archive_in(Path(folder)) for folder in folders]
    else:
        places = [archive_of(settings, read_config(settings))]
    found = site_report(places, Path(opts.csv) if opts.csv else None)
    page = site_html(found).encode("utf-8", "replace")
    file = out or places[0].path / SITE_REPORT
    try:
        if out is None:
            replace_file(file, page)
        else:
            with out.open("xb") as new:
                new.write(page)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {file}: {error.strerror or error}") from error
    if opts.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        print(*site_text(found), "", f"{file}: for a browser", sep="\n")
        for note in found.notes:
            print(note, file=sys.stderr)

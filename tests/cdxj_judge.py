"""What other people's software makes of our archives: cdxj-indexer of a WARC file, wacz of a
package."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path

from crawler.archive.check import open_checker
from crawler.archive.files import companion_path
from tests.command import run

with warnings.catch_warnings():
    # Of the package surt that it needs: its patterns are no raw strings.
    warnings.simplefilter("ignore", DeprecationWarning)
    from cdxj_indexer.main import CDXJIndexer  # type: ignore[import-untyped]  # it ships no types
    from surt import surt as judged_surt  # type: ignore[import-untyped]  # it ships no types


def judged_index(path: Path) -> str:
    """Its lines, sorted."""
    out = io.StringIO()
    CDXJIndexer(out, [str(path)], sort=True).process_all()
    return out.getvalue()


def judged_key(url: str) -> str:
    key = judged_surt(url)
    assert isinstance(key, str)
    return key


def judged_archive(folder: Path) -> None:
    """Every file has the index that the judge makes, and our own check finds no fault."""
    with open_checker() as check:
        for warc in sorted(folder.glob("*.warc.gz")):
            index = companion_path(warc, ".cdxj").read_text(encoding="ascii")
            assert index == judged_index(warc), warc
            assert check.check_file(warc, is_being_written=False).faults == ()
        assert list(check.orphans()) == []


def judged_package(package: Path) -> None:
    judge = run([str(Path(sys.executable).with_name("wacz")), "validate", "-f", str(package)])
    assert judge.returncode == 0 and "Validation succeeded" in judge.stdout, judge.stdout

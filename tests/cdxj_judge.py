"""The index that other people's software makes of our WARC files: cdxj-indexer."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

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

"""Rows as the tests write them, and what DuckDB and pyarrow read of a columns file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types

from crawler.archive.capture import RecordPlace
from crawler.model.page import ColumnsRow

HOUR_S = 3600.0


def row(number: int, **changes: Any) -> ColumnsRow:
    given: dict[str, Any] = {
        "url": f"http://example.com/{number}",
        "host": "example.com",
        "fetched_at": 1767323045.678901 + number * HOUR_S,
        "status": 200,
        **changes,
    }
    return ColumnsRow(**given)


def place(number: int) -> RecordPlace:
    return RecordPlace("crawl-0.warc.gz", 1000 * number, 900)


def read(path: Path) -> list[dict[str, Any]]:
    """By pyarrow, each value as Python has it."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def ask(question: str, **values: object) -> list[tuple[Any, ...]]:
    """What DuckDB answers, in a world of its own: it fetches nothing from anywhere."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as judge:
        judge.execute("SET TimeZone = 'UTC'")
        return judge.execute(question, values or None).fetchall()

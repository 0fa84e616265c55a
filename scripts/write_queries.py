"""Write the queries of docs/queries.md from those that `gossamer report site` runs.

Run by `make settings`; tests/test_docs.py compares. As in write_settings.py, only what stands
between the two marks is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler.archive.site_queries import (  # noqa: E402  # needs the path above
    CAPTURES,
    FINDINGS,
    OUTCOMES,
    TABLES,
)
from scripts.write_settings import written  # noqa: E402  # needs the path above

PAGE: Final = ROOT / "docs" / "queries.md"
_SOURCES: Final = f"""
CREATE VIEW {CAPTURES} AS SELECT * FROM read_parquet('crawl-data/warc/*.parquet',
    union_by_name = true, filename = true, file_row_number = true);
CREATE VIEW {OUTCOMES} AS SELECT * FROM read_parquet('crawl-data/outcomes/*.parquet',
    union_by_name = true);
"""


def page_lines() -> Iterator[str]:
    yield from ["## The tables", "", "The files as they are:", "", *_block(_SOURCES)]
    for table in TABLES:
        yield from [f"`{table.name}`: {table.meaning}", "", *_block(table.sql)]
    yield from ["## The questions", ""]
    for finding in FINDINGS:
        yield from [f"### {finding.question}", "", *_block(finding.sql)]


def _block(sql: str) -> Iterator[str]:
    yield from ["```sql", *sql.strip().splitlines(), "```", ""]


def files() -> dict[Path, Iterator[str]]:
    return {PAGE: page_lines()}


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")

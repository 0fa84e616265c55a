"""The pages of one columns file, as a list of contents needs them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types

from crawler.core.errors import DataDirError


class Titled(NamedTuple):
    url: str
    fetched_at: datetime
    media_type: str
    title: str


def titled(columns: Path) -> Iterator[Titled]:
    """In bounded memory. Raises DataDirError, FileNotFoundError."""
    try:
        with pq.ParquetFile(columns) as file:
            for batch in file.iter_batches(columns=list(Titled._fields)):
                for row in batch.to_pylist():
                    yield Titled(
                        row["url"], row["fetched_at"], row["media_type"] or "", row["title"] or ""
                    )
    except pa.ArrowException as error:
        raise DataDirError(
            f"{columns} cannot be read: {error}. Make it again: scrapy archive parse"
        ) from error

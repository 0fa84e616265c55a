"""Arrow, which a lean installation lacks: all that reads or writes Parquet imports it from here."""

from __future__ import annotations

import os

from crawler.model.types import ConfigError

# Arrow's own allocator keeps some 20 MB more of what a crawl has freed. It is chosen when Arrow
# is loaded.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
try:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
    import pyarrow.compute as pc  # type: ignore[import-untyped]  # it ships no types
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
except ImportError as missing:
    raise ConfigError(
        "columns are read and written by pyarrow, which is not installed: pip install pyarrow"
    ) from missing

__all__ = ["pa", "pc", "pq"]

"""Write what docs/redis-keys.md says about the keys of a shared crawl, from their one glossary.

Run by `make settings`; tests/test_docs.py compares. As in write_settings.py, only what stands
between the two marks is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, Python looks beside it, not here

from crawler.shared.keys import CRAWL_KEYS, SHARD_KEYS, RedisKey  # noqa: E402  # needs the path
from scripts.write_settings import written  # noqa: E402  # needs the path above

PAGE: Final = ROOT / "docs" / "redis-keys.md"


def page_lines() -> Iterator[str]:
    yield from ["### Of a shard", "", *table(SHARD_KEYS), ""]
    yield from ["### Of the whole crawl", "", *table(CRAWL_KEYS), ""]


def table(entries: Iterable[RedisKey]) -> Iterator[str]:
    yield "| key | type | what it holds | grows with |"
    yield "| --- | --- | --- | --- |"
    for key in entries:
        yield f"| `{key.name}` | {key.kind} | {key.meaning} | {key.growth} |"


def files() -> dict[Path, Iterator[str]]:
    return {PAGE: page_lines()}


if __name__ == "__main__":
    for path, lines in files().items():
        path.write_text(written(path.read_text(encoding="utf-8"), lines), encoding="utf-8")

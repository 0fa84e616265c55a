"""What docs/urlfrontier.md shows, as it is typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.sources import PROJECT
from tests.harness.url_frontier import ServedFrontier, frontier_crawls, served_frontier

PAGE = (PROJECT / "docs" / "urlfrontier.md").read_text(encoding="utf-8")
WEB = {
    "http://a/": ["http://b/", "http://c/"],
    "http://b/": ["http://a/", "http://d/"],
    "http://c/": [],
    "http://d/": ["http://c/"],
}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedFrontier]:
    with served_frontier(frontier_crawls(tmp_path)) as made:
        yield made


def test_the_crawler_in_python_fetches_each_page_once(served: ServedFrontier) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    fetched: list[str] = []

    async def fetch(url: str) -> tuple[list[str], int]:
        fetched.append(url)
        return WEB[url], 0

    names: dict[str, Any] = {"fetch": fetch}
    exec(code, names)  # noqa: S102 - it is our own page
    served.run(names["crawl"](f"127.0.0.1:{served.port}", ["http://a/"]))
    assert sorted(fetched) == sorted(WEB)


def test_the_metrics_are_there(served: ServedFrontier) -> None:
    named = set(re.findall(r"`(frontier_\w+)`", PAGE))
    assert len(named) == 9
    text = served.server.metrics().decode()
    assert [name for name in named if f"\n{name}" not in text.replace("_count", "")] == []

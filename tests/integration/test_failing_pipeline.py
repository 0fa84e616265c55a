"""A user's pipeline that raises once for each page, when its record is in the archive already: a
page fetched again for that is archived once in full, or marked as a possible repeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from crawler.model.page import Page
from tests.harness.crawling import crawl
from tests.harness.repeats import RepeatsAudit, routes
from tests.servers.loopback import site
from tests.servers.redis import RedisServer

HOSTS: Final = 2


class RaisesOnce:
    def __init__(self) -> None:
        self._known: set[str] = set()

    def process_item(self, item: Any) -> Any:
        if isinstance(item, Page) and item.url not in self._known:
            self._known.add(item.url)
            raise RuntimeError("not the first time")
        return item


@contextmanager
def alone() -> Iterator[dict[str, Any]]:
    yield {}


@contextmanager
def shared() -> Iterator[dict[str, Any]]:
    with RedisServer() as redis:
        yield {"CRAWLER_FRONTIER_URL": redis.url}


@pytest.mark.parametrize(
    "frontier", [pytest.param(alone, id="embedded"), pytest.param(shared, id="shared")]
)
def test_pages_archived_again_are_marked(tmp_path: Path, frontier: Any) -> None:
    with ExitStack() as opened:
        sites = [
            opened.enter_context(site(f"127.0.64.{n}", routes(n))) for n in range(1, HOSTS + 1)
        ]
        settings = {
            **opened.enter_context(frontier()),
            "ITEM_PIPELINES": {RaisesOnce: 900},
            "CRAWLER_CALLBACK_RETRIES": 1,
            "CRAWLER_MIN_DELAY_S": 0,
            "CRAWLER_DELAY_FACTOR": 0,
        }
        seeds = tmp_path / "seeds"
        seeds.write_text("\n".join(each.url("/") for each in sites))
        crawled = crawl(tmp_path / "data", settings=settings, seeds=str(seeds))
    audit = RepeatsAudit(tmp_path / "data" / "warc")
    assert crawled.reason == "finished"
    assert "dead" not in {one.fate for one in crawled.outcomes}
    audit.check()
    assert Counter(one.url for one in audit.answers).most_common(1)[0][1] == 2
    assert any(audit.is_marked(one) for one in audit.full)

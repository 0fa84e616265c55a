"""The statements of docs/from-scrapy-redis.md, about scrapy-redis and about us."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import scrapy_redis
from scrapy import Request, Spider
from scrapy.settings import Settings
from scrapy_redis.queue import PriorityQueue

from crawler.addon import refuse_replaced
from crawler.model.types import ConfigError
from crawler.policy.seeds import read_pushed
from crawler.shared import keys
from crawler.shared.keys import CRAWL_KEYS
from crawler.shared.worker.feeds import MAX_ITEM_BYTES
from tests.harness import fork_server
from tests.harness.commands import crawl_command
from tests.harness.sources import PROJECT
from tests.servers.loopback import page, site
from tests.servers.redis import RedisServer

PAGE = (PROJECT / "docs" / "from-scrapy-redis.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("## Settings")[2].partition("\n## ")[0]
# Names of Scrapy's own in its source, and of an example.
NOT_THEIRS = {"CONCURRENT_REQUESTS"}


def names_in_source() -> set[str]:
    """Every setting that scrapy-redis asks for."""
    folder = Path(scrapy_redis.__file__).parent
    asked = re.compile(r"""["']([A-Z]+(?:_[A-Z]+)+)["']""")
    found = {
        name for path in folder.glob("*.py") for name in asked.findall(path.read_text("utf-8"))
    }
    return found - NOT_THEIRS


def test_every_setting_of_scrapy_redis_is_in_the_table() -> None:
    left = "\n".join(line.split("|")[1] for line in TABLE.splitlines() if line.startswith("| `"))
    left += "\n".join(line.split("|")[1] for line in TABLE.splitlines() if line.startswith("| a "))
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", left))
    assert named == names_in_source()


EXAMPLES = [shlex.split(line) for line in re.findall(r"(?m)^    redis-cli (.*)$", PAGE)]


@pytest.mark.parametrize("words", EXAMPLES, ids=lambda words: " ".join(words[:2]))
def test_an_example_can_be_pushed_and_read(words: list[str]) -> None:
    with RedisServer() as server, server.client() as client:
        client.execute_command(*words)
    if "PUSH" in words[0] or words[0] == "ZADD":
        read_pushed(words[-1].encode())


def test_the_documented_keys_are_ours() -> None:
    ours = {key.name for key in CRAWL_KEYS} | {"<spider>:requests", "<spider>:dupefilter"}
    named = set(re.findall(r"`(\{?<\w+>:[^`\s]+)`", PAGE))
    assert named <= ours
    assert keys.urgent("gossamer") in PAGE and keys.refused("web:start_urls") in PAGE
    assert f"{MAX_ITEM_BYTES // 1024} KiB" in PAGE


def test_their_scheduler_is_refused() -> None:
    with pytest.raises(ConfigError, match="SCHEDULER is"):
        refuse_replaced(Settings({"SCHEDULER": "scrapy_redis.scheduler.Scheduler"}))


def test_waiting_requests_are_migrated_by_the_script(tmp_path: Path) -> None:
    code = re.search(r"(?m)^    import json, sys\n(?:(?:    .*)?\n)*", PAGE)
    assert code is not None
    script = tmp_path / "hand_over.py"
    script.write_text(re.sub(r"(?m)^    ", "", code[0]), encoding="utf-8")
    urls = {f"https://example.com/{n}" for n in range(30)}
    with RedisServer() as server, server.client() as client:
        queue = PriorityQueue(client, Spider("shop"), "%(spider)s:requests")
        for url in urls:
            queue.push(Request(url))
        subprocess.run([sys.executable, str(script), server.url, "shop"], check=True, timeout=60)
        pushed = client.lrange(keys.start_urls("shop"), 0, -1)
    assert {read_pushed(item).url for item in pushed} == urls


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="the crawl is shared through the same Redis"),
        pytest.param({"CRAWLER_FRONTIER_URL": ""}, id="the frontier is in the data directory"),
    ],
)
def test_their_item_pipeline_works_beside_ours(
    tmp_path: Path, server: RedisServer, settings: dict[str, str]
) -> None:
    """It returns Deferreds of the reactor's threads."""
    links = [f"/{number}" for number in range(30)]
    routes = {"/": page(*links, text="home"), **{link: page("/", text=link) for link in links}}
    theirs = {
        "TWISTED_REACTOR_ENABLED": True,
        "ITEM_PIPELINES": json.dumps({"scrapy_redis.pipelines.RedisPipeline": 500}),
        "REDIS_URL": server.url,
        "REDIS_ITEMS_KEY": "%(spider)s:found",
    }
    with site("127.0.9.91", routes) as web, server.client() as client:
        command = crawl_command(tmp_path / "data", {**theirs, **settings}, seeds=web.url("/"))
        done = fork_server.run(command)
        items = [json.loads(item) for item in client.lrange("web:found", 0, -1)]
        keys_left = client.keys("gossamer:*")
    assert done.returncode == 0, done.stderr[-2000:]
    assert " ERROR: " not in done.stderr
    found = {item["url"].removeprefix(web.root): item["title"] for item in items}
    assert found == {"/": "home", **{link: link for link in links}}
    assert len(items) == len(found), "each item once"
    assert bool(keys_left) is (not settings), "where the frontier is"

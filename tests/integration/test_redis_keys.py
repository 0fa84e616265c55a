"""Every key of a shared crawl is in the glossary, in the slot of its shard, and of its type."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.shared.keys import SHARD_KEYS
from tests.harness.crawling import crawl
from tests.servers.loopback import Reply, page, site
from tests.servers.redis import RedisServer
from tests.servers.redis_glossary import WITHOUT_KEYS, Glossary
from tests.servers.redis_monitor import Asked, monitored

NAME = "glossary"
RARE = {
    *("<root>:outboxes", "<root>:x", "<root>:c", "<root>:v", "<root>:names"),
    *("<root>:G", "<root>:S", "<root>:O", "<root>:U", "<root>:Q"),
}
"""No link waits on a disk in this crawl, no rule refuses one later, none is over a budget, so few
URLs are new that none is looked for in files, the host has no name, and no page is visited again:
none is found gone, or has a date. Nothing is served to others."""


def test_every_key_of_a_crawl_is_in_the_glossary(tmp_path: Path) -> None:
    glossary = Glossary(NAME)
    prose = " ".join(f"word{number}" for number in range(80))  # near duplicates are searched
    routes = {
        "/": page("/a", "/a/1", "/later", "/dead"),
        "/a": page(text=prose),
        "/a/1": page("/a", text=f"{prose} more"),
        "/later": Reply("not now", 503),
        "/dead": Reply("not here", 410),
    }
    with RedisServer() as server, site("127.0.14.9", routes) as web:
        settings = {
            "CRAWLER_FRONTIER_URL": server.url,
            "CRAWLER_FRONTIER_NAME": NAME,
            "CRAWLER_FRONTIER_SHARDS": 3,
            "CRAWLER_HOST_UNIT": "address",
            "CRAWLER_CHANGES": True,
        }
        with monitored(server) as seen:
            seeds = f"{web.url('/')} scope=host max_pages=100"
            done = crawl(tmp_path / "data", settings=settings, seeds=seeds)
        assert done.reason == "finished"
        with server.client() as client:
            kept = {key.decode(): client.type(key).decode() for key in client.scan_iter()}
    assert kept == {key: glossary.entries(key)[0].kind for key in kept}
    by_scripts = [each for each in seen.asked if each.in_script or "EVAL" in each.name]
    assert set(glossary.strangers(by_scripts)) == set()
    touched = {
        entry.name
        for each in by_scripts
        if each.in_script and each.name not in WITHOUT_KEYS
        for entry in glossary.entries(each.words[1].decode("latin-1"))
    }
    assert touched >= {key.name for key in SHARD_KEYS} - RARE


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        pytest.param("HGET glossary:{0} x", "", id="as it should be"),
        pytest.param("HGET glossary:{0}:q x", "in the glossary 0 times", id="an unknown key"),
        pytest.param("HGET other:{0}:h x", "in the glossary 0 times", id="another's key"),
        pytest.param("LPUSH glossary:{0}:h x", "said to be a hash", id="another type"),
        pytest.param("HGET glossary:{2}:h x", "in a script on glossary:{0}", id="another shard"),
        pytest.param("HGET glossary:workers x", "in a script on", id="of no shard"),
    ],
)
def test_breaches_of_the_layers_are_found(command: str, problem: str) -> None:
    script = Asked((b"EVALSHA", b"sha", b"1", b"glossary:{0}"), in_script=False)
    inner = Asked(tuple(command.encode().split()), in_script=True)
    found = list(Glossary(NAME).strangers([script, inner]))
    assert any(problem in one for one in found) if problem else not found

"""Names of hosts in whole crawls: who asks the name servers, when, and for which names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.crawling import crawl
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.names import NameServer

HOSTS = [f"www.h{number}.example" for number in range(60)]
GONE = [f"www.gone{number}.example" for number in range(30)]
REFUSED, PAUSED = "www.refused.example", "www.paused.example"
PAGES = 3
CONTACT = "ops@w3.org"  # no placeholder; all requests stay on loopback
RULES = f"""
[[rule]]
for = "{REFUSED}"
refuse = true

[[rule]]
for = "{PAUSED}"
paused = true
"""


def page(ask: Ask) -> Reply:
    if ask.path.endswith("/robots.txt"):
        return Reply(status=404)
    host = dict(ask.headers)["Host"]  # no page is the copy of another
    links = (f'<a href="/{number}">{host}{ask.path}</a>' for number in range(1, PAGES))
    return Reply("".join(links))


@pytest.fixture
def web() -> Iterator[LoopbackWeb]:
    with LoopbackWeb(page, ["127.0.0.1"]) as web:
        yield web


@pytest.fixture
def names() -> Iterator[NameServer]:
    records = dict.fromkeys((*HOSTS, REFUSED, PAUSED), ("127.0.0.1",))
    with NameServer(records, wait_s=0.05) as server:
        yield server


def seeds(web: LoopbackWeb, *hosts: str) -> str:
    return ",".join(f"http://{host}:{web.port}/" for host in hosts)


@pytest.mark.parametrize("unit", ["host", "domain"])
def test_fetches_find_the_names_of_their_hosts_in_the_cache(
    web: LoopbackWeb, names: NameServer, tmp_path: Path, unit: str
) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    done = crawl(
        tmp_path,
        settings={
            "CRAWLER_CONTACT": CONTACT,
            "CRAWLER_NAME_SERVERS": names.address,
            "CRAWLER_HOST_UNIT": unit,
            "CRAWLER_RETRIES": 0,
            "CONCURRENT_REQUESTS": 4,
        },
        seeds=seeds(web, *GONE, *HOSTS, REFUSED, PAUSED),
        max_pages=PAGES * len(HOSTS),
    )
    pages = [each for each in done.outcomes if each.status == 200]
    failed = done.stats.get("crawler/dns/failed", 0)
    assert len(pages) == PAGES * len(HOSTS), "names that do not exist keep no other host waiting"
    # Once for IPv4, once for IPv6; a look-up that a busy machine let fail is made again.
    asked = [names.asked[name] for name in HOSTS]
    assert min(asked) == 2 and sum(asked) <= 2 * (len(HOSTS) + failed)
    assert set(names.asked) == {*HOSTS, *GONE}, "of no host that is refused or paused"
    used = {key.rpartition("/")[2]: n for key, n in done.stats.items() if "/names/" in key}
    assert used["cached"] + used["waited"] >= len(HOSTS)
    assert used["waited"] < len(HOSTS) / 2, "those of the first moment"
    assert done.stats["crawler/dns/found"] == len(HOSTS)
    assert done.stats["crawler/dns/absent"] == len(GONE), "though each is tried several times"


def test_a_proxy_looks_the_names_up(
    web: LoopbackWeb, names: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{web.port}")
    settings = {"CRAWLER_CONTACT": CONTACT, "CRAWLER_NAME_SERVERS": names.address}
    done = crawl(tmp_path, settings=settings, seeds=seeds(web, *HOSTS[:5]))
    assert sum(each.status == 200 for each in done.outcomes) == PAGES * 5
    assert not names.asked

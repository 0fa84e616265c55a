"""Which loopback servers a crawl may ask: those that a person named, each by its host and port."""

from __future__ import annotations

from pathlib import Path

from scrapy import Request, Spider

from tests.harness.crawling import crawl
from tests.servers.loopback import Reply, page, site

CLOSED = {"CRAWLER_ALLOW_INSIDE": ""}  # as by default


def moved(target: str) -> Reply:
    return Reply("", 302, headers=(("Location", target),))


def test_a_seed_opens_its_own_host_and_port_for_links_and_redirects(tmp_path: Path) -> None:
    inside = {"/": page(), "/linked": page(), "/moved": page()}
    with site("127.0.13.1", inside) as port, site("127.0.13.2", inside) as host:
        targets = [each.url("/linked") for each in (port, host)]
        routes = {
            "/": page("/own", "/away", "/around", *targets),
            "/own": page(),
            "/away": moved(host.url("/moved")),
            "/around": moved(port.url("/moved")),
        }
        with site("127.0.13.1", routes) as web:
            seeds = tmp_path / "seeds.txt"
            seeds.write_text(web.url("/"))
            done = crawl(tmp_path / "data", settings=CLOSED, seeds=str(seeds))
    assert port.asked == host.asked == []
    assert done.fates() == {path: ["done"] for path in routes}
    assert done.stats["crawler/refused/inside_address"] == 4


def test_the_url_of_a_list_opens_its_own_host_and_port_and_the_list_nothing(
    tmp_path: Path,
) -> None:
    with site("127.0.13.3", {"/": page()}) as inside:
        lines: list[str] = []
        routes = {"/seeds.txt": lambda _: Reply("\n".join(lines)), "/": page()}
        with site("127.0.13.4", routes) as web:
            lines += [inside.url("/"), web.url("/")]
            done = crawl(tmp_path / "data", settings=CLOSED, seeds=web.url("/seeds.txt"))
    assert inside.asked == []
    assert done.fates() == {"/": ["done"]}


class Moves(Spider):
    """Its start request is redirected, and its callback copies the meta of that."""

    name = "moves"
    root: str
    inside: str

    async def start(self):
        yield Request(self.root + "/moved")
        yield Request(self.root + "/")

    def parse(self, response):
        yield Request(self.inside + "/linked", meta=dict(response.meta))


def test_a_start_request_opens_what_it_names_and_not_where_it_leads(tmp_path: Path) -> None:
    targets: list[str] = []
    routes = {"/moved": lambda _: moved(targets[0]), "/": page()}
    with site("127.0.13.5", {"/": page()}) as inside, site("127.0.13.6", routes) as web:
        targets.append(inside.url("/"))
        given = {"root": web.root, "inside": inside.root}
        done = crawl(tmp_path / "data", Moves, settings=CLOSED, **given)
    assert inside.asked == []
    assert done.fates()["/"] == ["done"]

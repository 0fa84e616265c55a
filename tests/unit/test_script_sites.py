"""The sites that rendering is measured on, and how their servers' books are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.rendering import REST_S, early_pages, early_turns, read_books
from bench.script_sites.build import paths, texts_of
from bench.script_sites.serve import FORBIDDING, SiteServer
from bench.script_sites.sites import Site, by_scripts, ordinary, read_list, write_list
from bench.script_sites.texts import linked
from tests.servers.loopback import Ask, Visit

SPA = Site(
    name="react-9",
    address="127.40.9.1",
    made_with="react",
    pages=9,
    is_by_scripts=True,
    routes="history",
    busy=("/late.js",),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SiteServer]:
    for name, text in (("index.html", "<p>__PORT__"), ("main.js", "1")):
        file = tmp_path / "sites" / SPA.name / "www" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with SiteServer(tmp_path, [SPA]) as server:
        yield server


def test_each_page_of_each_site_is_linked_and_unlike_the_others() -> None:
    paragraphs, every = [], [*by_scripts(), *ordinary()]
    for site in every[::12]:
        found = texts_of(site)
        paragraphs += [each for page in found for each in page.paragraphs]
        assert len(set(paths(site, found))) == len(found) == site.pages
        assert {each for links in linked(site.pages) for each in links} == set(range(site.pages))
    assert len(set(paragraphs)) == len(paragraphs)
    assert len({site.address for site in every}) == len(every) == 84


def test_the_list_of_a_build_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_list(tmp_path, by_scripts())
    assert read_list(tmp_path) == by_scripts()


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        pytest.param("/pages/anything", 200, "<p>", id="a route of the page's own is its index"),
        pytest.param("/main.js", 200, "1", id="a file is a file"),
        pytest.param("/gone.js", 404, "not", id="a file that is not there is no route"),
        pytest.param("/../../sites.json", 404, "not", id="nothing outside the site is served"),
        pytest.param("/late.js", 429, "busy", id="a busy file asks for a rest"),
    ],
)
def test_a_site_answers_as_a_host_of_single_pages(
    server: SiteServer, path: str, status: int, body: str
) -> None:
    reply = server.answer(Ask(SPA.address, path))
    assert isinstance(reply.body, str | bytes)
    text = reply.body if isinstance(reply.body, str) else reply.body.decode()
    assert (reply.status, text[: len(body)]) == (status, body)


def _visits(*moments: tuple[str, float], host: str = SPA.address) -> list[Visit]:
    """Answers take no time."""
    return [Visit(host, path, at * REST_S, at * REST_S) for path, at in moments]


def test_a_page_comes_after_one_rest_for_each_request_of_the_page_before() -> None:
    good = _visits(("/", 0), ("/main.js", 0), ("/data.json", 5), ("/next", 8))
    assert list(early_pages(good, REST_S)) == []
    bad = _visits(("/", 0), ("/main.js", 0), ("/data.json", 5), ("/next", 7.5))
    assert len(list(early_pages(bad, REST_S))) == 1


def test_more_requests_than_a_page_has_to_another_host_need_a_rest() -> None:
    moments = [(f"/{number}.js", 0.0) for number in range(6)]
    assert len(list(early_turns(_visits(*moments), REST_S))) == 1
    assert not list(early_turns(_visits(*moments[:3], ("/a.js", 1), ("/b.js", 1)), REST_S))


def test_the_books_show_what_robots_forbid(server: SiteServer) -> None:
    server.visits.extend(_visits(("/robots.txt", 0), ("/lib/part.js", 9), host=FORBIDDING))
    assert read_books(server).broken == {"asked for what robots.txt forbids": 1}

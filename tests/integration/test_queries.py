"""Each query of docs/queries.md gives the right answer of a site with one fault of each kind."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.archive_judges import query
from tests.harness.crawling import crawl
from tests.harness.sources import PROJECT
from tests.servers.loopback import Reply, Routes, site

Rows = list[tuple[object, ...]]


def html(title: str, body: str, head: str = "") -> Reply:
    named = f"<title>{title}</title>" if title else ""
    return Reply(f"<html><head>{named}{head}</head><body>{body}</body></html>")


ABOUT = "<meta name=description content='All of it'>"
LINKS = (
    "<a href=/two>two</a> <a href=/gone>to <b>nothing</b></a> <a href=/old>old</a>"
    " <a href=/hidden>h</a>"
)
ROUTES: Routes = {
    "/": html("Start", LINKS, f"{ABOUT}<link rel=canonical href=/>"),
    "/two": html("Start", "two words <a href=/three>t</a> <a href=/>up</a>", ABOUT),
    "/three": html("", "three words here", "<link rel=canonical href=/gone>"),
    "/hidden": html("Hidden", "nothing to see", "<meta name=robots content=noindex>"),
    "/old": Reply("", 301, headers=(("Location", "/older"),)),
    "/older": Reply("", 302, headers=(("Location", "/two"),)),
    "/alone": html("Alone", "no page leads to this one", "<meta name=description content=Other>"),
}


def test_each_query_finds_its_fault(tmp_path: Path) -> None:
    routes = dict(ROUTES)
    with site("127.0.74.12", routes) as web:
        listed = "".join(f"<url><loc>{web.url(path)}</loc></url>" for path in ("/", "/alone"))
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        sitemap = f'<urlset xmlns="{space}">{listed}</urlset>'
        routes["/sitemap.xml"] = Reply(sitemap, content_type="application/xml")
        robots = f"User-agent: *\nSitemap: {web.url('/sitemap.xml')}\n"
        routes["/robots.txt"] = Reply(robots, content_type="text/plain")
        data = crawl(tmp_path / "data", seeds=web.url("/"), scope="host").data
    page = (PROJECT / "docs" / "queries.md").read_text(encoding="utf-8")
    asked = re.findall(r"(?s)\n([^\n]+\?)\n\n```sql\n(.*?)```", page)
    found = [answer(sql.replace("crawl-data", str(data)), web.url("")) for _, sql in asked]
    assert len(found) == 10
    broken, chains, titles, descriptions, conflicts, orphans, unlisted, hidden, slow, deep = found
    assert broken == [
        ("/gone", "404", "/", "a", "to nothing"),
        ("/gone", "404", "/three", "canonical", ""),
    ]
    assert chains == [("/old", 2, "/two", ["/old", "/older", "/two"])]
    assert titles == [("Start", 2, ["/", "/two"]), ("(none)", 1, ["/three"])]
    assert descriptions == [("(none)", 2, ["/hidden", "/three"]), ("All of it", 2, ["/", "/two"])]
    assert conflicts == [("/three", "/gone", "done 404")]
    assert orphans == [("/alone",)]
    assert unlisted == [("/three",), ("/two",)]
    assert hidden == [("/hidden", "noindex", None)]
    assert {row[0] for row in slow} >= {"/", "/two", "/three", "/alone"}
    assert sum(row[1] for row in deep if isinstance(row[1], int)) == 5


def answer(sql: str, root: str) -> Rows:
    """The rows, with each URL as its path."""

    def short(value: object) -> object:
        if isinstance(value, list):
            return [short(each) for each in value]
        return value.removeprefix(root) if isinstance(value, str) else value

    return [tuple(map(short, row)) for row in query(sql)]

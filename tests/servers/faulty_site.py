"""A site with each fault that a report on a site finds, on two hosts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.servers.loopback import Reply, Routes, Site, site

SITE: Final = "127.0.74.12"
OTHER: Final = "127.0.74.13"
ABSENT: Final = "http://127.0.74.14:9/"  # nothing listens there
SLOW_S: Final = 1.05
EVIL: Final = '=HYPERLINK("http://evil.example")<script>alert(1)</script>'


def html(title: str, body: str, head: str = "") -> Reply:
    named = f"<title>{title}</title>" if title else ""
    return Reply(f"<html><head>{named}{head}</head><body>{body}</body></html>")


def canonical(url: str) -> str:
    return f"<link rel=canonical href={url}>"


def about(text: str) -> str:
    return f"<meta name=description content='{text}'>"


def moved(to: str, status: int = 301) -> Reply:
    return Reply("", status, headers=(("Location", to),))


def routes(other: str) -> dict[str, Reply]:
    links = (
        "<a href=/two>two</a> <a href=/gone#part rel=nofollow>to <b>nothing</b></a>"
        " <a href=/old>old</a> <a href=/lost>lost</a> <a href=/hidden>h</a> <a href=/secret>s</a>"
        " <a href=/round>round</a> <a href=/broken>500</a> <a href=/slow>slow</a>"
        f" <a href=/evil>evil</a> <a href={other}/>other</a> <a href={ABSENT}>absent</a>"
        " <a href=http://elsewhere.example/>elsewhere</a>"
        " <a href=/several>several</a> <a href=/names>names</a> <a href=/once>once</a>"
        " <a href=/to-moved>to moved</a> <a href=/to-hidden>to hidden</a> <a href=/far>far</a>"
        " <a href=/bare>bare</a> <a href='/gone?utm_source=mail'>by mail</a>"
    )
    two = html(
        "Start",
        "two words <a href=/three>t</a> <a href=/>up</a> <a href='/listed?utm_source=two'>l</a>",
        about("All of it"),
    )
    return {
        "/": html("Start", links, about("All of it") + canonical("/")),
        "/two": two,
        "/three": html("", "three words here <a href=/copy>copy</a>", canonical("/gone")),
        "/hidden": html("Hidden", "nothing to see", "<meta name=robots content=noindex>"),
        "/old": moved("/older"),
        "/older": moved("/two", 302),
        "/once": moved("/two"),
        "/lost": moved("/gone"),
        "/round": moved("/and-round"),
        "/and-round": moved("/round"),
        "/broken": Reply("oh", 500),
        "/slow": Reply("<title>Slow</title>" + about("Slow") + "late", wait_s=SLOW_S),
        "/evil": html(EVIL, "one", about("+1")),
        "/evil2": html(EVIL, "another", about("-1")),
        "/copy": two,
        "/several": html("Several", "s", about("S") + canonical("/two") + canonical("/names")),
        "/names": html("Names", "n", about("N") + canonical("/several")),
        "/to-moved": html("To moved", "m", about("M") + canonical("/once")),
        "/to-hidden": html("To hidden", "th", about("T") + canonical("/hidden")),
        "/far": html("Far", "f", about("F") + canonical("http://elsewhere.example/far")),
        "/bare": html("", "neither said"),
        "/alone": html("Alone", "no page leads to this one", about("Alone")),
        "/listed": html("Listed", "and linked to, by another spelling", about("Listed")),
        "/secret": html("Secret", "not for robots"),
    }


@contextmanager
def faulty_site() -> Iterator[tuple[Site, Site]]:
    """Serve it, and yield it and its neighbour, which is crawled if it is a seed, too."""
    neighbour: Routes = {
        "/": html("Neighbour", "<a href=/lone>one</a><a href=/none>none</a>", about("Next")),
        "/lone": html("Lone", "a lone page", about("Lone")),
    }
    own: dict[str, Reply] = {}
    with site(OTHER, neighbour) as other, site(SITE, own) as web:
        own |= routes(other.root)
        paths = ("/", "/alone", "/gone", "/two", "/evil2", "/listed")
        listed = "".join(f"<url><loc>{web.url(path)}</loc></url>" for path in paths)
        space = "http://www.sitemaps.org/schemas/sitemap/0.9"
        sitemap = f'<urlset xmlns="{space}">{listed}</urlset>'
        own["/sitemap.xml"] = Reply(sitemap, content_type="application/xml")
        robots = f"User-agent: *\nDisallow: /secret\nSitemap: {web.url('/sitemap.xml')}\n"
        own["/robots.txt"] = Reply(robots, content_type="text/plain")
        yield web, other

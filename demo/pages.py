"""What the small web has to read: pages a person could browse, as bytes.

Rule: content only; when and how it is answered is web.py's.
"""

from __future__ import annotations

from html import escape
from random import Random
from typing import Final

STYLE: Final = (
    "body{font:17px/1.6 Georgia,serif;max-width:38em;margin:3em auto;padding:0 1em;color:#222}"
    "h1{font-weight:normal;border-bottom:1px solid #bbb}a{color:#14527d}li{margin:.3em 0}"
)

MONTHS_AHEAD: Final = 3
"""So far ahead, and back, there is something in the calendar."""

Link = tuple[str, str]
"""Where to, and what it says."""


def page(
    title: str, *paragraphs: str, links: tuple[Link, ...] = (), heading: str | None = None
) -> bytes:
    """A tidy page: a title, which also stands above it unless there is a *heading*, something to
    read, and a list of links."""
    text = "\n".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
    items = "\n".join(f'<li><a href="{escape(to)}">{escape(says)}</a></li>' for to, says in links)
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        f"<h1>{escape(heading or title)}</h1>\n{text}\n<ul>\n{items}\n</ul>\n</html>\n"
    ).encode()


QUIET: Final = (
    "Nothing is planned for this month so far. The square can be rented for a day, and the hall"
    " beside it for an evening. Whoever wants to hold a market there asks at the town hall two"
    " weeks before, says what is to be sold, and pays for the sweeping. Music has to end at ten in"
    " the evening, on the days before a holiday at midnight. Chairs and tables are in the cellar,"
    " and the key to it hangs behind the door."
)


def month(number: int) -> bytes:
    """A month of a calendar that has no first and no last one; there are events in a few."""
    year, of_year = divmod(number, 12)
    name = f"{2026 + year}-{of_year + 1:02}"
    around = ((f"/month?month={number - 1}", "Before"), (f"/month?month={number + 1}", "After"))
    if abs(number) > MONTHS_AHEAD:
        return page(f"Calendar of {name}", QUIET, links=around, heading="Calendar")
    events = Random(number).sample(["market", "concert", "flea market", "reading", "dance"], k=2)
    return page(f"Calendar of {name}", f"In {name}: {' and '.join(events)}.", links=around)


PAPER: Final = page(
    "On the weight of small things",
    "A paper that everybody quotes, so the archive keeps it in more places than one.",
    links=(("/quoted.html", "The paper it quotes"),),
)

BROKEN: Final = b"""<html><head><title>Found in the cellar</title><body><h1>Half a page
<table><tr><td><b><i>Nobody closed <a href=/mess.html class="x" class=y>anything</b></i> here
<a href='/nor-this-one.html
<p <p <div <<>> &nosuch; &#xFFFFFFFF; it's a pity </tr></nothing></body></body></html></p>
<a href="/under-the-mess.html">but one link is whole</a> <!-- and a comment without an end
"""

UMLAUTS: Final = "<!doctype html><title>Königsblätter</title><h1>Grüße aus Köln</h1>"
"""Sent as Latin-1 under a header that says UTF-8."""

CYRILLIC: Final = (
    '<!doctype html><meta charset="windows-1251"><title>Письмо</title><h1>Дорогая библиотека</h1>'
    '<a href="/">Назад</a>'
)

ENDLESS_START: Final = (
    b"<!doctype html><title>The endless inventory</title><h1>The endless inventory</h1>"
    b'<p><a href="/first-shelf.html">The first shelf</a> is near the top.</p><ol>\n'
)


def shelf(number: int) -> bytes:
    """32 KiB of an inventory."""
    line = b"<li>Crate %07d, contents unknown, weight unknown, owner unknown</li>\n"
    start = number * 500
    return b"".join(line % crate for crate in range(start, start + 500))[: 32 * 1024]


def catalogue(size: int) -> bytes:
    """Something that calls itself a PDF, of *size* bytes."""
    return b"%PDF-1.4\n" + Random(size).randbytes(size - 15) + b"\n%%EOF"

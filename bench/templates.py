"""The same content as four kinds of host present it: what stands around it, and its markup.

Rule: everything comes from the dice that are handed in; menus belong to a host and stay as they
are, dates, teasers and comments are another's on each page.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

Dice = random.Random

_MENU: Final = (
    *("Home", "News", "Documentation", "Downloads", "Support", "Community", "Blog", "About us"),
    *("Contact", "Products", "Pricing", "Careers", "Partners", "Events", "Training", "Forum"),
    *("Wiki", "Mailing lists", "Bug reports", "Security", "Roadmap", "Press", "Shop", "Login"),
)
_LEGAL: Final = (
    "All trademarks are the property of their respective owners. By using this web page you agree"
    " to our terms of use and to our privacy policy, which explain how we treat what you send us,"
    " how long it is kept and whom you can ask to have it deleted. Prices are without engagement."
)
_COOKIES: Final = (
    "We and our 211 partners use cookies to make this page better for you, to measure who reads"
    " it and to show you what you may like. You can agree or choose yourself in your settings."
)


def _items(words: list[str], start: str = "<li>", end: str = "</li>") -> str:
    return "".join(f'{start}<a href="/{word.replace(" ", "-")}">{word}</a>{end}' for word in words)


def _date(dice: Dice) -> str:
    month = dice.choice(("January", "March", "April", "June", "August", "October", "December"))
    return f"{month} {dice.randint(1, 28)}, {dice.randint(2009, 2026)}"


def semantic(content: str, title: str, dice: Dice, teasers: list[str]) -> str:
    """HTML5 as it is meant: every part in an element that says what it is."""
    cards = "".join(
        f'<article><h3><a href="/{n}">{one[:40]}</a></h3><p>{one}</p></article>'
        for n, one in enumerate(teasers[:5])
    )
    return f"""<!doctype html><html lang=en><head><title>{title}</title><meta charset=utf-8></head>
<body><header><a href="/"><img src=/logo.svg alt=Logo></a><nav><ul>{_items(list(_MENU))}</ul></nav>
<form role=search><input name=q><button>Search</button></form></header>
<main><article><h1>{title}</h1><p class=meta>By {dice.choice(teasers)[:12]} on
<time>{_date(dice)}</time></p>{content}</article></main>
<aside><h2>Related</h2>{cards}</aside><aside><h2>Tags</h2><ul>{_items(teasers[0].split())}</ul></aside>
<footer><ul>{_items(list(_MENU[8:]))}</ul><p>{_LEGAL}</p><p>&copy; 2026 Example Ltd.</p></footer>
<div role=dialog><p>{_COOKIES}</p><button>Agree</button></div></body></html>"""


def blog(content: str, title: str, dice: Dice, teasers: list[str]) -> str:
    """Nothing but <div>, with names that only a person understands."""
    recent = _items([one[:45] for one in teasers[:8]])
    archive = _items(
        [f"{_date(dice).split()[0]} {year} ({dice.randint(1, 30)})" for year in range(2012, 2026)]
    )
    comments = "".join(
        f"<div class=comment><b>{one.split()[0]}</b> says:"
        f" <p>{' '.join(one.split()[: dice.randint(3, 9)])}</p></div>"
        for one in teasers[:4]
    )
    return f"""<html><head><title>{title} | A blog</title></head><body><div id=top>
<div class=blogtitle><a href="/">A blog</a></div><div class=tagline>Notes on this and that</div>
<div id=mainmenu><ul>{_items(list(_MENU[:9]))}</ul></div></div>
<div id=wrap><div id=left><div class=post><h2><a href="/p">{title}</a></h2>
<div class=byline>Posted on {_date(dice)} by admin | {dice.randint(0, 99)} comments</div>
<div class=entry>{content}</div>
<div class=share>Share: {_items(["Mail", "Print", "RSS"], "", " ")}</div>
<div class=postnav><a href="/o">&laquo; {teasers[5][:40]}</a>
<a href="/n">{teasers[6][:40]} &raquo;</a></div>
</div>{comments}</div><div id=right>
<div class=widget><h3>About</h3><p>{_LEGAL} {_COOKIES}</p></div>
<div class=widget><h3>Recent posts</h3><ul>{recent}</ul></div>
<div class=widget><h3>Archive</h3><ul>{archive}</ul></div><div class=widget><h3>Tags</h3>
{_items(" ".join(teasers[:4]).split(), "", " ")}</div></div></div>
<div id=bottom>Theme by somebody. Proudly powered by software.</div></body></html>"""


def old(content: str, title: str, dice: Dice, teasers: list[str]) -> str:
    """A layout of tables, as pages were made before style sheets, and many still are."""
    rows = _items(list(_MENU), "<tr><td><font size=2>", "</font></td></tr>")
    news = "<br>".join(f"{_date(dice)}: <a href=n>{one[:60]}</a>" for one in teasers[:5])
    return f"""<HTML><HEAD><TITLE>{title}</TITLE></HEAD><BODY bgcolor=white>
<TABLE width=100%><TR><TD colspan=3><IMG src=logo.gif><FONT size=5>Example.org</FONT></TD></TR>
<TR><TD colspan=3><A href=/>Home</A> &gt; <A href=/d>Documents</A> &gt; {title}</TD></TR>
<TR><TD valign=top width=150><TABLE>{rows}</TABLE></TD><TD valign=top>{content}</TD>
<TD valign=top width=150><B>News</B><BR>{news}</TD></TR></TABLE><HR>
<CENTER><FONT size=1>Last changed: {_date(dice)}. Visitors: {dice.randint(1000, 999999)}.
Mail to the <A href=mailto:w>webmaster</A>. Best viewed at 1024 x 768.</FONT></CENTER>
</BODY></HTML>"""


def portal(content: str, title: str, dice: Dice, teasers: list[str]) -> str:
    """Roles instead of elements; teasers with whole sentences; advertisements between them."""
    boxes = "".join(
        f'<div class=teaser><h4><a href="/{n}">{one[:50]}</a></h4>'
        f"<p>{one} {teasers[n - 1]}</p></div>"
        for n, one in enumerate(teasers)
    )
    return f"""<!doctype html><html><head><title>{title} - Portal</title>
<script>var a="<b>";</script>
<style>.x{{color:red}}</style></head><body><div role=banner><div class=logo>Portal</div>
<div role=navigation><ul>{_items(list(_MENU))}</ul></div></div>
<div class=breadcrumb>{_items(["Portal", "Topics", title], "", " / ")}</div>
<div class=ad>Advertisement: {teasers[0][:60]}</div>
<div role=main><h1>{title}</h1><div class=date>{_date(dice)}, updated {_date(dice)}</div>
{content}</div>
<div class=ad>Advertisement: {teasers[1][:60]}</div>
<div class=more><h3>More on this</h3>{boxes}</div>
<div class=newsletter><p>Subscribe to our newsletter and get the most important stories of the day
into your mailbox every morning, for free, and without any obligation.</p></div>
<div role=contentinfo><p>{_LEGAL}</p><ul>{_items(list(_MENU[4:20]))}</ul></div></body></html>"""


TEMPLATES: Final[dict[str, Callable[[str, str, Dice, list[str]], str]]] = {
    "semantic": semantic,
    "blog": blog,
    "old": old,
    "portal": portal,
}

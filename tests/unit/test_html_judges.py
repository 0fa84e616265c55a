"""Our reading of HTML against lexbor's, which builds the tree that a browser builds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from crawler.policy.html import read_html

# What the tree moves or forgets (<select>, <template>, <frameset>, a script that comments
# itself out) is not here: a link in there is followed, which costs a visit at worst.
PIECES = (
    *("<a href=", "<A HREF=", "<a\thref='q'>", "<area href=y>", "<iframe src=z></iframe>"),
    *("<base href=/b>", "<meta name=robots content=nofollow>", "<title>t</title>", "<title>"),
    *("<script>'<a href=no>'</script>", "<style>", "</style>", "<textarea>", "</textarea>"),
    *("<!--", "-->", "--!>", "->", "-", "<!x", "<?", "</", "</>", "<![CDATA[", "]]>"),
    *("<p", "<p>", "<b>", "</b>", "</a>", "<table>", "<td>", "</table>", "<noscript>"),
    *('"', "'", ">", " ", "\n", "=", "x", "href=", "\0", "<", "!", "?", "\xe9"),
    *("&amp;", "&copy=", "&copy;", "&lt", "&#65", "&#x41;", "&notit;", "&"),
)


def by_lexbor(text: str) -> tuple[set[str], str, str, bool]:
    tree = LexborHTMLParser(text)
    targets = [
        node.attributes.get(name) or ""
        for element, name in (("a", "href"), ("area", "href"), ("iframe", "src"))
        for node in tree.tags(element)
    ]
    links = {target.strip(" \t\n\f\r") for target in targets}
    bases = [node.attributes["href"] or "" for node in tree.tags("base")]
    titles = [" ".join(node.text().split()) for node in tree.tags("title")]
    return (
        {link for link in links if link and not link.startswith("#")},
        next(iter(bases), ""),
        next(iter(titles), ""),
        any(node.attributes.get("name") == "robots" for node in tree.tags("meta")),
    )


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_broken_markup_means_the_same_to_both(pieces: list[str]) -> None:
    text = "<!doctype html>" + "".join(pieces)
    ours = read_html(text.encode(), "text/html; charset=utf-8", skip_nofollow=True)
    assert (set(ours.links), ours.base, ours.title, ours.nofollow) == by_lexbor(text)

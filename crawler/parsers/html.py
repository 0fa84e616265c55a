"""HTML: read by its tags, without a tree (docs/decisions/0011).

Rule: markup is never an error; what cannot be read says nothing. Linear in the page.
"""

from __future__ import annotations

from typing import Final

from crawler.core.parsed import Parsed, Source
from crawler.parsers.bounds import LINKS_CUT
from crawler.parsers.html_links import MAX_LINKS
from crawler.parsers.html_reader import Reader
from crawler.parsers.html_text import page_text
from crawler.policy.charset import read_text
from crawler.policy.content import HTML_TYPES, media_type

_DECLARATION_WITHIN: Final = 64  # letters; white space before it is an error, yet occurs


class HtmlParser:
    name: Final = "html"
    types: Final = HTML_TYPES
    # 20 ms of prose, and 0.2 s of whatever else; few pages are longer.
    inline_max_bytes: Final = 512 * 1024

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type)
        read = Reader(text, is_xml=_is_xml(source.content_type, text))
        facts, links = read.facts, read.links.first(MAX_LINKS + 1)
        return Parsed(
            parser=self.name,
            title=facts.title,
            text=page_text(read.parts, read.noise),
            links=links[:MAX_LINKS],
            base=facts.base,
            canonical=read.links.canonical,
            language=facts.language,
            robots=facts.robots,
            published=facts.published,
            modified=facts.modified,
            charset=charset,
            notes=(LINKS_CUT,) if len(links) > MAX_LINKS else (),
        )


def _is_xml(content_type: str, text: str) -> bool:
    """As XML a page may be served or written; there every tag may close itself."""
    kind = media_type(content_type.encode("latin-1", "replace"))
    return kind.endswith(("+xml", "/xml")) or text[:_DECLARATION_WITHIN].lstrip().startswith(
        "<?xml"
    )

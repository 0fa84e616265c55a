"""The sitemaps that a robots.txt names: found like links, with the last turn of their host."""

from __future__ import annotations

from typing import Final

from crawler.core.types import Candidate
from crawler.parts import Parts
from crawler.policy.priority import Hints
from crawler.policy.refusal import Refusal

MOST: Final = 100
"""Of one robots.txt (guess: big sites name a few dozen, and an index counts as one)."""


def sitemaps_of(authority: str, robots_url: str, parts: Parts) -> list[Candidate]:
    """Those of the rules that were learned for *authority*, as far as the crawl may fetch them."""
    if not parts.config.links.follow_sitemaps or not parts.doors.known:
        return []
    if parts.arguments is None:
        return []  # a spider of the user's own asks for them itself, with a callback for them
    level = parts.prioritizer.level(Hints(is_sitemap=True))
    found = []
    for written in parts.robots.rules(authority).sitemaps[:MOST]:
        # As if a person had named it: its type (.gz) is not one of a page.
        candidate = parts.doors.admission.candidate(written, robots_url, level=level)
        if isinstance(candidate, Refusal):
            parts.tally.count(f"refused/{candidate.reason}")
        else:
            found.append(candidate)
    return found

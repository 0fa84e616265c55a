"""What becomes of the seeds: a seed that leads nowhere is logged with what to do, and counted.

Rule: memory is bounded, whatever the number of seeds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from crawler.data.data_dir import OUTCOMES, SEEDS
from crawler.data.seed_table import (
    LEADS_ON,
    OVER_BUDGET,
    REFUSED,
    SeedTable,
    outcomes_since,
    read_table,
    write_table,
)
from crawler.loop.outcome import words_of
from crawler.model.types import HTTP_OK, Outcome, OverBudgetLinks
from crawler.policy.scope import Refusal

logger = logging.getLogger(__name__)

LOGGED: Final = 20
"""Seeds that are logged one by one; the table has more."""

_LEADS_TO: Final = "leads to"
_WORDS: Final = MappingProxyType(
    {
        "page": "brought a page",
        "redirected": "redirect to a URL that was found before, or waits",
        "redirect": "a redirect that is not followed",
        "refresh": "a page that sends browsers on to where the crawl may not go",
        "nofollow": "a page whose links may not be followed",
        "noindex": "a page that may not be stored, without links",
        "links": "a page whose links are all refused",
        "robots": "robots.txt forbids it",
        "pattern": "not fetched: URLs like it have brought enough",
        "empty": "an empty answer",
        "lying_type": "an answer of another type than its header says",
        "soft_404": "the page of the host for names that do not exist",
        REFUSED: "refused by a rule",
        OVER_BUDGET: "skipped, as their host or domain has its full number of URLs",
    }
)
_ADVICE: Final = MappingProxyType(
    {
        "status_401": "give its credentials (operating.md, `credentials`)",
        "status_403": "the host refuses this crawler: ask its operator",
        "status_404": "correct the seed, as the page does not exist",
        "status_410": "correct the seed, as the page does not exist any more",
        "nofollow": "CRAWLER_RESPECT_NOFOLLOW = False follows its links",
        "noindex": "CRAWLER_RESPECT_NOINDEX = False stores it",
        "robots": "ask the operator of the host, or choose another seed",
        "robots_unreachable": "start again when its host is up",
        "dns": "correct the name, or start again when it can be looked up",
        "tls": "look at its certificate (CRAWLER_TLS)",
        "redirects": "give the URL at which a browser ends as a seed",
        "redirect": "give the URL at which a browser ends as a seed",
        "soft_404": "correct the seed, as the page does not exist",
        "broken": "mend the callback or pipeline; its traceback is in the log",
    }
)
_OF_ANSWER: Final = "look at it in a browser"
_OF_HOST: Final = "start again when its host is up, after scrapy frontier retry"


def fate_words(fate: str) -> str:
    """Return what became of a seed, in words."""
    return _WORDS.get(fate) or words_of(fate)


def explain(outcome: Outcome) -> str:
    """Return why the seed of *outcome* leads nowhere, and what can be done."""
    fate = outcome.seed_fate
    reason = outcome.reason.removeprefix("robots.txt: ").partition("\n")[0]  # of a traceback
    if reason.startswith(_LEADS_TO):  # and it says what can be done, as for refused links
        return reason
    what = fate_words(fate)
    if fate == "links":
        return f"{what}: {reason}"
    if reason and reason != fate:
        what = reason if what in reason else f"{what}: {reason}"
    return f"{what}: {_ADVICE.get(fate, _OF_HOST if outcome.failure else _OF_ANSWER)}"


class SeedFates:
    """The table of the seeds of one crawl, over all its runs."""

    def __init__(self) -> None:
        self.table = SeedTable()
        self._logged = 0
        self._over_budget: set[str] = set()  # hosts and domains that are logged

    def open(self, file: Path, log: Path, *, is_new: bool) -> None:
        """Go on with what *file* and the outcome *log* say. *is_new*: nothing was fetched yet."""
        self.table = read_table(file) or SeedTable(is_whole=is_new)
        if file.exists():
            for outcome in outcomes_since(log, self.table.log_bytes):
                self._count(outcome)

    def write(self, file: Path, log: Path) -> None:
        """Replace *file*. Raises OSError."""
        self.table.log_bytes = log.stat().st_size
        write_table(file, self.table)

    def count(self, outcome: Outcome, *, is_listing: bool = False) -> None:
        """Count *outcome*, and log it if it is of a seed that leads nowhere. *is_listing*: it is of
        a sitemap, which is no page."""
        why = "" if is_listing else self._count(outcome)
        if why:
            led = f", which redirects to {outcome.url}," if outcome.url != outcome.seed else ""
            verb = "" if why.startswith(_LEADS_TO) else "leads nowhere: "
            self._log(f"The seed {outcome.seed}{led} {verb}{why}")

    def refuse(self, url: str, refusal: Refusal) -> None:
        """Count a seed that a rule refuses before it is added, and log it."""
        self.table.count(url, REFUSED, url, refusal.advise())
        self._log(f"Seed {url} skipped: {refusal.explain()}")

    def count_over_budget(self, kept_out: Sequence[OverBudgetLinks]) -> None:
        """Count seeds that a budget keeps out, and log each host or domain once."""
        for each in kept_out:
            self.table.count_over_budget(each.links)
            if each.name not in self._over_budget and len(self._over_budget) < LOGGED:
                self._over_budget.add(each.name)
                setting = f"CRAWLER_MAX_URLS_PER_{each.unit.upper()}"
                self._log(
                    f"Seeds of {each.name} skipped: it has its full number of URLs ({setting})"
                )

    def _count(self, outcome: Outcome) -> str:
        """Count *outcome*, and return why its seed leads nowhere; empty if it does not."""
        if not outcome.seed_fate:
            if outcome.fate == "done" and outcome.status in HTTP_OK:
                self.table.others += 1
            return ""
        fate, seed, url = outcome.seed_fate, outcome.seed, outcome.url
        if fate == "redirected" and url != seed:
            return ""  # a further hop
        why = "" if fate in LEADS_ON else explain(outcome)
        self.table.count(seed, fate, url, why)
        return why

    @classmethod
    def table_in(cls, folder: Path) -> SeedTable:
        """Return the table of the crawl in *folder*, which may run. If it has none, that is not
        whole."""
        fates, file = cls(), folder / SEEDS
        fates.open(file, folder / OUTCOMES, is_new=False)
        return fates.table

    def _log(self, text: str) -> None:
        self._logged += 1
        if self._logged <= LOGGED:
            last = (
                "" if self._logged < LOGGED else " (Further ones are in summary and report only.)"
            )
            logger.warning("%s%s", text, last)

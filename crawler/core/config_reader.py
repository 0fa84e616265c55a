"""From the settings a user wrote to our Config; a mistake stops the crawl before it starts.

Rule: pure. Only names that begin with CRAWLER_, or look as if they should, are ours to judge.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final

from crawler.core.config import (
    GROUPS,
    Config,
    Fetch,
    Frontier,
    Identity,
    Politeness,
    Report,
    Robots,
)
from crawler.core.content_settings import Archive, Budgets, Content, Links
from crawler.core.knobs import Knob, knobs, read_group, refuse_unknown
from crawler.core.shared_settings import Shared
from crawler.core.url_settings import Limits, Sameness

PREFIX: Final = "CRAWLER_"


def settings_table() -> dict[type, list[Knob]]:
    """Every setting of ours, by group, in the order of the documentation."""
    return {group: knobs(group, PREFIX) for group in GROUPS}


def read_config(settings: Mapping[str, object]) -> Config:
    """Read every setting of ours, strictly. Raises ConfigError, whose text names the setting."""
    names = {row.name for rows in settings_table().values() for row in rows}
    refuse_unknown("setting", _meant_for_us(settings, names), names)
    return Config(
        identity=read_group(Identity, settings, PREFIX),
        politeness=read_group(Politeness, settings, PREFIX),
        robots=read_group(Robots, settings, PREFIX),
        limits=read_group(Limits, settings, PREFIX),
        sameness=read_group(Sameness, settings, PREFIX),
        links=read_group(Links, settings, PREFIX),
        content=read_group(Content, settings, PREFIX),
        budgets=read_group(Budgets, settings, PREFIX),
        frontier=read_group(Frontier, settings, PREFIX),
        shared=read_group(Shared, settings, PREFIX),
        fetch=read_group(Fetch, settings, PREFIX),
        archive=read_group(Archive, settings, PREFIX),
        report=read_group(Report, settings, PREFIX),
    )


def _meant_for_us(settings: Mapping[str, object], names: set[str]) -> Iterator[str]:
    """The names that are ours to judge: CRAWELR_CONTACT is none of ours, but was meant to be."""
    rests = {name.removeprefix(PREFIX) for name in names}
    for name in settings:
        head, mark, rest = name.upper().partition("_")
        if head + mark == PREFIX or (rest in rests and _resembles(head)):
            yield name


def _resembles(head: str) -> bool:
    # 0.8: one letter doubled, lost or swapped in seven.
    return difflib.SequenceMatcher(None, head, PREFIX.rstrip("_")).ratio() >= 0.8

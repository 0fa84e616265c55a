"""What `scrapy rules` does: show the operator's rules, check a file of them, explain one URL.

Rule: nothing is changed; `scrapy frontier` acts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from crawler.cli.place import place_of
from crawler.config.settings import read_config
from crawler.data.operator_files import RulesFile, existing
from crawler.model.types import ConfigError, CrawlerError
from crawler.policy.operator_rules import KEYS, read_rules
from crawler.policy.seeds import seed_url
from crawler.report.messages import print_error
from crawler.view.formats import many, plain

_WORDS: Final = {"show": 1, "check": 2, "why": 2}


def run(args: list[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Do what *args* ask for and return the exit status. Raises UsageError."""
    if not args or _WORDS.get(args[0]) != len(args):
        raise UsageError("say what: show, check FILE, or why URL", print_help=False)
    try:
        config = read_config(settings)
        levels = len(config.frontier.level_shares)
        if args[0] == "check":
            _check(Path(args[1]), levels)
            return 0
        with place_of(settings, config).view() as view:
            written = view.rules()
        if args[0] == "show":
            print(written, end="")
        else:
            _why(args[1], written, levels)
    except CrawlerError as error:
        print_error(error)
        return 1
    return 0


def _check(path: Path, levels: int) -> None:
    rules = read_rules(RulesFile(existing(path)).read(), levels)
    targets = sum(len(rule.targets) for rule in rules.rules)
    print(f"{plain(str(path))}: {many(len(rules.rules), 'rule')} for {many(targets, 'target')}")


def _why(text: str, written: str, levels: int) -> None:
    try:
        url = seed_url(text)
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}") from None
    rules = read_rules(written, levels)
    deciding, overrides = rules.explain(url), rules.of_url(url)
    print(plain(url, 2048))
    if not deciding:
        print("  no rule says anything about it")
    for key in KEYS:
        if (rule := deciding.get(key)) is not None:
            note = f" ({plain(rule.note)})" if rule.note else ""
            print(f"  {key} = {getattr(overrides, key)}: line {rule.line}{note}")

"""`scrapy rules`: show the operator's rules, check a file of them, say what they say about a URL.

Rule: nothing is changed; `scrapy frontier` acts.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

from crawler.config.settings import read_config
from crawler.data.operator_files import RulesFile, existing
from crawler.inspect.frontier_view import frontier_of
from crawler.model.types import ConfigError, CrawlerError
from crawler.policy.operator_rules import KEYS, read_rules
from crawler.policy.seeds import seed_url
from crawler.report.figures import many, plain
from crawler.report.messages import print_error

_WORDS: Final = {"show": 1, "check": 2, "why": 2}


class RulesCommand(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "show | check FILE | why URL"

    def short_desc(self) -> str:
        return "Show the operator's rules, check a file of them, say what they say about a URL"

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        if not args or _WORDS.get(args[0]) != len(args):
            raise UsageError("say what: show, check FILE, or why URL", print_help=False)
        assert self.settings is not None
        try:
            config = read_config(self.settings)
            levels = len(config.frontier.level_shares)
            if args[0] == "check":
                _check(Path(args[1]), levels)
                return
            with frontier_of(self.settings, config).inspection() as inspection:
                written = inspection.operator_rules(config)
            if args[0] == "show":
                print(written, end="")
            else:
                _why(args[1], written, levels)
        except CrawlerError as error:
            print_error(error)
            self.exitcode = 1


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
    deciding, says = rules.explain(url), rules.of_url(url)
    print(plain(url, 2048))
    if not deciding:
        print("  no rule says anything about it")
    for key in KEYS:
        if (rule := deciding.get(key)) is not None:
            note = f" ({plain(rule.note)})" if rule.note else ""
            print(f"  {key} = {getattr(says, key)}: line {rule.line}{note}")

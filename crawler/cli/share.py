"""What `scrapy share` does: a crawl by many workers on this machine, with one progress line.

Rule: it takes the arguments and settings of `scrapy crawl` and passes them to each worker. Errors
in them are reported once, before a worker is started.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from typing import Final

from scrapy.settings import BaseSettings, Settings
from scrapy.spiderloader import get_spider_loader
from scrapy.utils.conf import arglist_to_dict
from scrapy.utils.log import configure_logging

from crawler.assembly.build import data_dir
from crawler.cli.crawl import one_spider
from crawler.config.arguments import (
    PUSHED,
    RUN_BEGAN,
    RUN_LIMITS,
    Arguments,
    join_repeated,
    read_arguments,
)
from crawler.config.settings import read_config
from crawler.data.data_dir import (
    LOG,
    REPORT,
    SUMMARY,
    WORKERS,
    worker_folders,
)
from crawler.engine.seeds import arguments_of_file
from crawler.frontier.open import round_caps
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError, CrawlerError, DataDirError
from crawler.report.extensions import replace_file
from crawler.report.html_report import READ_AT_END_BYTES, crawl_facts, write_report
from crawler.report.messages import ending_with_its_reader, open_closed_outputs, print_error
from crawler.report.screen import Screen
from crawler.report.summary import Summary, encoded, nothing_fetched, text
from crawler.shared.address import redis_address
from crawler.spiders.web import WebSpider
from crawler.workers.supervisor import RunResult, Supervisor
from crawler.workers.workers import ShareArguments, WorkersPlan
from crawler.workers.workforce_figures import WorkforceScreen

MAX_WORKERS: Final = 256


def run(args: list[str], opts: argparse.Namespace, settings: Settings) -> int:
    """Run the workers until the crawl ends and return the exit status. Raises UsageError."""
    open_closed_outputs()
    unknown = next((arg for arg in args if arg.startswith("-")), "")
    try:
        if unknown:
            raise ConfigError(
                f"{PROGRAM} share has no option {unknown}. (Of feeds each worker writes its own,"
                " which FEEDS in settings.py names: docs/feeds.md)"
            )
        known = get_spider_loader(settings).list()
        plan = _plan(settings, one_spider(args, known, f"{PROGRAM} share"), opts)
        ended = _crawl(settings, plan)
    except CrawlerError as refused:
        ended = RunResult(str(refused), None)
    failure = ended.failure
    if ended.summary is not None:
        _report(ended.summary, plan)
        failure = failure or nothing_fetched(ended.summary)
    if failure:
        print_error(failure)
    return int(bool(failure))


def _plan(settings: BaseSettings, spider: str, opts: argparse.Namespace) -> WorkersPlan:
    config = read_config({name: settings[name] for name in settings})
    if config.shared.url_frontier:
        raise ConfigError(
            "workers share a crawl by Redis. Over a URL Frontier (CRAWLER_FRONTIER_URL) start each"
            " crawler by itself, with a CRAWLER_DATA_DIR of its own"
        )
    began_at, arguments = time.time(), _arguments(settings, spider, opts)
    return WorkersPlan(
        workers=_workers(opts.workers),
        arguments=_share_arguments(spider, opts, began_at if arguments else None),
        config=config,
        data_dir=data_dir(settings, config, spider),
        address=redis_address(settings, config),
        limits={
            name: limit
            for name in RUN_LIMITS
            if (limit := getattr(arguments, name, None)) is not None
        },
        ends_at=arguments.ends_at(began_at) if arguments else None,
        rounds=round_caps(arguments) if arguments else None,
    )


def _crawl(settings: Settings, plan: WorkersPlan) -> RunResult:
    stderr = Screen(sys.stderr)
    report = plan.config.report
    screen = WorkforceScreen(stderr, report.progress, report.progress_log_s)
    if not screen.is_line:
        configure_logging(settings)
    screen.show_message(f"Logs are in {plan.data_dir / WORKERS}/*/{LOG}")
    return asyncio.run(Supervisor(plan, screen).run())


def _workers(given: str) -> int:
    workers = int(given) if given.isdecimal() else 0
    if not 0 < workers <= MAX_WORKERS:
        raise ConfigError(f"--workers is {given!r}; want 1 to {MAX_WORKERS}")
    return workers


def _share_arguments(
    spider: str, opts: argparse.Namespace, began_at: float | None
) -> ShareArguments:
    """*began_at*: the start of all workers, for those that are restarted too; None: the spider
    takes none of our arguments."""
    ours = [f"{RUN_BEGAN}={began_at}"] if began_at is not None else []
    options = [*(("-L", opts.loglevel) if opts.loglevel else ()), *(["--nolog"] * opts.nolog)]
    return ShareArguments(
        spider=spider,
        arguments=(*opts.spargs, *ours),
        settings=tuple(opts.set),
        options=tuple(options),
    )


def _arguments(settings: BaseSettings, spider: str, opts: argparse.Namespace) -> Arguments | None:
    """Return the arguments of `web`; None for spiders that read theirs themselves."""
    try:
        found = get_spider_loader(settings).load(spider)
        given = arglist_to_dict(join_repeated(opts.spargs))
    except KeyError:
        raise ConfigError(f"there is no spider {spider}; {PROGRAM} list names them") from None
    except ValueError:
        raise ConfigError("want -a NAME=VALUE") from None
    if not issubclass(found, WebSpider):
        return None
    of_file = arguments_of_file(given["crawl"]) if given.get("crawl") else {}
    return read_arguments({"seeds": PUSHED, **of_file, **given})  # seeds are for the workers


def _report(summary: Summary, plan: WorkersPlan) -> None:
    try:
        replace_file(plan.data_dir / SUMMARY, encoded(summary))
    except OSError as refused:
        print_error(f"the summary cannot be written: {refused}")
    try:
        facts = crawl_facts(
            plan.data_dir,
            worker_folders(plan.data_dir),
            summary.frontier,
            is_running=False,
            most_bytes=READ_AT_END_BYTES,
        )
        write_report(plan.data_dir / REPORT, facts)
    except (OSError, DataDirError) as refused:
        print_error(f"the report cannot be written: {refused}")
    if plan.config.report.summary:
        # Standard output may be closed.
        with suppress(OSError, ValueError), ending_with_its_reader():
            print(text(summary), flush=True)

"""What `scrapy console` does: serve a console of the crawls in some folders, until it is stopped.

Rule: it outlives the crawls, and takes no lock. A crawl that does not run is judged by the settings
of its last start.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from crawler.cli.place import client_of, config_as_started, place_of
from crawler.config.settings import read_config
from crawler.console.crawls import CrawlAccess, ManyCrawls, crawls_below
from crawler.console.views import Shown
from crawler.model.types import ConfigError, CrawlerError
from crawler.operate.server import ApiServer, read_tokens
from crawler.operate.verbs import ActAnswer, ActRequest
from crawler.report.messages import open_closed_outputs, print_error
from crawler.view.formats import many

ADDRESS: Final = "127.0.0.1:6803"


def run(args: Sequence[str], opts: argparse.Namespace, settings: BaseSettings) -> int:
    """Serve until SIGINT or SIGTERM, and return the exit status. Raises UsageError."""
    open_closed_outputs()
    if unknown := next((each for each in args if each.startswith("-")), None):
        raise UsageError(f"unknown option {unknown}")
    host, colon, port = opts.http.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise UsageError(f"--http takes HOST:PORT, not {opts.http}")
    try:
        config = read_config(settings)
        folders = [Path(each) for each in args or ["."]]
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(f"{folder} is no folder: name one with crawls in it")
        tokens = config.operator.http_tokens
        access = CrawlAccess(partial(_shown, settings), partial(_act, settings))
        crawls = ManyCrawls(folders, access, may_start=opts.start)
        named = read_tokens(Path(tokens)) if tokens else {}
        asyncio.run(_serve(crawls, host, int(port), named, folders))
    except CrawlerError as error:
        print_error(error)
        return 1
    return 0


async def _serve(
    crawls: ManyCrawls, host: str, port: int, tokens: dict[str, str], folders: Sequence[Path]
) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stopped.set)
    server = ApiServer(crawls.application, "console")
    try:
        taken = await server.open_port(host, port, tokens)
        found = many(len(await asyncio.to_thread(crawls_below, folders)), "crawl")
        print(f"{found}: http://{host}:{taken}/", flush=True)
        await stopped.wait()
    finally:
        await server.close()
        await crawls.close()


def _settings_of(settings: BaseSettings, path: Path) -> BaseSettings:
    """Return *settings* for the crawl in *path*."""
    own = settings.copy()
    own.set("CRAWLER_DATA_DIR", str(path), "cmdline")
    return own


def _shown(settings: BaseSettings, path: Path) -> Shown:
    """Return the crawl in *path* as its last start judged. Raises CrawlerError."""
    own = _settings_of(settings, path)
    place = place_of(own, read_config(own))
    with place.view() as view:
        config = config_as_started(own, place.config, view)
    return Shown(place_of(own, config), own)


def _act(settings: BaseSettings, path: Path, request: ActRequest) -> ActAnswer:
    own = _settings_of(settings, path)
    return client_of(place_of(own, read_config(own))).act(request)

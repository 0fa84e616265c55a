"""Which crawl a command is about: the settings choose it in the same way as for a crawl."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings

from crawler.assembly.build import data_dir
from crawler.config.settings import (
    KEPT_SETTINGS,
    Config,
    effective_settings,
    read_config,
    with_kept_settings,
)
from crawler.data.data_dir import SPIDER
from crawler.operate.client import CrawlClient
from crawler.report.messages import frontier_command, shared_command
from crawler.shared.address import redis_address
from crawler.view.place import CrawlPlace
from crawler.view.port import CrawlView
from crawler.workers.supervisor import has_own_redis, open_own_redis


def place_of(settings: BaseSettings, config: Config) -> CrawlPlace:
    address = redis_address(settings, config)
    if address is not None:
        # What a worker has here is looked at, too, but no spider needs to be known for the rest.
        path = data_dir(settings, config, SPIDER)
        return CrawlPlace(path, config, lambda: nullcontext(address))
    path = data_dir(settings, config)
    own = partial(open_own_redis, path, config.shared) if has_own_redis(path) else None
    return CrawlPlace(path, config, own)


def config_as_started(settings: BaseSettings, config: Config, view: CrawlView) -> Config:
    """Return the settings by which the last start decided, with those that this command was given
    by -s in place of them."""
    kept = view.last_start().settings
    if kept is None:
        return config
    typed = {
        name
        for name in KEPT_SETTINGS
        if (settings.getpriority(name) or 0) >= SETTINGS_PRIORITIES["cmdline"]
    }
    return effective_settings(read_config(with_kept_settings(settings, kept, typed)))


def client_of(place: CrawlPlace) -> CrawlClient:
    """Return what acts on the crawl at *place*."""
    if not place.is_shared:
        from crawler.operate.local_client import LocalClient  # noqa: PLC0415  # one of the two

        return LocalClient(place)
    from crawler.operate.shared_client import SharedClient  # noqa: PLC0415  # one of the two

    return SharedClient(place)


def command_for(action: str, settings: BaseSettings, place: CrawlPlace) -> str:
    """Return the command to type for *action* on the crawl at *place*, as it was found."""
    if redis_address(settings, place.config) is not None:
        return shared_command(action, settings)
    return frontier_command(action, str(place.path))

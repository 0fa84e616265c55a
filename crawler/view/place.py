"""Where a crawl is, and how it is opened to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.settings import BaseSettings

from crawler.assembly.build import rules_path
from crawler.assembly.crawl import Crawl
from crawler.config.settings import Config
from crawler.data.changes import Changes, LocalChanges
from crawler.data.data_dir import CHANGES, read_format, worker_folders
from crawler.frontier.rocks_store import OpenedStore
from crawler.model.types import ConfigError, DataDirError
from crawler.model.url import fetch_form
from crawler.policy.seeds import seed_url
from crawler.shared.address import RedisAddress, redis_address
from crawler.view.identity import UrlIdentifier
from crawler.view.local import LocalView
from crawler.view.port import CrawlView

if TYPE_CHECKING:  # 30 ms
    from crawler.shared.changes import SharedChanges


@dataclass(frozen=True, slots=True)
class CrawlPlace:
    """The place of a crawl, and the settings by which it is looked at."""

    path: Path  # its data directory, perhaps one of its workers'
    config: Config
    redis: Callable[[], AbstractContextManager[RedisAddress]] | None = None
    """Opens the servers that its frontier is in, and yields their address. None: it is in the data
    directory."""
    store: OpenedStore | None = None  # the frontier, if this process has opened it to write

    @property
    def is_shared(self) -> bool:
        """Whether workers share its frontier."""
        return self.redis is not None

    @contextmanager
    def view(self) -> Iterator[CrawlView]:
        if self.redis is None:
            with LocalView(self.path, self.store, rules_path(self.config, self.path)) as local:
                yield local
            return
        from crawler.view.owned import OwnedView, open_owned_reader  # noqa: PLC0415  # 30 ms

        with self.redis() as address, open_owned_reader(address, self.config) as reader:
            yield OwnedView(reader, self.path)

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        """Yield the change feed of the crawl; of one that workers share that of all, with what
        those have not sent to it that ran on this machine and have ended. Raises CrawlerError."""
        if self.redis is not None:
            with self.shared_changes() as shared:
                yield shared
            return
        if workers := worker_folders(self.path):
            raise ConfigError(
                f"the workers in {self.path} share a crawl: say which, with CRAWLER_FRONTIER_URL,"
                " to read the change feed of all of them; or read that of one, with -s"
                f" CRAWLER_DATA_DIR={workers[0]} (there are {len(workers)})"
            )
        read_format(self.path)  # else a mistyped directory would be created
        yield LocalChanges(self.path / CHANGES)

    @contextmanager
    def shared_changes(self) -> Iterator[SharedChanges]:
        from crawler.shared.changes import SharedChanges  # noqa: PLC0415  # 30 ms
        from crawler.view.owned import open_owned_reader  # noqa: PLC0415  # 30 ms

        assert self.redis is not None
        with self.redis() as address, open_owned_reader(address, self.config) as reader:
            feed = SharedChanges(reader.link, reader.name, reader.where)
            homes = [self.path, *worker_folders(self.path)]
            feed.send_left(homes, reader.format.key_seed)
            yield feed


def place_within(crawl: Crawl, settings: BaseSettings) -> CrawlPlace:
    """Return the place of *crawl*, which runs in this process. *settings*: Scrapy's."""
    config, path = crawl.settings.config, crawl.storage.data.path
    address = redis_address(settings, config)
    if crawl.leases.remote is not None:
        return CrawlPlace(path, config)  # its view says that there is nothing to look at
    if address is None:
        # To open it another time would hold the interpreter, for 40 ms at 1e7 URLs.
        return CrawlPlace(path, config, store=OpenedStore(crawl.storage.store))
    return CrawlPlace(path, config, lambda: nullcontext(address))


def known_urls(place: CrawlPlace, urls: Sequence[str]) -> list[str]:
    """Return those of *urls*, as typed, that the crawl has seen; none before its first start."""
    readable = [url for url in urls if fetch_form(seed_url(url)) is not None]
    with suppress(DataDirError), place.view() as view:
        identifier = UrlIdentifier(place.config, view.crawl.key_seed)
        seen = view.seen([identifier.identify(seed_url(url)) for url in readable])
        return [url for url, is_seen in zip(readable, seen, strict=True) if is_seen]
    return []

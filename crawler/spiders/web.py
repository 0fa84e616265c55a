"""The spider `web`: adds its seeds to the frontier and yields a Page for each answer.

Rule: it follows no links itself; the pipelines archive pages and add their links to the frontier.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from typing import Any, Final, Self
from urllib.parse import urlsplit

from msgspec.structs import replace
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.utils.conf import build_component_list
from scrapy.utils.python import global_object_name
from xxhash import xxh3_128

from crawler.assembly.build import arguments_of_last_start, crawl_of
from crawler.assembly.crawl import Crawl
from crawler.config.arguments import (
    OTHER_READS,
    PUSHED,
    RUN_BEGAN,
    SETTINGS_BY_ARGUMENT,
    Arguments,
    describe_changes,
    read_arguments,
    with_kept_arguments,
)
from crawler.config.settings import read_config
from crawler.data.chosen_lists import LocalLists
from crawler.engine.interactive import is_interactive
from crawler.engine.seeds import (
    MAX_BYTES,
    LoggedProgress,
    SeedList,
    Seeds,
    arguments_of_file,
    batches,
    list_url,
    open_seeds,
    refuse_anonymous,
    survey_seeds,
    whole_path,
)
from crawler.model.choices import ListState, OnlyChoice
from crawler.model.page import Flag, Page, Truncated
from crawler.model.types import (
    ConfigError,
    SeedsError,
    StoreUnavailable,
)
from crawler.model.url import authority_of
from crawler.operate.acts import put_failed_back
from crawler.policy.priority import SEED_CASH, Hints
from crawler.policy.refusal import Refusal
from crawler.policy.scope import SeedHosts
from crawler.policy.seed_terms import TermsOfSeeds
from crawler.policy.seeds import split_options
from crawler.shared.address import redis_address
from crawler.spiders.pages import page_of

# Flags of an answer that is incomplete.
_NOT_WHOLE: Final = frozenset({*(cut.flag for cut in Truncated if cut), *Flag})
_ADDON: Final = "crawler.addon.Addon"
_CONGESTED_S: Final = 0.05
_LOGGED_REFUSALS: Final = 20  # of the URLs of a list, one by one
_SHOWN_CHARS: Final = 300  # of such a URL, and of why it is refused
_LIST_LOOK_S: Final = 0.5  # between two looks whether another worker has added the list
_UNUSED: Final = (
    "crawler.middlewares.lease.LeaseMiddleware",
    "scrapy.spidermiddlewares.depth.DepthMiddleware",
    "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware",
    "scrapy.spidermiddlewares.referer.RefererMiddleware",
    "scrapy.spidermiddlewares.start.StartSpiderMiddleware",
)
"""Spider middlewares for the requests that a spider yields. `web` yields none, so each would only
pass on every page, through three generators: 0.15 ms of CPU a page, all together."""
_BATCH: Final = 500  # lines between two turns of the loop: 5 ms


class WebSpider(Spider):
    """Crawls from a list of seeds and archives every answer."""

    name = "web"
    # Every answer is archived as a page, 404 too.
    custom_settings = {"HTTPERROR_ALLOW_ALL": True}  # noqa: RUF012 - Scrapy's own form
    arguments: Arguments
    began_at: float  # epoch seconds; of a worker that was started again, when its run did
    ends_at: float | None  # epoch seconds, at the latest
    given: dict[str, Any]  # the same as text, with those of the last start
    seeds: Seeds | None = None  # None: they are pushed, or their list is not fetched yet
    seed_hosts: SeedHosts | None = None  # of all seeds
    adds_again: bool = True  # False: another worker adds the seeds that `only` fetches again

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Remove middlewares that have nothing to do. A subclass may need them, and so may
        middlewares of the project or of another add-on."""
        super().update_settings(settings)
        others = settings["SPIDER_MIDDLEWARES"] or _other_addons(settings)
        if cls is WebSpider and not others:
            settings.set("SPIDER_MIDDLEWARES", dict.fromkeys(_UNUSED), "spider")

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        _refuse_without_effect(crawler.settings)
        began_at = float(kwargs.pop(RUN_BEGAN, None) or time.time())
        adds_again = not kwargs.pop(OTHER_READS, None)
        spider = super().from_crawler(crawler, *args, **kwargs)
        for name in ("seeds", "known"):
            if kwargs.get(name):
                kwargs[name] = whole_path(kwargs[name])  # the next start may be elsewhere
        settings = crawler.settings
        kept = {} if is_interactive(settings) else arguments_of_last_start(settings, spider.name)
        if file := kwargs.pop("crawl", ""):
            # It describes the crawl as a whole: what it does not say is not kept.
            kwargs = {**dict.fromkeys(kept, ""), **arguments_of_file(file), **kwargs}
        spider.given = with_kept_arguments(kwargs, kept)
        spider.arguments = read_arguments(_with_pushed(spider.given, crawler))
        if only_list := spider.arguments.only_list:
            # It is read when the crawl has begun; here its bad lines are named.
            with closing(open_seeds(only_list)) as chosen:
                survey_seeds(chosen)
        for name, setting in SETTINGS_BY_ARGUMENT.items():
            if spider.given.get(name):
                settings.set(setting, spider.given[name], priority="spider")
        spider.began_at, spider.ends_at = began_at, spider.arguments.ends_at(began_at)
        if changes := describe_changes(kwargs, kept):
            spider.logger.info("Arguments %s", changes)
        arguments = spider.arguments
        spider.adds_again = adds_again
        spider.seeds = None  # Scrapy has set it to the argument of that name
        # Scrapy looks at each callback that it has not seen before, 12 us, and a method is a new
        # object at each access.
        spider._parse = spider._parse  # type: ignore[method-assign]  # Scrapy's default callback
        if arguments.has_pushed_seeds:
            spider.seed_hosts = SeedHosts(TermsOfSeeds(arguments.terms))
        elif not list_url(arguments.seeds):
            spider.seeds = open_seeds(arguments.seeds, TermsOfSeeds(arguments.terms))
            spider.seed_hosts = survey_seeds(spider.seeds)
            refuse_anonymous(spider.seed_hosts, read_config(crawler.settings))
        if spider.seed_hosts is not None:
            _refuse_checks_of_nothing(arguments, spider.seed_hosts)
        return spider

    async def start(self) -> AsyncIterator[Any]:
        crawl = crawl_of(self.crawler)
        lifecycle = crawl.lifecycle
        try:
            is_fetched = self.seed_hosts is None
            hosts = self.seed_hosts or await self._fetch_seeds()
            self.seed_hosts = None  # up to 8 MB for a million hosts
            if lifecycle.is_stopping:
                return
            refuse_anonymous(hosts, crawl.settings.config)
            if is_fetched:
                _refuse_checks_of_nothing(self.arguments, hosts)
            if self.arguments.only is OnlyChoice.FAILED:
                await put_failed_back(crawl)
            crawl.selection.allowed_origins.set_seeds(hosts, fetched=is_fetched)
            if self.arguments.only_list:
                await self._choose(self.arguments.only_list, crawl)
            if self.seeds is None:
                self.logger.info("Seeds: those that are pushed into Redis")
            else:
                await self._add_all(self.seeds, crawl)
        except (SeedsError, ConfigError) as error:
            if lifecycle.is_stopping:
                return  # the stop cancelled the fetch of the list
            self.logger.error("%s", error)
            lifecycle.note_failure(error)
            raise CloseSpider("bad_seeds") from error
        except StoreUnavailable as error:
            lifecycle.fail(error)
            return
        return
        yield  # makes this an asynchronous generator, as Scrapy wants; it yields nothing

    async def parse(self, response: Response) -> AsyncIterator[Page]:
        """Yield a Page for an answer of a lease."""
        page = page_of(response, self)
        if page is not None:
            yield page

    async def _add_all(self, seeds: Seeds, crawl: Crawl) -> None:
        """Add *seeds* a batch at a time, between which the crawl goes on."""
        lifecycle, frontier = crawl.lifecycle, crawl.leases.frontier
        progress = LoggedProgress(seeds)
        crawl.stats.seeds.table.forget_refused()
        # How many are new is only known later, in a shared crawl or where they may be seen.
        read = new = 0
        for batch in batches(seeds.read(), _BATCH):
            if lifecycle.is_stopping:
                self.logger.info(
                    "The crawl stops before all its seeds are read: the next start reads them"
                )
                return
            read += len(batch)
            new += self._add(batch, crawl)
            progress.note("" if crawl.leases.shared else f", {new:,} new")
            await asyncio.sleep(0)
            while (frontier.is_congested() or crawl.storage.room.is_full) and not (
                lifecycle.failure or lifecycle.is_stopping
            ):
                await asyncio.sleep(_CONGESTED_S)
        self.seeds = None
        if crawl.leases.shared is not None:
            self.logger.info("Seeds: %d", read)
        else:
            self.logger.info("Seeds: %d, of them new: %d", read, new)

    async def _choose(self, path: str, crawl: Crawl) -> None:
        """Fetch only the URLs of a list in this run, each once, whether it was before or not, or
        what the last run with it has left. One of several workers adds them. Raises SeedsError."""
        digest = await _digest_of(path)
        found = await self._list_state(digest, crawl)
        if found is None:
            return
        state, number = found
        await self._add_chosen(path, crawl, number, adds=state is ListState.ADDING)
        if state is ListState.ADDING:
            found = await self._list_state(digest, crawl, added=number)
            if found is None:
                return
            number = found[1]
        crawl.selection.allowed_origins.end_chosen(number)
        crawl.lifecycle.wake()

    async def _list_state(
        self, digest: str, crawl: Crawl, *, added: int = 0
    ) -> tuple[ListState, int] | None:
        """Return whether this worker is to add the list with *digest*, or all of it was added, and
        its number; None if the crawl stops before that is known. *added*: the number under which
        this worker has."""
        shared, lifecycle = crawl.leases.shared, crawl.lifecycle
        if shared is None:
            assert crawl.leases.embedded is not None  # of a URL Frontier `only` is refused
            lists = LocalLists(crawl.leases.embedded.frontier.records)
            if added:
                lists.note_added(digest, added)
            return lists.begin(digest)
        if added:
            await crawl.leases.frontier.wait_until_durable()
        while not (lifecycle.failure or lifecycle.is_stopping):
            try:
                found = await shared.membership.chosen_list(digest, added=added)
            except StoreUnavailable as fault:  # also before the first connection
                self.logger.debug("It is not known yet which worker adds the list: %s", fault)
            else:
                if found[0] is not ListState.WAITS:
                    return found
            await asyncio.sleep(_LIST_LOOK_S)
        return None

    async def _add_chosen(self, path: str, crawl: Crawl, number: int, *, adds: bool) -> None:
        """Note the URLs of the list with *number* as chosen. *adds*: they are also added. Raises
        SeedsError."""
        admission = crawl.selection.allowed_origins.admission
        added: set[int] = set()
        refused = 0
        with closing(open_seeds(path)) as chosen:
            for urls in batches(chosen.read(), _BATCH):
                found = []
                for url in urls:
                    verdict = admission.candidate(
                        url, depth=1, hints=Hints(depth=1), needs_seen_test=False
                    )
                    if isinstance(verdict, Refusal):
                        refused += 1
                        if refused <= _LOGGED_REFUSALS:
                            what, why = (text[:_SHOWN_CHARS] for text in (url, verdict.advise()))
                            self.logger.warning("%s of %s is not fetched: %s", what, path, why)
                    elif verdict.key not in added:
                        added.add(verdict.key)
                        # In the order of the list, as far as hosts let it.
                        found.append(replace(verdict, chosen=number, level=0, cash=SEED_CASH))
                if adds:
                    crawl.leases.frontier.add(found, crawl.leases.clock.now())
                crawl.selection.allowed_origins.note_chosen(each.key for each in found)
                await asyncio.sleep(0)
        if refused > _LOGGED_REFUSALS:
            self.logger.warning("%d URLs of %s in all are not fetched", refused, path)
        left = "" if adds else "what is left of "  # or what another worker has just added
        self.logger.info("This run fetches only %sthe %d URLs of %s", left, len(added), path)

    def _add(self, urls: Sequence[str], crawl: Crawl) -> int:
        """Add *urls* and return how many are known to be new. A refused seed is skipped, logged and
        counted."""
        admission = crawl.selection.allowed_origins.admission
        found, refused = admission.select_seeds(urls)
        if crawl.loop.links.lists_again:
            if self.adds_again:
                found = [replace(each, needs_seen_test=False) for each in found]
            for authority in {authority_of(each.url) for each in found}:
                rules = crawl.loop.precheck.robots.rules(authority)  # perhaps not fetched again
                found += crawl.loop.links.sitemaps(rules.sitemaps, f"{authority}/")
        for url, refusal in refused:
            crawl.stats.seeds.refuse(url, refusal)
            crawl.stats.count(f"refused/{refusal.reason}")
        added = crawl.leases.frontier.add(found, crawl.leases.clock.now())
        crawl.stats.count_over_budget(added)
        crawl.stats.seeds.count_over_budget(added.kept_out)
        return added.new

    async def _fetch_seeds(self) -> SeedHosts:
        """Fetch the list, and return the hosts of its seeds."""
        url, options = split_options(self.arguments.seeds.strip())
        assert self.crawler.engine is not None
        crawl_of(self.crawler).selection.allowed_origins.allow_start_url(url)
        request = Request(url, dont_filter=True, meta={"download_maxsize": MAX_BYTES})
        try:
            response = await self.crawler.engine.download_async(request)
        except Exception as failed:
            raise SeedsError(f"the seeds list {url} cannot be fetched: {failed}") from failed
        if response.status != 200:
            raise SeedsError(f"the seeds list {url} cannot be fetched: status {response.status}")
        if missing := _NOT_WHOLE.intersection(response.flags):
            raise SeedsError(f"the seeds list {url} is incomplete: {', '.join(missing)}")
        terms = TermsOfSeeds(self.arguments.terms)
        body, path = io.BytesIO(response.body), urlsplit(url).path
        self.seeds = SeedList(body, path, url, terms, options=options)
        return await asyncio.to_thread(survey_seeds, self.seeds)


def _refuse_without_effect(settings: BaseSettings) -> None:
    """Raise ConfigError for settings of Scrapy that only serve spiders with callbacks."""
    if settings.getbool("HTTPCACHE_ENABLED"):
        raise ConfigError(
            "HTTPCACHE_ENABLED: what a cache answers would not be archived. To crawl again without"
            " asking the hosts, use CRAWLER_REPLAY"
        )
    if settings.getint("DEPTH_LIMIT"):
        raise ConfigError("DEPTH_LIMIT has no effect on this spider: use -a max_depth=...")


async def _digest_of(path: str) -> str:
    """Return a digest of the URLs of a list. Raises SeedsError."""
    digest = xxh3_128()
    with closing(open_seeds(path)) as chosen:
        for urls in batches(chosen.read(), _BATCH):
            digest.update("\n".join((*urls, "")).encode())
            await asyncio.sleep(0)
    return digest.hexdigest()


def _refuse_checks_of_nothing(arguments: Arguments, hosts: SeedHosts) -> None:
    """Raise ConfigError if links out of the scope are to be checked, and there are none."""
    if arguments.check_external and not hosts.scope().has_outside:
        raise ConfigError(
            "check_external checks links that lead out of the scope, and with scope=any none does:"
            " give each seed another scope, as -a scope=host, or leave check_external out"
        )


def _other_addons(settings: BaseSettings) -> bool:
    names = (
        each if isinstance(each, str) else global_object_name(each)
        for each in build_component_list(settings["ADDONS"])
    )
    return any(name != _ADDON for name in names)


def _with_pushed(given: dict[str, Any], crawler: Crawler) -> dict[str, Any]:
    """Return *given*, by default with pushed seeds in a shared crawl. Raises ConfigError."""
    seeds = given.get("seeds", PUSHED)
    if seeds != PUSHED:
        return given
    if redis_address(crawler.settings, read_config(crawler.settings)) is not None:
        return {**given, "seeds": seeds}
    if "seeds" in given:
        raise ConfigError(
            f"seeds={PUSHED} takes what is pushed into a Redis that workers share: say which, with"
            " CRAWLER_FRONTIER_URL"
        )
    return given

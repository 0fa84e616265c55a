"""Our components, each by its name and in its place, and whether a project has others.

Rule: named, not imported. None takes one of Scrapy's out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scrapy.settings import BaseSettings, default_settings
from scrapy.utils.python import global_object_name

SCRAPYS_FEEDS: Final = "scrapy.extensions.feedexport.FeedExporter"
OUR_FEEDS: Final = "crawler.report.report.Feeds"  # in its place

COMPONENTS: Final[Mapping[str, Mapping[str, int | None]]] = {
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
        "scrapy.downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware": None,
        "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
        "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
        "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware": None,
        "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
        "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": None,
        # After the default headers (400), so that a project's own count first.
        "crawler.middlewares.lease.IdentityMiddleware": 410,
        # Answers pass these upwards: decoded, learned from, obeyed, then followed.
        "crawler.middlewares.redirect.RedirectMiddleware": 560,
        "crawler.middlewares.pace.BackpressureMiddleware": 570,
        "crawler.middlewares.probe.ProbeMiddleware": 575,
        "crawler.middlewares.robots.RobotsMiddleware": 580,
        "crawler.middlewares.decode.DecodeMiddleware": 590,
    },
    "SPIDER_MIDDLEWARES": {
        # The lease is taken off before anything that Scrapy or a project does to a request.
        "crawler.middlewares.lease.LeaseMiddleware": 45,
        "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
        "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": None,
    },
    "ITEM_PIPELINES": {
        "crawler.pipelines.ChecksPipeline": 50,
        "crawler.pipelines.DuplicatesPipeline": 100,
        "crawler.pipelines.ParsePipeline": 200,
        "crawler.pipelines.FingerprintPipeline": 250,
        "crawler.pipelines.ArchivePipeline": 300,
        "crawler.pipelines.LinksPipeline": 400,
    },
    "EXTENSIONS": {
        "scrapy.extensions.logstats.LogStats": None,  # Progress says more
        "scrapy.extensions.spiderstate.SpiderState": None,  # it pickles
        "scrapy.extensions.throttle.AutoThrottle": None,
        SCRAPYS_FEEDS: None,
        OUR_FEEDS: 0,
        "crawler.report.progress.Progress": 0,
        "crawler.report.report.Report": 0,
        # The last before the engine: what another extension refuses leaves nothing open.
        "crawler.assembly.build.Assembly": 1_000_000,
    },
}


def added(settings: BaseSettings) -> Iterator[str]:
    """The names of components in use that are neither ours nor on in Scrapy anyhow."""
    for setting, ours in COMPONENTS.items():
        known = {*ours, *getattr(default_settings, f"{setting}_BASE")}
        for given, place in settings.get_component_priority_dict_with_base(setting).items():
            name = given if isinstance(given, str) else global_object_name(given)
            if place is not None and name not in known:
                yield name

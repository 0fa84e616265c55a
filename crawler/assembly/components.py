"""The components of this crawler, by setting, path and order, and those that a project adds.

Rule: components are named, not imported. None as the order disables a component of Scrapy's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from scrapy.settings import BaseSettings, default_settings
from scrapy.utils.python import global_object_name

SCRAPYS_FEEDS: Final = "scrapy.extensions.feedexport.FeedExporter"
OUR_FEEDS: Final = "crawler.report.extensions.FeedExport"  # replaces it

COMPONENTS: Final[Mapping[str, Mapping[str, int | None]]] = {
    "DOWNLOADER_MIDDLEWARES": {
        "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
        "scrapy.downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware": None,
        "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
        "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
        "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware": None,
        "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
        "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": None,
        # After the default headers (400), so that a project's own headers take precedence.
        "crawler.middlewares.identity.IdentityMiddleware": 410,
        # Responses pass these from bottom to top.
        "crawler.middlewares.redirect.RedirectMiddleware": 560,
        "crawler.middlewares.outcome.OutcomeMiddleware": 570,
        "crawler.middlewares.check.CheckMiddleware": 573,
        "crawler.middlewares.probe.ProbeMiddleware": 575,
        "crawler.middlewares.robots.RobotsMiddleware": 580,
        "crawler.download.preference_files.PreferenceFilesMiddleware": 583,
        "crawler.download.rendering.RenderMiddleware": 585,
        "crawler.middlewares.decode.DecodeMiddleware": 590,
    },
    "SPIDER_MIDDLEWARES": {
        # Removes the lease from a request before components of Scrapy or a project see it.
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
        "scrapy.extensions.logstats.LogStats": None,  # Progress shows more
        "scrapy.extensions.spiderstate.SpiderState": None,  # uses pickle
        "scrapy.extensions.throttle.AutoThrottle": None,
        SCRAPYS_FEEDS: None,
        OUR_FEEDS: 0,
        "crawler.report.progress.Progress": 0,
        "crawler.console.extension.Console": 0,
        "crawler.operate.alerts.Alerts": 0,
        "crawler.report.extensions.Report": 0,
        # The last before the engine, so that an error in another extension leaves nothing open.
        "crawler.assembly.build.Assembly": 1_000_000,
    },
}


def added_components(settings: BaseSettings) -> Iterator[str]:
    """Yield the names of components in use that are neither in COMPONENTS nor Scrapy's defaults."""
    for setting, ours in COMPONENTS.items():
        known = {*ours, *getattr(default_settings, f"{setting}_BASE")}
        for given, place in settings.get_component_priority_dict_with_base(setting).items():
            name = given if isinstance(given, str) else global_object_name(given)
            if place is not None and name not in known:
                yield name

"""Which URL is meant: its key, host and domain by the rules that a crawl was begun with."""

from __future__ import annotations

from collections.abc import Callable

from crawler.config.settings import Config
from crawler.model.types import ConfigError, DataDirError
from crawler.model.url import canonical, fetch_form, host_key, key_of, registered_domain, split
from crawler.policy.admission import canonical_rules, identity_of_urls
from crawler.shared import crawl_format
from crawler.shared.crawl_format import identity_of_shards
from crawler.view.port import CrawlIdentity, KnownUrl


class UrlIdentifier:
    """Makes the key of a URL by the rules of one crawl."""

    def __init__(self, config: Config, key_seed: int) -> None:
        self._canonical = canonical_rules(config)
        self._unit = config.politeness.host_unit
        self._seed = key_seed

    def key(self, url: str) -> int:
        """Return the key of *url*, a fetch form."""
        return key_of(canonical(url, self._canonical), self._seed)

    def is_form_of(self, url: KnownUrl) -> Callable[[str], bool]:
        """Return whether a fetch form is of *url*, as a function of the form."""
        return lambda form: form == url.url or self.key(form) == url.key

    def identify(self, text: str) -> KnownUrl:
        """Return the URL with its key and host. Raises ConfigError if *text* is no URL."""
        url = fetch_form(text)
        if url is None:
            raise ConfigError(f"{text!r} cannot be read as an http or https URL")
        name = split(url).hostname
        return KnownUrl(url, host_key(name, self._unit), registered_domain(name), self.key(url))


def refuse_other_identity(crawl: CrawlIdentity, config: Config) -> None:
    """Raise DataDirError, or ConfigError if the crawl is shared, if it was begun with settings that
    make other keys or shards of URLs, as every answer would be wrong."""
    if crawl.is_shared:
        ours = identity_of_shards(config)
        crawl_format.refuse_other_identity(crawl.identity, ours, crawl.where)
        return
    changed = set(crawl.identity) ^ set(identity_of_urls(config))
    if changed:
        raise DataDirError(
            f"{crawl.where} was begun with other rules of which URLs are the same:"
            f" {', '.join(sorted(changed))}. Set them as they were"
        )

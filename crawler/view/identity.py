"""Which URL is meant: its key, host and domain by the rules that a crawl was begun with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crawler.config.settings import Config
from crawler.model.types import ConfigError, DataDirError
from crawler.model.url import canonical, fetch_form, host_key, key_of, registered_domain, split
from crawler.policy.admission import canonical_rules, identity_of_urls
from crawler.policy.seeds import seed_url
from crawler.shared import crawl_format
from crawler.shared.crawl_format import identity_of_shards
from crawler.view.port import Inspection, KnownUrl


class UrlIdentifier:
    """Makes the key of a URL by the rules of one crawl."""

    def __init__(self, config: Config, key_seed: int) -> None:
        self._canonical = canonical_rules(config)
        self._unit = config.politeness.host_unit
        self._seed = key_seed

    def key(self, url: str) -> int:
        """Return the key of *url*, a fetch form."""
        return key_of(canonical(url, self._canonical), self._seed)

    def identify(self, text: str) -> KnownUrl:
        """Return the URL with its key and host. Raises ConfigError if *text* is no URL."""
        url = fetch_form(text)
        if url is None:
            raise ConfigError(f"{text!r} cannot be read as an http or https URL")
        name = split(url).hostname
        return KnownUrl(url, host_key(name, self._unit), registered_domain(name), self.key(url))


def refuse_other_identity(
    where: str, identity: Iterable[str], config: Config, is_shared: bool
) -> None:
    """Raise DataDirError, or ConfigError if *is_shared*, if the crawl was begun with settings that
    make other keys or shards of URLs, as every answer would be wrong."""
    if is_shared:
        crawl_format.refuse_other_identity(identity, identity_of_shards(config), where)
        return
    changed = set(identity) ^ set(identity_of_urls(config))
    if changed:
        raise DataDirError(
            f"{where} was begun with other rules of which URLs are the same:"
            f" {', '.join(sorted(changed))}. Set them as they were"
        )


def seen_among(urls: Sequence[str], inspection: Inspection, config: Config) -> list[str]:
    """Return those of *urls*, as typed, that the crawl has seen."""
    identifier = UrlIdentifier(config, inspection.key_seed)
    readable = [url for url in urls if fetch_form(seed_url(url)) is not None]
    return [url for url in readable if inspection.is_seen(identifier.identify(seed_url(url)))]

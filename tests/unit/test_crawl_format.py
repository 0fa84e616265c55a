"""Which workers may take part in a shared crawl."""

from __future__ import annotations

import pytest

from crawler.config.settings import read_config
from crawler.model.types import ConfigError
from crawler.policy.admission import identity_of_urls
from crawler.shared.crawl_format import (
    check_format,
    encode_format,
    identity_of_shards,
    new_format,
)
from crawler.view.identity import refuse_other_identity
from crawler.view.port import CrawlIdentity

CONFIG = read_config({})
URLS = identity_of_urls(CONFIG)
OURS = identity_of_shards(CONFIG)
LIST = "another public suffix list: .*suffixes=0.*[Ii]nstall the same version of publicsuffixlist"


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        pytest.param((*URLS, "suffixes=0"), LIST, id="another public suffix list"),
        pytest.param(OURS[1:], "other rules of which URLs are the same: .*Set them", id="a rule"),
        pytest.param((*OURS[1:-1], "suffixes=0"), "are the same: .*suffixes=0", id="both"),
    ],
)
def test_a_worker_with_other_rules_is_refused(theirs: tuple[str, ...], message: str) -> None:
    kept = encode_format(new_format(4, 3, theirs))
    with pytest.raises(ConfigError, match=message):
        check_format(kept, new_format(4, 3, OURS), "here")
    with pytest.raises(ConfigError, match=message):
        refuse_other_identity(CrawlIdentity("here", True, 0, theirs), CONFIG)


def test_the_list_is_of_shared_crawls_only() -> None:
    """A data directory of one machine stays usable when its list is brought up to date."""
    assert not any("suffixes" in each for each in URLS)
    refuse_other_identity(CrawlIdentity("here", False, 0, URLS), CONFIG)
    refuse_other_identity(CrawlIdentity("here", True, 0, OURS), CONFIG)
    check_format(encode_format(new_format(4, 3, OURS)), new_format(4, 3, OURS), "here")


@pytest.mark.parametrize("theirs", ["shop", ""], ids=["the same", "not set"])
def test_a_shared_crawl_is_of_one_spider(theirs: str) -> None:
    shop, news = new_format(4, 3, OURS, "shop"), new_format(4, 3, OURS, "news")
    check_format(encode_format(new_format(4, 3, OURS, theirs)), shop, "here")
    with pytest.raises(ConfigError, match="give news another CRAWLER_FRONTIER_NAME"):
        check_format(encode_format(shop), news, "here")

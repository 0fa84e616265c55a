"""Scrapy's lines about a page are made where a handler takes them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from scrapy import Request, Spider
from scrapy.http import Response
from twisted.python.failure import Failure

from crawler.ops.unheard import PageLines

REQUEST = Request("http://a.example/")
RESPONSE = Response("http://a.example/", request=REQUEST)
SPIDER = Spider("one")


@contextmanager
def only(where: str, level: int) -> Iterator[None]:
    """One handler on the logger *where*, and none above it."""
    names = ("", "scrapy", "scrapy.core", "scrapy.core.engine", "scrapy.core.scraper")
    loggers = [logging.getLogger(name) for name in names]
    before = [(each, each.handlers, each.level) for each in loggers]
    for each in loggers:
        each.handlers, each.level = [], logging.NOTSET
        each.manager._clear_cache()  # of what they may say at which level
    handler = logging.NullHandler(level)
    logging.getLogger(where).addHandler(handler)
    try:
        yield
    finally:
        for each, handlers, level_before in before:
            each.handlers = handlers
            each.setLevel(level_before)


@pytest.mark.parametrize(
    ("where", "level", "heard"),
    [
        pytest.param("", logging.INFO, False, id="LOG_LEVEL is INFO: nobody would hear them"),
        pytest.param("", logging.DEBUG, True, id="LOG_LEVEL is DEBUG"),
        pytest.param("scrapy", logging.NOTSET, True, id="a handler of the user's below the root"),
    ],
)
def test_lines_of_a_page(where, level, heard):
    lines = PageLines()
    with only(where, level):
        assert (lines.crawled(REQUEST, RESPONSE, SPIDER) is not None) is heard
        assert (lines.scraped({"a": 1}, RESPONSE, SPIDER) is not None) is heard


def test_what_went_wrong_is_said_in_any_case():
    with only("", logging.CRITICAL):
        assert (
            PageLines().spider_error(Failure(ValueError()), REQUEST, RESPONSE, SPIDER) is not None
        )

"""Scrapy's lines about a page are made where a handler takes them."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import DropItem
from scrapy.http import Response
from twisted.python.failure import Failure

from crawler.model.types import StoreFull
from crawler.report.logs import PageLogFormatter, outlast_full_disks

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
    ("where", "level", "logged"),
    [
        pytest.param("", logging.INFO, False, id="LOG_LEVEL is INFO: not logged"),
        pytest.param("", logging.DEBUG, True, id="LOG_LEVEL is DEBUG"),
        pytest.param("scrapy", logging.NOTSET, True, id="a handler of the user's below the root"),
    ],
)
def test_lines_of_a_page(where, level, logged):
    lines = PageLogFormatter()
    with only(where, level):
        assert (lines.crawled(REQUEST, RESPONSE, SPIDER) is not None) is logged
        assert (lines.scraped({"a": 1}, RESPONSE, SPIDER) is not None) is logged


@pytest.mark.parametrize(
    ("cut_off", "logged"),
    [
        pytest.param("", True, id="all pass on to the root"),
        pytest.param("scrapy", False, id="Scrapy's are not passed on to the root's handlers"),
        pytest.param("scrapy.core.engine", False, id="nor those of one logger"),
    ],
)
def test_lines_that_are_not_passed_on(cut_off, logged):
    logger = logging.getLogger(cut_off)
    with only("", logging.DEBUG):
        logger.propagate = False
        try:
            assert (PageLogFormatter().crawled(REQUEST, RESPONSE, SPIDER) is not None) is logged
        finally:
            logger.propagate = True


def test_a_logger_that_is_cut_off_may_have_a_handler_of_its_own():
    logger = logging.getLogger("scrapy")
    with only("scrapy", logging.DEBUG):
        logger.propagate = False
        try:
            assert PageLogFormatter().scraped({"a": 1}, RESPONSE, SPIDER) is not None
        finally:
            logger.propagate = True


@pytest.mark.parametrize(
    ("up_to", "logged"),
    [
        pytest.param(logging.INFO, False, id="logging.disable: nothing up to INFO"),
        pytest.param(logging.DEBUG, False, id="logging.disable: nothing up to DEBUG"),
        pytest.param(logging.DEBUG - 1, True, id="logging.disable: only what is below DEBUG"),
    ],
)
def test_lines_that_are_switched_off_for_all(up_to, logged):
    with only("", logging.DEBUG):
        logging.disable(up_to)
        try:
            assert (PageLogFormatter().crawled(REQUEST, RESPONSE, SPIDER) is not None) is logged
            assert (PageLogFormatter().scraped({"a": 1}, RESPONSE, SPIDER) is not None) is logged
        finally:
            logging.disable(logging.NOTSET)


def test_errors_are_logged_in_any_case():
    with only("", logging.CRITICAL):
        assert (
            PageLogFormatter().spider_error(Failure(ValueError()), REQUEST, RESPONSE, SPIDER)
            is not None
        )


def test_a_page_that_the_end_of_the_crawl_puts_back_is_not_logged() -> None:
    full, of_a_user = DropItem("no room"), DropItem("no price", log_level="INFO")
    full.__cause__ = StoreFull("no room")
    formatter = PageLogFormatter()
    assert formatter.dropped({}, full, RESPONSE, SPIDER) is None
    assert formatter.dropped({}, of_a_user, RESPONSE, SPIDER) is not None


class FullFile(StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_without_room_skips_records_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("of.a.full.disk")
    with only("", logging.NOTSET):
        logging.root.addHandler(logging.StreamHandler(FullFile()))
        outlast_full_disks()
        logger.warning("a line")
        assert capsys.readouterr().err == ""
        logger.warning("%d", "no number")
        assert "Logging error" in capsys.readouterr().err, "other errors are shown"

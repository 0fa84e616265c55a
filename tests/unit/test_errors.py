"""How a failed fetch counts for politeness, and how a stop ends the fetches in flight."""

from __future__ import annotations

import asyncio
import ssl

import pytest
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
)

from crawler.download.connection import ssl_context
from crawler.download.handler import Transfers
from crawler.engine.errors import (
    ConnectionDropped,
    TlsFailed,
    error_of,
)
from crawler.model.choices import Tls
from crawler.model.page import AddressRefused


@pytest.mark.parametrize(
    ("exception", "error"),
    [
        pytest.param(DownloadTimeoutError(), "timeout", id="no answer in time"),
        pytest.param(CannotResolveHostError(), "dns", id="a name without address"),
        pytest.param(DownloadConnectionRefusedError(), "connect", id="a closed port"),
        pytest.param(ConnectionDropped(), "disconnect", id="dropped before an answer"),
        pytest.param(TlsFailed(), "tls", id="a wrong certificate"),
        pytest.param(DownloadFailedError(), "protocol", id="an answer that is none"),
        pytest.param(DownloadCancelledError(), "cancelled", id="we ended it"),
        pytest.param(ConnectionResetError(), "connect", id="an error of the system's"),
        pytest.param(TimeoutError(), "timeout", id="a time-out of another handler's"),
        pytest.param(AddressRefused(), "", id="we would not go there"),
        pytest.param(IgnoreRequest(), "", id="a middleware of ours refused"),
        pytest.param(ValueError(), "", id="a fault of our own"),
    ],
)
def test_a_failure_in_the_words_of_politeness(exception: Exception, error: str) -> None:
    assert error_of(exception, is_of_handler=True) == error


@pytest.mark.parametrize("exception", [FileNotFoundError("keys.txt"), TimeoutError()])
def test_a_middlewares_own_error_is_none_of_the_host(exception: Exception) -> None:
    assert error_of(exception, is_of_handler=False) == ""


def test_a_stop_ends_what_is_under_way() -> None:
    async def scenario() -> list[BaseException | str]:
        transfers = Transfers()
        slow = [asyncio.create_task(transfers.run(asyncio.sleep(60, "done"))) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(transfers) == 3
        transfers.cancel_all()
        transfers.cancel_all()  # once is enough, twice is no harm
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert len(transfers) == 0
        return [*ended, await transfers.run(asyncio.sleep(0, "done"))]

    *ended, later = asyncio.run(scenario())
    assert all(isinstance(each, DownloadCancelledError) for each in ended)
    assert later == "done"


def test_a_cancel_that_is_not_ours_stays_what_it_is() -> None:
    async def scenario() -> BaseException | None:
        transfers = Transfers()
        task = asyncio.create_task(transfers.run(asyncio.sleep(60)))
        await asyncio.sleep(0)
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        return ended

    assert isinstance(asyncio.run(scenario()), asyncio.CancelledError)


def test_strict_checks_certificates_and_lenient_does_not() -> None:
    strict, lenient = ssl_context(Tls.STRICT), ssl_context(Tls.LENIENT)
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (lenient.verify_mode, lenient.check_hostname) == (ssl.CERT_NONE, False)
    assert strict.minimum_version >= ssl.TLSVersion.TLSv1_2

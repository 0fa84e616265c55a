"""Where Twisted connects to, and how it checks who answers there.

Rule: a connection goes to an address that was admitted, and to no other: names are resolved
before, and not by Twisted. (Its objects are Any here: zope's interfaces say nothing to a type
checker.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from scrapy.core.downloader.contextfactory import _ScrapyClientContextFactory
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.ssl import TLSVersion
from twisted.web.client import URI
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer  # type: ignore[import-untyped]  # it ships no types

from crawler.core.choices import Tls
from crawler.download.tls import LEGACY_SERVER_CONNECT, OLD_CIPHERS

HTTPS: Final = b"https"


@implementer(IAgentEndpointFactory)
class AdmittedEndpoints:
    """For an Agent: the addresses given, in their order."""

    def __init__(
        self,
        reactor: Any,
        ips: Sequence[str],
        tls: Any,
        timeout_s: float,
        local_address: tuple[str, int] | None,
    ) -> None:
        self._reactor = reactor
        self._ips = ips
        self._tls = tls
        self._timeout_s = timeout_s
        self._local_address = local_address

    def endpointForURI(self, uri: URI) -> Any:
        endpoint: Any = _InTurn([self._endpoint(ip, uri.port) for ip in self._ips])
        if uri.scheme != HTTPS:
            return endpoint
        return wrapClientTLS(self._tls.creatorForNetloc(uri.host, uri.port), endpoint)

    def _endpoint(self, ip: str, port: int) -> Any:
        kind = TCP6ClientEndpoint if ":" in ip else TCP4ClientEndpoint
        return kind(self._reactor, ip, port, self._timeout_s, self._local_address)


@implementer(IStreamClientEndpoint)
class _InTurn:
    """The first endpoint that lets us in."""

    def __init__(self, endpoints: Sequence[Any]) -> None:
        self._endpoints = endpoints

    def connect(self, factory: Any) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: Any) -> Any:
        *others, last = self._endpoints
        for endpoint in others:
            try:
                return await endpoint.connect(factory)
            except ConnectError:
                continue
        return await last.connect(factory)


def context_factory(tls: Tls) -> Any:
    """As `tls.ssl_context`, for pyOpenSSL; strict needs the system's certificates here."""
    if tls is Tls.STRICT:
        return _ScrapyClientContextFactory(verify_certificates=True)
    return _LenientContextFactory(method=None, tls_min_version=TLSVersion.TLSv1_0)


class _LenientContextFactory(_ScrapyClientContextFactory):
    """Twisted takes a cipher string apart into names, and so loses its security level, without
    which OpenSSL 3 speaks no TLS 1.0 and 1.1. It is set on the context, which is kept."""

    def _get_cert_options(self) -> Any:
        options = super()._get_cert_options()
        context = options.getContext()
        context.set_cipher_list(OLD_CIPHERS.encode())
        context.set_options(LEGACY_SERVER_CONNECT)
        return options

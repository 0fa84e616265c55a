"""Which TLS servers we talk to.

Rule: strict checks the certificate as a browser does. Lenient takes any, and speaks with
servers too old for today's defaults: what is fetched is public, and the archive says how.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

import certifi

from crawler.core.choices import Tls

# OpenSSL 3 no longer connects to servers that lack RFC 5746; browsers still do.
LEGACY_SERVER_CONNECT: Final = 0x4
# Level 0 is where OpenSSL keeps TLS 1.0, 1.1 and keys under 112 bits of strength.
OLD_CIPHERS: Final = "DEFAULT:@SECLEVEL=0"


def ssl_context(tls: Tls) -> ssl.SSLContext:
    """A context for the standard library."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= LEGACY_SERVER_CONNECT
    if tls is Tls.STRICT:
        context.load_default_certs()
        if not has_system_store():
            context.load_verify_locations(certifi.where())
        return context
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers(OLD_CIPHERS)
    return context


def has_system_store() -> bool:
    """A slim container has none; SSL_CERT_FILE and SSL_CERT_DIR count."""
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile) or bool(paths.capath and any(Path(paths.capath).iterdir()))

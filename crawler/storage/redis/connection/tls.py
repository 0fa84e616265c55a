"""TLS to a Redis server, by the options that redis-py has for it.

Rule: what cannot work is refused before the first connection. No text here holds a password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from crawler.core.errors import ConfigError
from crawler.core.kinds import Kind, flag, text

PREFIX: Final = "ssl_"
VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_FILES: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
TLS_KINDS: Final[Mapping[str, Kind[Any]]] = {
    "ssl_cert_reqs": text("none, optional or required", "word", "|".join(VERIFY)),
    "ssl_check_hostname": flag(),
    "ssl_password": text("a text", "text", r"[^\0]+"),
    **dict.fromkeys(_FILES, text("a path", "path", r"[^\0]+")),
}


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Certificates are checked, and the host they are for, unless the options say otherwise."""
    verify = VERIFY[options.get("ssl_cert_reqs", "required")]
    try:
        # Certificates of the system count only where none are given, as in redis-py.
        context = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
        )
        # In this order: no host is checked without a certificate.
        context.check_hostname = verify != ssl.CERT_NONE and options.get("ssl_check_hostname", True)
        context.verify_mode = verify
        if certificate := options.get("ssl_certfile"):
            # A key that is encrypted must not ask for its password at the terminal.
            password = options.get("ssl_password", "")
            context.load_cert_chain(certificate, options.get("ssl_keyfile"), lambda: password)
        elif "ssl_keyfile" in options:
            raise ConfigError("TLS of Redis: ssl_keyfile is of no use without its ssl_certfile")
    except OSError as error:  # and ssl.SSLError, which is one
        raise ConfigError(f"TLS of Redis: {_which(options)} cannot be used: {error}") from None
    return context


def _which(options: Mapping[str, Any]) -> str:
    given = [f"{name} ({options[name]})" for name in _FILES if name in options]
    return " or ".join(given) or "certificates of this machine"

"""Certificates for servers on loopback, made on the spot.

Rule: each signs itself, so that it is trusted where its file is named and nowhere else.
"""

from __future__ import annotations

import ssl
import warnings
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def write_certificate(path: Path, host: str) -> Path:
    """A certificate for an address or a name, its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    is_address = host.replace(".", "").isdigit()
    subject = x509.IPAddress(ip_address(host)) if is_address else x509.DNSName(host)
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([subject]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(certificate.public_bytes(pem) + secret)
    return path


def server_context(path: Path, only: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """*only*: the one version it speaks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if only is not None:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # without which there is no TLS 1.0 and 1.1
        # The constants of old versions warn when they are assigned.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = context.maximum_version = only
    context.load_cert_chain(path)
    return context

"""Web Bot Auth: requests are signed by a key that our site publishes, so that servers know whose
they are (draft-ietf-webbotauth-httpsig-protocol, over RFC 9421).

Rule: what is signed is the authority and our site's origin, so a signature is good for all requests
to one host until it expires, and for no other host. No text made here has any part of a private
key.
"""

from __future__ import annotations

import logging
import os
import stat
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cached_property
from hashlib import sha256, sha512
from itertools import islice
from json import dumps, loads
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from crawler.config.settings import IdentitySettings
from crawler.model.types import ConfigError

if TYPE_CHECKING:  # 10 ms, and an extra
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

logger = logging.getLogger(__name__)

Fields = tuple[tuple[bytes, bytes], ...]

SIGNATURE_FIELDS: Final = (b"Signature-Agent", b"Signature-Input", b"Signature")
DIRECTORY_PATH: Final = "/.well-known/http-message-signatures-directory"
DIRECTORY_TYPE: Final = "application/http-message-signatures-directory+json"
REQUEST_TAG: Final = "web-bot-auth"
DIRECTORY_TAG: Final = "http-message-signatures-directory"
LABEL: Final = "g"
LIFE_S: Final = 60
"""From the creation of a signature to its end. The draft advises a day at most; one that is seen by
others is of use to them for so long."""
REUSED_S: Final = 30.0
"""For how long a signature is used again: what is left of its life is more than a connection may
take to open."""
_MOST_KEPT: Final = 4096  # signatures, at 1.3 kB each
_KEY_BYTES: Final = 32
_LARGEST_FILE: Final = 64 * 1024  # a key has 119 bytes
_LOOK_S: Final = 10.0
"""The key's file is looked at no more often: in a broad crawl most pages have a new signature."""
_MOST_ENTRIES: Final = 64  # of a directory that is checked
_OTHER_KINDS: Final = ("RSA", "EC")
_HOW_TO_MAKE: Final = (
    "make one with `gossamer identity new`, or `openssl genpkey -algorithm ed25519 -out FILE`"
)


def _base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True)
class PublicKey:
    """The public half of an Ed25519 key."""

    raw: bytes

    @classmethod
    def of_jwk(cls, jwk: object) -> PublicKey:
        """Read a key of a directory. Raises ConfigError if it is of another kind."""
        if not isinstance(jwk, dict):
            raise ConfigError("a key is no JSON object")
        if (jwk.get("kty"), jwk.get("crv")) != ("OKP", "Ed25519"):
            kind = f"kty {jwk.get('kty')!r}, crv {jwk.get('crv')!r}"
            raise ConfigError(f"a key is of another kind ({kind}): only Ed25519 is read")
        if "d" in jwk:
            raise ConfigError("a key has its private part (d): it is known to all, make a new one")
        x = jwk.get("x")
        try:
            raw = urlsafe_b64decode(f"{x}{'=' * (-len(str(x)) % 4)}".encode("ascii"))
        except ValueError as error:
            raise ConfigError("the x of a key is no base64url") from error
        if len(raw) != _KEY_BYTES or _base64url(raw) != x:
            raise ConfigError(f"the x of a key is no base64url of {_KEY_BYTES} bytes")
        key = cls(raw)
        if jwk.get("kid", key.thumbprint) != key.thumbprint:
            raise ConfigError(
                f"the kid of a key is {jwk['kid']!r}, and has to be its thumbprint {key.thumbprint}"
            )
        return key

    @cached_property
    def thumbprint(self) -> str:
        """The name of the key: RFC 7638, with the members of RFC 8037."""
        members = f'{{"crv":"Ed25519","kty":"OKP","x":"{_base64url(self.raw)}"}}'
        return _base64url(sha256(members.encode()).digest())

    def jwk(self) -> dict[str, str]:
        """Return the key as a member of a directory."""
        x = _base64url(self.raw)
        return {"kty": "OKP", "crv": "Ed25519", "kid": self.thumbprint, "x": x}

    def verify(self, signature: bytes, base: bytes) -> bool:
        """Return whether *signature* is of *base* by this key."""
        _require_cryptography()
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415  # an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415  # an extra
            Ed25519PublicKey,
        )

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, base)
        except (InvalidSignature, ValueError):
            return False
        return True


class SigningKey:
    """A private Ed25519 key. Its repr shows the thumbprint alone."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    @classmethod
    def new(cls) -> Self:
        """Make a key. Raises ConfigError if there is no cryptography."""
        _require_cryptography()
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415  # an extra
            Ed25519PrivateKey,
        )

        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the key in the file *path*. Raises ConfigError if it is none, or others may read
        it."""
        _require_cryptography()
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  # an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415  # an extra
            Ed25519PrivateKey,
        )
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  # an extra
            load_pem_private_key,
        )

        what = f"the signing key {path}"
        pem = _read_secret(path, what)
        if b"-----BEGIN ENCRYPTED" in pem or b",ENCRYPTED" in pem:
            raise ConfigError(
                f"{what} is encrypted, and nothing would be there to give its password: decrypt it"
                " with `openssl pkey -in FILE -out NEW_FILE`"
            )
        if b"-----BEGIN PUBLIC KEY-----" in pem:
            raise ConfigError(f"{what} is a public key: name the file of the private one")
        try:
            private = load_pem_private_key(pem, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ConfigError(
                f"{what} is no private key in PEM (PKCS #8): {_HOW_TO_MAKE}"
            ) from error
        if not isinstance(private, Ed25519PrivateKey):
            kind = type(private).__name__.strip("_").removesuffix("PrivateKey")
            raise ConfigError(f"{what} is of another kind ({kind}), not Ed25519: {_HOW_TO_MAKE}")
        return cls(private)

    def sign(self, base: bytes) -> bytes:
        return self._private.sign(base)

    def pem(self) -> bytes:
        """Return the key as its file has it: PKCS #8, not encrypted."""
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  # an extra
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        return f"SigningKey({self.public.thumbprint})"


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401, PLC0415  # an extra
    except ImportError as missing:
        raise ConfigError(
            f"signatures need the package {missing.name}: pip install 'gossamer-crawler[sign]'"
        ) from missing


def _read_secret(path: Path, what: str) -> bytes:
    """Return the bytes of a file that its owner alone may read. Raises ConfigError."""
    try:
        mode = path.stat().st_mode  # first: opening a FIFO would wait
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
            raise ConfigError(f"{what} is {kind}: name the file of the key")
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode  # of what is read
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(
                    f"{what} may be read or changed by others (mode {stat.S_IMODE(mode):04o}):"
                    f" chmod 600 {path}"
                )
            return file.read(_LARGEST_FILE)
    except FileNotFoundError as error:
        raise ConfigError(f"{what} is not there: {_HOW_TO_MAKE}") from error
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error


def signature_base(components: Sequence[tuple[str, str]], params: str) -> bytes:
    """Return what is signed (RFC 9421, 2.5): the *components*, each an identifier and its value,
    and the *params*, as they stand in Signature-Input."""
    lines = [f"{identifier}: {value}\n" for identifier, value in components]
    return "".join((*lines, f'"@signature-params": {params}')).encode()


def request_fields(
    key: SigningKey,
    agent: str,
    authority: str,
    now: float,
    expires_s: int = LIFE_S,
    *,
    label: str = LABEL,
    nonce: str = "",
) -> Fields:
    """Return the fields that sign a request to *authority*, in lower case, without the port that is
    its scheme's. *agent*: our site's origin. The parameters are in the order of the draft's
    examples."""
    created = int(now)
    agent_id = f'"signature-agent";key="{label}"'
    optional = f';nonce="{nonce}"' if nonce else ""
    params = (
        f'("@authority" {agent_id});created={created};keyid="{key.public.thumbprint}"'
        f';alg="ed25519";expires={created + expires_s}{optional};tag="{REQUEST_TAG}"'
    )
    base = signature_base((('"@authority"', authority), (agent_id, f'"{agent}"')), params)
    return (
        (b"Signature-Agent", f'{label}="{agent}"'.encode()),
        (b"Signature-Input", f"{label}={params}".encode()),
        (b"Signature", f"{label}=:{b64encode(key.sign(base)).decode()}:".encode()),
    )


def directory_body(*keys: PublicKey) -> bytes:
    """Return the JSON that our site has to answer with at DIRECTORY_PATH: while a key is replaced,
    with both."""
    listed = [{**key.jwk(), "use": "sig"} for key in keys]
    return dumps({"keys": listed}, separators=(",", ":")).encode()


def content_digest(body: bytes) -> str:
    """Return the value of Content-Digest (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256(body).digest()).decode()}:"


def directory_fields(
    keys: Iterable[SigningKey], authority: str, body: bytes, now: float, expires_s: int
) -> Fields:
    """Return the fields that sign a directory by each of *keys*, of our site *authority*: another
    site cannot serve it as its own."""
    created, digest = int(now), content_digest(body)
    components = (('"@authority";req', authority), ('"content-digest"', digest))
    inputs, signatures = [], []
    for number, key in enumerate(keys, 1):
        label = LABEL if number == 1 else f"{LABEL}{number}"
        params = (
            f'("@authority";req "content-digest");created={created};expires={created + expires_s}'
            f';keyid="{key.public.thumbprint}";tag="{DIRECTORY_TAG}"'
        )
        signature = b64encode(key.sign(signature_base(components, params))).decode()
        inputs.append(f"{label}={params}")
        signatures.append(f"{label}=:{signature}:")
    return (
        (b"Content-Digest", digest.encode()),
        (b"Signature-Input", ", ".join(inputs).encode()),
        (b"Signature", ", ".join(signatures).encode()),
    )


class DirectoryCheck(NamedTuple):
    """What a directory holds, and what is wrong with it."""

    keys: tuple[PublicKey, ...]
    signed_by: tuple[str, ...]  # thumbprints of its keys; empty if it is not signed, as it may be
    faults: tuple[str, ...]  # sentences without their dot
    other_keys: int = 0  # of another kind than Ed25519, which verifiers may read


def check_directory(
    body: bytes, fields: Iterable[tuple[bytes, bytes]], authority: str, now: float
) -> DirectoryCheck:
    """Read an answer of *authority* at DIRECTORY_PATH, with its header *fields*, and verify its
    signatures."""
    keys, other_keys, faults = _read_keys(body)
    values: dict[str, str] = {}
    for name, value in fields:
        known, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        values[known] = f"{values[known]}, {text}" if known in values else text
    signed_by: list[str] = []
    try:
        inputs = _parse_dictionary(values, "signature-input")
        signatures = _parse_dictionary(values, "signature")
    except ConfigError as error:
        return DirectoryCheck(keys, (), (*faults, str(error)), other_keys)
    for label, (components, params) in islice(inputs.items(), _MOST_ENTRIES):
        if params.get("tag") != DIRECTORY_TAG:
            continue
        try:
            signature, _ = signatures.get(label, (None, None))
            _refuse_time(params, now)
            by = _signed_by(keys, params)
            base = _base_of_response(components, params, values, authority)
            _refuse_wrong_digest(values, body)
            if not isinstance(signature, bytes) or not by.verify(signature, base):
                raise ConfigError(f"it is not by the key {by.thumbprint}")
        except ConfigError as error:
            faults.append(f"the signature {label} is not valid: {error}")
        else:
            signed_by.append(by.thumbprint)
    return DirectoryCheck(keys, tuple(signed_by), tuple(faults), other_keys)


def _read_keys(body: bytes) -> tuple[tuple[PublicKey, ...], int, list[str]]:
    try:
        listed = loads(body)["keys"]
        entries = list(listed if isinstance(listed, list) else ())
    except (ValueError, TypeError, KeyError, RecursionError):
        return (), 0, ["it is no JSON with a list of keys"]
    keys, other_keys, faults = [], 0, []
    if len(entries) > _MOST_ENTRIES:
        faults.append(f"it lists {len(entries)} keys, of which {_MOST_ENTRIES} are looked at")
    for number, entry in enumerate(entries[:_MOST_ENTRIES], 1):
        if isinstance(entry, dict) and entry.get("kty") in _OTHER_KINDS and "d" not in entry:
            other_keys += 1
            continue
        try:
            keys.append(PublicKey.of_jwk(entry))
        except ConfigError as error:
            faults.append(f"entry {number}: {error}")
    return tuple(keys), other_keys, faults if entries else ["it lists no keys"]


def _parse_dictionary(values: dict[str, str], name: str) -> dict[str, Any]:
    """Return a structured field, each member with its parameters. Raises ConfigError."""
    from http_sf import parse  # noqa: PLC0415  # 20 ms, and only a check needs it

    if name not in values:
        return {}
    try:
        parsed: Any = parse(values[name].encode("latin-1"), tltype="dictionary")
    except ValueError as error:
        raise ConfigError(f"its {name} is no structured field") from error
    members: dict[str, Any] = parsed
    return members


def _refuse_time(params: dict[str, Any], now: float) -> None:
    """Raise ConfigError for a signature that does not count *now*."""
    created, expires = params.get("created"), params.get("expires")
    if type(created) is not int or type(expires) is not int:
        raise ConfigError("it does not say when it was created and when it expires")
    if created > now + LIFE_S:
        raise ConfigError(f"it is of the future: created={created}, and now is {int(now)}")
    if expires <= now:
        raise ConfigError(f"it has expired {int(now) - expires} s ago")


def _signed_by(keys: Iterable[PublicKey], params: dict[str, Any]) -> PublicKey:
    if params.get("alg", "ed25519") != "ed25519":
        raise ConfigError(f"its alg is {params['alg']!r}, not ed25519")
    for key in keys:
        if key.thumbprint == params.get("keyid"):
            return key
    raise ConfigError(f"its keyid {params.get('keyid')!r} is of no key in the directory")


def _base_of_response(
    covered: Any, params: dict[str, Any], values: dict[str, str], authority: str
) -> bytes:
    """Return what a signature with the components *covered* is of. Raises ConfigError."""
    from http_sf import ser  # noqa: PLC0415  # see above

    if not isinstance(covered, list):
        raise ConfigError("it lists no components")
    components = []
    for name, of_component in covered:
        identifier = ser((name, of_component))
        if (name, of_component) == ("@authority", {"req": True}):
            components.append((identifier, authority))
        elif not of_component and name in values:
            components.append((identifier, values[name]))
        else:
            raise ConfigError(f"it covers {identifier}, which is not there")
    identifiers = {identifier for identifier, _ in components}
    for needed in ('"@authority";req', '"content-digest"'):
        if needed not in identifiers:
            raise ConfigError(f"it does not cover {needed}")
    one_member: Any = [(covered, params)]  # as a list it is written like the inner list itself
    return signature_base(components, ser(one_member))


_DIGESTS: Final = MappingProxyType({"sha-256": sha256, "sha-512": sha512})


def _refuse_wrong_digest(values: dict[str, str], body: bytes) -> None:
    found = _parse_dictionary(values, "content-digest")
    known = [(_DIGESTS[name], value) for name, (value, _) in found.items() if name in _DIGESTS]
    if not known:
        raise ConfigError(f"Content-Digest has none of {', '.join(_DIGESTS)}")
    if any(made(body).digest() != value for made, value in known):
        raise ConfigError("the body is another than that of Content-Digest")


class RequestSigner:
    """Signs requests by one key. A signature of an authority is used again for REUSED_S."""

    def __init__(self, key: SigningKey, agent: str, path: Path) -> None:
        """*path*: of the file that *key* was read from."""
        self.agent = agent
        self.key = key
        self._path = path
        self._file = _identity(path)
        self._look_at = 0.0  # epoch seconds
        # In the order of their making: the first one expires first.
        self._kept: OrderedDict[str, tuple[float, tuple[bytes, ...]]] = OrderedDict()

    @property
    def signs_as(self) -> str:
        """What is the same for all who sign as we do."""
        return f"{self.key.public.thumbprint} {self.agent}"

    def lines(self, authority: str, now: float) -> tuple[bytes, ...]:
        """Return the fields that sign a request to *authority*, as for `request_fields`, as lines
        of a head without their ends."""
        kept = self._kept.get(authority)
        if kept is not None and 0.0 <= now - kept[0] < REUSED_S:
            return kept[1]
        if self._kept.pop(authority, None) is None and len(self._kept) >= _MOST_KEPT:
            self._kept.popitem(last=False)
        self._warn_if_replaced(now)
        fields = request_fields(self.key, self.agent, authority, now)
        lines = tuple(b"%b: %b" % field for field in fields)
        self._kept[authority] = now, lines
        return lines

    def _warn_if_replaced(self, now: float) -> None:
        """Warn once if the file is no longer the one that the key was read from."""
        if self._file is None or 0.0 <= self._look_at - now <= _LOOK_S:
            return
        self._look_at = now + _LOOK_S
        if _identity(self._path) != self._file:
            self._file = None
            logger.warning(
                "The signing key %s was replaced, removed or written. Requests are signed by the"
                " key that it was, %s, as long as this crawl runs: restart to use what is there",
                self._path,
                self.key.public.thumbprint,
            )


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return what changes if a file is replaced or written; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def open_signer(identity: IdentitySettings) -> RequestSigner | None:
    """Return what signs the requests of a crawl; None if its settings say that none are signed.
    Raises ConfigError."""
    if not identity.signing_key:
        return None
    path = Path(identity.signing_key)
    try:
        signer = RequestSigner(SigningKey.read(path), identity.signature_agent, path)
    except ConfigError as error:
        raise ConfigError(f"CRAWLER_SIGNING_KEY: {error}") from error
    logger.info(
        "Requests are signed for %s by the key %s", signer.agent, signer.key.public.thumbprint
    )
    return signer


class ClockCheck:
    """Compares the clock with those of servers, as signatures by a wrong one are all refused. At
    most one answer a second is read."""

    EVERY_S: Final = 1.0
    OFF_S: Final = 30.0
    """What is left of the life of a signature that is used again."""
    SERVERS: Final = 3
    ANSWERS: Final = 10
    """So many in a row count as much as SERVERS, in a crawl of few hosts: a cache between may send
    old dates."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._is_over = False
        self._row: list[tuple[str, float]] = []  # of answers that are off to the same side

    def note(self, authority: str, head: bytes, now: float) -> None:
        """Note the *head* of an answer over https that came *now*, in epoch seconds."""
        if self._is_over or 0.0 <= self._next_at - now <= self.EVERY_S:
            return
        self._next_at = now + self.EVERY_S
        sent_at = _date_of(head)
        if sent_at is None:
            return
        ahead_s = now - sent_at
        if abs(ahead_s) <= self.OFF_S:
            self._row = []
            return
        if self._row and (self._row[0][1] > 0.0) != (ahead_s > 0.0):
            self._row = []
        self._row.append((authority, ahead_s))
        servers = sorted({name for name, _ in self._row})
        if len(servers) >= self.SERVERS or len(self._row) >= self.ANSWERS:
            self._is_over = True
            offsets = sorted(seconds for _, seconds in self._row)
            median_s = offsets[len(offsets) // 2]
            logger.warning(
                "The clock of this machine is %d s %s those of %s: signatures by it are refused,"
                " as they count for %d s. Set it right",
                abs(median_s),
                "ahead of" if median_s > 0.0 else "behind",
                ", ".join(servers),
                LIFE_S,
            )


def epoch_of(date: str) -> float | None:
    """Return the time that a field Date has, in epoch seconds; None if it cannot be read. Without a
    zone it is of UTC (RFC 9110, 5.6.7)."""
    try:
        at = parsedate_to_datetime(date)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _date_of(head: bytes) -> float | None:
    """Return by what time an answer was sent, in epoch seconds; None if it does not say. What a
    cache has sent is older, by its Age."""
    date, age = None, 0
    for line in head.split(b"\n"):
        name, _, value = line.partition(b":")
        known = name.strip().lower()
        if known == b"date":
            date = epoch_of(value.strip().decode("latin-1"))
        elif known == b"age" and value.strip().isdigit():
            age = int(value.strip()[:9])
    return None if date is None else date + age

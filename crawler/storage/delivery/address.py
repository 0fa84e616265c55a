"""Where finished files are brought, as its setting says it; nothing is opened here.

Rule: what is wrong with the words alone is found here, and no text made here holds a secret.
Credentials are the environment's and the clouds' own files': settings are printed and logged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from crawler.core.errors import ConfigError

SETTING: Final = "CRAWLER_ARCHIVE_URL"
DOCS: Final = "docs/object-stores.md"

# The kind of store behind each scheme: also the name of the extra in pyproject.toml.
EXTRAS: Final = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "az"),
}
PACKAGES: Final = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
FOLDERS: Final = frozenset({"file", "local"})
# They forget, or cannot be written to.
USELESS: Final = frozenset(
    {"memory", "data", "http", "https", "git", "github", "zip", "tar", "reference", "async_wrapper"}
)
LONGEST_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A URL of which the words are right. Arrow: settings -> store."""

    url: str  # without a slash at its end

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def path(self) -> str:
        """All behind the scheme: bucket/folder, or the path of a folder."""
        return self.url.partition("://")[2]

    @property
    def bucket(self) -> str:
        """Of an object store: what holds everything. It must exist."""
        return self.path.partition("/")[0]

    @property
    def is_folder(self) -> bool:
        return self.scheme in FOLDERS

    @property
    def is_object_store(self) -> bool:
        """A file that is put there is seen whole or not at all."""
        return self.scheme in EXTRAS

    def __str__(self) -> str:
        return shown(self.url)


def read_address(url: str) -> StoreAddress:
    """Raises ConfigError."""
    address = StoreAddress(url.rstrip("/"))
    if _holds_secret(address):
        raise ConfigError(
            f"{SETTING} holds a name, a password or a query beside {shown(url)}: credentials come"
            f" from the environment or the store's own files, see {DOCS}"
        )
    if address.scheme in USELESS:
        raise ConfigError(f"{SETTING} is {shown(url)}: nothing can be kept there")
    if address.is_folder and not address.path.startswith("/"):
        raise ConfigError(f"{SETTING} is {shown(url)}: want an absolute path, file:///srv/archive")
    if not address.is_folder and not address.bucket:
        raise ConfigError(f"{SETTING} is {shown(url)}: it names no bucket")
    return address


def _holds_secret(address: StoreAddress) -> bool:
    if address.is_folder:
        return False
    user, at, _ = address.bucket.rpartition("@")
    # Azure writes container@account, and who logs in by SSH is no secret.
    is_name = EXTRAS.get(address.scheme, "az") == "az" and ":" not in user
    return bool(at and not is_name) or "?" in address.path or "#" in address.path


def shown(url: str) -> str:
    """*url* as people may read it: without user and query."""
    scheme, _, rest = url.partition("://")
    place, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    user, at, host = place.rpartition("@")
    keeps_user = EXTRAS.get(scheme) == "az" and ":" not in user  # it is the container
    return f"{scheme}://{user + at if keeps_user else ''}{host}{slash}{path}"


def reason(error: BaseException) -> str:
    """What *error* says, on one line and with the queries of its URLs left out: they may be
    signed, and then they let in whoever reads them."""
    text = " ".join(str(error).split())
    text = re.sub(r"\?[^\s'\"]+", "?...", re.sub(r"://[^\s/@]*@", "://", text))
    return f"{type(error).__name__}: {text}"[:LONGEST_REASON]

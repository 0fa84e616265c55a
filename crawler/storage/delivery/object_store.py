"""An object store as destination, by fsspec: S3 and what speaks like it, Google's, Azure's.

Rule: streamed, so memory does not depend on the size of a file. The libraries below raise
whatever they like; all of it is a store that cannot be used now, and is said without secrets.
Synchronous: it blocks for as long as a store takes.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

import fsspec  # type: ignore[import-untyped]  # it ships no types
from fsspec.callbacks import Callback  # type: ignore[import-untyped]  # nor does this

from crawler.core.errors import ConfigError, CrawlerError, StoreUnavailable
from crawler.storage.delivery.address import EXTRAS, PACKAGES, SETTING, StoreAddress, reason
from crawler.storage.delivery.s3_parts import drop_parts
from crawler.storage.delivery.store import Moved
from crawler.storage.delivery.stored_digest import agrees
from crawler.storage.warc.openfile import OPEN_SUFFIX

MEGABYTE: Final = 1024 * 1024
PART_BYTES: Final = 8 * MEGABYTE  # S3: at least 5 MB, at most 10,000 parts a file
MOST_PARTS: Final = 10_000
PARTS_AT_ONCE: Final = 4  # so 32 MB; one alone is slow where answers take long

# They log requests with their headers, session tokens among them, at levels people use.
OUTSPOKEN: Final = (
    *("boto", "boto3", "botocore", "aiobotocore", "s3fs", "s3transfer", "urllib3", "fsspec"),
    *("gcsfs", "google", "azure", "adlfs"),
)
# Of a request to S3: enough for a part of many that fails, few enough to hear within a minute
# that a store hangs (15 s each) or is down.
ATTEMPTS: Final = 4
# A client takes 0.3 s to make, which is too much for each failure of a store that is down.
RENEW_S: Final = 60.0


class ObjectStore:
    """Implements Store."""

    def __init__(
        self,
        address: StoreAddress,
        part_bytes: int = PART_BYTES,
        attempts: int = ATTEMPTS,
        renew_s: float = RENEW_S,
    ) -> None:
        """Raises ConfigError: what speaks with such a store is not installed."""
        _refuse_missing(address)
        _keep_quiet()
        self._address = address
        self._part_bytes = part_bytes
        self._attempts = attempts
        self._renew_s = renew_s
        self._connected_at = 0.0
        self._has_failed = False  # since the client was made
        self._fs: Any = None
        self._can_create = True  # it takes a condition with what is put

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        root = self._address.bucket if self._address.is_object_store else self._address.path
        with self._translated(f"ask for {root}"):
            try:
                self._connected().info(root)
            except FileNotFoundError:
                raise ConfigError(f"{SETTING} is {self._address}: there is no {root}") from None
            except ValueError as error:
                raise ConfigError(f"{SETTING} is {self._address}: {reason(error)}") from error

    def has(self, name: str) -> bool:
        # `bring` calls this first, and `put` does not after a failure: so each try begins with a
        # client that has the newest credentials.
        self._renew()
        return self._is_there(name)

    def put(self, file: Path, name: str, moved: Moved) -> bool:
        try:
            with self._translated(f"put {name}"):
                self._put(file, self._path(name), moved)
        except StoreUnavailable:
            # Its answer may have been lost, or somebody was faster: stores say that in many ways.
            if self._is_there(name):
                return False
            raise
        return True

    def holds(self, file: Path, name: str, moved: Moved) -> bool:
        with self._translated(f"look at {name}"):
            size_bytes = file.stat().st_size
            info = self._info(name)
            if info["size"] != size_bytes:
                return False
            if agrees(file, info, self._part_size(size_bytes), moved):
                return True
            return self._reads_back(file, name, size_bytes, moved)

    def discard(self, name: str) -> None:
        with self._translated(f"remove {name}"):
            self._connected().rm_file(self._path(name))

    def _is_there(self, name: str) -> bool:
        with self._translated(f"look for {name}"):
            try:
                self._info(name)
            # Without the right to list, S3 says of what is not there that it is forbidden. Who
            # may not put it either is told so then.
            except (FileNotFoundError, PermissionError):
                return False
            return True

    def _put(self, file: Path, path: str, moved: Moved) -> None:
        fs = self._connected()
        if not self._address.is_object_store:
            _put_aside(fs, file, path, moved)
            return
        size_bytes = file.stat().st_size
        options = self._options(size_bytes)
        if self._is_s3 and size_bytes > self._part_size(size_bytes):
            drop_parts(fs, path)
        mode = "create" if self._can_create else "overwrite"
        try:
            fs.put_file(str(file), path, callback=_Pieces(moved), mode=mode, **options)
        except OSError as error:
            # "not implemented": some that speak S3 know no condition. `has` must do there.
            if error.errno == errno.ENOSYS:
                self._can_create = False
            raise

    def _options(self, size_bytes: int) -> dict[str, int]:
        part_bytes = self._part_size(size_bytes)
        if self._is_s3:
            return {"chunksize": part_bytes, "max_concurrency": PARTS_AT_ONCE}
        return {"chunksize": part_bytes} if EXTRAS[self._address.scheme] == "gs" else {}

    @property
    def _is_s3(self) -> bool:
        return EXTRAS.get(self._address.scheme) == "s3"

    def _part_size(self, size_bytes: int) -> int:
        least = -(-size_bytes // MOST_PARTS)
        return max(self._part_bytes, -(-least // MEGABYTE) * MEGABYTE)  # Google wants it round

    def _reads_back(self, file: Path, name: str, size_bytes: int, moved: Moved) -> bool:
        fs, path = self._connected(), self._path(name)
        with file.open("rb") as ours:
            for start in range(0, size_bytes, self._part_bytes):
                block = ours.read(self._part_bytes)
                if fs.cat_file(path, start=start, end=start + len(block)) != block:
                    return False
                moved()
        return True

    def _info(self, name: str) -> dict[str, Any]:
        fs = self._connected()
        fs.invalidate_cache()
        info: dict[str, Any] = fs.info(self._path(name))
        return info

    def _path(self, name: str) -> str:
        return f"{self._address.path}/{name}"

    def _connected(self) -> Any:
        if self._fs is None:
            self._connected_at = monotonic()
            self._has_failed = False
            options = {"config_kwargs": self._s3_config()} if self._is_s3 else {}
            self._fs, _ = fsspec.url_to_fs(self._address.url, skip_instance_cache=True, **options)
            if self._is_s3:
                self._fs.retries = 1  # its own come on top of those
        return self._fs

    def _renew(self) -> None:
        """Drop a client that failed: the next one reads the credentials again."""
        if self._has_failed and monotonic() - self._connected_at >= self._renew_s:
            self._fs = None

    def _s3_config(self) -> dict[str, Any]:
        return {
            "retries": {"mode": "standard", "total_max_attempts": self._attempts},
            # What is read back is compared with the file: damaged, it must arrive all the same.
            "response_checksum_validation": "when_required",
        }

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except CrawlerError:
            raise
        except Exception as error:
            self._has_failed = True
            raise StoreUnavailable(f"cannot {doing}: {reason(error)}") from error


class _Pieces(Callback):  # type: ignore[misc]  # untyped, as is all of fsspec
    """Tells of each piece that fsspec has sent."""

    def __init__(self, moved: Moved) -> None:
        super().__init__()
        self._moved = moved

    def call(self, hook_name: str | None = None, **kwargs: Any) -> None:
        self._moved()


def _put_aside(fs: Any, file: Path, path: str, moved: Moved) -> None:
    """Where a file is seen while it grows, it gets its name when it is whole."""
    if fs.exists(path):
        raise FileExistsError(path)
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    aside = path + OPEN_SUFFIX
    fs.put_file(str(file), aside, callback=_Pieces(moved))
    fs.mv(aside, path)


def _refuse_missing(address: StoreAddress) -> None:
    try:
        fsspec.get_filesystem_class(address.scheme)
    except ValueError:
        known = ", ".join(sorted({"file", *EXTRAS.values()}))
        raise ConfigError(
            f"{SETTING} is {address}: nothing speaks {address.scheme}; want one of {known}"
        ) from None
    except ImportError as error:
        package = PACKAGES.get(EXTRAS.get(address.scheme, ""))
        what = f"pip install {package}" if package else reason(error)
        raise ConfigError(f"{SETTING} is {address}: a package is missing: {what}") from error


def _keep_quiet() -> None:
    for name in OUTSPOKEN:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:  # else somebody wants to hear it
            logger.setLevel(logging.WARNING)

"""What a destination can do, and how a file comes to be in it, once and whole.

Rule: a name is never written over. What lies under it is the file, or an error; what the store
says of it counts, not what was sent.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

import fsspec  # type: ignore[import-untyped]  # it ships no types
from fsspec.callbacks import Callback  # type: ignore[import-untyped]  # nor does this

from crawler.archive.files import OPEN_SUFFIX, open_name, sync_folder
from crawler.model.types import ConfigError, CrawlerError, StoreUnavailable

Moved: TypeAlias = Callable[[], None]
"""Called whenever a piece of a file has got somewhere."""


class NameTaken(CrawlerError):
    """Something else lies under the name in the store. Caller: leave the file where it is, and
    tell; only a person can say which of the two counts."""


class DamagedOnTheWay(StoreUnavailable):
    """What came to lie there is not what was sent, and was removed. Caller: try again."""


class Store(Protocol):
    """A destination. Each method raises StoreUnavailable: it cannot be done now."""

    def check(self) -> None:
        """Raises ConfigError: it can never be done, there is no such bucket or folder."""

    def has(self, name: str) -> bool:
        """Whether something lies there. False also where we may not know."""

    def put(self, file: Path, name: str, moved: Moved) -> bool:
        """Make it appear there, whole. False: something was there before."""

    def holds(self, file: Path, name: str, moved: Moved) -> bool:
        """Whether what lies there are the bytes of *file*."""

    def discard(self, name: str) -> None:
        """Take away what was put there."""


def deliver_file(store: Store, file: Path, name: str, moved: Moved) -> None:
    """When it returns, *file* lies under *name*, whole. Raises StoreUnavailable, NameTaken.

    It may die anywhere in between and is then done again: what lies there already is compared.
    """
    is_ours = not store.has(name) and store.put(file, name, moved)
    if store.holds(file, name, moved):
        return
    if not is_ours:
        raise NameTaken(f"{name} is there already with other content; {file} was left")
    store.discard(name)
    raise DamagedOnTheWay(f"{name} was not what was sent; it is sent again")


# Where finished files are brought, as its setting says it; nothing is opened here.
#
# Rule: what is wrong with the words alone is found here, and no text made here holds a secret.
# Credentials are the environment's and the clouds' own files': settings are printed and logged.

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
        return without_secrets(self.url)


def read_address(url: str) -> StoreAddress:
    """Raises ConfigError."""
    address = StoreAddress(url.rstrip("/"))
    if _holds_secret(address):
        raise ConfigError(
            f"{SETTING} holds a name, a password or a query beside {without_secrets(url)}:"
            f" credentials come from the environment or the store's own files, see {DOCS}"
        )
    if address.scheme in USELESS:
        raise ConfigError(f"{SETTING} is {without_secrets(url)}: nothing can be kept there")
    if address.is_folder and not address.path.startswith("/"):
        raise ConfigError(
            f"{SETTING} is {without_secrets(url)}: want an absolute path, file:///srv/archive"
        )
    if not address.is_folder and not address.bucket:
        raise ConfigError(f"{SETTING} is {without_secrets(url)}: it names no bucket")
    return address


def _holds_secret(address: StoreAddress) -> bool:
    if address.is_folder:
        return False
    user, at, _ = address.bucket.rpartition("@")
    # Azure writes container@account, and who logs in by SSH is no secret.
    is_name = EXTRAS.get(address.scheme, "az") == "az" and ":" not in user
    return bool(at and not is_name) or "?" in address.path or "#" in address.path


def without_secrets(url: str) -> str:
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


# A folder as destination, most likely on another disk or machine.
#
# Rule: as with an object store, a file appears under its name whole or not at all; it is written
# beside it first. It is on the disk itself before its original may go. The folder must exist: one
# that we made ourselves may be the empty place where a disk was not mounted.

BLOCK_BYTES: Final = 1024 * 1024
NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class FolderStore:
    """Implements Store."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._root = Path(address.path)

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        if not self._root.is_dir():
            raise ConfigError(f"{SETTING} names the folder {self._root}, which does not exist")
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise ConfigError(f"{SETTING} names the folder {self._root}: it cannot be written to")

    def has(self, name: str) -> bool:
        target = self._root / name
        with _translated():
            # A disk that is gone takes its folder with it, and must not look empty.
            self._root.stat()
            if not target.exists():
                return False
            aside = open_name(target)
            if aside.exists() and aside.samefile(target):  # `put` died between its two names
                aside.unlink(missing_ok=True)
        return True

    def put(self, file: Path, name: str, moved: Moved) -> bool:
        target = self._root / name
        with _translated():
            self._root.stat()
            target.parent.mkdir(exist_ok=True)
            aside = open_name(target)  # left by a crash: written over
            with file.open("rb") as source, aside.open("wb") as copy:
                _carry(source, copy, moved)
            is_new = _name(aside, target)
            aside.unlink(missing_ok=True)
            sync_folder(target.parent)
            sync_folder(self._root)
        return is_new

    def holds(self, file: Path, name: str, moved: Moved) -> bool:
        with _translated(), file.open("rb") as ours, (self._root / name).open("rb") as theirs:
            here, there = os.fstat(ours.fileno()), os.fstat(theirs.fileno())
            # The same file by another path is no second copy: removing one would lose both.
            if here.st_size != there.st_size or os.path.samestat(here, there):
                return False
            return _are_equal(ours, theirs, moved)

    def discard(self, name: str) -> None:
        with _translated():
            (self._root / name).unlink(missing_ok=True)


def _carry(source: BinaryIO, copy: BinaryIO, moved: Moved) -> None:
    while block := source.read(BLOCK_BYTES):
        copy.write(block)
        moved()
    copy.flush()
    os.fsync(copy.fileno())
    if hasattr(os, "posix_fadvise"):  # not on macOS
        # Read back, it comes from the disk then and not from memory.
        os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _are_equal(ours: BinaryIO, theirs: BinaryIO, moved: Moved) -> bool:
    while block := ours.read(BLOCK_BYTES):
        if theirs.read(len(block)) != block:
            return False
        moved()
    return True


def _name(aside: Path, target: Path) -> bool:
    try:
        os.link(aside, target)  # unlike a renaming, it takes no name away
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            return False
        aside.rename(target)
    return True


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(reason(error)) from error


# The parts that a process left in S3 when it died in the middle of a file.
#
# Rule: nobody sees them as a file, but they are paid for. Only those of one name go: other
# workers may be at work in the same bucket, and each writes names of its own.


def drop_parts(fs: Any, path: str) -> None:
    """Abort every multipart upload under *path*. Where we may not look or where there is no such
    thing, they stay: a life-cycle rule of the bucket takes them away."""
    bucket, key, _ = fs.split_path(path)
    with suppress(OSError):
        found = fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
        for upload in found.get("Uploads", ()):
            if upload["Key"] == key:
                fs.call_s3(
                    "abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload["UploadId"]
                )


# The digest that a store itself worked out of what it holds, compared with a file of ours.
#
# Rule: a digest that agrees proves that the bytes are the same. One that does not proves nothing:
# of what is encrypted with a key of its own, S3's ETag is no digest at all.

# S3 and what speaks like it: the MD5 of what was put in one piece; else the MD5 of the MD5s of
# its parts, and how many there were.
WHOLE: Final = re.compile(r'"?([0-9a-f]{32})"?')
IN_PARTS: Final = re.compile(r'"?([0-9a-f]{32}-[0-9]+)"?')
GOOGLES: Final = "md5Hash"


def digest_matches(file: Path, info: Mapping[str, Any], part_bytes: int, moved: Moved) -> bool:
    """*part_bytes*: in parts of this size it was put, if it was put in parts."""
    tag = str(info.get("ETag", ""))
    if whole := WHOLE.fullmatch(tag):
        return _whole_digest(file, moved).hex() == whole[1]
    if in_parts := IN_PARTS.fullmatch(tag):
        return _digest_of_parts(file, part_bytes, moved) == in_parts[1]
    if told := str(info.get(GOOGLES, "")):
        return b64encode(_whole_digest(file, moved)).decode() == told
    return False


def _whole_digest(file: Path, moved: Moved) -> bytes:
    digest = md5(usedforsecurity=False)
    for block in _blocks(file, BLOCK_BYTES):
        digest.update(block)
        moved()
    return digest.digest()


def _digest_of_parts(file: Path, part_bytes: int, moved: Moved) -> str:
    digest, parts = md5(usedforsecurity=False), 0
    for part in _blocks(file, part_bytes):
        digest.update(md5(part, usedforsecurity=False).digest())
        parts += 1
        moved()
    return f"{digest.hexdigest()}-{parts}"


def _blocks(file: Path, size_bytes: int) -> Iterator[bytes]:
    with file.open("rb") as source:
        while block := source.read(size_bytes):
            yield block


# An object store as destination, by fsspec: S3 and what speaks like it, Google's, Azure's.
#
# Rule: streamed, so memory does not depend on the size of a file. The libraries below raise
# whatever they like; all of it is a store that cannot be used now, and is said without secrets.
# Synchronous: it blocks for as long as a store takes.

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
            if digest_matches(file, info, self._part_size(size_bytes), moved):
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


# A destination, from its setting: what can never work is said before the crawl begins.
#
# Rule: asked is only whether the bucket is there. Nothing is written to see whether it may be: what
# was written could often not be taken away again. A store that is down is no wrong setting.

logger = logging.getLogger(__name__)


def open_store(url: str, data: Path) -> Store:
    """For the finished files of *data*. Raises ConfigError. Blocks until the store has answered,
    at most a minute where it hangs."""
    address = read_address(url)
    store = FolderStore(address) if address.is_folder else ObjectStore(address)
    try:
        store.check()
    except StoreUnavailable as down:
        logger.warning("Cannot ask %s yet: %s. What is finished waits for it.", address, down)
    if address.is_folder and Path(address.path).samefile(data):
        raise ConfigError(f"{SETTING} names the data directory itself; leave it empty")
    return store

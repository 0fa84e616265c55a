"""The stores to which finished archive files are delivered: folders and object stores.

Rule: a delivery never overwrites a file; other content under its name is an error. Only a deletion
request replaces files. Both succeed only after the stored bytes were compared with the file.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import md5
from io import SEEK_CUR, SEEK_SET, BufferedReader, RawIOBase
from pathlib import Path
from time import monotonic
from typing import Any, BinaryIO, Final, Protocol, TypeAlias

from crawler.archive.warc_file import OPEN_SUFFIX, open_name, rebuild_lock
from crawler.data.files import sync_folder
from crawler.model.types import ConfigError, CrawlerError, StoreUnavailable

OnProgress: TypeAlias = Callable[[], None]
"""Called whenever a piece of a file was transferred."""


class NameTaken(CrawlerError):
    """The store holds other content under the name. Caller: leave the file where it is and log an
    error; only a person can decide which of the two counts."""


class DamagedInTransfer(StoreUnavailable):
    """The stored bytes were not those of the file, and were removed. Caller: try again."""


class Store(Protocol):
    """A destination. Each method raises StoreUnavailable if it cannot be done now."""

    def check(self) -> None:
        """Raises ConfigError if the bucket or folder does not exist."""

    def exists(self, name: str) -> bool:
        """Whether *name* exists. Also False if we lack the right to look."""

    def put(self, file: Path, name: str, on_progress: OnProgress) -> bool:
        """Store *file* so that it appears complete. Returns False if *name* existed before."""

    def matches(self, file: Path, name: str, on_progress: OnProgress) -> bool:
        """Whether the content of *name* equals *file*."""

    def discard(self, name: str) -> None:
        """Remove what was stored under *name*."""

    def names(self, folder: str) -> list[str]:
        """Return the names of all files in *folder*, sorted."""

    def open(self, name: str) -> BinaryIO:
        """Return *name* opened for reading at any place. Raises FileNotFoundError."""

    def replace(self, file: Path, name: str, on_progress: OnProgress) -> None:
        """Store *file* in the place of *name*, if there is one; it appears complete."""

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold the lock for a change of *name* and its companions, where the store has locks.
        Yields False if another process holds it."""


def deliver_file(store: Store, file: Path, name: str, on_progress: OnProgress) -> None:
    """Store *file* as *name* and compare the two. Raises StoreUnavailable, NameTaken.

    It may be repeated after a crash at any point: what is stored already is compared.
    """
    is_ours = not store.exists(name) and store.put(file, name, on_progress)
    if store.matches(file, name, on_progress):
        return
    if not is_ours:
        raise NameTaken(f"{name} is there already with other content; {file} was left")
    store.discard(name)
    raise DamagedInTransfer(f"{name} was not what was sent; it is sent again")


def replace_stored(store: Store, file: Path, name: str, on_progress: OnProgress) -> None:
    """Store *file* in the place of *name* and compare the two. Raises StoreUnavailable. Only a
    deletion request replaces a file."""
    store.replace(file, name, on_progress)
    if not store.matches(file, name, on_progress):
        raise DamagedInTransfer(f"{name} is not what was sent; try again")


# Credentials come from the environment or the clouds' own files, because settings are printed and
# logged; no text made here holds one.
SETTING: Final = "CRAWLER_ARCHIVE_URL"
DOCS: Final = "docs/object-stores.md"

# The kind of store for each scheme, which is also the name of the extra in pyproject.toml.
EXTRAS: Final = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "az"),
}
PACKAGES: Final = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs"}
FOLDERS: Final = frozenset({"file", "local"})
# These do not keep files, or cannot be written to.
UNSUPPORTED_SCHEMES: Final = frozenset(
    {"memory", "data", "http", "https", "git", "github", "zip", "tar", "reference", "async_wrapper"}
)
LONGEST_REASON: Final = 300


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A checked URL of a store, which was not opened yet. Arrow: settings -> store."""

    url: str  # without a slash at its end

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def path(self) -> str:
        """Everything behind the scheme: bucket/folder, or the path of a folder."""
        return self.url.partition("://")[2]

    @property
    def bucket(self) -> str:
        """The bucket of an object store. It must exist."""
        return self.path.partition("/")[0]

    @property
    def is_folder(self) -> bool:
        return self.scheme in FOLDERS

    @property
    def is_object_store(self) -> bool:
        """Whether a file in the store appears complete or not at all."""
        return self.scheme in EXTRAS

    def __str__(self) -> str:
        return without_secrets(self.url)


def read_address(url: str) -> StoreAddress:
    """Read the setting. Raises ConfigError."""
    address = StoreAddress(url.rstrip("/"))
    if _holds_secret(address):
        raise ConfigError(
            f"{SETTING} holds a name, a password or a query beside {without_secrets(url)}:"
            f" credentials come from the environment or the store's own files, see {DOCS}"
        )
    if address.scheme in UNSUPPORTED_SCHEMES:
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
    # Azure writes container@account, and the user name of an SSH login is no secret.
    is_name = EXTRAS.get(address.scheme, "az") == "az" and ":" not in user
    return bool(at and not is_name) or "?" in address.path or "#" in address.path


def without_secrets(url: str) -> str:
    """Return *url* without user and query, for logs."""
    scheme, _, rest = url.partition("://")
    place, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    user, at, host = place.rpartition("@")
    keeps_user = EXTRAS.get(scheme) == "az" and ":" not in user  # Azure's user is the container
    return f"{scheme}://{user + at if keeps_user else ''}{host}{slash}{path}"


def error_text(error: BaseException) -> str:
    """Return *error* as one line without the queries of its URLs: a signed query gives access to
    every reader of the log."""
    text = " ".join(str(error).split())
    text = re.sub(r"\?[^\s'\"]+", "?...", re.sub(r"://[^\s/@]*@", "://", text))
    return f"{type(error).__name__}: {text}"[:LONGEST_REASON]


BLOCK_BYTES: Final = 1024 * 1024
DRAFT_SUFFIX: Final = ".draft"
"""A file that is to replace another has it behind its name until it is complete."""
NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class FolderStore:
    """Implements Store with a folder, most likely on another disk or machine.

    A file is written under its open name, synced, then linked to its name. The folder must exist:
    one that we created could be the empty mount point of a disk.
    """

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

    def exists(self, name: str) -> bool:
        target = self._root / name
        with _translated_errors():
            # If the disk is not mounted, the folder is missing and must not look empty.
            self._root.stat()
            if not target.exists():
                return False
            unfinished = open_name(target)
            if unfinished.exists() and unfinished.samefile(target):  # `put` crashed after the link
                unfinished.unlink(missing_ok=True)
        return True

    def put(self, file: Path, name: str, on_progress: OnProgress) -> bool:
        target = self._root / name
        with _translated_errors():
            self._root.stat()
            target.parent.mkdir(exist_ok=True)
            unfinished = open_name(target)  # one left by a crash is overwritten
            _copy(file, unfinished, on_progress)
            is_new = _link(unfinished, target)
            unfinished.unlink(missing_ok=True)
            sync_folder(target.parent)
            sync_folder(self._root)
        return is_new

    def matches(self, file: Path, name: str, on_progress: OnProgress) -> bool:
        with (
            _translated_errors(),
            file.open("rb") as ours,
            (self._root / name).open("rb") as stored,
        ):
            local, remote = os.fstat(ours.fileno()), os.fstat(stored.fileno())
            # The same file under another path is no second copy: removing one would lose both.
            if local.st_size != remote.st_size or os.path.samestat(local, remote):
                return False
            return _are_equal(ours, stored, on_progress)

    def discard(self, name: str) -> None:
        with _translated_errors():
            (self._root / name).unlink(missing_ok=True)
            sync_folder((self._root / name).parent)

    def names(self, folder: str) -> list[str]:
        with _translated_errors():
            self._root.stat()
            files = (path for path in (self._root / folder).glob("*") if path.is_file())
            return sorted(f"{folder}/{path.name}" for path in files)

    def open(self, name: str) -> BinaryIO:
        try:
            return (self._root / name).open("rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreUnavailable(error_text(error)) from error

    def replace(self, file: Path, name: str, on_progress: OnProgress) -> None:
        target = self._root / name
        draft = target.with_name(target.name + DRAFT_SUFFIX)  # one left by a crash is overwritten
        with _translated_errors():
            _copy(file, draft, on_progress)
            draft.replace(target)
            sync_folder(target.parent)

    def lock(self, name: str) -> AbstractContextManager[bool]:
        return rebuild_lock(self._root / name)


def local_store(data: Path) -> FolderStore:
    """Return the data directory *data* as a store."""
    return FolderStore(StoreAddress(f"file://{data.resolve()}"))


def _copy(file: Path, to: Path, on_progress: OnProgress) -> None:
    with file.open("rb") as source, to.open("wb") as copy:
        while block := source.read(BLOCK_BYTES):
            copy.write(block)
            on_progress()
        copy.flush()
        os.fsync(copy.fileno())
        if hasattr(os, "posix_fadvise"):  # not on macOS
            # Without its pages in memory, the file is compared as it is on the disk.
            os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _are_equal(ours: BinaryIO, stored: BinaryIO, on_progress: OnProgress) -> bool:
    while block := ours.read(BLOCK_BYTES):
        if stored.read(len(block)) != block:
            return False
        on_progress()
    return True


def _link(unfinished: Path, target: Path) -> bool:
    try:
        os.link(unfinished, target)  # unlike a rename, it never replaces a file
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            return False
        unfinished.rename(target)
    return True


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(error_text(error)) from error


def drop_parts(fs: Any, path: str) -> None:
    """Abort the multipart uploads of *path* that a dead process left in S3, for they cost money.
    Other workers may be writing other names. Uploads that we may not list stay; a life-cycle rule
    of the bucket can remove them."""
    bucket, key, _ = fs.split_path(path)
    with suppress(OSError):
        found = fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
        for upload in found.get("Uploads", ()):
            if upload["Key"] == key:
                fs.call_s3(
                    "abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload["UploadId"]
                )


# The ETag of S3 and compatible stores: the MD5 of an object put in one piece; else the MD5 of the
# MD5s of its parts, and their number.
SINGLE_PART_ETAG: Final = re.compile(r'"?([0-9a-f]{32})"?')
MULTIPART_ETAG: Final = re.compile(r'"?([0-9a-f]{32}-[0-9]+)"?')
GOOGLE_MD5_FIELD: Final = "md5Hash"


def digest_matches(
    file: Path, info: Mapping[str, Any], part_bytes: int, on_progress: OnProgress
) -> bool:
    """Whether a digest that the store computed proves that it holds *file*. False proves nothing:
    for an encrypted object S3's ETag is no digest. *part_bytes* is the size of its parts, if it was
    put in parts."""
    tag = str(info.get("ETag", ""))
    if whole := SINGLE_PART_ETAG.fullmatch(tag):
        return _whole_digest(file, on_progress).hex() == whole[1]
    if in_parts := MULTIPART_ETAG.fullmatch(tag):
        return _digest_of_parts(file, part_bytes, on_progress) == in_parts[1]
    if google := str(info.get(GOOGLE_MD5_FIELD, "")):
        return b64encode(_whole_digest(file, on_progress)).decode() == google
    return False


def _whole_digest(file: Path, on_progress: OnProgress) -> bytes:
    digest = md5(usedforsecurity=False)
    for block in _blocks(file, BLOCK_BYTES):
        digest.update(block)
        on_progress()
    return digest.digest()


def _digest_of_parts(file: Path, part_bytes: int, on_progress: OnProgress) -> str:
    digest, parts = md5(usedforsecurity=False), 0
    for part in _blocks(file, part_bytes):
        digest.update(md5(part, usedforsecurity=False).digest())
        parts += 1
        on_progress()
    return f"{digest.hexdigest()}-{parts}"


def _blocks(file: Path, size_bytes: int) -> Iterator[bytes]:
    with file.open("rb") as source:
        while block := source.read(size_bytes):
            yield block


MEGABYTE: Final = 1024 * 1024
PART_BYTES: Final = 8 * MEGABYTE  # S3: at least 5 MB, at most 10,000 parts a file
MAX_PARTS: Final = 10_000
RANGE_BYTES: Final = 256 * 1024  # the least that is read of an object at once
PARTS_AT_ONCE: Final = 4  # 32 MB; one part at a time is slow where answers take long

# These log requests with their headers, session tokens among them, at levels below WARNING.
LOGGERS_TO_LIMIT: Final = (
    *("boto", "boto3", "botocore", "aiobotocore", "s3fs", "s3transfer", "urllib3", "fsspec"),
    *("gcsfs", "google", "azure", "adlfs"),
)
# Attempts of a request to S3: enough for one failed part of many, and few enough to notice within
# a minute that a store hangs (15 s each) or is down.
ATTEMPTS: Final = 4
# Creating a client takes 0.3 s, too much for each failure of a store that is down.
RENEW_S: Final = 60.0


class ObjectStore:
    """Implements Store by fsspec: S3 and compatible stores, Google's, Azure's.

    Files are streamed, so memory does not depend on their size. All exceptions of the libraries
    become StoreUnavailable, without secrets. Calls block for as long as the store takes.
    """

    def __init__(
        self,
        address: StoreAddress,
        part_bytes: int = PART_BYTES,
        attempts: int = ATTEMPTS,
        renew_s: float = RENEW_S,
    ) -> None:
        """Raises ConfigError if no package for such a store is installed."""
        _refuse_missing(address)
        _limit_library_logs()
        self._address = address
        self._part_bytes = part_bytes
        self._attempts = attempts
        self._renew_s = renew_s
        self._connected_at = 0.0
        self._has_failed = False  # since the client was made
        self._fs: Any = None
        self._can_create = True  # the store supports "put only if it does not exist"

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        root = self._address.bucket if self._address.is_object_store else self._address.path
        with self._translated_errors(f"ask for {root}"):
            try:
                self._connected().info(root)
            except FileNotFoundError:
                raise ConfigError(f"{SETTING} is {self._address}: there is no {root}") from None
            except ValueError as error:
                raise ConfigError(f"{SETTING} is {self._address}: {error_text(error)}") from error

    def exists(self, name: str) -> bool:
        # `deliver_file` calls this first, and `put` does not after a failure: so each try begins
        # with a client that has the newest credentials.
        self._renew()
        return self._exists(name)

    def put(self, file: Path, name: str, on_progress: OnProgress) -> bool:
        try:
            with self._translated_errors(f"put {name}"):
                self._put(file, self._path(name), on_progress)
        except StoreUnavailable:
            # The answer may be lost, or another process was faster: stores report it in many ways.
            if self._exists(name):
                return False
            raise
        return True

    def matches(self, file: Path, name: str, on_progress: OnProgress) -> bool:
        with self._translated_errors(f"look at {name}"):
            size_bytes = file.stat().st_size
            info = self._info(name)
            if info["size"] != size_bytes:
                return False
            if digest_matches(file, info, self._part_size(size_bytes), on_progress):
                return True
            return self._reads_back(file, name, size_bytes, on_progress)

    def discard(self, name: str) -> None:
        with self._translated_errors(f"remove {name}"):
            self._connected().rm_file(self._path(name))

    def names(self, folder: str) -> list[str]:
        fs, root = self._connected(), self._path(folder)
        with self._translated_errors(f"list {folder}"):
            fs.invalidate_cache()
            try:
                found = fs.ls(root, detail=False)
            except FileNotFoundError:
                return []
        return sorted(f"{folder}/{path.rpartition('/')[2]}" for path in found)

    def open(self, name: str) -> BinaryIO:
        with self._translated_errors(f"look at {name}"):
            try:
                size_bytes = self._info(name)["size"]
            except FileNotFoundError:
                size_bytes = None
        if size_bytes is None:
            raise FileNotFoundError(name)
        return BufferedReader(_StoredObject(size_bytes, partial(self._read, name)), RANGE_BYTES)

    def replace(self, file: Path, name: str, on_progress: OnProgress) -> None:
        if not self._address.is_object_store:
            raise ConfigError(
                f"{self._address}: no file there can be replaced in one step. Copy the files into a"
                " folder, work there (file:///...), and copy them back"
            )
        with self._translated_errors(f"replace {name}"):
            self._send(file, self._path(name), on_progress, mode="overwrite")

    def lock(self, name: str) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def _read(self, name: str, start: int, end: int) -> bytes:
        with self._translated_errors(f"read {name}"):
            content: bytes = self._connected().cat_file(self._path(name), start=start, end=end)
            return content

    def _exists(self, name: str) -> bool:
        with self._translated_errors(f"look for {name}"):
            try:
                self._info(name)
            # Without the right to list, S3 answers "forbidden" for a missing name. If we may not
            # write it either, `put` reports that.
            except (FileNotFoundError, PermissionError):
                return False
            return True

    def _put(self, file: Path, path: str, on_progress: OnProgress) -> None:
        fs = self._connected()
        if not self._address.is_object_store:
            _put_by_rename(fs, file, path, on_progress)
            return
        try:
            mode = "create" if self._can_create else "overwrite"
            self._send(file, path, on_progress, mode)
        except OSError as error:
            # "Not implemented": some S3 servers support no condition. Then only `exists` is
            # checked.
            if error.errno == errno.ENOSYS:
                self._can_create = False
            raise

    def _send(self, file: Path, path: str, on_progress: OnProgress, mode: str) -> None:
        fs, size_bytes = self._connected(), file.stat().st_size
        if self._is_s3 and size_bytes > self._part_size(size_bytes):
            drop_parts(fs, path)
        options: dict[str, Any] = {"mode": mode, **self._options(size_bytes)}
        if EXTRAS[self._address.scheme] == "az" and mode == "overwrite":
            options["overwrite"] = True
        fs.put_file(str(file), path, callback=_progress_callback(on_progress), **options)

    def _options(self, size_bytes: int) -> dict[str, int]:
        part_bytes = self._part_size(size_bytes)
        if self._is_s3:
            return {"chunksize": part_bytes, "max_concurrency": PARTS_AT_ONCE}
        return {"chunksize": part_bytes} if EXTRAS[self._address.scheme] == "gs" else {}

    @property
    def _is_s3(self) -> bool:
        return EXTRAS.get(self._address.scheme) == "s3"

    def _part_size(self, size_bytes: int) -> int:
        least = -(-size_bytes // MAX_PARTS)
        return max(self._part_bytes, -(-least // MEGABYTE) * MEGABYTE)  # Google requires whole MB

    def _reads_back(self, file: Path, name: str, size_bytes: int, on_progress: OnProgress) -> bool:
        fs, path = self._connected(), self._path(name)
        with file.open("rb") as ours:
            for start in range(0, size_bytes, self._part_bytes):
                block = ours.read(self._part_bytes)
                if fs.cat_file(path, start=start, end=start + len(block)) != block:
                    return False
                on_progress()
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
            # Imported for object stores only: 16 ms. It ships no types.
            import fsspec  # type: ignore[import-untyped]  # noqa: PLC0415

            self._connected_at = monotonic()
            self._has_failed = False
            options = {"config_kwargs": self._s3_config()} if self._is_s3 else {}
            self._fs, _ = fsspec.url_to_fs(self._address.url, skip_instance_cache=True, **options)
            if self._is_s3:
                self._fs.retries = 1  # s3fs would multiply the retries of botocore
        return self._fs

    def _renew(self) -> None:
        """Drop a client that failed: the next one reads the credentials again."""
        if self._has_failed and monotonic() - self._connected_at >= self._renew_s:
            self._fs = None

    def _s3_config(self) -> dict[str, Any]:
        return {
            "retries": {"mode": "standard", "total_max_attempts": self._attempts},
            # `matches` compares what it reads with the file, so damaged content must not raise
            # here.
            "response_checksum_validation": "when_required",
        }

    @contextmanager
    def _translated_errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except CrawlerError:
            raise
        except Exception as error:
            self._has_failed = True
            raise StoreUnavailable(f"cannot {doing}: {error_text(error)}") from error


class _StoredObject(RawIOBase):
    """An object of a store as a file: each read is a request for a range of its bytes."""

    def __init__(self, size_bytes: int, read_range: Callable[[int, int], bytes]) -> None:
        self._size_bytes = size_bytes
        self._read_range = read_range
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        base = {SEEK_SET: 0, SEEK_CUR: self._at}.get(whence, self._size_bytes)
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size_bytes)
        read = self._read_range(self._at, end) if self._at < end else b""
        buffer[: len(read)] = read
        self._at += len(read)
        return len(read)


def _progress_callback(on_progress: OnProgress) -> Any:
    """Return a callback of fsspec's that calls *on_progress* for each piece sent."""
    from fsspec.callbacks import Callback  # type: ignore[import-untyped]  # noqa: PLC0415

    class ProgressCallback(Callback):  # type: ignore[misc]  # untyped, as is all of fsspec
        def call(self, hook_name: str | None = None, **kwargs: Any) -> None:
            on_progress()

    return ProgressCallback()


def _put_by_rename(fs: Any, file: Path, path: str, on_progress: OnProgress) -> None:
    """Upload *file* under an open name and rename it: such a store shows incomplete files."""
    if fs.exists(path):
        raise FileExistsError(path)
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    unfinished = path + OPEN_SUFFIX
    fs.put_file(str(file), unfinished, callback=_progress_callback(on_progress))
    fs.mv(unfinished, path)


def _refuse_missing(address: StoreAddress) -> None:
    import fsspec  # noqa: PLC0415  # as in _connected

    try:
        fsspec.get_filesystem_class(address.scheme)
    except ValueError:
        known = ", ".join(sorted({"file", *EXTRAS.values()}))
        raise ConfigError(
            f"{SETTING} is {address}: there is no support for {address.scheme}; want one of {known}"
        ) from None
    except ImportError as error:
        package = PACKAGES.get(EXTRAS.get(address.scheme, ""))
        what = f"pip install {package}" if package else error_text(error)
        raise ConfigError(f"{SETTING} is {address}: a package is missing: {what}") from error


def _limit_library_logs() -> None:
    for name in LOGGERS_TO_LIMIT:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:  # else the user has chosen a level
            logger.setLevel(logging.WARNING)


logger = logging.getLogger(__name__)


def open_store(url: str, data: Path) -> Store:
    """Return the store for the finished files of *data*. Raises ConfigError if the bucket or folder
    does not exist; a store that is down is only logged. No test file is written, because often it
    could not be removed again. Blocks until the store has answered, at most a minute."""
    address = read_address(url)
    store = FolderStore(address) if address.is_folder else ObjectStore(address)
    try:
        store.check()
    except StoreUnavailable as down:
        logger.warning("%s cannot be reached yet: %s. Finished files wait for it.", address, down)
    if address.is_folder and Path(address.path).samefile(data):
        raise ConfigError(f"{SETTING} names the data directory itself; leave it empty")
    return store

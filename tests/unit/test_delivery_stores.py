"""CRAWLER_ARCHIVE_URL: which addresses are valid, what of them may be logged, and which digests the
stores report."""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5
from pathlib import Path

import pytest

from crawler.archive.delivery_stores import (
    digest_matches,
    error_text,
    read_address,
    without_secrets,
)
from crawler.model.types import ConfigError

UNSPOKEN = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "bucket", "is_object_store"),
    [
        pytest.param("s3://bucket", "bucket", True, id="a bucket"),
        pytest.param("s3://bucket/folder/deeper/", "bucket", True, id="a folder in a bucket"),
        pytest.param("gs://bucket/folder", "bucket", True, id="Google's"),
        pytest.param("az://container/folder", "container", True, id="Azure's"),
        pytest.param(
            "abfs://container@account.dfs.core.windows.net/folder",
            *("container@account.dfs.core.windows.net", True),
            id="Azure's with its account, which is no secret",
        ),
        pytest.param("sftp://crawler@host/srv", "crawler@host", False, id="who logs in by SSH"),
    ],
)
def test_valid_addresses(url: str, bucket: str, is_object_store: bool) -> None:
    address = read_address(url)
    assert (address.bucket, address.is_object_store) == (bucket, is_object_store)
    assert address.url == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        pytest.param("memory://x", "nothing can be kept", id="it forgets"),
        pytest.param("https://example.com/x", "nothing can be kept", id="it takes no files"),
        pytest.param("s3:///folder", "no bucket", id="no bucket"),
        pytest.param("file://folder", "absolute path", id="a folder that depends on where we are"),
        pytest.param(f"s3://key:{UNSPOKEN}@bucket/x", "credentials", id="a key"),
        pytest.param(f"s3://{UNSPOKEN}@bucket/x", "credentials", id="half a key"),
        pytest.param(f"az://c/x?sig={UNSPOKEN}", "credentials", id="a signed URL"),
        pytest.param(f"abfs://a:{UNSPOKEN}@b/x", "credentials", id="a password before a host"),
        pytest.param(f"sftp://a:{UNSPOKEN}@b/x", "credentials", id="a password for SSH"),
        pytest.param(f"gs://b/x#{UNSPOKEN}", "credentials", id="a fragment"),
    ],
)
def test_invalid_addresses(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read_address(url)
    assert UNSPOKEN not in str(error.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        pytest.param("s3://bucket/folder", "s3://bucket/folder", id="nothing to hide"),
        pytest.param(f"s3://a:{UNSPOKEN}@bucket/x?y#z", "s3://bucket/x", id="user and query"),
        pytest.param("abfs://c@account/x", "abfs://c@account/x", id="a container is no user"),
        pytest.param(f"s3://bucket?{UNSPOKEN}/x", "s3://bucket", id="a query before the path"),
    ],
)
def test_messages_for_users(url: str, text: str) -> None:
    assert without_secrets(url) == text


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param("no\n  such\tbucket", "no such bucket", id="one line"),
        pytest.param(
            f"GET 'https://a:{UNSPOKEN}@host/x?sig={UNSPOKEN}': 403",
            "GET 'https://host/x?...': 403",
            id="without the credentials",
        ),
    ],
)
def test_reasons(message: str, text: str) -> None:
    assert error_text(OSError(message)) == f"OSError: {text}"


def test_reasons_are_short() -> None:
    assert len(error_text(OSError("x" * 10_000))) == 300


CONTENT = b"0123456789"
PART_BYTES = 4


def digest(content: bytes) -> bytes:
    return md5(content, usedforsecurity=False).digest()


OF_PARTS = digest(digest(b"0123") + digest(b"4567") + digest(b"89")).hex()


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param({"ETag": f'"{digest(CONTENT).hex()}"'}, True, id="S3, put in one piece"),
        pytest.param({"ETag": digest(CONTENT).hex()}, True, id="without the quotes"),
        pytest.param({"ETag": f'"{OF_PARTS}-3"'}, True, id="S3, put in parts"),
        pytest.param({"ETag": f'"{digest(b"x").hex()}"'}, False, id="other bytes"),
        pytest.param({"ETag": f'"{OF_PARTS}-2"'}, False, id="other parts than ours"),
        pytest.param({"md5Hash": b64encode(digest(CONTENT)).decode()}, True, id="Google's"),
        pytest.param({"md5Hash": b64encode(digest(b"x")).decode()}, False, id="Google's, other"),
        pytest.param({"etag": "0x8DB5C1F"}, False, id="Azure's tag is no digest"),
        pytest.param({"ETag": '"opaque"'}, False, id="a tag that is no digest"),
        pytest.param({"ETag": None, "md5Hash": None}, False, id="nothing"),
        pytest.param({}, False, id="nothing at all"),
    ],
)
def test_digests(info: dict[str, object], expected: bool, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(CONTENT)
    assert digest_matches(file, info, PART_BYTES, lambda: None) is expected

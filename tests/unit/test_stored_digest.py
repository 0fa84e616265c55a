"""What stores say of the digest of what they hold."""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5
from pathlib import Path

import pytest

from crawler.archive.destinations import digest_matches

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

"""The parts that a process left in S3 when it died in the middle of a file.

Rule: nobody sees them as a file, but they are paid for. Only those of one name go: other
workers may be at work in the same bucket, and each writes names of its own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any


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

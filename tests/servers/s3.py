"""A server that speaks S3, in a process of its own: moto's, which keeps all in memory.

Rule: it ends with the process that started it, however that one ends: nobody holds the other end
of its standard input then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Final, Self

import boto3  # type: ignore[import-untyped]  # it ships no types
from botocore.config import Config  # type: ignore[import-untyped]  # it ships no types

HOST: Final = "127.0.0.1"
BUCKET: Final = "archive"
KEY_ID: Final = "AKIDEXAMPLE"
UNSPOKEN: Final = {
    "AWS_SECRET_ACCESS_KEY": "s3cr3t-k3y-d0-n0t-t3ll",
    "AWS_SESSION_TOKEN": "s3cr3t-t0k3n-d0-n0t-t3ll",
}


def environment(port: int) -> dict[str, str]:
    """What a client of ours needs to find the server at *port*, and to be let in."""
    return {
        "AWS_ENDPOINT_URL": f"http://{HOST}:{port}",
        "AWS_ACCESS_KEY_ID": KEY_ID,
        "AWS_DEFAULT_REGION": "us-east-1",
        # No file of whoever runs the tests, and no asking a machine of the cloud.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        **UNSPOKEN,
    }


class S3Server:
    """Entered: it listens on *port* and has one empty bucket."""

    def __init__(self, port: int = 0) -> None:
        self.port = port  # 0: one that is free, known once entered

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://{HOST}:{self.port}",
            region_name="us-east-1",
            aws_access_key_id="judge",
            aws_secret_access_key="judge",  # noqa: S106 - moto lets everybody in
            config=Config(retries={"total_max_attempts": 1}),
        )
        self.client.create_bucket(Bucket=BUCKET)
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.close()
        self._process.communicate(timeout=30)

    def empty(self) -> None:
        for name in self.names():
            self.client.delete_object(Bucket=BUCKET, Key=name)
        for upload in self.unfinished():
            self.client.abort_multipart_upload(Bucket=BUCKET, **upload)

    def names(self) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET)
        return sorted(each["Key"] for each in found.get("Contents", ()))

    def content(self, name: str) -> bytes:
        body: bytes = self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return body

    def put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=name, Body=content)

    def unfinished(self) -> list[dict[str, str]]:
        """Uploads in parts that were neither completed nor aborted."""
        found = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
        return [{"Key": each["Key"], "UploadId": each["UploadId"]} for each in found]


def _serve() -> None:
    # Here, so that whoever starts the server need not load it.
    from moto.moto_server.threaded_moto_server import (  # noqa: PLC0415  # takes a second
        ThreadedMotoServer,
    )

    server = ThreadedMotoServer(HOST, int(sys.argv[1]), verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_serve, name="s3").start()

# A worker of a shared crawl; docker-compose.yml adds the Redis. Built from the project's folder.
FROM python:3.12-slim

WORKDIR /app
COPY requirements.txt .
# The last three bring finished files to S3, Google Cloud Storage and Azure (docs/object-stores.md).
RUN pip install --no-cache-dir -r requirements.txt s3fs gcsfs adlfs
COPY scrapy.cfg .
COPY crawler crawler
COPY --chmod=755 docker/worker.sh /usr/local/bin/worker

# A volume at /data takes its owner from here.
RUN useradd --create-home worker && install -d -o worker /data
USER worker
ENTRYPOINT ["worker"]

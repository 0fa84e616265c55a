#!/bin/sh
# Join the crawl, in the first data directory under $DATA that no other worker has: so what a worker
# keeps on its disk has an owner again when containers are made anew.
# Usage: worker [ARGUMENTS OF scrapy crawl web]
set -eu
: "${DATA:=/data}" "${REDIS:=redis:6379}" "${PASSWORD_FILE:=/run/secrets/redis-password}"

# Its number stays locked as long as whoever has inherited descriptor 9 lives.
number=1
while exec 9>"$DATA/$number.lock" && ! flock --nonblock 9; do
    number=$((number + 1))
done

# A file, because command lines are seen by others; of this container alone.
password=$(cat "$PASSWORD_FILE")
url=$(mktemp)  # which only its owner may read
printf 'redis://:%s@%s\n' "$password" "$REDIS" >"$url"

echo "Worker $number, data in $DATA/$number" >&2
exec scrapy crawl web -s "CRAWLER_FRONTIER_URL=file:$url" -s "CRAWLER_DATA_DIR=$DATA/$number" \
    -s "CRAWLER_WORKER_NAME=worker-$number" "$@"

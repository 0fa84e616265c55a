#!/bin/sh
# Join the crawl, in the first data directory under $DATA that no other worker has: so what a worker
# keeps on its disk has an owner again when containers are made anew.
# Usage: worker [ARGUMENTS OF scrapy crawl web]
#        worker frontier counts    (or another question to the crawl of all workers)
#        worker archive list       (or another about the files of the workers of this machine)
set -eu
: "${DATA:=/data}" "${REDIS:=redis:6379}" "${PASSWORD_FILE:=/run/secrets/redis-password}"

# A file, because command lines are seen by others; of this container alone.
password=$(cat "$PASSWORD_FILE")
url=$(mktemp)  # which only its owner may read
printf 'redis://:%s@%s\n' "$password" "$REDIS" >"$url"

case ${1:-} in
    frontier) exec scrapy "$@" -s "CRAWLER_FRONTIER_URL=file:$url" ;;
    archive) exec scrapy "$@" -s "CRAWLER_DATA_DIR=$DATA" ;;
esac

mkdir -p "$DATA/workers"
# Its number stays locked as long as whoever has inherited descriptor 9 lives.
number=1
while exec 9>"$DATA/workers/$number.lock" && ! flock --nonblock 9; do
    number=$((number + 1))
done

echo "Worker $number, data in $DATA/workers/$number" >&2
exec scrapy crawl web -s "CRAWLER_FRONTIER_URL=file:$url" -s "CRAWLER_DATA_DIR=$DATA/workers/$number" \
    -s "CRAWLER_WORKER_NAME=worker-$number" "$@"

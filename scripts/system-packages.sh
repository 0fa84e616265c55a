#!/bin/sh
# What the tests need of the system: a web server, Redis, Prometheus, a browser, a counter of packets,
# a C compiler, and documentation to crawl.
# Installed through apt where that is allowed; otherwise a sentence says what is missing.
set -eu
PATH=$PATH:/usr/sbin:/sbin  # where Debian keeps servers, and not everybody looks

missing=''
need() {  # PACKAGE FILE, of which there is at least one if the package is there
    package=$1; shift
    [ -e "$1" ] || missing="$missing $package"
}
for program in nginx redis-server prometheus chromium gcc; do
    command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
command -v nft >/dev/null 2>&1 || missing="$missing nftables"
need libc6-dev /usr/include/stdio.h
need python3-doc /usr/share/doc/python3.*/html/index.html
need sqlite3-doc /usr/share/doc/sqlite3/index.html
need debian-handbook /usr/share/doc/debian-handbook/html/en-US/index.html
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then as_root=''
elif sudo -n true 2>/dev/null; then as_root='sudo'
else as_root='nobody'; fi

if [ "$as_root" = nobody ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "make test needs$missing: please install them" \
         "(Debian, Ubuntu: sudo apt-get install$missing), then make test again" >&2
    exit 1
fi

echo "Installing$missing through apt" >&2
# A package that brings a server would start it: a test suite has no business opening port 80.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
$as_root apt-get update -qq
# Small images leave documentation out when they install; here it is what we came for.
# shellcheck disable=SC2086  # a list of packages
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    --reinstall -o 'DPkg::Options::=--path-include=/usr/share/doc/*' $missing

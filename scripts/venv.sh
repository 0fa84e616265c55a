#!/bin/sh
# Make .venv with a Python that is new enough, and install a list of requirements into it.
# Usage: venv.sh PYTHON FILE [FOLDER]     PYTHON empty: the first that will do; FOLDER: in place of .venv
# A .venv that works is kept, one that does not (a moved folder, a removed Python) is made anew.
set -eu
cd "$(dirname "$0")/.."

venv=${3:-.venv}
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
# Compiled when it is imported, which most of it never is: 23 s of CPU.
install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"; }
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

if ! { [ -x "$venv/bin/python" ] && is_new_enough "$venv/bin/python" &&
       "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
    found='' without_venv=''
    for name in ${1:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if is_new_enough "$name"; then
            if has_venv "$name"; then found=$name; break; fi
            without_venv=$name
        fi
    done
    if [ -z "$found" ] && [ -n "$without_venv" ]; then
        echo "$without_venv cannot make virtual environments: on Debian and Ubuntu run" \
             "'apt-get install python3-venv' (or sudo apt-get ...), then make again" >&2
        exit 1
    elif [ -z "$found" ]; then
        echo "Python 3.11 or newer is needed and was not found${1:+ as $1}:" \
             "install it, or name it: make PYTHON=/path/to/python3 ..." >&2
        exit 1
    fi
    echo "Making $venv with $("$found" --version)" >&2
    "$found" -m venv --clear "$venv"
    # The one that comes with Python may be years old, and slow: for our lists 23.2 takes 54 s of
    # CPU, 26.3 takes 23.
    install --upgrade pip || echo "Going on with $("$venv/bin/python" -m pip --version)" >&2
fi
echo "Installing $2 into $venv, once" >&2
install -r "$2"

[ "$venv" = .venv ] || exit 0
# What `pip install .` would make, of the source itself: of the folder that .venv is in.
root=$(cd -P .venv/.. && pwd)
cat >.venv/bin/gossamer <<EOF
#!/bin/sh
PYTHONPATH='$root'\${PYTHONPATH:+:\$PYTHONPATH} exec '$root/.venv/bin/python' -P -m crawler.cli.gossamer "\$@"
EOF
chmod +x .venv/bin/gossamer

#!/usr/bin/env bash
# Makes a virtual environment with exactly the locked dependencies, and a Java runtime if the machine has none.
#   ./setup.sh [DIRECTORY]      default .venv;  PYTHON=... chooses the interpreter
set -euo pipefail
cd "$(dirname "$0")"
venv=${1:-.venv}

say() { printf '== %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local name
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$name"; then command -v "$name"; return; fi
    done
    fail 'Python 3.11 or newer is needed and was not found; name one with PYTHON=/path/to/python3'
}

java_major() {
    # `java -version` says: openjdk version "17.0.15" ...
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

has_java() {
    local java
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
        if command -v "$java" >/dev/null 2>&1 && [ "$(java_major "$java")" -ge 17 ] 2>/dev/null; then return 0; fi
    done
    return 1
}

python=$(find_python)
if [ ! -x "$venv/bin/python" ]; then
    say "virtual environment in $venv, with $("$python" --version)"
    "$python" -m venv "$venv" ||
        fail "$python cannot make virtual environments; on Debian: apt-get install python3-venv, then try again"
fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

say 'what builds packages (locks/build.lock)'
pip install --require-hashes -r locks/build.lock
say 'what peacefs and its workshop use (locks/workshop.lock; PySpark alone is 450 MB, this takes a minute or two)'
pip install --require-hashes --no-build-isolation -r locks/workshop.lock
if has_java; then
    say 'Java 17 or newer is there'
else
    say 'no Java 17 or newer was found: a runtime as a wheel (locks/java.lock)'
    pip install --require-hashes -r locks/java.lock
fi
say 'peacefs itself'
pip install --no-build-isolation --no-deps --editable .
say "ready: $venv/bin/peacefs"

#!/usr/bin/env bash
# Makes a virtual environment with exactly the locked dependencies, and a Java runtime if the machine has none.
#   ./setup.sh [DIRECTORY]      default .venv;  PYTHON=... chooses the interpreter. Without it the first that is new enough
#                               and was built with --enable-optimizations, on the PATH or in /usr/bin; if none was, the first
set -euo pipefail
cd "$(dirname "$0")"
venv=${1:-.venv}
no_environments='cannot make virtual environments; on Debian: apt-get install python3-venv, then try again'

say() { printf '== %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Asked of what is found, before anything is installed.
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
makes_environments() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
optimised() { "$1" benchmarks/interpreter.py >/dev/null; }

candidates() {
    local name
    # Those that the tests know before those that they do not.
    for name in python3 python3.13 python3.12 python3.11 python3.14; do command -v "$name" || true; done
    for name in python3 python3.13 python3.12 python3.11 python3.14; do printf '%s\n' "/usr/bin/$name"; done
}

find_python() {
    local each first='' without=''
    if [ -n "${PYTHON:-}" ]; then
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not Python 3.11 or newer"
        command -v "$PYTHON"
        return
    fi
    while read -r each; do
        new_enough "$each" || continue
        if ! makes_environments "$each"; then without=${without:-$each}; continue; fi
        if optimised "$each"; then
            [ -z "$first" ] || say "not with $first, which was built without --enable-optimizations and is slower" >&2
            printf '%s\n' "$each"
            return
        fi
        first=${first:-$each}
    done < <(candidates)
    [ -z "$first" ] || { printf '%s\n' "$first"; return; }
    [ -z "$without" ] || fail "$without $no_environments"
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

# One binary of one of Debian's packages, unpacked: that needs no root.
fetch_binary() {
    local package=$1 binary=$2 to
    command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1 || return 1
    to=$(mktemp -d)
    if (cd "$to" && timeout 120 apt-get download -qq "$package" && dpkg -x "$package"_*.deb unpacked) >/dev/null 2>&1 &&
        install -m 755 "$to/unpacked/usr/bin/$binary" "$venv/bin/$binary"; then
        rm -rf "$to"
        return 0
    fi
    rm -rf "$to"
    return 1
}

# For some tests alone, with many libraries: only who may install packages, and asks for them, gets them here.
install_packages() {
    [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    [ -n "${PEACEFS_BROWSER:-}" ] || return 1
    (timeout 300 apt-get install -qy --no-install-recommends "$@" ||
        { timeout 120 apt-get update && timeout 300 apt-get install -qy --no-install-recommends "$@"; }) >/dev/null 2>&1
}

if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python)
    say "virtual environment in $venv, with $("$python" benchmarks/interpreter.py || true) ($python)"
    "$python" -m venv "$venv" || fail "$python $no_environments"
fi
optimised "$venv/bin/python" ||
    say "hint: this Python was built without --enable-optimizations and is slower (docs/benchmarks.md); PYTHON= names another"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }
present() { [ -x "$venv/bin/$1" ] || command -v "$1" >/dev/null 2>&1; }
# PySpark comes as a source archive: the wheel that pip makes of its 450 MB is unpacked again at once.
export DIST_EXTRA_CONFIG=$PWD/locks/build.cfg

say 'what builds packages (locks/build.lock)'
pip install --require-hashes -r locks/build.lock
# Debian's binaries come while pip is busy.
fetching_etcd='' fetching_promtool=''
present etcd || { fetch_binary etcd-server etcd & fetching_etcd=$!; }
present promtool || { fetch_binary prometheus promtool & fetching_promtool=$!; }
trap 'jobs -p | xargs -r kill' EXIT
say 'what peacefs and its workshop use (locks/workshop.lock; PySpark alone is 450 MB, this takes a minute or two)'
pip install --no-compile --require-hashes --no-build-isolation -r locks/workshop.lock
# On all cores, which pip does not. What packages bring of files that this Python cannot read does not matter.
"$venv/bin/python" -m compileall -q -j 0 -x '/tests/' "$venv/lib" >/dev/null 2>&1 || true
if has_java; then
    say 'Java 17 or newer is there'
else
    say 'no Java 17 or newer was found: a runtime as a wheel (locks/java.lock)'
    pip install --require-hashes -r locks/java.lock
fi
if [ -z "$fetching_etcd" ]; then
    say 'etcd is there, for a coordinator with a standby (docs/failover.md)'
elif wait "$fetching_etcd"; then
    say 'etcd, for a coordinator with a standby (docs/failover.md)'
else
    say 'hint: no etcd, so tests of a coordinator with a standby are skipped; on Debian: apt-get install etcd-server'
fi
if [ -z "$fetching_promtool" ]; then
    say 'promtool is there, which checks the alert rules'
elif wait "$fetching_promtool"; then
    say 'promtool, which checks the alert rules'
else
    say 'hint: no promtool, so the alert rules are checked in part; on Debian: apt-get install prometheus'
fi
if pip install --require-hashes --no-build-isolation -r locks/linters.lock >/dev/null 2>&1; then
    say 'linters of Dockerfile and Kubernetes manifests (locks/linters.lock)'
else
    say 'hint: no linters of Dockerfile and manifests (locks/linters.lock) for this machine, so tests with them are skipped'
fi
if command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then
    say 'Chromium is there, for tests of the web page (docs/web-page.md)'
elif install_packages chromium; then
    say 'Chromium, for tests of the web page (docs/web-page.md)'
else
    say 'hint: no Chromium, so tests of the web page are skipped; on Debian: apt-get install chromium, or as root PEACEFS_BROWSER=1 make setup'
fi
if command -v fusermount3 >/dev/null 2>&1; then
    say 'libfuse 3 is there, for `peacefs mount` (docs/mount.md)'
elif [ -e /dev/fuse ] && install_packages fuse3; then
    say 'libfuse 3, for `peacefs mount` (docs/mount.md)'
else
    say 'hint: no libfuse 3, so tests of a mount are skipped; on Debian as root: apt-get install fuse3'
fi
if command -v nft >/dev/null 2>&1 && command -v ip >/dev/null 2>&1; then
    say 'nft and ip are there, for tests of installing on hosts (docs/install.md)'
elif install_packages nftables iproute2; then
    say 'nft and ip, for tests of installing on hosts (docs/install.md)'
else
    say 'hint: no nft or ip, so tests of installing on hosts are skipped; on Debian: apt-get install nftables iproute2'
fi
say 'peacefs itself'
pip install --no-build-isolation --no-deps --editable .
say 'kernels of paged state, which the first dataflow would compile otherwise'
"$venv/bin/python" -m peacefs.state.warm
say "ready: $venv/bin/peacefs"

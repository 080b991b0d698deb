#!/usr/bin/env bash
# Sets up a virtual environment (first argument) from requirements/dev.lock and resolves the jars.
# As root it installs missing Debian packages.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }

suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; }
find_python() { for p in python3 python3.13 python3.12 python3.11; do suitable "$p" && command -v "$p" && return; done; }

missing=()
python=$(find_python || true)
[ -n "$python" ] || missing+=(python3)
{ [ -n "$python" ] && "$python" -c 'import ensurepip, venv' 2>/dev/null; } || missing+=(python3-venv)
java_major=$(java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -1)
[ "${java_major:-0}" -ge 17 ] || missing+=(openjdk-17-jre-headless)
command -v mvn >/dev/null || missing+=(maven)
command -v ps >/dev/null || missing+=(procps)   # pyspark's launcher calls it
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)   # tests start servers
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing: ${missing[*]}"
    # Debian's package otherwise creates and starts a server.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
    python=$(find_python || true)
  else
    echo "ackwright needs these Debian packages, and only root can install them: apt-get install ${missing[*]}" >&2
    exit 2
  fi
fi

say "virtual environment $venv"
[ -n "$python" ] || { echo "ackwright needs Python 3.11, 3.12 or 3.13; this is $(python3 --version 2>&1)" >&2; exit 2; }
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==0.13.8"
export VIRTUAL_ENV=$PWD/$venv
case $venv in /*) VIRTUAL_ENV=$venv ;; esac
"$venv/bin/uv" pip install --quiet --require-hashes -r requirements/dev.lock
"$venv/bin/uv" pip install --quiet --no-deps -e .
say "jars"
"$venv/bin/python" -m ackwright.local.jars
"$venv/bin/python" -c "from ackwright.local import jars; jars.directory('registry')"   # the schema registry of the tests
"$venv/bin/python" -m ackwright.local.spark_start

#!/usr/bin/env bash
# Sets up a virtual environment (first argument) from requirements/dev.lock and resolves the jars.
# As root it installs missing Debian packages.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
say() { printf '\033[2m%s\033[0m\n' "$*" >&2; }

# step TITLE COMMAND...: runs the command, and shows the seconds meanwhile: on a terminal in one line, else every 30 s.
exec 3>&2  # the ticker prints there; the messages of its shell are of no interest
ticking=
trap '[ -z "$ticking" ] || kill -KILL "$ticking" 2>/dev/null' EXIT
tick() {
  local title=$1 each=30
  [ ! -t 3 ] || each=1
  while sleep $each 3>&-; do  # which outlives its loop, and must not hold the output open
    if [ -t 3 ]; then printf '\r\033[2m%s ... %d s\033[0m\033[K' "$title" $SECONDS >&3; else say "$title ... $SECONDS s" 2>&3; fi
  done
}
step() {
  local title=$1 code=0
  shift
  SECONDS=0
  say "$title"
  tick "$title" >/dev/null 2>&1 </dev/null &
  ticking=$!
  disown
  "$@" || code=$?
  kill -KILL "$ticking" 2>/dev/null || true
  ticking=
  [ ! -t 2 ] || printf '\r\033[K' >&2
  [ $code -eq 0 ] || exit $code
  [ $SECONDS -lt 5 ] || say "  done after $SECONDS s"
}

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
    # Debian's package otherwise creates and starts a server.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] || echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
    export DEBIAN_FRONTEND=noninteractive
    step "list of Debian packages" apt-get update -qq
    step "Debian packages: ${missing[*]}" \
      apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${missing[@]}" >/dev/null
    python=$(find_python || true)
  else
    echo "ackwright needs these Debian packages, and only root can install them: apt-get install ${missing[*]}" >&2
    exit 2
  fi
fi

[ -n "$python" ] || { echo "ackwright needs Python 3.11, 3.12 or 3.13; this is $(python3 --version 2>&1)" >&2; exit 2; }
[ -x "$venv/bin/python" ] || step "virtual environment $venv" "$python" -m venv "$venv"
export VIRTUAL_ENV=$PWD/$venv
case $venv in /*) VIRTUAL_ENV=$venv ;; esac
step "uv, which installs packages" "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==0.13.8"
step "Python packages, 1.6 GB with PySpark" "$venv/bin/uv" pip install --quiet --require-hashes -r requirements/dev.lock
# Spark puts this archive of pyspark's sources before the installed package on the path of its Python workers, and each
# daemon of workers would compile them again.
rm -f "$venv"/lib/python3.*/site-packages/pyspark/python/lib/*.zip
step "ackwright" "$venv/bin/uv" pip install --quiet --no-deps -e .
step "jars of Kafka and Spark, by Maven" "$venv/bin/python" -m ackwright.local.jars
step "jars of the tests' schema registry, by Maven" \
  "$venv/bin/python" -c "from ackwright.local import jars; jars.directory('registry')"
step "class archive, with which Spark starts in half the time" "$venv/bin/python" -m ackwright.local.spark_start

#!/usr/bin/env bash
# Make the virtual environment: create_environment.sh FOLDER CONSTRAINTS. PYTHON names the interpreter.
set -euo pipefail
venv=$1
constraints=$2
python=${PYTHON:-python3}

command -v "$python" >/dev/null || { echo "Python 3.11 or later is needed: install it, or name it with PYTHON=..." >&2; exit 1; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "Python 3.11 or later is needed, this is $("$python" -V): name another with PYTHON=..." >&2; exit 1; }
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  { echo "Python's venv is needed: on Debian 'apt-get install python3-venv'" >&2; exit 1; }

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "installing into $venv: the first time takes a few minutes (pyspark is large)"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" --group dev \
  --editable './proto[daemon]' --editable './client[cli,otel,prometheus,redis,rocketmq,testing]' --editable ./namesrv \
  --editable './broker_agent[redis]' --editable './spark_jobs[questions]'

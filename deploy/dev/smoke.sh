#!/usr/bin/env bash
# Run a few tests on the lowest versions of everything we require, and on each newer Python of this machine: smoke.sh UV
set -euo pipefail
uv=$PWD/$1
export UV_PYTHON_DOWNLOADS=never
# The wire, TLS and roles, the agent, messages through Redis from both facades and through RocketMQ's protocol, the command
# line, and a night of Spark.
tests=(
  tests/integration/namesrv/{registration/test_{registration,keep_alive},routes/test_{routes,watch},connections/test_{tls,access}}.py
  tests/integration/namesrv/remoting
  tests/integration/broker_agent/test_command.py
  tests/integration/client/{routes/test_client_credentials,consumer/test_push_consumer_agents,sync/test_sync_client}.py
  tests/integration/client/{transports/test_redis_transport,rocketmq/test_rocketmq_transport}.py
  tests/integration/ctl/test_ctl_process.py
  tests/unit/client/{redis_streams,rocketmq}
  tests/unit/spark_jobs/io
  tests/spark/test_command.py::test_findings_are_exit_1_and_are_printed
)
# What is deprecated between two versions of others is theirs to settle.
import_all='
import importlib, pkgutil
for name in ("pointsman", "pointsman_client", "pointsman_ctl", "pointsman_namesrv", "pointsman_agent", "pointsman_report"):
    for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
'

smoke() { # NAME PYTHON OPTION...: the options are for the installation of ours
  local venv=$PWD/.build/smoke/$1 python=$2
  echo "smoke tests: $1"
  shift 2
  "$uv" venv --quiet --clear --python "$python" "$venv"
  "$uv" pip install --quiet --python "$venv" "$@" \
    './proto[daemon]' './client[cli,otel,prometheus,redis,rocketmq,testing]' ./namesrv './broker_agent[redis]' './spark_jobs[questions]'
  "$uv" pip install --quiet --python "$venv" --constraint deploy/dev/constraints.txt \
    pytest pytest-asyncio pytest-timeout pytest-xdist hypothesis trustme
  "$venv/bin/python" -W error -W ignore::DeprecationWarning -c "$import_all"
  echo "every module imports without a warning"
  # Py4J leaves sockets to the garbage collector.
  "$venv/bin/pytest" --quiet -W ignore::DeprecationWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
    --override-ini cache_dir=.build/smoke/cache "${tests[@]}"
}

smoke lowest .venv/bin/python --resolution lowest-direct
# pyenv's commands answer only for versions that are selected.
if command -v pyenv >/dev/null; then PYENV_VERSION=$(pyenv versions --bare | paste -sd :) && export PYENV_VERSION; fi
for python in python3.12 python3.13; do
  if "$python" -c '' 2>/dev/null; then
    smoke "$python" "$("$python" -c 'import sys; print(sys.executable)')" --constraint deploy/dev/constraints.txt
  else
    echo "$python is not installed: its smoke tests are left out"
  fi
done

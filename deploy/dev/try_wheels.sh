#!/usr/bin/env bash
# Build each distribution's wheel into dist/ and try it in an empty environment: try_wheels.sh VENV, that of
# development.
set -euo pipefail
bin=$PWD/$1/bin
constraints=$PWD/deploy/dev/constraints.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p dist
rm -f dist/pointsman*.whl
"$bin/uv" build --quiet --all-packages --wheel --out-dir dist --no-create-gitignore
ls dist/pointsman*.whl
wheels=$PWD/dist
cd "$work"

wheel() { ls "$wheels/pointsman_$1"-*.whl; }

# Make an empty environment, or add to it, and install: into NAME REQUIREMENT...
into() {
  venv=$work/$1
  shift
  [ -x "$venv/bin/python" ] || "$bin/python" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}

# Fail unless the environment holds these distributions alone, and ours by the names given.
holds_only() {
  local found expected
  found=$("$venv/bin/pip" list --format=freeze | cut -d= -f1 | tr '[:upper:]_' '[:lower:]-' | grep -vxE 'pip|setuptools' | sort)
  expected=$(printf '%s\n' "$@" | sort)
  diff <(echo "$expected") <(echo "$found") >&2 || { echo "< expected, > installed by ${venv##*/}" >&2; exit 1; }
  echo "${venv##*/}: installs $(echo "$found" | paste -sd ' ')"
}

answers() {
  for command in "$@"; do
    "$venv/bin/$command" --help >/dev/null
    echo "${venv##*/}: $command --help answers"
  done
}

# Fail unless the program ends with an error that says what to install: wants TEXT ARGUMENT...
wants() {
  local text=$1
  shift
  "$@" >/dev/null 2>said && { echo "does without its extra: $*" >&2; exit 1; }
  grep -qF "$text" said || { cat said >&2; exit 1; }
  echo "${venv##*/}: without the extra it says $text"
}

base=(googleapis-common-protos grpcio protobuf typing-extensions pointsman-proto)
daemon=("${base[@]}" cffi click cryptography grpcio-health-checking grpcio-reflection grpcio-status hpack prometheus-client pycparser uvloop)

# An application that is held to protobuf 6.
into client "$(wheel proto)" "$(wheel client)" 'protobuf<7'
holds_only "${base[@]}" grpcio-status pointsman-client
"$venv/bin/python" -W error -c 'import pointsman_client, pointsman_client.sync'
wants "pip install 'pointsman-client[redis]'" "$venv/bin/python" -c 'import pointsman_client.redis_streams'
wants "pip install 'pointsman-client[otel]'" "$venv/bin/python" -c 'import pointsman_client.opentelemetry'
wants "pip install 'pointsman-client[prometheus]'" "$venv/bin/python" -c 'import pointsman_client.prometheus'
wants "pip install 'pointsman-client[testing]'" "$venv/bin/python" -c 'from pointsman_client.testing import TestFleet; TestFleet().start()'
wants "pip install 'pointsman-client[cli]'" "$venv/bin/pointsmanctl" --help
into client "$(wheel proto)" "$(wheel client)[cli,otel,prometheus,redis,rocketmq,testing]" "$(wheel namesrv)" "$(wheel agent)" 'protobuf<7'
answers pointsmanctl
"$venv/bin/python" -c 'import pointsman_client.opentelemetry, pointsman_client.opentelemetry_metrics, pointsman_client.prometheus, pointsman_client.redis_streams'
cat >first_message.py <<'END'
from pointsman_client import ConsumeFrom, Message
from pointsman_client.sync import NameServerClient, Producer, PushConsumer
from pointsman_client.testing import TestFleet

consumed = []
with TestFleet() as fleet:
    fleet.add_broker("broker-a", topics={"orders": 4})
    with NameServerClient(fleet.name_servers) as client:
        assert [broker.broker_name for broker in client.topic_route("orders").broker_datas] == ["broker-a"]
    here = {"transport": fleet.transport, "clock": fleet.clock}
    with Producer(fleet.name_servers, **here) as producer:
        producer.send(Message("orders", b"first"))
    with PushConsumer(
        fleet.name_servers, group="billing", subscriptions={"orders": "*"}, listener=lambda m: consumed.append(m.body),
        consume_from=ConsumeFrom.FIRST_OFFSET, **here,
    ):
        fleet.advance_until(lambda: consumed == [b"first"])
END
"$venv/bin/python" first_message.py
echo "client: a route over gRPC and a first message, with the test kit"

into namesrv --constraint "$constraints" "$(wheel proto)" "$(wheel namesrv)"
holds_only "${daemon[@]}" jinja2 markupsafe pointsman-namesrv
answers pointsman-namesrv pointsman-observe
"$venv/bin/python" -c 'from pointsman_namesrv.web.page_rendering import TEMPLATES; assert "fleet.html" in TEMPLATES.list_templates()'

into agent --constraint "$constraints" "$(wheel proto)" "$(wheel agent)[redis]"
holds_only "${daemon[@]}" pointsman-agent hiredis redis
answers pointsman-agent

# An application that has a package by the name of our folder.
mkdir spark_jobs
echo 'OWNER = "the application"' >spark_jobs/__init__.py
into report --constraint "$constraints" "$(wheel proto)" "$(wheel report)"
answers pointsman-report
wants "pip install 'pointsman-report[questions]'" "$venv/bin/pointsman-report" route-at orders --at 03:12 --warehouse .
"$venv/bin/python" -c 'import spark_jobs, pointsman_report; assert spark_jobs.OWNER == "the application"'
"$venv/bin/python" -c '
from importlib.resources import files
for name in ("page.css", "templates/page.html"):
    files("pointsman_report.report").joinpath(name).read_bytes()'
! "$venv/bin/pip" list | grep -iE 'grpc|protobuf|uvloop' || { echo "the report installs gRPC" >&2; exit 1; }
echo "report: installs $("$venv/bin/pip" list --format=freeze | cut -d= -f1 | grep -vxE 'pip|setuptools' | paste -sd ' ')"

into report --constraint "$constraints" "$wheels"/pointsman*.whl
"$venv/bin/pip" check >/dev/null
for command in pointsman-namesrv pointsman-observe pointsman-agent pointsmanctl pointsman-report; do
  "$venv/bin/$command" --version
done

# As commands of one user: each program in its own environment, from the files alone.
export UV_TOOL_DIR=$work/uv UV_TOOL_BIN_DIR=$work/uv/bin PIPX_HOME=$work/pipx PIPX_BIN_DIR=$work/pipx/bin PIPX_MAN_DIR=$work/pipx/man
for program in namesrv 'agent[redis]' 'client[cli]' report; do
  wheel=$(wheel "${program%[*}")$(grep -o '\[.*' <<<"$program" || true)
  "$bin/uv" tool install --quiet --python "$bin/python" --constraints "$constraints" --with "$(wheel proto)" "$wheel"
  PIP_CONSTRAINT=$constraints "$bin/uv" tool run --quiet pipx==1.18.4 install --quiet --python "$bin/python" \
    --preinstall "$(wheel proto)" "$wheel" >/dev/null
done
for folder in "$UV_TOOL_BIN_DIR" "$PIPX_BIN_DIR"; do
  for command in pointsman-namesrv pointsman-observe pointsman-agent pointsmanctl pointsman-report; do
    echo "${folder%/bin}: $("$folder/$command" --version)"
  done
done

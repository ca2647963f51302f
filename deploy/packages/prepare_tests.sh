#!/usr/bin/env bash
# What the tests of the packages need: prepare_tests.sh UV. In .build/test-packages: `now`, the packages of this tree;
# `before`, those of the last released programs, without which a shallow clone does; `root`, a Debian bookworm with systemd,
# redis-server, rpm and shells. Needs root; installs debootstrap, lintian, man-db, rpm and systemd-container where missing.
set -euo pipefail
uv=$(realpath "$1")
cd "$(dirname "$0")/../.."
read -r version before < <(tail -n 1 tests/compatibility/RELEASED)
folder=.build/test-packages
mkdir -p "$folder"

[ "$(id -u)" -eq 0 ] || { echo "the tests of the packages boot a system in a container: run them as root" >&2; exit 1; }
missing=()
for need in debootstrap:debootstrap lintian:lintian man:man-db rpm:rpm systemd-nspawn:systemd-container; do
  command -v "${need%:*}" >/dev/null || missing+=("${need#*:}")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null || { echo "please install ${missing[*]}, then run this again" >&2; exit 1; }
  echo "installing ${missing[*]}"
  apt-get update --quiet=2
  DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ ! -e "$folder/root.done" ]; then
  echo "making a Debian bookworm: a minute"
  rm -rf "$folder/root"
  debootstrap --variant=minbase --include=python3,systemd,redis-server,rpm,man-db,bash-completion,zsh,fish \
    bookworm "$folder/root" >/dev/null
  touch "$folder/root.done"
fi

rm -rf "$folder/now" "$folder/before" "$folder/sources"
deploy/packages/build_packages.sh "$uv" "$folder/now"
if git cat-file -e "$before^{commit}" 2>/dev/null; then
  mkdir "$folder/sources"
  git archive "$before" | tar -x -C "$folder/sources"
  deploy/packages/build_packages.sh "$uv" "$folder/before" "$folder/sources"
else
  echo "$version ($before) is not in this clone: the upgrade is not tested"
fi

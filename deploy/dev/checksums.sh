#!/usr/bin/env bash
# Write SHA256SUMS of a folder's files: checksums.sh FOLDER. `sha256sum --check SHA256SUMS` checks them there.
set -euo pipefail
cd "$1"
rm -f SHA256SUMS
find . -type f -printf '%P\0' | sort -z | xargs -0 sha256sum >.SHA256SUMS
mv .SHA256SUMS SHA256SUMS
echo "$PWD/SHA256SUMS: $(wc -l <SHA256SUMS) files"

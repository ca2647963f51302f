#!/usr/bin/env bash
# Write SHA256SUMS of a folder's files: checksums.sh FOLDER. `sha256sum --check SHA256SUMS` checks them there.
set -euo pipefail
cd "$1"
# In two steps: the list is complete before there is a file that could be in it.
sums=$(find . -type f ! -path ./SHA256SUMS -printf '%P\0' | sort -z | xargs -0 sha256sum)
printf '%s\n' "$sums" >SHA256SUMS
echo "$PWD/SHA256SUMS: $(wc -l <SHA256SUMS) files"

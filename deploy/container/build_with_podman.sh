#!/usr/bin/env bash
# Build the three images with podman on a base made here, without pulling one: build_with_podman.sh [SUITE]. The base is a
# minimal Debian (bookworm: Python 3.11; trixie: 3.13), kept as localhost/pointsman-base:SUITE. Needs root; installs
# podman and debootstrap where they are missing.
set -euo pipefail
suite=${1:-bookworm}
base=localhost/pointsman-base:$suite
certificates=/etc/ssl/certs/ca-certificates.crt

missing=()
for program in podman runc debootstrap; do command -v "$program" >/dev/null || missing+=("$program"); done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "please install ${missing[*]} as root, then run this again" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  apt-get update --quiet=2
  DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! podman image exists "$base"; then
  echo "making $base: a minute"
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  chmod 755 "$root"  # it becomes the root of the image, which other users must be able to enter
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates "$suite" "$root" >/dev/null
  tar -C "$root" -c . | podman import --quiet - "$base" >/dev/null
fi
for image in namesrv agent report; do
  echo "building pointsman-$image:$suite"
  # Docker's format keeps the health check. The certificates of this machine: a package index may have its own authority.
  podman build --quiet --isolation chroot --format docker --ignorefile deploy/container/Containerfile.dockerignore \
    --volume "$certificates:$certificates:ro" --build-arg "PYTHON=$base" \
    --file deploy/container/Containerfile --target "$image" --tag "localhost/pointsman-$image:$suite" . >/dev/null
done
podman images --format '{{.Repository}}:{{.Tag}}  {{.Size}}' | grep "pointsman-[a-z]*:$suite"

#!/usr/bin/env bash
# Build the three images with podman on a base made here, without pulling one: build_with_podman.sh [SUITE]. The base is a
# minimal Debian (bookworm: Python 3.11; trixie: 3.13), kept as localhost/pointsman-base:SUITE. Needs root; installs
# podman and debootstrap where they are missing. The images are in .build/podman, apart from others of this machine: to
# use podman with them set CONTAINERS_STORAGE_CONF and CONTAINERS_CONF to the two files there.
set -euo pipefail
cd "$(dirname "$0")/../.."
suite=${1:-bookworm}
base=localhost/pointsman-base:$suite
certificates=/etc/ssl/certs/ca-certificates.crt

missing=()
for package in podman runc debootstrap catatonit netavark aardvark-dns; do
  [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "please install ${missing[*]} as root, then run this again" >&2
    exit 1
  fi
  echo "installing ${missing[*]}"
  apt-get update --quiet=2
  DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --no-install-recommends "${missing[@]}" >/dev/null
fi

# Podman's default without a configuration is vfs, which copies the whole image for each layer: 23 GB in place of 2.
if [ ! -f .build/podman/storage.conf ]; then
  mkdir -p .build/podman/{lower,upper,work,merged}
  driver=vfs
  if mount -t overlay overlay -o lowerdir=.build/podman/lower,upperdir=.build/podman/upper,workdir=.build/podman/work .build/podman/merged; then
    umount .build/podman/merged
    driver=overlay
  fi
  rm -rf .build/podman/{lower,upper,work,merged}
  printf '[storage]\ndriver = "%s"\ngraphroot = "%s"\nrunroot = "%s"\n' "$driver" "$PWD/.build/podman/images" "$PWD/.build/podman/run" \
    > .build/podman/storage.conf
fi
# crun refuses the cgroups of some machines; where these limits are lower than podman's, a container may not have more.
printf '[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=1000:1000"]\n[network]\nnetwork_backend = "netavark"\n' \
  > .build/podman/containers.conf
export CONTAINERS_STORAGE_CONF=$PWD/.build/podman/storage.conf CONTAINERS_CONF=$PWD/.build/podman/containers.conf

if ! podman image exists "$base"; then
  echo "making $base: a minute"
  root=$(mktemp -d)
  trap 'rm -rf "$root"' EXIT
  chmod 755 "$root"  # it becomes the root of the image, which other users must be able to enter
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates "$suite" "$root" >/dev/null
  tar -C "$root" -c . | podman import --quiet - "$base" >/dev/null
fi
for image in namesrv observe agent report; do
  echo "building pointsman-$image:$suite"
  # Docker's format keeps the health check. The certificates of this machine: a package index may have its own authority.
  podman build --quiet --isolation chroot --format docker --ignorefile deploy/container/Containerfile.dockerignore \
    --volume "$certificates:$certificates:ro" --build-arg "PYTHON=$base" \
    --file deploy/container/Containerfile --target "$image" --tag "localhost/pointsman-$image:$suite" . >/dev/null
done
# What deploy/compose takes from a registry, of Debian's packages.
for image in redis prometheus; do
  echo "building pointsman-test-$image:$suite"
  podman build --quiet --isolation chroot --format docker --build-arg "BASE=$base" \
    --file tests/images/Containerfile --target "$image" --tag "localhost/pointsman-test-$image:$suite" tests/images >/dev/null
done
podman images --format '{{.Repository}}:{{.Tag}}  {{.Size}}' | grep "pointsman-[a-z-]*:$suite"

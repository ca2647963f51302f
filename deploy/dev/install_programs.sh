#!/usr/bin/env bash
# Install what is missing of Java 17 and redis-server, with `tests` of Chromium and Prometheus (promtool) as well, or
# print in one line what to install. With `charts`: Helm alone, into .build/bin, where Go is there to build it.
set -euo pipefail
cd "$(dirname "$0")/../.."
helm=helm.sh/helm/v3/cmd/helm@v3.22.0

if [ "${1:-}" = charts ]; then
  if [ -x .build/bin/helm ] || command -v helm >/dev/null; then exit 0; fi
  command -v go >/dev/null || PATH=$PATH:/usr/local/go/bin
  command -v go >/dev/null || { echo "please install Helm 3, or Go 1.26 to build it, then run this again" >&2; exit 1; }
  echo "building ${helm##*@} of Helm into .build/bin: a few minutes"
  # Without these Helm takes the cluster of `helm template` for Kubernetes 1.20.
  flags=
  for package in pkg/chartutil pkg/lint/rules; do
    flags+=" -X helm.sh/helm/v3/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/$package.k8sVersionMinor=34"
  done
  GOBIN=$PWD/.build/bin go install -ldflags "$flags" "$helm"
  exit 0
fi

java_is_good() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
  version=$("$java" -version 2>&1 | sed -nE '1s/.*"([0-9]+).*/\1/p') || return 1
  [ -n "$version" ] && [ "$version" -ge 17 ]
}

missing=()
java_is_good || missing+=(openjdk-17-jre-headless)
command -v redis-server >/dev/null || missing+=(redis-server)
if [ "${1:-}" = tests ]; then
  command -v chromium >/dev/null || missing+=(chromium)
  command -v chromedriver >/dev/null || missing+=(chromium-driver)
  command -v promtool >/dev/null || missing+=(prometheus)
fi
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
fi
if ! command -v apt-get >/dev/null || [ "${as_root[*]}" = false ]; then
  echo "please install ${missing[*]} (on Debian: apt-get install ${missing[*]}; any Java from 17 on will do), then run this again" >&2
  exit 1
fi

echo "installing ${missing[*]}"
install() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --no-install-recommends "$@" >/dev/null; }
"${as_root[@]}" apt-get update --quiet=2
for package in "${missing[@]}"; do
  # Newer Debians have no Java 17; whatever is their default is newer.
  install "$package" || { [ "$package" = openjdk-17-jre-headless ] && install default-jre-headless; } ||
    { echo "$package could not be installed: please install it, then run this again" >&2; exit 1; }
done

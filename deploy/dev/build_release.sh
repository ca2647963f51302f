#!/usr/bin/env bash
# Build everything of a release twice, compare, and put it into dist/: build_release.sh UV
# What is built is HEAD as it is at the start, in another folder each time. With TAG=v0.2.0 the version must be 0.2.0.
set -euo pipefail
uv=$(realpath "$1")
export SOURCE_DATE_EPOCH UV_PYTHON_DOWNLOADS=never PYTHONDONTWRITEBYTECODE=1
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' proto/pointsman/__init__.py)
work=$PWD/.build/release

[ -z "$(git status --porcelain)" ] || { echo "there are changes that are not committed: a release is a commit" >&2; exit 1; }
[ -z "${TAG:-}" ] || [ "$TAG" = "v$version" ] || { echo "the tag is $TAG, the version $version" >&2; exit 1; }

# What is inside an environment, as CycloneDX: bill_of PYTHON FILE
bill_of() {
  "$uv" tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment --output-reproducible --of JSON --sv 1.6 \
    --output-file "$2" "$1"
}

# In the folder of the sources: build into FOLDER
build() {
  local to=$1 environment=.build/bill part wheel file
  "$uv" build --quiet --all-packages --out-dir "$to" --no-create-gitignore --build-constraints deploy/dev/constraints.txt
  deploy/packages/build_packages.sh "$uv" "$to"
  for file in "$to"/pointsman_*.deb "$to"/pointsman-*.rpm; do bill_of .build/packages/stage/opt/pointsman/bin/python "$file.cdx.json"; done

  # Of a wheel: what `pip install` brings with it, in the versions that were tested.
  for part in proto client namesrv agent report; do
    wheel=$(ls "$to/pointsman_$part"-*.whl)
    "$uv" venv --quiet --clear --no-project "$environment"
    "$uv" pip install --quiet --python "$environment" --constraint deploy/dev/constraints.txt --find-links "$to" "$wheel"
    # The path of the build.
    find "$environment" -name direct_url.json -delete
    bill_of "$environment/bin/python" "$wheel.cdx.json"
  done

  # As `helm package` does it, which writes the time of the build.
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar --dereference \
    -C deploy/helm -c pointsman | gzip -9n >"$to/pointsman-$(sed -n 's/^version: //p' deploy/helm/pointsman/Chart.yaml).tgz"
}

for turn in first second; do
  echo "release $version: $turn build"
  rm -rf "${work:?}/$turn" "$work/sources-$turn"
  mkdir -p "$work/$turn" "$work/sources-$turn"
  git archive "$commit" | tar -x -C "$work/sources-$turn"
  (cd "$work/sources-$turn" && build "$work/$turn")
done
diff -rq "$work/first" "$work/second" || { echo "two builds of one commit differ" >&2; exit 1; }
echo "both builds of ${commit:0:8} are equal, byte for byte: $(ls "$work/first" | wc -l) files"

rm -rf dist
mv "$work/first" dist
rm -rf "$work"
deploy/dev/checksums.sh dist
echo "not in dist: container images; \`make images save-images\` adds them, and their base decides whether twice the same"

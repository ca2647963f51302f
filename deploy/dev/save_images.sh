#!/usr/bin/env bash
# Save images as OCI archives with what is inside as CycloneDX: save_images.sh UV ENGINE FOLDER NAME[:TAG]...
# ENGINE is podman, or docker from 25 on.
set -euo pipefail
uv=$1 engine=$2 folder=$3
shift 3
mkdir -p "$folder"
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' proto/pointsman/__init__.py)
format=()
if [ "${engine##*/}" = podman ]; then format=(--quiet --format oci-archive); fi
list='
from importlib.metadata import distributions
print("\n".join(sorted(f"{each.name}=={each.version}" for each in distributions())))'

for image in "$@"; do
  name=${image##*/}
  file=$folder/${name%%:*}-$version-$("$engine" image inspect --format '{{.Architecture}}' "$image").oci.tar
  rm -f "$file"
  "$engine" save "${format[@]}" --output "$file" "$image"
  inside=$(mktemp)
  # Run without the network and the image's user: it lists the packages of /opt/pointsman and nothing else.
  "$engine" run --rm --network none --entrypoint /opt/pointsman/bin/python "$image" -c "$list" >"$inside"
  "$uv" tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --output-reproducible --of JSON --sv 1.6 \
    --output-file "$file.cdx.json" "$inside"
  echo "$file: $(wc -l <"$inside") Python packages inside"
  rm "$inside"
done

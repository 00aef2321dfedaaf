#!/usr/bin/env bash
# Builds the chat page:  web/build.sh NODE NPM FOLDER OUT
# Installs the packages of package-lock.json in FOLDER once; OUT is the C++ file that contains the page.
set -euo pipefail
node=$1 npm=$2 folder=$3 out=$4
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
min_node=18

version=$("$node" --version)
major=${version#v}
if [ "${major%%.*}" -lt $min_node ]; then
  echo "zinc: the chat page needs Node $min_node or newer, found $version; to build without the page: cmake --preset release" \
    "-DZINC_WEB=OFF" >&2
  exit 1
fi

"$here/fetch_packages.sh" "$npm" "$here" "$folder" "to build without the page: cmake --preset release -DZINC_WEB=OFF"
"$node" "$here/build.mjs" "$folder" "$out"

#!/usr/bin/env bash
# Makes the chat page:  web/build.sh NODE NPM FOLDER OUT
# Packages go to FOLDER once, as package-lock.json names them; OUT is the C++ file that holds the page.
set -euo pipefail
node=$1 npm=$2 folder=$3 out=$4
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$folder"
min_node=18

version=$("$node" --version)
major=${version#v}
if [ "${major%%.*}" -lt $min_node ]; then
  echo "zinc: the chat page needs Node $min_node or newer, this one is $version; to build without it: cmake --preset release" \
    "-DZINC_WEB=OFF" >&2
  exit 1
fi

if ! cmp -s "$here/package-lock.json" "$folder/installed.json"; then
  cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$folder/"
  (cd "$folder" && "$npm" ci --silent --ignore-scripts --no-audit --no-fund) || {
    echo "zinc: the packages of the chat page could not be fetched (npm's words are above). Is the package registry" \
      "reachable? To build without the page: cmake --preset release -DZINC_WEB=OFF" >&2
    exit 1
  }
  cp "$here/package-lock.json" "$folder/installed.json"
fi
"$node" "$here/build.mjs" "$folder" "$out"

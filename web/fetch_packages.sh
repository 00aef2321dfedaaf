#!/usr/bin/env bash
# Installs the packages of a lock file in a folder, once:  web/fetch_packages.sh NPM SOURCE FOLDER HINT
# If the registry cannot be reached, fails with one line after at most half a minute (npm's own timeouts are minutes); HINT, the
# end of that line, says how to proceed.
set -euo pipefail
npm=$1 source=$2 folder=$3 hint=$4
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cmp -s "$source/package-lock.json" "$folder/installed.json" && exit 0
cp "$source/package.json" "$source/package-lock.json" "$source/.npmrc" "$folder/"
log=$folder/npm.log
if ! (cd "$folder" && "$npm" ci --ignore-scripts --no-audit --no-fund --no-update-notifier --prefer-offline --loglevel=error \
  --fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=2000 --fetch-timeout=10000 >"$log" 2>&1); then
  reason=$(grep -m1 -E 'reason:|timeout|40[0-9] ' "$log" || head -n1 "$log")
  echo "zinc: could not download the npm packages of the chat page ($(sed -E 's/^npm (ERR!|error) //' <<<"$reason")); $hint" >&2
  exit 1
fi
cp "$source/package-lock.json" "$folder/installed.json"

#!/usr/bin/env bash
# Runs one libFuzzer program for some seconds, from its committed corpus:  tools/fuzz_one.sh SECONDS BUILD/NAME_fuzz
# Inputs that reach new code go to BUILD/found/NAME, one that breaks the program to BUILD/broken/NAME-*.
set -euo pipefail
seconds=$1 target=$2
name=$(basename "$target" _fuzz) build=$(dirname "$target")
mkdir -p "$build/found/$name" "$build/broken"
if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
  -artifact_prefix="$build/broken/$name-" "$build/found/$name" "tests/fuzz/corpus/$name" >"$build/found/$name.log" 2>&1; then
  cat "$build/found/$name.log" >&2
  echo "fuzz $name: FAILED; the input is in $build/broken" >&2
  exit 1
fi
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/found/$name.log")
echo "fuzz $name: ${runs:-0} inputs in $seconds s"
[ "${runs:-0}" -gt 0 ]

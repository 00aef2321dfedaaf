#!/usr/bin/env bash
# Runs the tests of tools/shaders, rebuilds the Vulkan kernels with it and its locked dependencies, and compares the result with
# the committed src/backend/vulkan/kernels.spv byte by byte. Prints one line. Exit code: 0 identical, 1 different or build failed, 77
# skipped because cargo is not installed or cannot get the dependencies.
# The build folder is $CARGO_TARGET_DIR, by default outside of the source tree. The first build takes minutes.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
shaders=$root/src/backend/vulkan/shader
committed=$root/src/backend/vulkan/kernels.spv
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${TMPDIR:-/tmp}/zinc-shaders-target}

if ! command -v cargo > /dev/null; then
  echo "check_kernels_spv: skipped: cargo is not installed (see https://rustup.rs)"
  exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$root/tools/shaders" || exit 1
if ! cargo fetch --locked > "$work/log" 2>&1; then
  if grep -qiE 'lock file|--locked' "$work/log"; then
    cat "$work/log" >&2
    echo "check_kernels_spv: FAILED: tools/shaders/Cargo.lock does not match Cargo.toml; run 'cargo update' there and commit it"
    exit 1
  fi
  cat "$work/log" >&2
  echo "check_kernels_spv: skipped: cargo cannot download the dependencies of tools/shaders"
  exit 77
fi
if ! cargo build --release --locked > "$work/log" 2>&1; then
  cat "$work/log" >&2
  echo "check_kernels_spv: FAILED: tools/shaders does not build"
  exit 1
fi
if ! cargo test --release --locked > "$work/log" 2>&1; then
  cat "$work/log" >&2
  echo "check_kernels_spv: FAILED: the tests of tools/shaders"
  exit 1
fi
if ! "$CARGO_TARGET_DIR/release/shaders" "$shaders" "$work/kernels.spv" > "$work/log" 2>&1; then
  cat "$work/log" >&2
  echo "check_kernels_spv: FAILED: the shaders do not compile"
  exit 1
fi
if ! difference=$(cmp "$work/kernels.spv" "$committed" 2>&1); then
  echo "check_kernels_spv: FAILED: kernels.spv differs from its sources ($difference); see 'Rebuilding the kernels' in src/backend/vulkan/README.md"
  exit 1
fi
echo "check_kernels_spv: ok: $(cat "$work/log"), identical to src/backend/vulkan/kernels.spv"

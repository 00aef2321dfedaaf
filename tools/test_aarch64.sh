#!/usr/bin/env bash
# Builds the backends' tests for 64-bit Arm and runs them under qemu:  tools/test_aarch64.sh [TEST...]
# TEST: test programs to build and run (default: the tests of src/backend, every operation and format). Debian 12 or later; as root
# or with sudo it installs the cross compiler, qemu and the libraries that are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

tests=("$@")
if [ $# = 0 ]; then tests=(backend_unit_test backend_conformance_test); fi

tools/install_deps.sh build # Boost and CLI11 are headers, the same for every processor
tools/install_aarch64.sh
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 --target "${tests[@]}"
for test in "${tests[@]}"; do
  echo "== $test on aarch64 (qemu)"
  qemu-aarch64-static "build-aarch64/$test" --gtest_brief=1
done

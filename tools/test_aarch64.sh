#!/usr/bin/env bash
# Builds the backends' tests for 64-bit Arm and runs them under qemu:  tools/test_aarch64.sh [TEST...]
# TEST: test programs to build and run (default: the tests of src/backend, every operation and format). Debian 12 or later; as root
# or with sudo it installs the cross compiler, qemu and the libraries that are missing.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++-aarch64-linux-gnu qemu-user libfmt-dev:arm64 libgtest-dev:arm64 zlib1g-dev:arm64)
tests=("$@")
if [ $# = 0 ]; then tests=(backend_unit_test backend_conformance_test); fi

installed() { dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>/dev/null | grep -cx installed; }

install_packages() {
  local as_root=()
  if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi
  "${as_root[@]}" dpkg --add-architecture arm64
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update || true # a list that is there may still do
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends --no-remove "${packages[@]}"
}

tools/install_deps.sh build # Boost and CLI11 are headers, the same for every processor
if [ "$(installed "${packages[@]}")" != "${#packages[@]}" ]; then install_packages; fi
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 --target "${tests[@]}"
for test in "${tests[@]}"; do
  echo "== $test on aarch64 (qemu)"
  qemu-aarch64 "build-aarch64/$test" --gtest_brief=1
done

#!/usr/bin/env bash
# Makes sure that a cross compiler for 64-bit Arm, qemu and Debian's libraries of that architecture are there. Debian 12 or later;
# installs what is missing, as root or with sudo.
set -euo pipefail
packages=(g++-aarch64-linux-gnu qemu-user-static libcurl4-openssl-dev:arm64 libedit-dev:arm64 libfmt-dev:arm64
  libgtest-dev:arm64 libssl-dev:arm64 zlib1g-dev:arm64)

installed() { dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>/dev/null | grep -cx installed; }

if [ "$(installed "${packages[@]}")" = "${#packages[@]}" ]; then exit; fi
as_root=()
if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi
"${as_root[@]}" dpkg --add-architecture arm64
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update || true # a list that is there may still do
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --no-remove "${packages[@]}"

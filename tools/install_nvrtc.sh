#!/usr/bin/env bash
# CUDA's run-time compiler as a Python package, unpacked into FOLDER for the tests:  tools/install_nvrtc.sh FOLDER
# Ends with 77, which ctest shows as skipped, where the package cannot be had.
set -euo pipefail
folder=$1 package=nvidia-cuda-nvrtc==13.0.88
[ "$(cat "$folder/installed.txt" 2>/dev/null)" = "$package" ] && exit
mkdir -p "$folder"
python3 -m pip install -q --disable-pip-version-check --no-deps --upgrade --target "$folder" "$package" || exit 77
echo "$package" >"$folder/installed.txt"

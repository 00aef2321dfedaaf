#!/bin/sh
# Prints the clang++ to use: the plain name if there is one, else the newest versioned one; nothing if there is none.
for name in clang++ $(seq -f 'clang++-%.0f' 30 -1 14); do
  if command -v "$name" >/dev/null 2>&1; then
    echo "$name"
    exit
  fi
done

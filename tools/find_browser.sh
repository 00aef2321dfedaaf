#!/usr/bin/env bash
# Prints the path of a Chromium for the chat page's tests, the one without windows first; nothing if there is none.
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
  if command -v "$name"; then exit; fi
done

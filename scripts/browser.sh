#!/usr/bin/env bash
# A Chromium for the tests of the page: the one on the PATH, or the distribution's package when we may install it.
set -euo pipefail

for name in chromium chromium-browser google-chrome google-chrome-stable; do
  if command -v "$name" >/dev/null; then
    exit 0
  fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing chromium for the tests of the page"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null
  apt-get install -y -qq --no-install-recommends chromium </dev/null >/dev/null
  exit 0
fi
echo "No Chromium is on the PATH: the tests of the page will fail. Debian: sudo apt-get install chromium" >&2

#!/usr/bin/env bash
# Make the virtual environment $1 with the first Python >= 3.11 that can make one.
# PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail

venv=$1
is_new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
if "$venv/bin/python" -c "import pip; $is_new_enough" 2>/dev/null; then
  exit 0
fi

without_venv=
for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
  "$python" -c "$is_new_enough" 2>/dev/null || continue
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    without_venv=$python
    continue
  fi
  echo "Making $venv with $("$python" --version) ($(command -v "$python"))"
  exec "$python" -m venv --clear "$venv"
done

if [ -n "$without_venv" ]; then
  echo "error: $without_venv ($("$without_venv" --version)) cannot make virtual environments:" \
    "its modules venv or ensurepip are missing." >&2
  echo "Install it (Debian and Ubuntu: apt install python3-venv) and run make again." >&2
else
  echo "error: no Python >= 3.11 found${PYTHON:+ (PYTHON is set to '$PYTHON')};" \
    "python3 is $(python3 --version 2>/dev/null || echo missing)." >&2
  echo "Install one, or name it: make setup PYTHON=/path/to/python3" >&2
fi
exit 1

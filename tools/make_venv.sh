#!/usr/bin/env bash
# Makes the virtual environment given as $1 with the locked pip and setuptools, or says what this machine lacks.
set -euo pipefail

venv=$1
here=$(cd "$(dirname "$0")/.." && pwd)

say() { echo "  $*" >&2; }

# An environment holds absolute paths: it breaks when its folder is moved or its Python is removed. It is then made again.
is_sound() {
  "$venv/bin/python" -c 'import pip' 2>/dev/null && grep -qF "$(cd "$venv" && pwd -P)" "$venv/bin/activate"
}

# The first of the usual names that is CPython 3.11, 3.12 or 3.13; PYTHON=/path/to/python comes before them.
find_python() {
  local name
  for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
    if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13) or sys.implementation.name != "cpython")' \
      2>/dev/null; then
      echo "$name"
      return
    fi
  done
  say "CPython 3.11, 3.12 or 3.13 was not found (looked for: ${PYTHON:+$PYTHON }python3 python3.13 python3.12 python3.11 python)."
  say "Install one (Debian, Ubuntu: apt install python3 python3-venv; anywhere: pyenv, conda),"
  say "or name it: make setup PYTHON=/path/to/python3.13"
  return 1
}

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
  say "note: the locked versions are tested on Linux x86-64; this is $(uname -s) $(uname -m)."
fi

if [ -e "$venv" ] && ! is_sound; then
  say "$venv was made in another folder or for a Python that is gone: making it again"
  rm -rf "$venv"
fi
if [ ! -e "$venv" ]; then
  python=$(find_python)
  if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    say "$python has no venv module (Debian, Ubuntu: apt install python3-venv)."
    exit 1
  fi
  say "making $venv with $("$python" --version)"
  "$python" -m venv "$venv"
fi
"$venv/bin/python" -m pip install -qq -c "$here/constraints.txt" pip setuptools wheel

# Sourced by the scripts that set everything up: makes a virtual environment with the project in it.

# make_venv ROOT VENV GROUP: GROUP is a dependency group of pyproject.toml, or empty.
make_venv() {
  python=$(find_python) || {
    echo "Python 3.11 or newer is needed and was not found." >&2
    return 1
  }
  if [ ! -x "$2/bin/pip" ]; then
    rm -rf "$2"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_venv_module || {
      echo "Python's venv module is needed: apt-get install python3-venv" >&2
      return 1
    }
    "$python" -m venv "$2" || return 1
  fi
  # Dependency groups need pip 25.1; Debian 12 has 23.
  "$2/bin/pip" install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' || return 1
  if [ -n "$3" ]; then
    (cd "$1" && "$2/bin/pip" install --quiet --disable-pip-version-check --editable . --group "$3")
  else
    (cd "$1" && "$2/bin/pip" install --quiet --disable-pip-version-check --editable .)
  fi
}

find_python() {
  for name in python3 python3.13 python3.12 python3.11; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$name"
      return 0
    fi
  done
  return 1
}

install_venv_module() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    python3-venv python3-pip ca-certificates >/dev/null
}

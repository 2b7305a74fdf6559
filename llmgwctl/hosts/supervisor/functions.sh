die() { status=$1; shift; printf '%s\n' "$*" >&2; exit "$status"; }
nap() { sleep 0.2 2>/dev/null || sleep 1; }
has() { command -v "$1" >/dev/null 2>&1; }
limit() { # seconds, command: with a deadline where the host has `timeout`
  s=$1; shift
  if has timeout; then timeout "$s" "$@"; else "$@"; fi
}
look() { # pid -> S state, P parent, N session, Y terminal, B start time; the name in field 2 may hold blanks and brackets
  { read -r line < "/proc/$1/stat"; } 2>/dev/null || return 1
  set -- ${line##*)}
  S=$1 P=$2 N=$4 Y=$5 B=${20}
}
session_pids() { # every process of the session $SID, zombies left out
  [ -n "${SID:-}" ] || return 0
  for stat in /proc/[0-9]*/stat; do
    p=${stat#/proc/}; p=${p%/stat}
    look "$p" && [ "$N" = "$SID" ] && [ "$S" != Z ] && printf '%s ' "$p"
  done
}
cgroup_pids() { # every process of the control groups $CGROUPS
  for group in ${CGROUPS:-}; do
    for base in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
      [ -d "$base$group" ] && find "$base$group" -name cgroup.procs -exec cat {} + 2>/dev/null | tr '\n' ' ' && break
    done
  done
}
folder_pids() { # what works in the folder $real, or did before that was removed
  # A process with a terminal is an operator's, not an engine's; one in another mount namespace sees another folder.
  ls -l /proc/[0-9]*/cwd 2>/dev/null | grep -F "/${real##*/}" | while read -r line; do
    p=${line#*/proc/}; p=${p%%/*}
    case $(readlink "/proc/$p/cwd" 2>/dev/null) in "$real"|"$real/"*|"$real (deleted)") ;; *) continue ;; esac
    [ "$(readlink "/proc/$p/ns/mnt" 2>/dev/null)" = "$(readlink /proc/self/ns/mnt)" ] || continue
    look "$p" && [ "$Y" = 0 ] && [ "$S" != Z ] && printf '%s ' "$p"
  done
}
physical() { # the path without symbolic links, as far as it exists
  p=$1 rest=
  until [ -d "$p" ]; do rest=/${p##*/}$rest; p=${p%/*}; p=${p:-/}; done
  p=$(cd -P "$p" 2>/dev/null && pwd -P)
  printf '%s%s' "${p%/}" "$rest"
}
listeners() { # port -> the inode of each socket that listens on it, at whatever address
  hex=$(printf '%04X' "$1")
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ local _ state _ _ _ _ _ inode _; do
    [ "$state" = 0A ] && [ "${local##*:}" = "$hex" ] && printf '%s ' "$inode"
  done
}
user_units() { # where the user's units are kept; also lets systemctl --user find its manager
  : "${XDG_RUNTIME_DIR:=/run/user/$(id -u)}"; export XDG_RUNTIME_DIR
  printf '%s' "${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user"
}
drop_template() { # systemctl, folder of units, text: removes a template that is ours to the letter and that nothing needs
  [ -f "$2/$template" ] && [ -w "$2" ] || return 0
  [ "$(cat "$2/$template" 2>/dev/null)" = "$3" ] || return 0
  for d in "$root"/*/; do [ ! -d "$d" ] || return 0; done
  for link in "$2"/*.wants/"${template%.service}"*; do [ ! -L "$link" ] || return 0; done
  living=$(limit 20 $1 list-units --plain --no-legend --state=active,activating,deactivating,reloading "${template%.service}*" 2>/dev/null)
  [ -n "$living" ] || rm -f "$2/$template"
}
drop_root() { # the folders that hold ours, once they are empty
  rmdir "$root" 2>/dev/null || return 0
  case ${root%/*} in */llmgwctl) rmdir "${root%/*}" 2>/dev/null ;; esac
}

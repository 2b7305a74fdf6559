# Everything that can refuse is asked before anything is changed; what fails later takes back what was done here.
cd /
umask 077
uid=$(id -u)
own_group= # a group that holds its user alone, as Debian makes one for each
[ "$(id -gn 2>/dev/null)" != "$(id -un 2>/dev/null)" ] || own_group=$(id -g)
distrust() { # folder, last: says why another user could swap what is in it
  ls -ldn "$1" 2>/dev/null | {
    read -r mode _ owner group _
    case $owner in 0|"$uid") ;; *) printf '%s belongs to another user (uid %s)' "$1" "$owner"; exit ;; esac
    case $mode in ?????????[tT]*) [ -n "$2" ] || exit ;; esac
    case $mode in
    ????????w*) printf 'everybody can write to %s' "$1" ;;
    ?????w*) [ "$group" = 0 ] || [ "$group" = "$own_group" ] || printf 'the group %s can write to %s' "$group" "$1" ;;
    esac
  }
}
must_trust() { # path: every folder on the way there, through symbolic links
  at=/ rest=$1 hops=0
  while :; do
    while [ "$rest" != "${rest#/}" ]; do rest=${rest#/}; done
    last=; [ -n "$rest" ] || last=1
    why=$(distrust "$at" "$last")
    [ -z "$why" ] || die $CANNOT_WRITE "$why, so nothing is kept in $1: correct its owner or mode, or set another settings.replica_dir"
    [ -n "$rest" ] || return 0
    part=${rest%%/*}
    case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
    case $part in .) continue ;; ..) at=${at%/*}; at=${at:-/}; continue ;; esac
    next=${at%/}/$part
    if [ -L "$next" ]; then
      hops=$((hops+1))
      [ "$hops" -le 40 ] || die $CANNOT_WRITE "$1 has too many symbolic links"
      set -- "$1" $(set -f; ls -ldn "$next")
      case $4 in 0|"$uid") ;; *) die $CANNOT_WRITE "the symbolic link $next belongs to another user (uid $4)" ;; esac
      to=$(readlink "$next")
      case $to in /*) at=/ ;; esac
      rest=$to/$rest
      continue
    fi
    [ -e "$next" ] || return 0
    [ -d "$next" ] || die $CANNOT_WRITE "cannot make the folder $1: $next is not a folder"
    at=$next
  done
}
named() { # pid -> `process 4711 (python3)`
  comm=; { read -r comm < "/proc/$1/comm"; } 2>/dev/null
  case $1 in *[!0-9]*|'') printf 'a process that is not visible here' ;; *) printf 'process %s%s' "$1" "${comm:+ ($comm)}" ;; esac
}
works() { # folder of a replica -> a process of it, nothing where its engine has ended
  case $(cat "$1/supervisor" 2>/dev/null) in
  systemd) limit 20 systemctl show -p MainPID "${template%.service}${1##*/}.service" 2>/dev/null | sed -n 's/^MainPID=\([1-9][0-9]*\)$/\1/p' ;;
  systemd-user) user_units >/dev/null; limit 20 systemctl --user show -p MainPID "${template%.service}${1##*/}.service" 2>/dev/null | sed -n 's/^MainPID=\([1-9][0-9]*\)$/\1/p' ;;
  *)
    SID= begun=; { read -r SID begun < "$1/session"; } 2>/dev/null
    case $SID in *[!0-9]*) SID= ;; esac
    [ -z "$SID" ] || ! look "$SID" || [ "$B" = "$begun" ] || SID=
    pids=$(session_pids); pid=$(cat "$1/pid" 2>/dev/null)
    case " $pids" in *" ${pid:-none} "*) printf '%s' "$pid" ;; *) printf '%s' "${pids%% *}" ;; esac ;;
  esac
}
must_be_free() { # every GPU that is wanted
  [ -n "$gpus" ] || return 0
  for uuid in $gpus; do
    for other in "$root"/*/replica.json; do
      grep -qsF "\"$uuid\"" "$other" || continue
      pid=$(works "${other%/replica.json}")
      [ -z "$pid" ] || die $CANNOT_START "GPU $uuid is in use by $(named "$pid"), of the replica in ${other%/replica.json}"
    done
  done
  case " $gpus" in *" GPU-"*|*" MIG-"*) has nvidia-smi || return 0 ;; *) return 0 ;; esac
  apps=$(limit "$patience" nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader 2>/dev/null) || return 0
  for uuid in $gpus; do
    pid=$(printf '%s\n' "$apps" | sed -n "s/^$uuid, *//p" | head -n 1)
    [ -z "$pid" ] || die $CANNOT_START "GPU $uuid is in use by $(named "$pid")"
  done
}
same_template() {
  [ "$(cat "$units/$template" 2>/dev/null)" = "$text" ]
}
must_have_no_unit() { # systemd knows no such unit that runs, and its template is ours
  [ ! -e "$units/$template" ] && [ ! -L "$units/$template" ] || same_template ||
    die $CANNOT_START "$units/$template is for another replica_dir, or was edited: end what needs it there, and move it away"
  shown=$(limit 20 $ctl show -p ActiveState,Job "$unit" 2>&1) || die $CANNOT_START "systemctl show: $shown"
  case "$shown
" in
  *ActiveState=inactive*Job=[1-9]*|*Job=[1-9]*ActiveState=inactive*) ;;
  *ActiveState=inactive*|*ActiveState=failed*) return 0 ;;
  esac
  die $EXISTS "systemd runs $unit already, although its folder $dir is gone"
}
undo() { # what this start has done so far
  [ -z "$supervisor_pid" ] || { SID=$supervisor_pid; for p in $(session_pids); do kill -KILL "$p"; done; }
  [ -z "$enabled" ] || { $ctl stop "$unit"; $ctl disable --no-reload "$unit"; $ctl reset-failed "$unit"; }
  [ -z "$made" ] || { cd /; rm -rf "$dir"; }
  [ -z "$fresh" ] || drop_root
  [ -z "$wrote" ] || drop_template "$ctl" "$units" "$text"
} >/dev/null 2>&1

supervisor_pid= enabled= made= fresh= wrote=
if [ -e "$dir" ] || [ -L "$dir" ]; then
  [ ! -e "$dir/replica.json" ] || die $EXISTS "there is already a replica in $dir"
  die $EXISTS "the folder $dir is there already, without a replica.json, from a start or a stop that was broken off: remove it once nothing runs in it"
fi
must_trust "$root"
[ -z "$(listeners "$port")" ] || die $CANNOT_START "port $port is in use by another process"
must_be_free
case $supervisor in
systemd) ctl=systemctl units=/etc/systemd/system ;;
systemd-user) user_units >/dev/null; ctl='systemctl --user' units=$(user_units) ;;
*) has setsid || die $CANNOT_START "setsid was not found on the host (package util-linux)" ;;
esac
case $supervisor in systemd*) must_have_no_unit ;; esac

over=
trap '[ -n "$over" ] || undo' EXIT
trap 'exit 129' HUP
trap 'exit 143' INT TERM
if [ ! -d "$root" ]; then
  fresh=1
  message=$(mkdir -p "$root" 2>&1) || die $CANNOT_WRITE "cannot make the folder $root: $message"
  chmod 700 "$root"
fi
must_trust "$root" # again: a folder that was missing before is one now
# Of two starts at once only one makes the folder.
if message=$(mkdir "$dir" 2>&1); then made=1
elif [ -d "$dir" ]; then die $EXISTS "there is already a replica in $dir"
else die $CANNOT_WRITE "cannot make the folder $dir: $message"
fi
cd "$dir" || die $CANNOT_WRITE "cannot enter the folder $dir"

# TERM to the leader, then KILL to all that is left, then the proof. The leader alone gets TERM, because workers that die
# under their engine leave false traces; KILL goes to the whole control group or session and to what else works in the
# folder, because workers outlive a leader that is killed and keep the GPUs' memory.
cd /
real=$(physical "$dir")
me=" $$ "; p=$$
while look "$p" && [ "$P" -gt 1 ]; do p=$P; me="$me$p "; done
supervisor= SID= begun=
if [ -d "$dir" ]; then
  [ -x "$dir" ] || die $STILL_THERE "cannot look into $dir"
  if [ -e "$dir/replica.json" ]; then
    [ -r "$dir/replica.json" ] || die $STILL_THERE "cannot read $dir/replica.json"
    grep -qF "$lineage" "$dir/replica.json" || exit 0 # it is another state's
  fi
  # The supervisor looks for this mark; a link that somebody planted is not followed.
  (set -C; : > "$dir/stopping") 2>/dev/null
  supervisor=$(cat "$dir/supervisor" 2>/dev/null)
  { read -r SID begun < "$dir/session"; } 2>/dev/null
  case $SID in *[!0-9]*) SID= ;; esac
  # A number that another process has now is no longer our session; without any process it still may be.
  [ -z "$SID" ] || ! look "$SID" || [ "$B" = "$begun" ] || SID=
fi
if [ -z "$SID" ]; then # the supervisor of a folder that is gone: it leads its session and works there
  for p in $(folder_pids); do look "$p" && [ "$N" = "$p" ] && SID=$p; done
fi

field() { printf '%s\n' "$shown" | sed -n "s/^$1=//p"; }
works_here() { # pids: does one of them work in the folder?
  here=" $(folder_pids)"
  for p in $1; do case $here in *" $p "*) return 0 ;; esac; done
  return 1
}
ours() { # folder of units: is the unit of this name below our root? What runs tells more than the file it came from.
  case $(field ActiveState) in
  inactive|failed|'') grep -qsxF "$exec_line" "$1/$template" ;;
  *)
    case $(field ExecStart) in *" $dir/run ;"*) return 0 ;; esac
    works_here "$(CGROUPS=$(field ControlGroup); cgroup_pids)" && return 0
    # systemd writes a path with unusual characters in its own way.
    case $dir in *[!A-Za-z0-9/._-]*) grep -qsxF "$exec_line" "$1/$template" ;; *) return 1 ;; esac ;;
  esac
}
CGROUPS= system= user=
consider() { # systemctl, folder of units -> true where a unit of ours has to be ended
  shown=$(limit 20 $1 show -p ActiveState,Job,ControlGroup,ExecStart "$unit" 2>/dev/null) || return 1
  ours "$2" || return 1
  CGROUPS="$CGROUPS $(field ControlGroup)"
  case $(field ActiveState) in inactive|'') ;; *) return 0 ;; esac
  case $(field Job) in ''|0) ;; *) return 0 ;; esac
  for link in "$2"/*.wants/"$unit"; do [ ! -L "$link" ] || return 0; done
  return 1
}
if has systemctl; then
  [ ! -d /run/systemd/system ] || ! consider systemctl /etc/systemd/system || system=1
  user_units >/dev/null
  [ ! -S "$XDG_RUNTIME_DIR/systemd/private" ] || ! consider 'systemctl --user' "$(user_units)" || user=1
fi
each_unit() { # words of systemctl
  [ -z "$system" ] || systemctl "$@" "$unit"
  [ -z "$user" ] || systemctl --user "$@" "$unit"
}
members() {
  all=
  for p in $(cgroup_pids) $(session_pids) $(folder_pids); do
    case " $all$me" in *" $p "*) continue ;; esac
    look "$p" && [ "$S" != Z ] && all="$all$p "
  done
  printf '%s' "$all"
}
leaders() { # of what systemd doesn't keep: the engine, or what has no parent among them
  grouped=" $(cgroup_pids)"; all=" "
  for p in $(members); do case $grouped in *" $p "*) ;; *) all="$all$p " ;; esac; done
  leader=$(cat "$dir/pid" 2>/dev/null)
  case $all in *" ${leader:-none} "*) printf '%s' "$leader"; return ;; esac
  for p in $all; do
    [ "$p" != "$SID" ] && look "$p" || continue
    [ "$P" != "$SID" ] || P=none
    case $all in *" $P "*) ;; *) printf '%s ' "$p" ;; esac
  done
}
term() { for p in $(leaders); do kill -TERM "$p" 2>/dev/null; done; }
kill_all() {
  each_unit kill -s KILL 2>/dev/null
  for p in $(members); do kill -KILL "$p" 2>/dev/null; done
}
settled() {
  case "$(each_unit show -p ActiveState)" in *=active*|*=activating*|*=deactivating*|*=reloading*) return 1 ;; esac
}
wait_gone() { # fifths of a second
  tries=$1
  while [ "$tries" -gt 0 ]; do
    [ -z "$(members)" ] && settled && return 0
    nap; tries=$((tries-1))
  done
  [ -z "$(members)" ] && settled
}
sockets() { # the sockets with which ours listen on the replica's ports: what others listen on is none of our business
  for port in $ports; do
    for inode in $(listeners "$port"); do
      for p in $pids; do
        case $(ls -l "/proc/$p/fd" 2>/dev/null) in *"socket:[$inode]"*) printf '%s:%s ' "$port" "$inode"; break ;; esac
      done
    done
  done
}
still_open() { # a port of ours whose socket still listens
  for pair in $held; do
    case " $(listeners "${pair%:*}")" in *" ${pair#*:} "*) printf '%s' "${pair%:*}"; return ;; esac
  done
}
on_gpu() { # those of the ended processes that a GPU still names
  for p in $(limit 30 nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null); do
    case " $pids " in *" $p "*) printf '%s ' "$p" ;; esac
  done
}

pids=$(members)
if [ -n "$pids$system$user" ]; then
  held=$(sockets)
  each_unit disable --no-reload 2>/dev/null
  if [ "$grace" -ge "$systemd_grace" ]; then # systemd would kill it before its time
    each_unit kill -s TERM --kill-who=main 2>/dev/null
    tries=$grace
    while [ "$tries" -gt 0 ] && [ -n "$(cgroup_pids)" ]; do nap; tries=$((tries-1)); done
  fi
  said=$(each_unit stop --no-block 2>&1)
  term
  if ! wait_gone "$grace" && [ -n "$second_grace" ]; then
    each_unit kill -s TERM --kill-who=main 2>/dev/null
    term
    wait_gone "$second_grace"
  fi
  [ -z "$(members)" ] || kill_all
  wait_gone 50 || { kill_all; wait_gone 100; } ||
    die $STILL_THERE "${said:-processes that ignore SIGKILL are left: $(members)}"
  each_unit reset-failed 2>/dev/null
  tries=50
  while [ -n "$(still_open)" ] && [ "$tries" -gt 0 ]; do nap; tries=$((tries-1)); done
  open=$(still_open)
  [ -z "$open" ] || die $STILL_THERE "port $open is still open"
  if [ -n "$gpu_wait" ] && [ -n "$pids" ] && has nvidia-smi; then
    tries=$gpu_wait
    while [ -n "$(on_gpu)" ] && [ "$tries" -gt 0 ]; do sleep 1; tries=$((tries-1)); done
    pid=$(on_gpu)
    [ -z "$pid" ] || die $STILL_THERE "GPU memory is still held by process $pid"
  fi
fi
rm -rf "$dir" || die $STILL_THERE "cannot remove $dir"
drop_root
if has systemctl; then
  drop_template systemctl /etc/systemd/system "$text_system"
  drop_template 'systemctl --user' "$(user_units)" "$text_user"
fi

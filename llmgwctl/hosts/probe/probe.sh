# The probe: one brace group, so that it is read to its end before it starts and no child can eat the rest of it.
# Cheap questions use builtins, and `grep -sH ''` reads any number of files in one process. Slow tools run in the
# background into a folder in memory that is always removed; without such a folder they run one after another.
{
K=%TOKEN%
LC_ALL=C
PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/usr/lib/wsl/lib:/opt/rocm/bin:${HOME:-}/.local/bin:/snap/bin"
export LC_ALL PATH
umask 077
T=
J=
trap '[ -z "$T" ] || rm -rf "$T"' EXIT
trap 'exit 129' HUP
trap 'exit 143' INT TERM
has() { command -v "$1" >/dev/null 2>&1; }
begin() { printf '\n%s B %s\n' "$K" "$1"; }
end() { printf '\n%s E %s %s\n' "$K" "$1" "$2"; }
lines() { while IFS= read -r l || [ -n "$l" ]; do printf '%s%s\n' "$2" "$l"; done < "$1"; }
if has grep; then slurp() { grep -sH '' /dev/null "$@"; }
else slurp() { for f; do [ ! -f "$f" ] || [ ! -r "$f" ] || lines "$f" "$f:" 2>/dev/null; done; }
fi
limit() { # seconds, command: TERM at the end of the time, never KILL (a killed GPU client may freeze the GPU)
  s=$1; shift
  if has timeout; then timeout "$s" "$@"; return; fi
  "$@" & c=$!
  ( trap 'kill "$z"; exit 0' TERM; sleep "$s" & z=$!; wait "$z"; kill -TERM "$c" ) >/dev/null 2>&1 & w=$!
  wait "$c"; r=$?
  kill "$w" 2>/dev/null
  [ "$r" -le 128 ] || r=124
  return "$r"
}
folder() { # a place for the answers of slow tools; in memory where there is one
  for t in /dev/shm "${TMPDIR:-/tmp}"; do
    [ -d "$t" ] && [ -w "$t" ] && mkdir "$t/llmgwctl-probe-$K" 2>/dev/null && T=$t/llmgwctl-probe-$K && return
  done
}
job() { # name: runs the function job_NAME in the background, or leaves it for later
  J="$J $1"
  [ -n "$T" ] || folder
  [ -z "$T" ] || { ( job_$1 > "$T/$1"; printf 'done\n' > "$T/$1.done" ) 2>/dev/null </dev/null & }
}

job_nvidia() {
  hung=
  if has grep; then hung=$(grep -l '^[0-9]* (nvidia-smi) D' /proc/[0-9]*/stat 2>/dev/null)
  else for f in /proc/[0-9]*/stat; do { read -r l < "$f"; } 2>/dev/null && case $l in *'(nvidia-smi) D '*) hung=$f ;; esac; done
  fi
  if [ -n "$hung" ]; then begin nvidia-hung; printf '%s\n' "$hung"; end nvidia-hung 0; return; fi
  begin nvidia-csv
  out=$(limit %FIRST% nvidia-smi --query-gpu=index,uuid,pci.bus_id,name,memory.total,memory.used,driver_version,mig.mode.current --format=csv,noheader,nounits 2>&1); r=$?
  printf '%s\n' "$out"; end nvidia-csv "$r"
  case $r in 0|2|15|255) ;; *) return ;; esac
  begin nvidia-xml
  if has sed; then { limit %NEXT% nvidia-smi -q -x 2>&1; end nvidia-xml $?; } | sed '/<supported_clocks>/,/<\/supported_clocks>/d'
  else limit %NEXT% nvidia-smi -q -x 2>&1; end nvidia-xml $?
  fi
  begin nvidia-apps; limit %NEXT% nvidia-smi --query-compute-apps=gpu_uuid,pid,used_gpu_memory,process_name --format=csv,noheader,nounits 2>&1; end nvidia-apps $?
  case $out in *Enabled*) begin nvidia-list; limit %NEXT% nvidia-smi -L 2>&1; end nvidia-list $? ;; esac
  ! has systemctl || { begin fabric; limit 5 systemctl is-active nvidia-fabricmanager 2>&1; end fabric $?; }
}
job_amd() {
  r=1
  if has amd-smi; then
    begin amd-smi; limit %FIRST% amd-smi static --asic --vram --driver --bus --json 2>/dev/null; r=$?; end amd-smi "$r"
    [ "$r" != 0 ] || { begin amd-memory; limit %NEXT% amd-smi metric --mem-usage --json 2>/dev/null; end amd-memory $?; }
  fi
  [ "$r" != 0 ] && has rocm-smi || return
  begin rocm-smi; limit %FIRST% rocm-smi --showproductname --showuniqueid --showbus --showmeminfo vram --showdriverversion --json 2>&1; end rocm-smi $?
}
version() { # name, path: asks the package's own Python, not the engine, which takes 20 s to say its version
  case $1 in
  vllm|sglang)
    l=; { IFS= read -r l < "$2"; } 2>/dev/null
    py=
    case ${2##*/} in python*) py=$2 ;; esac
    case $l in '#!'*/env\ *python*) py=${l#*env } ;; '#!'*python*) py=${l#??}; py=${py# }; py=${py%% *} ;; esac
    [ -n "$py" ] || py=${2%/*}/python3
    has "$py" || py=python3
    has "$py" || return
    limit 10 "$py" -c "import importlib.metadata as m
print(m.version('$1'))" 2>/dev/null ;;
  llamacpp) limit 5 "$2" --version 2>&1 ;;
  esac
}
job_versions() {
  for n in $E; do
    eval "p=\$E_$n"
    begin "version-$n"; version "$n" "$p"; end "version-$n" $?
  done
}
E=
engine() { # name, command
  has "$2" || return
  p=$(command -v "$2")
  printf 'engine %s %s\n' "$1" "$p"
  case $1 in *[!a-z0-9_]*) ;; *) E="$E $1"; eval "E_$1=\$p" ;; esac
}

begin base
uid=
while read -r k v _; do [ "$k" != Uid: ] || { uid=$v; break; }; done < /proc/self/status
[ -n "$uid" ] || uid=$(id -u)
user=${USER:-${LOGNAME:-}}
[ -n "$user" ] || user=$(id -un 2>/dev/null)
printf 'uid=%s\nuser=%s\nhome=%s\nxdg=%s\ndate=%s\n' "$uid" "$user" "${HOME:-}" "${XDG_RUNTIME_DIR:-}" "$(date +%s 2>/dev/null)"
if [ -d /run/systemd/system ] && has systemctl; then
  printf 'systemd=1\n'
  [ ! -e "/var/lib/systemd/linger/$user" ] || printf 'linger=1\n'
  [ ! -S "/run/user/$uid/systemd/private" ] || printf 'user_manager=1\n'
fi
for t in setsid timeout curl wget python3; do printf 'tool %s ' "$t"; command -v "$t" || printf '\n'; done
%ENGINES%
for t in npu-smi xpu-smi hl-smi mthreads-gmi cnmon neuron-ls rocm-smi amd-smi nvidia-smi; do ! has "$t" || printf 'accelerator %s\n' "$t"; done
for t in /dev/neuron0 /dev/davinci0 /dev/accel/accel0 /dev/accel0 /dev/kfd /dev/nvidiactl; do [ ! -e "$t" ] || printf 'device %s\n' "$t"; done
end base 0
! has nvidia-smi || job nvidia
if has amd-smi || has rocm-smi; then job amd; fi
[ -z "$E" ] || job versions

begin files
F="/etc/os-release /proc/sys/kernel/hostname /etc/machine-id /proc/sys/kernel/osrelease /proc/sys/kernel/random/boot_id /proc/sys/net/ipv4/ip_local_port_range /sys/devices/system/cpu/online /proc/meminfo"
up() { # base, path, names: those files in the control group and in every one above it
  b=$1; p=${2%/}
  while :; do
    for n in $3; do F="$F $b$p/$n"; done
    [ -n "$p" ] || break
    p=${p%/*}
  done
}
[ ! -r /proc/self/cgroup ] || while IFS=: read -r n c p; do
  case $n:,$c, in
  0:,,) for b in /sys/fs/cgroup /sys/fs/cgroup/unified; do [ ! -e "$b/cgroup.controllers" ] || up "$b" "$p" "memory.max memory.current cpu.max cpuset.cpus.effective"; done ;;
  *,memory,*) up /sys/fs/cgroup/memory "$p" "memory.limit_in_bytes memory.usage_in_bytes" ;;
  *,cpu,*) up /sys/fs/cgroup/cpu "$p" "cpu.cfs_quota_us cpu.cfs_period_us" ;;
  *,cpuset,*) up /sys/fs/cgroup/cpuset "$p" "cpuset.cpus" ;;
  esac
done < /proc/self/cgroup
set -f; slurp $F; set +f
end files 0

begin ports
# ss asks the kernel for listeners only; reading /proc/net/tcp walks its whole table of connections, 5 ms each time.
if has ss && ss -ltn 2>/dev/null; then :
elif has grep; then grep -sh ':0000 0A ' /proc/net/tcp /proc/net/tcp6 2>/dev/null
else for f in /proc/net/tcp /proc/net/tcp6; do [ ! -r "$f" ] || while read -r a b c d _; do [ "$d" != 0A ] || printf '%s %s %s %s\n' "$a" "$b" "$c" "$d"; done < "$f"; done
fi
end ports 0

begin pci
D=
if has grep; then
  for f in $(grep -slE '^0x(03|1200|0680)' /sys/bus/pci/devices/*/class 2>/dev/null); do D="$D ${f%/class}"; done
else for f in /sys/bus/pci/devices/*/class; do { read -r l < "$f"; } 2>/dev/null && case $l in 0x03*|0x1200*|0x0680*) D="$D ${f%/class}" ;; esac; done
fi
if [ -n "$D" ]; then
  F=
  for d in $D; do F="$F $d/vendor $d/device $d/class $d/numa_node"; done
  slurp $F
fi
end pci 0

begin replicas
R=%ROOT%
if [ -z "$R" ]; then
  if [ "$uid" = 0 ]; then R=/var/lib/llmgwctl/replicas; else R=${HOME:-}/.local/state/llmgwctl/replicas; fi
fi
printf 'root %s\n' "$R"
http() { # address, port, path -> code
  case $1 in *:*) u="http://[$1]:$2$3" ;; *) u="http://$1:$2$3" ;; esac
  code=000
  if has curl; then code=$(curl -s -o /dev/null -m 4 --noproxy '*' -w '%{http_code}' "$u" 2>/dev/null)
  elif has wget; then code=$(http_proxy= limit 5 wget -S -O /dev/null "$u" 2>&1 | sed -n 's|^.*HTTP/1\.[01] \([1-5][0-9][0-9]\).*$|\1|p')
    code=${code##*[!0-9]}
  elif has bash; then code=$(limit 5 bash -c 'exec 3<>"/dev/tcp/$1/$2" && printf "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" "$3" "$1" >&3 && read -r _ c _ <&3 && echo "$c"' - "$1" "$2" "$3" 2>/dev/null)
  elif has python3; then code=$(limit 5 python3 -c 'import sys, urllib.request as u
try: a = u.build_opener(u.ProxyHandler({})).open(sys.argv[1], timeout=4)
except u.HTTPError as e: a = e
print(a.code)' "$u" 2>/dev/null)
  else code=none
  fi
  code=${code:-000}
}
alive() { # pid, start time: is it still that process? 1: no, 2: another process has its number
  l=; { read -r l < "/proc/$1/stat"; } 2>/dev/null || return 1
  st=$2
  set -- ${l##*)}
  [ "${20}" = "$st" ] || return 2
  [ "$1" != Z ]
}
if cd "$R" 2>/dev/null; then
  G= H= SYS= USR= SIDS=
  for d in ./*/; do
    d=${d%/}; n=${d#./}
    [ -d "$d" ] || continue
    case $n in *[!A-Za-z0-9._-]*) printf 'odd folder\n'; continue ;; esac
    if [ ! -r "$d" ] || [ ! -x "$d" ]; then printf 'denied %s\n' "$n"; continue; fi
    [ -e "$d/replica.json" ] || { printf 'partial %s\n' "$n"; continue; }
    [ -r "$d/replica.json" ] || { printf 'denied %s\n' "$n"; continue; }
    G="$G $d/replica.json $d/supervisor $d/health $d/session $d/restarts $d/exit $d/pid"
    for m in ready stopping failed; do [ ! -e "$d/$m" ] || printf 'mark %s %s\n' "$n" "$m"; done
    s=; { read -r s < "$d/supervisor"; } 2>/dev/null
    case $s in
    systemd) SYS="$SYS llmgwctl-v1@$n.service" ;;
    systemd-user) USR="$USR llmgwctl-v1@$n.service" ;;
    *) sid=; st=; { read -r sid st < "$d/session"; } 2>/dev/null
       case $sid in ''|*[!0-9]*) ;; *)
         alive "$sid" "$st"; r=$?
         printf 'leader %s %s\n' "$n" "$r"
         [ "$r" = 2 ] || SIDS="$SIDS $sid " ;;
       esac
       q=; { read -r q < "$d/pid"; } 2>/dev/null
       [ -z "$q" ] || ! kill -0 "$q" 2>/dev/null || printf 'child %s\n' "$n" ;;
    esac
    [ ! -e "$d/stopping" ] || continue
    a=; p=; u=; { read -r a p u < "$d/health"; } 2>/dev/null
    case $u in /*) ( http "$a" "$p" "$u"; printf 'http %s %s\n' "$n" "$code"; [ "$code" != 200 ] || [ -e "$d/ready" ] || { set -C; : > "$d/ready"; } ) 2>/dev/null & H="$H $!" ;; esac
  done
  [ -z "$H" ] || wait $H
  [ -z "$G" ] || slurp $G
  [ -z "$SIDS" ] || for f in /proc/[0-9]*/stat; do
    { read -r l < "$f"; } 2>/dev/null || continue
    q=${l%% *}
    set -- ${l##*)}
    case $SIDS in *" $4 "*) [ "$1" = Z ] || printf 'session %s %s\n' "$4" "$q" ;; esac
  done
  end replicas 0
  units() { # section, option, units
    begin "$1"
    u=$(limit 10 systemctl $2 show -p Id,LoadState,ActiveState,SubState,UnitFileState,Job,MainPID,NRestarts,Result,ExecMainStatus,ExecMainCode,ControlGroup $3 2>&1); r=$?
    printf '%s\n' "$u"; end "$1" "$r"
    begin "$1-pids"
    set -f
    for l in $u; do
      case $l in ControlGroup=/?*) ;; *) continue ;; esac
      set +f
      for b in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
        g=$b${l#ControlGroup=}
        [ ! -e "$g/cgroup.procs" ] || { slurp "$g/cgroup.procs" "$g"/*/cgroup.procs "$g"/*/*/cgroup.procs; break; }
      done
      set -f
    done
    set +f
    end "$1-pids" 0
  }
  [ -z "$SYS" ] || units units '' "$SYS"
  [ -z "$USR" ] || { : "${XDG_RUNTIME_DIR:=/run/user/$uid}"; export XDG_RUNTIME_DIR; units user-units --user "$USR"; }
  cd /
else
  [ ! -e "$R" ] || printf 'closed %s\n' "$R"
  end replicas 0
fi

disks() { # looks for the nearest parent that exists, because a disk is known before its folder is made
  limit "$1" sh -c 'shift; n=$#
while [ "$n" -gt 0 ]; do
  p=$1; shift; n=$((n-1))
  until [ -e "$p" ]; do case $p in */*) p=${p%/*}; p=${p:-/} ;; *) p=/ ;; esac; done
  set -- "$@" "$p"
done
df -Pk "$@"' - "$@" 2>/dev/null
}
begin disks
set -- "$R" %PATHS%
out=$(disks 6 "$@"); r=$?
if [ "$r" = 124 ]; then # a network disk hangs: ask one at a time, so that the others are told
  i=0; H=
  for p; do
    ( out=$(disks 5 "$p"); [ $? = 124 ] && out="hangs $i"; printf '%s\n' "$out" | { while IFS= read -r l; do case $l in Filesystem*) ;; *) printf 'row %s %s\n' "$i" "$l" ;; esac; done; } ) & H="$H $!"
    i=$((i+1))
  done
  wait $H
else printf '%s\n' "$out"
fi
end disks "$r"

N=0
for n in $J; do
  if [ -n "$T" ]; then
    until [ -e "$T/$n.done" ] || [ "$N" -ge %NAPS% ]; do
      if sleep 0.05 2>/dev/null; then N=$((N+1)); else sleep 1; N=$((N+20)); fi
    done
    if [ -s "$T/$n.done" ]; then
      if has cat; then cat "$T/$n"; else lines "$T/$n"; fi
      continue
    elif [ ! -e "$T/$n.done" ]; then # it ignores TERM: it is left behind, and what it said so far is told
      ! has cat || cat "$T/$n"
      begin "late-$n"; end "late-$n" 124
      continue
    fi
  fi
  job_$n </dev/null # no folder to write to, or its disk is full
done
begin finish
[ -z "$J" ] || printf 'date=%s\n' "$(date +%s 2>/dev/null)"
end finish 0
exit 0
} </dev/null

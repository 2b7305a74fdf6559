"""The POSIX-sh texts that start, watch and stop a member; only quoting of ours, nothing of a user's is evaluated."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable

from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.hosts.session import StartOrder

UNIT_TEMPLATE = "llmgwctl-v1@"
"""The template's name carries a version: another text gets another name, so no host ever needs a daemon-reload."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib:/opt/rocm/bin:/snap/bin"
MAX_RESTARTS = 3
RESTART_DELAY_S = 5
LOG_LIMIT_BYTES = 100 * 1024 * 1024

# Exit statuses of our scripts; the text that goes with each is their standard error.
EXISTS, CANNOT_WRITE, CANNOT_START, STILL_THERE = 70, 71, 72, 73


def quote(text: str) -> str:
    """Quote for sh; newlines, quotes and `$(…)` stay as they are."""
    return shlex.quote(text)


def _program(body: str) -> str:
    """Wrap a script so that it is read whole before it runs, and no child can eat the rest of it."""
    return (
        f'{{\nLC_ALL=C; export LC_ALL\nPATH="$PATH:{PATH}:$HOME/.local/bin"; export PATH\n{_FUNCTIONS}\n{body}\nexit 0\n'
        "} </dev/null\n"
    )


_FUNCTIONS = r"""
die() { status=$1; shift; printf '%s\n' "$*" >&2; exit "$status"; }
nap() { sleep 0.2 2>/dev/null || sleep 1; }
starttime() { # field 22 of /proc/PID/stat; the name in field 2 may hold blanks and brackets
  read -r line < "/proc/$1/stat" 2>/dev/null || return 1
  set -- ${line##*)}; shift 19; printf '%s' "$1"
}
session_pids() { # every process of a session, zombies left out
  for stat in /proc/[0-9]*/stat; do
    { read -r line < "$stat"; } 2>/dev/null || continue
    pid=${line%% *}; set -- ${line##*)}
    [ "$4" = "$SID" ] && [ "$1" != Z ] && printf '%s ' "$pid"
  done
}
cgroup_pids() { # $1: control group path
  [ -n "$1" ] || return 0
  for base in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    [ -d "$base$1" ] && find "$base$1" -name cgroup.procs -exec cat {} + 2>/dev/null | tr '\n' ' ' && return 0
  done
}
port_open() { # is a TCP port listened on? $1: port
  hex=$(printf '%04X' "$1")
  cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ local _ state _; do
    [ "$state" = 0A ] && [ "${local##*:}" = "$hex" ] && { echo yes; break; }
  done
}
"""


def _systemctl(supervisor: str) -> str:
    return "systemctl --user" if supervisor == "systemd-user" else "systemctl"


_USER_BUS = ': "${XDG_RUNTIME_DIR:=/run/user/$(id -u)}"; export XDG_RUNTIME_DIR\n'


def start_script(order: StartOrder, supervisor: str, assets: dict[str, str]) -> str:
    """Return the script that writes a member's folder and starts it; a failure leaves nothing behind."""
    folder = f"{order.launch.root}/{order.launch.folder}"
    files = {
        "run": run_script(order),
        "replica.json": _replica_json(order),
        "health": _health_line(order.launch),
        "supervisor": f"{supervisor}\n",
        **assets,
    }
    if order.secrets:
        files["secrets"] = "".join(f"export {name}={quote(value)}\n" for name, value in sorted(order.secrets.items()))
    if supervisor == "setsid":
        files["supervise"] = _SUPERVISE
    writes = "\n".join(
        f"printf '%s' {quote(text)} > {quote(name)} || die {CANNOT_WRITE} \"cannot write $dir/{name}: is the disk full?\""
        for name, text in sorted(files.items())
    )
    body = f"""
umask 077
dir={quote(folder)}
[ -e "$dir/replica.json" ] && die {EXISTS} "there is already a replica in $dir"
made=1
trap '[ -z "$made" ] || rm -rf "$dir"' EXIT
mkdir -p "$dir" 2>/dev/null && cd "$dir" || die {CANNOT_WRITE} "cannot make the folder $dir: $(mkdir -p "$dir" 2>&1)"
{writes}
: > log || die {CANNOT_WRITE} "cannot write $dir/log: is the disk full?"
[ -z "$(port_open {order.launch.port})" ] || die {CANNOT_START} "port {order.launch.port} is in use by another process"
{_start_systemd(order, supervisor) if supervisor != "setsid" else _START_SETSID}
made=
cat /proc/sys/kernel/random/boot_id 2>/dev/null
"""
    return _program(body)


def _start_systemd(order: StartOrder, supervisor: str) -> str:
    unit_dir = (
        '"${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user"' if supervisor == "systemd-user" else "/etc/systemd/system"
    )
    template = unit_text(order.launch.root, supervisor)
    unit = f"{UNIT_TEMPLATE}{order.launch.folder}.service"
    ctl = _systemctl(supervisor)
    return f"""
{_USER_BUS if supervisor == "systemd-user" else ""}units={unit_dir}
mkdir -p "$units" || die {CANNOT_WRITE} "cannot make $units"
template="$units/{UNIT_TEMPLATE}.service"
text={quote(template)}
if [ -e "$template" ]; then
  [ "$(cat "$template")" = "$text" ] || die {CANNOT_START} "$template is not ours, or is for another replica_dir: move it away"
else
  (umask 022; printf '%s\\n' "$text" > "$template.$$") && mv "$template.$$" "$template" || die {CANNOT_WRITE} "cannot write $template"
fi
{ctl} reset-failed {unit} 2>/dev/null
undo() {{ {ctl} stop {unit}; {ctl} disable --no-reload {unit}; {ctl} reset-failed {unit}; }} 2>/dev/null
message=$({ctl} enable --no-reload {unit} 2>&1) || {{ undo; die {CANNOT_START} "systemctl enable: $message"; }}
message=$({ctl} start --no-block {unit} 2>&1) || {{ undo; die {CANNOT_START} "systemctl start: $message"; }}
"""


_START_SETSID = f"""
command -v setsid >/dev/null || die {CANNOT_START} "setsid was not found on the host (package util-linux)"
setsid /bin/sh "$dir/supervise" </dev/null >/dev/null 2>&1 &
tries=0
until [ -s session ] || [ $tries -ge 50 ]; do nap; tries=$((tries+1)); done
[ -s session ] || die {CANNOT_START} "the supervisor did not start"
"""

_SUPERVISE = f"""#!/bin/sh
# Keeps one engine running where there is no systemd: restarts it at most {MAX_RESTARTS} times.
cd "$(dirname "$0")" || exit 1
read -r line < /proc/$$/stat
set -- ${{line##*)}}; shift 19
echo "$$ $1" > session
count=0
while :; do
  /bin/sh "$PWD/run" </dev/null >>log 2>&1 &
  child=$!
  echo "$child" > pid
  wait "$child"
  echo $? > exit
  [ -e stopping ] && exit 0
  count=$((count+1))
  [ "$count" -gt {MAX_RESTARTS} ] && {{ : > failed; exit 1; }}
  echo "$count" > restarts
  sleep {RESTART_DELAY_S}
done
"""


def unit_text(replica_root: str, supervisor: str) -> str:
    """Return the template unit of every replica below a replica directory."""
    root = replica_root.replace("%", "%%")
    # Without a slice of its own name nothing is left of the template once its instances are gone.
    slice_name = "app.slice" if supervisor == "systemd-user" else "system.slice"
    target = "default.target" if supervisor == "systemd-user" else "multi-user.target"
    return f"""# Written by llmgwctl; removed with the last replica.
[Unit]
Description=llmgwctl replica %i
Wants=network-online.target
After=network-online.target nvidia-persistenced.service nvidia-fabricmanager.service
StartLimitIntervalSec=3600
StartLimitBurst={MAX_RESTARTS + 1}

[Service]
Type=exec
ExecStart=/bin/sh "{root}/%i/run"
Restart=always
RestartSec={RESTART_DELAY_S}
KillMode=mixed
TimeoutStopSec=900
Slice={slice_name}
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity
UMask=0077
StandardInput=null
StandardOutput=append:{root}/%i/log
StandardError=inherit

[Install]
WantedBy={target}"""


def run_script(order: StartOrder) -> str:
    """Return the start script: a clean environment, the GPUs by UUID, then the engine in place of the shell."""
    launch = order.launch
    exports = "\n".join(
        f"export {name}={quote(value)}" for name, value in launch.env if not isinstance(value, SecretRef)
    )
    title = "".join(c if c.isprintable() else "?" for c in f"{order.replica}, member {order.member}")
    return f"""#!/bin/sh
# {title}. Written by llmgwctl; runs at every start, after a reboot too.
dir=$(cd "$(dirname "$0")" && pwd) || exit 1
cd "$dir" || exit 1
if [ -z "${{LLMGWCTL_CLEAN:-}}" ]; then
  if [ -f log ] && [ "$(wc -c < log)" -gt {LOG_LIMIT_BYTES} ]; then cp log log.1 && : > log; fi
  home=${{HOME:-}}
  [ -n "$home" ] || home=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f6)
  exec env -i LLMGWCTL_CLEAN=1 HOME="${{home:-/}}" PATH="{PATH}:${{home:-}}/.local/bin" LANG=C.UTF-8 USER="$(id -un)" /bin/sh "$dir/run"
fi
unset LLMGWCTL_CLEAN
rm -f ready
{_device_lines(launch)}
{exports}
if [ -f secrets ]; then . ./secrets; fi
exec {" ".join(quote(word) for word in launch.argv)}
"""


def _device_lines(launch: LaunchSpec) -> str:
    """Return what selects the GPUs.

    CUDA's numbering may change when a card fails or a host reboots, and vLLM takes no UUIDs there, so the UUIDs are
    turned into today's indices at each start. ROCm takes UUIDs as they are.
    """
    real = [u for u in launch.gpus if not u.startswith("SIM-")]
    if not launch.device_env or not real:
        return ""
    if launch.device_env != "CUDA_VISIBLE_DEVICES":
        return f"export {launch.device_env}={quote(','.join(real))}"
    wanted = " ".join(quote(u) for u in real)
    return f"""ask="nvidia-smi --query-gpu=uuid,index --format=csv,noheader"
command -v timeout >/dev/null && ask="timeout 60 $ask"
table=$($ask) || {{ echo "llmgwctl: nvidia-smi fails, so the GPUs' places are not known: $table"; exit 1; }}
places=
for uuid in {wanted}; do
  place=$(printf '%s\\n' "$table" | sed -n "s/^$uuid, *\\([0-9][0-9]*\\).*/\\1/p")
  [ -n "$place" ] || {{ echo "llmgwctl: GPU $uuid is no longer on this host"; exit 1; }}
  places="$places${{places:+,}}$place"
done
export CUDA_VISIBLE_DEVICES="$places\""""


def _replica_json(order: StartOrder) -> str:
    launch = order.launch
    return (
        json.dumps(
            {
                "format_version": "1.0",
                "id": order.replica,
                "member": order.member,
                "model": order.model,
                "profile": order.profile,
                "engine": launch.engine,
                "launch_digest": launch.digest,
                "gpus": list(launch.gpus),
                "port": launch.port,
                "address": launch.address,
                "lineage": order.lineage,
                "node": order.node,
                "folder": launch.folder,
                "simulated": order.simulated,
                "health_path": launch.readiness.health_path,
            },
            indent=1,
        )
        + "\n"
    )


def _health_line(launch: LaunchSpec) -> str:
    return f"{launch.address} {launch.port} {launch.readiness.health_path or '-'}\n"


def _folder(root: str, folder: str) -> str:
    return f"dir={quote(f'{root}/{folder}')}\n"


def status_script(launch: LaunchSpec) -> str:
    """Return the script that prints `alive|ended|absent`, the restarts, and how it ended."""
    unit = f"{UNIT_TEMPLATE}{launch.folder}.service"
    body = f"""{_folder(launch.root, launch.folder)}
[ -d "$dir" ] || {{ echo "absent 0"; exit 0; }}
cd "$dir" || die {STILL_THERE} "cannot look into $dir"
supervisor=$(cat supervisor 2>/dev/null)
case "$supervisor" in
systemd*)
  ctl=systemctl
  [ "$supervisor" = systemd-user ] && {{ {_USER_BUS.strip()}; ctl="systemctl --user"; }}
  $ctl show -p ActiveState,SubState,Job,NRestarts,Result,ExecMainCode,ExecMainStatus {unit} ;;
setsid)
  read -r SID start < session 2>/dev/null
  restarts=$(cat restarts 2>/dev/null || echo 0); status=$(cat exit 2>/dev/null)
  if [ -n "${{SID:-}}" ] && [ "$(starttime "$SID")" = "$start" ] && [ -n "$(cat pid 2>/dev/null)" ] && [ ! -e failed ]; then
    if kill -0 "$(cat pid)" 2>/dev/null; then echo "alive $restarts"; else echo "ended $restarts $status"; fi
  else echo "ended $restarts $status"; fi ;;
*) echo "absent 0" ;;
esac"""
    return _program(body)


def mark_ready_script(launch: LaunchSpec) -> str:
    """Return the script that leaves the mark of a member seen ready."""
    return _program(
        f'{_folder(launch.root, launch.folder)}: > "$dir/ready" || die {CANNOT_WRITE} "cannot write $dir/ready"'
    )


def log_script(root: str, folder: str, lines: int, *, follow: bool) -> str:
    """Return the script that prints the end of a log."""
    return _program(
        f'{_folder(root, folder)}[ -e "$dir/log" ] || die 1 "there is no log in $dir"\n'
        f'exec tail -n {lines} {"-F" if follow else ""} "$dir/log"'
    )


def stop_script(launch: LaunchSpec, lineage: str, gpu_wait_s: int) -> str:
    """Return the script that ends a member: TERM to its leader, then KILL to its whole group, then the proof.

    The leader alone gets TERM, because workers that die under their engine leave false traces; KILL goes to the
    whole control group or session, because workers outlive a leader that is killed and keep the GPUs' memory.
    """
    policy = launch.stop
    unit = f"{UNIT_TEMPLATE}{launch.folder}.service"
    second = f"term_again; wait_gone {_tenths(policy.second_grace_s)}" if policy.second_term else ":"
    ports = " ".join(str(launch.port + i) for i in range(launch.ports)) if launch.port else ""
    body = f"""{_folder(launch.root, launch.folder)}
if [ -d "$dir" ]; then
  cd "$dir" || die {STILL_THERE} "cannot look into $dir"
  [ ! -e replica.json ] || grep -qF {quote(f'"lineage": {json.dumps(lineage)}')} replica.json || exit 0
  : > stopping 2>/dev/null
  supervisor=$(cat supervisor 2>/dev/null)
  ctl=systemctl
  if [ "$supervisor" = systemd-user ]; then {_USER_BUS.strip()}; ctl="systemctl --user"; fi
  case "$supervisor" in
  systemd*)
    group() {{ $ctl show -p ControlGroup {unit} | cut -d= -f2-; }}
    members() {{ cgroup_pids "$group"; }}
    term() {{ $ctl disable --no-reload {unit} 2>/dev/null; $ctl stop --no-block {unit}; }}
    term_again() {{ $ctl kill -s TERM --kill-who=main {unit} 2>/dev/null; }}
    kill_all() {{ $ctl kill -s KILL {unit} 2>/dev/null; }}
    settled() {{ case $($ctl show -p ActiveState {unit}) in *=inactive|*=failed) ;; *) return 1 ;; esac; }}
    group=$(group) ;;
  *)
    read -r SID start < session 2>/dev/null
    # A number that another process has now is no longer our session; without any process it still may be.
    now=$(starttime "${{SID:-0}}"); [ -z "$now" ] || [ "$now" = "${{start:-}}" ] || SID=
    members() {{ [ -z "${{SID:-}}" ] || session_pids; }}
    term() {{ leader=$(cat pid 2>/dev/null); case " $(members)" in *" ${{leader:-none}} "*) kill -TERM "$leader" 2>/dev/null ;; esac; }}
    term_again() {{ term; }}
    kill_all() {{ for p in $(members); do kill -KILL "$p" 2>/dev/null; done; }}
    settled() {{ :; }} ;;
  esac
  pids=$(members)
  wait_gone() {{ # $1: fifths of a second
    tries=$1
    while [ "$tries" -gt 0 ]; do
      [ -z "$(members)" ] && settled && return 0
      nap; tries=$((tries-1))
    done
    [ -z "$(members)" ] && settled
  }}
  term
  wait_gone {_tenths(policy.grace_s)} || {second} || :
  [ -n "$(members)" ] && kill_all
  wait_gone 50 || {{ kill_all; wait_gone 100; }} || die {STILL_THERE} "processes that ignore SIGKILL are left: $(members)"
  case "$supervisor" in systemd*) $ctl reset-failed {unit} 2>/dev/null ;; esac
fi
for port in {ports or '""'}; do
  [ -n "$port" ] || continue
  tries=50
  while [ -n "$(port_open "$port")" ] && [ -n "${{pids:-}}" ] && [ "$tries" -gt 0 ]; do nap; tries=$((tries-1)); done
  [ -z "${{pids:-}}" ] || [ -z "$(port_open "$port")" ] || die {STILL_THERE} "port $port is still open"
done
{_gpu_proof(launch.gpus, gpu_wait_s)}
rm -rf "$dir" || die {STILL_THERE} "cannot remove $dir"
root={quote(launch.root)}
if rmdir "$root" 2>/dev/null; then
  {_remove_template()}
  rmdir "$(dirname "$root")" 2>/dev/null
fi
"""
    return _program(body)


def _tenths(seconds: float) -> int:
    """Return how many naps of a fifth of a second make that long."""
    return max(1, round(seconds * 5))


def _gpu_proof(gpus: Iterable[str], wait_s: int) -> str:
    """Return the lines that wait until none of the ended processes is listed on a GPU any more."""
    if not any(u.startswith("GPU-") for u in gpus):
        return ""
    return f"""
if [ -n "${{pids:-}}" ] && command -v nvidia-smi >/dev/null; then
  ask="nvidia-smi --query-compute-apps=pid --format=csv,noheader"
  command -v timeout >/dev/null && ask="timeout 30 $ask"
  held() {{ for p in $($ask 2>/dev/null); do case " $pids " in *" $p "*) printf '%s ' "$p" ;; esac; done; }}
  tries={wait_s}
  while [ -n "$(held)" ] && [ "$tries" -gt 0 ]; do sleep 1; tries=$((tries-1)); done
  [ -z "$(held)" ] || die {STILL_THERE} "GPU memory is still held by process $(held)"
fi
"""


def _remove_template() -> str:
    names = f'"/etc/systemd/system/{UNIT_TEMPLATE}.service" "${{XDG_CONFIG_HOME:-$HOME/.config}}/systemd/user/{UNIT_TEMPLATE}.service"'
    return f"""for unit in {names}; do
    [ ! -f "$unit" ] || [ ! -w "$unit" ] || rm -f "$unit"
  done"""

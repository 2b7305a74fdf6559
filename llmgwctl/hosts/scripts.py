"""The POSIX-sh texts that start, watch and stop a member; only quoting of ours, nothing of a user's is evaluated."""

from __future__ import annotations

import functools
import json
import shlex
from importlib import resources

from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.hosts.session import LOG_TAIL_BYTES, StartOrder

UNIT_TEMPLATE = "llmgwctl-v1@"
"""The template's name carries a version: another text gets another name, so no host ever needs a daemon-reload."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/wsl/lib:/opt/rocm/bin:/snap/bin"
MAX_RESTARTS = 3
RESTART_DELAY_S = 5
SYSTEMD_PATIENCE_S = 60
"""How long systemd itself waits before it kills, as at a reboot: an engine that hangs must not hold that up."""

LOG_LIMIT_BYTES = 100 * 1024 * 1024

# Exit statuses of our scripts; the text that goes with each is their standard error. With one of the first three a
# start has changed nothing, or has taken back what it changed.
EXISTS, CANNOT_WRITE, CANNOT_START, STILL_THERE = 70, 71, 72, 73
REFUSALS = (EXISTS, CANNOT_WRITE, CANNOT_START)


def quote(text: str) -> str:
    """Quote for sh; newlines, quotes and `$(…)` stay as they are."""
    return shlex.quote(text)


def start_script(order: StartOrder, supervisor: str, assets: dict[str, str], tool_timeout_s: int = 30) -> str:
    """Return the script that writes a member's folder and starts it; a failure leaves nothing behind.

    A tool of a GPU's maker that takes longer than `tool_timeout_s` is not asked.
    """
    launch = order.launch
    files = {
        "run": run_script(order),
        "replica.json": _replica_json(order),
        "health": _health_line(launch),
        "supervisor": f"{supervisor}\n",
        **assets,
    }
    if order.secrets:
        files["secrets"] = "".join(f"export {name}={quote(value)}\n" for name, value in sorted(order.secrets.items()))
    if supervisor == "setsid":
        files["supervise"] = (
            _part("supervise")
            .replace("%MAX_RESTARTS%", str(MAX_RESTARTS))
            .replace("%RESTART_DELAY_S%", str(RESTART_DELAY_S))
        )
    writes = "".join(
        f"printf '%s' {quote(text)} > {quote(name)} || die {CANNOT_WRITE} \"cannot write $dir/{name}: is the disk full?\"\n"
        for name, text in sorted(files.items())
    )
    values = {
        **_place(launch.root, launch.folder),
        "supervisor": supervisor,
        "text": unit_text(launch.root, supervisor),
        "port": str(launch.port),
        "gpus": " ".join(launch.gpus),
        "patience": str(tool_timeout_s),
    }
    begin = _part("start_setsid" if supervisor == "setsid" else "start_systemd")
    log = f': > log || die {CANNOT_WRITE} "cannot write $dir/log: is the disk full?"\n'
    body = f"{_part('start')}{writes}{log}{begin}over=1\ncat /proc/sys/kernel/random/boot_id 2>/dev/null\n"
    return _program(values, body)


def unit_text(replica_root: str, supervisor: str) -> str:
    """Return the template unit of every replica below a replica directory."""
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
{_exec_line(replica_root)}
Restart=always
RestartSec={RESTART_DELAY_S}
KillMode=mixed
TimeoutStopSec={SYSTEMD_PATIENCE_S}
Slice={slice_name}
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity
UMask=0077
StandardInput=null
StandardOutput=append:{replica_root.replace("%", "%%")}/%i/log
StandardError=inherit

[Install]
WantedBy={target}"""


def _exec_line(replica_root: str) -> str:
    """Return the line that says whose root a template is for; `$` counts as a variable's in this line alone."""
    return f'ExecStart=/bin/sh "{replica_root.replace("%", "%%").replace("$", "$$")}/%i/run"'


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


def status_script(launch: LaunchSpec) -> str:
    """Return the script that prints `alive|ended|absent`, the restarts, and how it ended."""
    return _program(_place(launch.root, launch.folder), _part("status"))


def mark_ready_script(launch: LaunchSpec) -> str:
    """Return the script that leaves the mark of a member seen ready; a link of that name is not followed."""
    return _program(
        _place(launch.root, launch.folder),
        '[ -e "$dir/ready" ] || (set -C; : > "$dir/ready") 2>/dev/null || [ -e "$dir/ready" ] ||\n'
        f'  die {CANNOT_WRITE} "cannot write $dir/ready"\n',
    )


def log_script(root: str, folder: str, lines: int, *, follow: bool, most_bytes: int = LOG_TAIL_BYTES) -> str:
    """Return the script that prints the end of a log: so many lines, and never more than so many bytes of them."""
    values = {"lines": str(lines), "most": str(most_bytes), "follow": "1" if follow else ""}
    return _program({**_place(root, folder), **values}, _part("log"))


def stop_script(launch: LaunchSpec, lineage: str, gpu_wait_s: int) -> str:
    """Return the script that ends a member, proves it, and removes its folder.

    It does nothing where nothing is left, and nothing to what another state or another root has under that name.
    """
    policy = launch.stop
    values = {
        **_place(launch.root, launch.folder),
        "lineage": f'"lineage": {json.dumps(lineage)}',
        "exec_line": _exec_line(launch.root),
        "text_system": unit_text(launch.root, "systemd"),
        "text_user": unit_text(launch.root, "systemd-user"),
        "grace": str(_fifths(policy.grace_s)),
        "systemd_grace": str(_fifths(SYSTEMD_PATIENCE_S)),
        "second_grace": str(_fifths(policy.second_grace_s)) if policy.second_term else "",
        "ports": " ".join(str(launch.port + i) for i in range(launch.ports)) if launch.port else "",
        "gpu_wait": str(gpu_wait_s) if any(u.startswith("GPU-") for u in launch.gpus) else "",
    }
    return _program(values, _part("stop"))


def _place(root: str, folder: str) -> dict[str, str]:
    return {
        "root": root,
        "dir": f"{root}/{folder}",
        "unit": f"{UNIT_TEMPLATE}{folder}.service",
        "template": f"{UNIT_TEMPLATE}.service",
    }


def _program(values: dict[str, str], body: str) -> str:
    """Wrap a script so that it is read whole before it runs, and no child can eat the rest of it."""
    statuses = {
        "EXISTS": EXISTS,
        "CANNOT_WRITE": CANNOT_WRITE,
        "CANNOT_START": CANNOT_START,
        "STILL_THERE": STILL_THERE,
    }
    sets = "".join(f"{name}={quote(str(value))}\n" for name, value in (statuses | values).items())
    path = f'LC_ALL=C; export LC_ALL\nPATH="$PATH:{PATH}:${{HOME:-}}/.local/bin"; export PATH\n'
    return f"{{\n{path}{sets}{_part('functions')}{body}\nexit 0\n}} </dev/null\n"


@functools.cache
def _part(name: str) -> str:
    return resources.files("llmgwctl.hosts.supervisor").joinpath(f"{name}.sh").read_text(encoding="utf-8")


def _fifths(seconds: float) -> int:
    """Return how many naps of a fifth of a second make that long."""
    return max(1, round(seconds * 5))

"""Measures an inventory of N hosts over SSH, and on request Ansible's `setup` on the same server.

    python tests/benchmarks/bench_inventory.py --hosts 100 300 [--echo] [--ansible] [--profile] [--repeat 3]

All hosts are aliases of one sshd on loopback (seven addresses, since no more than eight logins at a time go to one),
with a login user whose shell is /bin/sh; the sshd and what it starts compete for the same cores, so wall time
here is bounded by the server. `cpu` is the client's: start-up and imports are in `cpu`, not in `gather cpu`.
Needs OpenSSH's server, and root for the user. `--ansible PATH` names the folder of its commands.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from support.sshd import Sshd, make_key, plain_user  # noqa: E402

ADDRESSES = [f"127.0.0.{n}" for n in range(1, 8)]
WORKERS = 50
SERVER = "MaxStartups 1000:30:2000\nMaxSessions 500\n" + "\n".join(f"ListenAddress {a}" for a in ADDRESSES[1:])


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took, in seconds."""

    wall_s: float
    cpu_s: float
    gather_cpu_s: float = 0.0
    peak_mib: float = 0.0


def main() -> None:
    options = _options()
    if options.client:
        client(options)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="llmgwctl-bench-")))
        login = stack.enter_context(plain_user())
        server = stack.enter_context(Sshd(SERVER))
        (folder / ".ssh").mkdir()
        server.authorize(make_key(folder / ".ssh" / "id_ed25519"))
        (folder / "known_hosts").write_text("".join(server.known_lines(a) for a in ADDRESSES))
        print(f"{'what':24} {'hosts':>5} {'wall s':>8} {'cpu s':>7} {'gather cpu ms/host':>19} {'peak MiB':>9}")
        for count in options.hosts:
            ours = _ours(folder, server, login, count, options)
            if options.ansible:
                _ansible(folder, server, login, count, options, ours)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[100])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--echo", action="store_true", help="an echo instead of the probe")
    parser.add_argument("--profile", action="store_true", help="where the client's time goes")
    parser.add_argument("--ansible", nargs="?", const="", help="compare with Ansible's setup")
    parser.add_argument("--cheap-kex", action="store_true", help="make OpenSSH use curve25519 instead of its default")
    parser.add_argument("--client", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--login", help=argparse.SUPPRESS)
    return parser.parse_args()


def _ours(folder: Path, server: Sshd, login: str, count: int, options: argparse.Namespace) -> Cost:
    command = [sys.executable, __file__, "--client", str(count), "--port", str(server.port), "--login", login]
    command += [flag for flag in ("--echo", "--profile") if getattr(options, flag[2:])]
    environment = {k: v for k, v in os.environ.items() if k != "SSH_AUTH_SOCK"}
    environment |= {"HOME": str(folder), "LLMGWCTL_SSH_CONFIG": os.devnull}
    costs = []
    for _ in range(1 if options.profile else options.repeat):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        sys.stdout.write(done.stderr)
        costs.append(Cost(**json.loads(done.stdout.splitlines()[-1])))
    return _report("echo" if options.echo else "inventory", count, costs)


def client(options: argparse.Namespace) -> None:
    """Gather once, in a process of its own, and print what it took."""
    from llmgwctl.domain.desired import Host, Settings, SshSettings
    from llmgwctl.domain.inventory import Node
    from llmgwctl.hosts.gather import gather
    from llmgwctl.hosts.session import GatherRequest
    from llmgwctl.hosts.sessions import Sessions
    from llmgwctl.hosts.ssh import SshConnector

    settings = Settings(ssh=SshSettings(user=options.login, known_hosts="known_hosts", connect_timeout_s=30))
    base = Path.cwd()
    hosts = [
        Host(f"gpu-{n:04}", ADDRESSES[n % len(ADDRESSES)], port=options.port, user=options.login)
        for n in range(options.client)
    ]
    sessions = Sessions(hosts, settings, base, base / "world.json")
    connector = SshConnector(settings.ssh, base)

    def probe(host: Host) -> Node:
        return sessions.of(host).gather(GatherRequest())

    def echo(host: Host) -> Node:
        done = connector.connect(host).run("echo ok", timeout_s=60)
        return Node(host.name, reachable=done.stdout == b"ok\n")

    profilers: list[cProfile.Profile] = []
    if options.profile:
        # Each thread has a profiler of its own.
        def start_profiler(*_: object) -> None:
            sys.setprofile(None)
            profilers.append(cProfile.Profile(time.thread_time))
            profilers[-1].enable()

        threading.setprofile(start_profiler)
    before, started = _cpu(resource.RUSAGE_SELF), time.monotonic()
    with sessions:
        seen = gather(hosts, echo if options.echo else probe, workers=WORKERS, deadline_s=120, taken_at="now")
    wall_s, spent_s = time.monotonic() - started, _cpu(resource.RUSAGE_SELF) - before
    bad = [n.error or "no ok" for n in seen.nodes if not n.reachable]
    if bad:
        raise SystemExit(f"{len(bad)} hosts failed: {bad[0]}")
    for profiler in profilers:
        profiler.disable()
    if profilers:
        total = pstats.Stats(profilers[0], stream=sys.stderr)
        for profiler in profilers[1:]:
            total.add(profiler)
        total.sort_stats("tottime").print_stats(45)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cost = {"wall_s": wall_s, "cpu_s": _cpu(resource.RUSAGE_SELF), "gather_cpu_s": spent_s, "peak_mib": peak}
    print(json.dumps(cost))


def _ansible(folder: Path, server: Sshd, login: str, count: int, options: argparse.Namespace, ours: Cost) -> None:
    """Run `setup` with pipelining, first without connections, then over those that are left open."""
    lines = [
        f"a{n} ansible_host={ADDRESSES[n % len(ADDRESSES)]} ansible_control_path={folder}/c{count}-{n}"
        for n in range(count)
    ]
    lines += [
        "[all:vars]",
        f"ansible_port={server.port}",
        f"ansible_user={login}",
        "ansible_python_interpreter=/usr/bin/python3",
        f"ansible_ssh_private_key_file={folder}/.ssh/id_ed25519",
        f"ansible_ssh_common_args=-F none -o UserKnownHostsFile={folder}/known_hosts -o ControlPersist=600"
        + (" -o KexAlgorithms=curve25519-sha256" if options.cheap_kex else ""),
    ]
    (folder / "inventory").write_text("\n".join(lines) + "\n")
    command = [str(Path(options.ansible) / "ansible") if options.ansible else "ansible", "all"]
    command += ["-i", str(folder / "inventory"), "-f", str(WORKERS), "-m", "setup"]
    environment = os.environ | {"ANSIBLE_PIPELINING": "1", "HOME": str(folder), "ANSIBLE_TIMEOUT": "60"}
    for what in ("ansible setup, cold", "ansible setup, warm"):
        masters_s = _masters_cpu_s(f"{folder}/c{count}-")
        cost = _cost_of(command, environment, folder)
        masters_s = _masters_cpu_s(f"{folder}/c{count}-") - masters_s
        cost = replace(cost, cpu_s=cost.cpu_s + masters_s, gather_cpu_s=cost.gather_cpu_s + masters_s)
        _report(what, count, [cost])
        print(
            f"{'':24} ours takes {ours.wall_s / cost.wall_s:.1%} of its wall, {ours.cpu_s / cost.cpu_s:.1%} of its cpu"
        )


def _cost_of(command: Sequence[str], environment: dict[str, str], folder: Path) -> Cost:
    started = time.monotonic()
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"ansible failed: {(folder / 'output').read_text()[-2000:]}")
    cpu_s = used.ru_utime + used.ru_stime
    return Cost(time.monotonic() - started, cpu_s, cpu_s, used.ru_maxrss / 1024)


def _masters_cpu_s(control_path: str) -> float:
    """Return what the connections that ssh keeps open have used; they are no children of Ansible any more."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if control_path in (process / "cmdline").read_text():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        except OSError:
            continue  # it has just ended
    return ticks / os.sysconf("SC_CLK_TCK")


def _report(what: str, count: int, costs: list[Cost]) -> Cost:
    cost = sorted(costs, key=lambda c: c.wall_s)[len(costs) // 2]
    cpu_ms = statistics.median(c.gather_cpu_s for c in costs) / count * 1000
    print(f"{what:24} {count:5} {cost.wall_s:8.2f} {cost.cpu_s:7.2f} {cpu_ms:19.2f} {cost.peak_mib:9.0f}", flush=True)
    return cost


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()

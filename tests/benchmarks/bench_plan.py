"""Measures whole runs of the program on a large simulated fleet: plan from nothing, apply, plan again, --help.

    python tests/benchmarks/bench_plan.py [--hosts 250 1000] [--repeat 3]

A fleet has four replicas a host. Each figure is the median of the repeats, of the whole process: wall seconds, peak
memory, and how many times the time of a bare interpreter that is. The growth from the smallest to the largest fleet is
printed last: a plan's time should grow as the fleet does, not as its square.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPLICAS_A_HOST = 4


@dataclass(frozen=True, slots=True)
class Cost:
    wall_s: float
    peak_mib: float


def main() -> None:
    options = _options()
    bare = _median([_cost([sys.executable, "-c", "pass"], 0) for _ in range(options.repeat)])
    _tell("a bare interpreter", bare, bare)
    shown = _median([_run(["--help"], 0) for _ in range(options.repeat)])
    _tell("llmgwctl --help", shown, bare)
    plans = {hosts: _fleet(hosts, options.repeat, bare) for hosts in options.hosts}
    low, high = min(plans), max(plans)
    for what in plans[low] if high > low else ():
        growth = plans[high][what].wall_s / plans[low][what].wall_s
        print(f"{what}: {high // low} times the hosts takes {growth:.1f} times as long")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[250, 1000])
    parser.add_argument("--repeat", type=int, default=3)
    return parser.parse_args()


def _fleet(hosts: int, repeat: int, bare: Cost) -> dict[str, Cost]:
    """Return the costs of the commands on one fleet."""
    with tempfile.TemporaryDirectory(prefix="llmgwctl-bench-") as name:
        folder = Path(name)
        (folder / "fleet.yaml").write_text(_configuration(hosts))
        where = ["-C", name]
        costs = {"plan from nothing": _median([_run([*where, "plan", "--json"], 0) for _ in range(repeat)])}
        costs["apply"] = _run([*where, "apply", "--auto-approve", "--parallelism", "100"], 0)
        again = [*where, "plan", "--json", "--detailed-exitcode"]
        costs["plan after the apply"] = _median([_run(again, 0) for _ in range(repeat)])
        costs["status"] = _median([_run([*where, "status", "--json"], 0) for _ in range(repeat)])
        for what, cost in costs.items():
            _tell(f"{hosts} hosts, {hosts * REPLICAS_A_HOST} replicas: {what}", cost, bare)
        return costs


def _configuration(hosts: int) -> str:
    """Return a fleet of two GPU classes and models of several sizes; JSON is YAML, but people write YAML."""
    lines = ["hosts:"]
    for number in range(hosts):
        kind = "h100-80gb" if number % 2 else "l40s-48gb"
        simulate = f"{{gpus: 8, gpu_class: {kind}, gpu_memory_gb: 80, cores: 128, memory_gb: 1024}}"
        lines += [f"  - name: gpu-{number:04}", "    connection: simulated", f"    labels: {{zone: z{number % 4}}}"]
        lines += [f"    simulate: {simulate}"]
    lines.append("models:")
    for number in range(hosts // 2):
        team = f"team:t{number % 20}"
        lines += [f"  - name: model-{number:04}", f"    source: /models/model-{number:04}", f"    owner: {team}"]
        lines += ["    scaling: {min: 8, max: 8}", "    profiles:"]
        for kind, priority in (("h100-80gb", number % 2), ("l40s-48gb", 1 - number % 2)):
            profile = f"engine: vllm, gpu_class: {kind}, tp: 2, min_memory_gb: 64, cpu_cores: 8, priority: {priority}"
            lines.append(f"      - {{name: {kind}x2, {profile}}}")
    lines += ["quotas:", "  org:o: {guarantee: {gpus: 1000}}"]
    lines += [f"  team:t{n}: {{parent: 'org:o', guarantee: {{gpus: 16}}}}" for n in range(20)]
    return "\n".join(lines) + "\n"


def _run(arguments: list[str], code: int) -> Cost:
    return _cost([sys.executable, "-m", "llmgwctl", *arguments], code)


def _cost(command: list[str], code: int) -> Cost:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    begun = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, text=True)
    error = process.stderr.read() if process.stderr else ""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != code:
        raise SystemExit(f"{json.dumps(command)} ended with {process.returncode}:\n{error[-2000:]}")
    return Cost(time.monotonic() - begun, used.ru_maxrss / 1024)


def _median(costs: list[Cost]) -> Cost:
    return Cost(statistics.median(c.wall_s for c in costs), max(c.peak_mib for c in costs))


def _tell(what: str, cost: Cost, bare: Cost) -> None:
    print(f"{what:50} {cost.wall_s:7.3f} s {cost.peak_mib:6.0f} MiB {cost.wall_s / bare.wall_s:7.1f} times", flush=True)


if __name__ == "__main__":
    main()

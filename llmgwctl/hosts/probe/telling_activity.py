"""Tells what a host says of its network, its processes and its kernel's complaints, as plain facts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from llmgwctl.hosts.probe import network, processes, shells
from llmgwctl.hosts.probe.failures import read_failure
from llmgwctl.hosts.probe.nvidia import read_list
from llmgwctl.hosts.probe.telling import Fact, Facts, failed
from llmgwctl.hosts.probe.telling_nvidia import gpus_facts


def dmesg_facts(text: str, *_: object) -> Facts:
    """Read dmesg."""
    found = processes.read_xids(text)
    facts: Facts = {"xid": [x.number for x in found], "pci": [x.pci for x in found], "usable": True}
    trouble = processes.read_kernel_trouble(text)
    if trouble:
        facts.update(usable=False, error=trouble[0], user_message=trouble[1])
    fatal = [x for x in found if x.number in processes.XID_FATAL]
    if fatal:
        first = fatal[0]
        codes = {79: "gpu_lost", 119: "gpu_xid_119_gsp_timeout", 120: "gpu_xid_119_gsp_timeout"}
        facts.update(
            usable="degraded",
            error=codes.get(first.number, f"gpu_xid_{first.number}"),
            user_message=f"GPU at {first.pci} reported Xid {first.number} "
            f"({processes.XID_MEANINGS.get(first.number, 'error')}) - reset or reboot needed.",
        )
    return facts


def ports_facts(read_ports: Callable[[str], tuple[network.Port, ...]], count: str) -> Callable[..., Facts]:
    """Make a reader of network ports; `count` is what its number is called."""

    def facts_of(text: str, exit_code: int | None, _: Sequence[str]) -> Facts:
        ports = read_ports(text)
        active = [p for p in ports if p.active]
        facts: Facts = {
            count: len(ports) if count == "ports" else len({p.device for p in ports}),
            "active": len(active),
            "down": len(ports) - len(active),
            "infiniband_active": sum(not p.ethernet for p in active),
            "ethernet_active": sum(p.ethernet for p in active),
            "fabric": network.fabric_of(ports),
        }
        if exit_code and ports:
            message = f"The tool failed with status {exit_code} after {len(ports)} ports; what it printed is used."
            facts.update(usable="partial", error="ibstat_partial", user_message=message)
        elif not ports:
            failure = read_failure(text, exit_code)
            facts.update(failed(failure) if failure else {})
            facts.pop("gpus", None)
        return facts

    return facts_of


def ibdev2netdev_facts(text: str, *_: object) -> Facts:
    """Read `ibdev2netdev`."""
    found = network.read_ibdev2netdev(text)
    silent = sum(d.interface.startswith("ib") and not d.ip_up for d in found)
    return {
        "hcas": len(found),
        "up": sum(d.ip_up for d in found),
        "note": f"Down is the IP side only: the {silent} ibp* adapters may be a working InfiniBand fabric without "
        "IPoIB, so this command must not decide",
    }


def listeners_facts(text: str, *_: object) -> Facts:
    """Read `ss -ltnp`."""
    found = processes.read_listeners(text)
    engines = [(processes.engine_of(x.process), x) for x in found]
    known = [(name, x) for name, x in engines if name]
    listening: list[Fact] = [{"port": x.port, "addr": x.address, "process": x.process, "pid": x.pid} for x in found]
    shown: list[Fact] = [{"engine": name, "port": x.port, "pid": x.pid} for name, x in known]
    facts: Facts = {"listening": listening, "engines": shown}
    for name, x in known:
        rivals = {y.pid for other, y in known if y.port == x.port and y.address == x.address and other == name}
        if len(rivals) > 1:
            count = "Two" if len(rivals) == 2 else str(len(rivals))
            facts.update(
                error="port_shared_by_two_engines",
                user_message=f"{count} {_TITLES.get(name, name)} servers listen on {x.address}:{x.port} "
                "(SO_REUSEPORT); each gets a part of the requests, and one may have a dead engine.",
            )
            break
    return facts


_TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "ollama": "Ollama"}


def ps_facts(text: str, *_: object) -> Facts:
    """Read `ps`."""
    found = processes.read_ps(text)
    engines: list[Fact] = []
    facts: Facts = {"processes": len(found), "engines": engines}
    for process in found:
        name = processes.engine_of(process.command)
        orphan = process.parent == 1 and bool(_WORKER.search(process.command))
        if name:
            engines.append({"engine": name, "pid": process.pid, "orphan": orphan})
        if name and orphan and "error" not in facts:
            title = process.command.split()[0]
            stuck = process.state[:1] in ("R", "D")
            message = f"{title} (pid {process.pid}) is orphaned (parent 1)"
            message += (
                " and cannot be killed; the GPU stays busy until a reboot." if stuck else "; it keeps its GPU's memory."
            )
            facts.update(error="engine_orphan", user_message=message)
        if process.state.startswith("D") and "nvidia-smi" in process.command:
            facts.update(
                usable=False,
                error="driver_hung",
                user_message=f"nvidia-smi (pid {process.pid}) hangs in the driver (state D); reboot the host.",
            )
    return facts


_WORKER = re.compile(r"VLLM::|sglang::|EngineCore|Worker_TP|scheduler_")


def banner_facts(text: str, *_: object) -> Facts:
    """Read output with noise before it."""
    parts = shells.split_banner(text)
    rows = read_list("\n".join(parts.payload))
    facts: Facts = {"banner_lines": len(parts.banner), "payload": list(parts.payload)}
    if rows:
        facts.update({k: v for k, v in gpus_facts(rows).items() if k in ("gpus", "models", "gpu_class", "usable")})
    if not parts.payload and not parts.banner:
        facts.update(error="empty_payload", user_message="Nothing was printed.")
    elif not parts.payload:
        facts.update(error="remote_shell_not_clean", user_message="The login shell prints text, and no answer follows.")
    return facts

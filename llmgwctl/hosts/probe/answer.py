"""Turns a host's answer to the probe into a Node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from llmgwctl.domain.desired import Host
from llmgwctl.domain.gpu_classes import UNKNOWN
from llmgwctl.domain.inventory import Gpu, Node
from llmgwctl.hosts.probe import facts
from llmgwctl.hosts.probe.accelerators import PciDevice, unsupported
from llmgwctl.hosts.probe.frames import Section, sections
from llmgwctl.hosts.probe.gpus import amd_gpus, nvidia_gpus, owned, pretended_gpus
from llmgwctl.hosts.probe.replicas import Replicas, read_replicas
from llmgwctl.hosts.probe.request import ProbeRequest

SKEW_WARNING_S = 2.0
"""From this on a clock that is off breaks certificates and the ages of records."""


def read_answer(
    answer: bytes,
    token: str,
    request: ProbeRequest,
    host: Host,
    *,
    errors: bytes = b"",
    exit_status: int = 0,
    sent_at: float | None = None,
    received_at: float | None = None,
) -> Node:
    """Return the node that answered `build_script(request, token)`.

    Text outside of the marks is ignored; `errors` and `exit_status` are told where there is no answer. `sent_at` and
    `received_at` are this machine's clock, for the difference.
    Raises ProbeError where the answer is none, or is cut.
    """
    found = sections(answer, token, host.name, errors, exit_status)
    base = facts.read_base(found["base"])
    files = facts.read_files(found.get("files", Section("")))
    memory_mib, available_mib, memory_warning = facts.memory(files)
    listening = facts.ports(found.get("ports"))
    pci = facts.pci_devices(found.get("pci"))
    replicas = read_replicas(found, listening)
    gpus, gpu_warnings = _gpus(found, host, replicas, pci)
    disks, disk_warnings = facts.disks(found.get("disks"), (replicas.root, *request.paths))
    finish = dict(line.split("=", 1) for line in found["finish"].lines() if "=" in line)
    skew, certain = facts.clock_skew(base.cells.get("date", ""), finish.get("date", ""), sent_at, received_at)
    warnings = [*gpu_warnings, *replicas.warnings, *disk_warnings]
    warnings += [w for w in (memory_warning, base.supervisor_warning) if w]
    if skew is not None and certain > SKEW_WARNING_S:
        warnings.append(f"Its clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}.")
    return Node(
        name=host.name,
        millicores=facts.millicores(files),
        memory_mib=memory_mib,
        memory_available_mib=available_mib,
        labels=host.labels,
        fabric=host.fabric,
        os=facts.os_name(files),
        supervisor=base.supervisor,
        gpus=gpus,
        replicas=replicas.found,
        ports_in_use=listening,
        ephemeral_ports=facts.ephemeral_ports(files),
        replica_root=replicas.root,
        boot_id=files.single.get("/proc/sys/kernel/random/boot_id", ""),
        machine=_machine(files.single),
        disks=disks,
        engines_found=_versions(found, base.engines),
        commands_found={**base.tools, **base.engines},
        unsupported=unsupported(pci, tuple(base.devices)),
        warnings=tuple(dict.fromkeys(warnings)),
        clock_skew_s=skew,
        replicas_hidden=replicas.hidden,
    )


def _machine(files: Mapping[str, str]) -> str:
    """Return what no two machines share: containers of one machine share its boot, and clones their machine-id."""
    boot = files.get("/proc/sys/kernel/random/boot_id", "")
    names = (boot, files.get("/etc/machine-id", ""), files.get("/proc/sys/kernel/hostname", ""))
    return "/".join(names) if boot else ""


def _gpus(
    found: Mapping[str, Section], host: Host, replicas: Replicas, pci: tuple[PciDevice, ...]
) -> tuple[tuple[Gpu, ...], list[str]]:
    nvidia, warnings = nvidia_gpus(found, pci)
    amd, amd_warnings = amd_gpus(found, pci)
    if nvidia:  # one numbering for the whole host, NVIDIA's first
        start = max(g.index for g, _ in nvidia) + 1
        amd = [(replace(g, index=g.index + start), p) for g, p in amd]
    gpus, more = owned([*nvidia, *amd], replicas.found, replicas.pids)
    if host.gpu_class is not None:
        gpus = tuple(replace(g, gpu_class=host.gpu_class) for g in gpus)
    unknown = sorted({g.product for g in gpus if g.gpu_class == UNKNOWN})
    warnings += [*amd_warnings, *more]
    warnings += [
        f"The class of {p or 'a GPU without a name'} is not known; gpu_class of the host can set it." for p in unknown
    ]
    first = max((g.index for g in gpus), default=-1) + 1
    return (*gpus, *pretended_gpus(host, first, replicas.found)), warnings


_VERSION = re.compile(r"(?:version:?\s*)?v?(\d[\w.+-]*)", re.IGNORECASE)


def _versions(found: Mapping[str, Section], engines: Mapping[str, str]) -> dict[str, str]:
    """Return each engine's version, empty where it doesn't tell."""
    versions = {}
    for name in engines:
        section = found.get(f"version-{name}")
        text = ""
        for line in section.lines() if section is not None and section.status == 0 else []:
            match = _VERSION.match(line.strip())
            if match:
                text = match[1]
                break
        versions[name] = text
    return versions

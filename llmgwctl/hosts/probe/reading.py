"""One way to every reader: the kind of a captured text in, plain facts out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmgwctl.hosts.probe import amd, network, telling_activity, telling_host, telling_nvidia, telling_vendors
from llmgwctl.hosts.probe.telling import Fact, Facts, failure_facts


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says; a fact that it doesn't tell has no key, one that it tells to be absent is None.

    Sizes are MiB unless their key says so; `usable` is True, False, `degraded`, `partial` or `unknown`; `error` is a
    code.
    """

    kind: str
    facts: dict[str, Fact] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Fact:
        return self.facts[key]

    def __contains__(self, key: object) -> bool:
        return key in self.facts

    def get(self, key: str, default: Fact = None) -> Fact:
        """Return a fact, or the default where the text doesn't tell it."""
        return self.facts.get(key, default)


def read(kind: str, text: str, exit_code: int | None = None, *, command: str = "") -> Reading:
    """Read a captured text by its kind. Raises ValueError for a kind that is not known.

    `command` is what was run, where it is known: it names the columns of a list without header.
    """
    if kind not in READERS:
        raise ValueError(f"no reader for {kind!r}; known are {', '.join(sorted(READERS))}")
    reader = READERS[kind]
    facts = reader(text, exit_code, _fields(command))
    return Reading(kind, facts)


def _fields(command: str) -> tuple[str, ...]:
    """Return the fields that a `--query-…=` option names; none where the command is told in other words."""
    for word in command.split():
        name, _, rest = word.partition("=")
        if name.startswith("--query-") and rest and "<" not in rest:
            return tuple(rest.split(","))
    return ()


READERS: dict[str, Callable[[str, int | None, Sequence[str]], Facts]] = {
    "amd-smi-failure": telling_vendors.amd_failure,
    "amd-smi-json": lambda t, e, f: telling_vendors.amd_facts(amd.read_amd_json(t), t, e, f),
    "amd-smi-static": lambda t, e, f: telling_vendors.amd_facts(amd.read_amd_text(t), t, e, f),
    "banner-polluted": telling_activity.banner_facts,
    "cgroup": telling_host.cgroup_facts,
    "df": telling_host.df_facts,
    "dmesg": telling_activity.dmesg_facts,
    "free": telling_host.free_facts,
    "ibdev2netdev": telling_activity.ibdev2netdev_facts,
    "ibstat": telling_activity.ports_facts(network.read_ibstat, "cas"),
    "ibstatus": telling_activity.ports_facts(network.read_ibstatus, "ports"),
    "ibv_devinfo": telling_activity.ports_facts(network.read_ibv_devinfo, "hcas"),
    "lscpu": telling_host.lscpu_facts,
    "lscpu-json": telling_host.lscpu_facts,
    "lspci": telling_vendors.lspci_facts,
    "npu-smi": telling_vendors.npu_facts,
    "nvidia-smi-L": telling_nvidia.list_facts,
    "nvidia-smi-compute-apps": telling_nvidia.apps_facts,
    "nvidia-smi-csv": telling_nvidia.csv_facts,
    "nvidia-smi-failure": failure_facts,
    "nvidia-smi-nvlink": telling_nvidia.nvlink_facts,
    "nvidia-smi-pmon": telling_nvidia.pmon_facts,
    "nvidia-smi-q": telling_nvidia.query_facts,
    "nvidia-smi-table": telling_nvidia.table_facts,
    "nvidia-smi-topo": telling_nvidia.topology_facts,
    "nvidia-smi-version": telling_nvidia.version_facts,
    "nvidia-smi-xml": telling_nvidia.xml_facts,
    "proc-cpuinfo": telling_host.cpuinfo_facts,
    "proc-meminfo": telling_host.meminfo_facts,
    "ps": telling_activity.ps_facts,
    "rocm-smi-failure": telling_vendors.amd_failure,
    "rocm-smi-json": lambda t, e, f: telling_vendors.amd_facts(amd.read_rocm_json(t), t, e, f),
    "rocm-smi-table": lambda t, e, f: telling_vendors.amd_facts(amd.read_rocm_table(t), t, e, f),
    "ss-ltnp": telling_activity.listeners_facts,
    "xpu-smi": telling_vendors.xpu_facts,
}

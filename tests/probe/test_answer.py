"""An answer's sections become the node: health, slices, owners, limits."""

from __future__ import annotations

import json

import pytest

from llmgwctl.domain.desired import Host
from llmgwctl.domain.inventory import MigInstance, Node
from llmgwctl.hosts.probe import ProbeRequest, read_answer

CSV = "{0}, GPU-{0}, 00000000:{1}:00.0, NVIDIA H100 80GB HBM3, {2}, {3}, 570.86.10, {4}"
GIB = 1024**3


def node(**sections: str | tuple[str, int]) -> Node:
    texts = {
        "base": "uid=1000",
        "replicas": "root /r",
        "finish": "",
        **{k.replace("_", "-"): v for k, v in sections.items()},
    }
    answer = ""
    for name, said in texts.items():
        text, status = said if isinstance(said, tuple) else (said, 0)
        answer += f"\nk1 B {name}\n{text}\nk1 E {name} {status}\n"
    return read_answer(answer.encode(), "k1", ProbeRequest(), Host("h1", "127.0.0.1"))


def gpu_xml(number: int, inner: str, *, bus: str = "17") -> str:
    return (
        f'<gpu id="00000000:{bus}:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name><uuid>GPU-{number}</uuid>'
        f"<fb_memory_usage><total>81559 MiB</total><used>0 MiB</used></fb_memory_usage>{inner}</gpu>"
    )


def xml(*gpus: str, attached: int | None = None) -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
        f"<attached_gpus>{len(gpus) if attached is None else attached}</attached_gpus>{''.join(gpus)}</nvidia_smi_log>"
    )


def one(inner: str, **more: str) -> Node:
    return node(nvidia_csv=CSV.format(0, 17, 81559, 0, "Disabled"), nvidia_xml=xml(gpu_xml(0, inner)), **more)


@pytest.mark.parametrize(
    ("inner", "health"),
    [
        ("", "ok"),
        ("<remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>", "gpu_reset_required"),
        ("<remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows>", "gpu_row_remap_failed"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "gpu_requires_reset"),
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", "gpu_reset_required"),
        ("<gpu_recovery_action>None</gpu_recovery_action>", "ok"),
        ("<fabric><state>In Progress</state><status>N/A</status></fabric>", "fabric_not_ready"),
        ("<fabric><state>Completed</state><status>Success</status></fabric>", "ok"),
        ("<fabric><state>N/A</state><status>N/A</status></fabric>", "ok"),
    ],
)
def test_health(inner: str, health: str):
    """The detailed report tells a card that answers and must not be used; every fault is a warning too."""
    seen = one(inner)
    assert [g.health for g in seen.gpus] == [health]
    assert bool(seen.warnings) is (health != "ok")


BRIDGE = "\n".join(
    f"/sys/bus/pci/devices/0000:{bus}:00.0/{name}:{value}"
    for bus, kind in (("17", "0x030200"), ("18", "0x068000"))
    for name, value in (("vendor", "0x10de"), ("device", "0x2330"), ("class", kind), ("numa_node", "1"))
)


def test_fabric_manager():
    """A fabric manager that doesn't run matters on hosts with NVSwitch only, and a printed state outranks it."""
    stopped = ("inactive", 3)
    assert one("", fabric=stopped).gpus[0].health == "ok"
    assert one("", fabric=stopped, pci=BRIDGE).gpus[0].health == "fabric_not_ready"
    done = "<fabric><state>Completed</state><status>Success</status></fabric>"
    assert one(done, fabric=stopped, pci=BRIDGE).gpus[0].health == "ok"
    assert one("", pci=BRIDGE).gpus[0].numa_node == 1


def test_slices():
    """A sliced card is not sold whole; its slices have profile and UUID from the list, memory from the report."""
    device = (
        "<mig_devices><mig_device><index>0</index><gpu_instance_id>2</gpu_instance_id><compute_instance_id>0"
        "</compute_instance_id><fb_memory_usage><total>40448 MiB</total></fb_memory_usage></mig_device></mig_devices>"
    )
    listed = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n  MIG 3g.40gb     Device  0: (UUID: MIG-77)"
    seen = node(
        nvidia_csv=CSV.format(0, 17, 81559, 11125, "Enabled"), nvidia_xml=xml(gpu_xml(0, device)), nvidia_list=listed
    )
    (gpu,) = seen.gpus
    assert gpu.mig == (MigInstance("MIG-77", "3g.40gb", 2, 40448),)
    assert not gpu.usable
    assert gpu.gpu_class == "h100-80gb"


def test_missing_cards_are_told():
    """Fewer cards than are built in, or than the driver claims, is no smaller host."""
    two = BRIDGE.replace("0x068000", "0x030200")
    seen = one("", pci=two)
    assert any("2 NVIDIA GPUs are built in, 1 answers" in w for w in seen.warnings)
    cut = node(nvidia_csv=CSV.format(0, 17, 81559, 0, "Disabled"), nvidia_xml=xml(gpu_xml(0, ""), attached=4))
    assert any("4 GPUs are attached, nvidia-smi describes 1" in w for w in cut.warnings)
    assert any("not on the host" in w for w in node(pci=two).warnings)
    assert any("state D" in w for w in node(nvidia_hung="/proc/7/stat").warnings)


def test_index_is_kept():
    """A card that dropped out does not renumber the others."""
    seen = node(nvidia_csv="\n".join(CSV.format(n, 17 + n, 81559, 0, "Disabled") for n in (0, 2, 3)))
    assert [g.index for g in seen.gpus] == [0, 2, 3]


def test_lost_card():
    """A lost card is shown as lost; the other one stays usable."""
    lost = "1, GPU-1, 00000000:65:00.0, NVIDIA H100 80GB HBM3, [GPU is lost], [GPU is lost], 570.86.10, [GPU is lost]"
    seen = node(nvidia_csv=CSV.format(0, 17, 81559, 0, "Disabled") + "\n" + lost)
    assert [(g.health, g.usable) for g in seen.gpus] == [("ok", True), ("gpu_lost", False)]


def test_unified_memory():
    """A part without memory of its own is kept, and shares the host's."""
    seen = node(nvidia_csv="0, GPU-0, 0000000F:01:00.0, NVIDIA GB10, [N/A], [N/A], 580.95.05, [N/A]")
    (gpu,) = seen.gpus
    assert (gpu.unified, gpu.memory_mib, gpu.gpu_class, gpu.taken_by) == (True, None, "gb10-unified", None)


def test_amd():
    """AMD's cards are classed by device id and named by the id that their variables take."""
    static = {
        "gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "device_id": "0x74a1", "asic_serial": "0xAB12"},
        "bus": {"bdf": "0000:83:00.0"}, "vram": {"size": {"value": 196592, "unit": "MB"}},
    }  # fmt: skip
    memory = {"gpu": 0, "mem_usage": {"used_vram": {"value": 150000, "unit": "MB"}}}
    seen = node(amd_smi="WARNING: groups\n" + json.dumps({"gpu_data": [static]}), amd_memory=json.dumps([memory]))
    (gpu,) = seen.gpus
    assert (gpu.uuid, gpu.vendor, gpu.gpu_class, gpu.memory_mib) == (
        "GPU-000000000000ab12", "amd", "mi300x-192gb", 196592,
    )  # fmt: skip
    assert gpu.taken_by == "unknown process"


def files(**values: str) -> str:
    return "\n".join(f"{path}:{text}" for path, text in values.items())


def test_limits():
    """Cores and memory are the least of the host's and every control group's; huge pages are not ordinary memory."""
    lines = {
        "/sys/devices/system/cpu/online": "0-63",
        "/sys/fs/cgroup/a/b/cpu.max": "350000 100000",
        "/sys/fs/cgroup/a/cpu.max": "max 100000",
        "/sys/fs/cgroup/a/cpuset.cpus.effective": "0-7,16",
        "/sys/fs/cgroup/a/memory.max": str(100 * GIB),
        "/sys/fs/cgroup/a/memory.current": str(30 * GIB),
        "/sys/fs/cgroup/a/b/memory.max": "max",
    }
    meminfo = f"/proc/meminfo:MemTotal: {512 * 1024**2} kB\n/proc/meminfo:MemAvailable: {400 * 1024**2} kB\n"
    seen = node(files=meminfo + files(**lines))
    assert (seen.millicores, seen.memory_mib, seen.memory_available_mib) == (3500, 100 * 1024, 70 * 1024)
    free = node(files=f"{meminfo}/proc/meminfo:Hugetlb: {300 * 1024**2} kB")
    assert free.memory_mib == 212 * 1024
    assert any("huge pages" in w for w in free.warnings)
    old = node(
        files=meminfo
        + files(
            **{
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
                "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
                "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            }
        )
    )
    assert (old.memory_mib, old.millicores) == (512 * 1024, 1500)


@pytest.mark.parametrize(
    ("base", "supervisor", "remedy"),
    [
        ("uid=0", "setsid", ""),
        ("uid=0\nsystemd=1", "systemd", ""),
        ("uid=7\nuser=llm\nsystemd=1", "setsid", "loginctl enable-linger llm"),
        ("uid=7\nsystemd=1\nlinger=1\nuser_manager=1", "systemd-user", ""),
        ("uid=7\nuser=llm\nsystemd=1\nuser_manager=1", "setsid", "loginctl enable-linger llm"),
        ("uid=7\nuser=llm\nsystemd=1\nlinger=1", "setsid", "systemctl start user@7.service"),
    ],
)
def test_supervisor(base: str, supervisor: str, remedy: str):
    """A user's systemd counts only where it outlives the login; where it could but doesn't, the remedy is told."""
    found = node(base=base)
    assert found.supervisor == supervisor
    told = [w for w in found.warnings if "after a reboot" in w]
    assert len(told) == bool(remedy)
    assert all(remedy in w for w in told)


def test_other_makers():
    """An accelerator that no engine is started on is named as unsupported; built-in graphics isn't."""
    lines = []
    for bus, vendor, kind in (("01", "0x19e5", "0x120000"), ("02", "0x8086", "0x030000")):
        for name, value in (("vendor", vendor), ("device", "0x0001"), ("class", kind)):
            lines.append(f"/sys/bus/pci/devices/0000:{bus}:00.0/{name}:{value}")
    assert node(pci="\n".join(lines)).unsupported == ("Huawei Ascend NPU",)
    assert node(base="uid=0\ndevice /dev/neuron0").unsupported == ("AWS Neuron",)

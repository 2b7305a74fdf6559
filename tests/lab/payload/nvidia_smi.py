#!/usr/bin/python3.11 -IS
"""An nvidia-smi for hosts without GPUs: answers from /etc/fake-gpus.json and from the processes that really run.

A process is on a GPU when its environment names that GPU in CUDA_VISIBLE_DEVICES; LAB_GPU_MEMORY_MIB there says how
much it holds. Forms and cells follow captured outputs of drivers 536 to 590, exit codes NVIDIA's manual.
"""

import json
import os
import sys
import time
from pathlib import Path

CONFIG = Path("/etc/fake-gpus.json")
DEFAULT_PROCESS_MIB = 1000
# Programs that pass the variable on to an engine but open no device themselves.
CARRIERS = {
    "sh",
    "dash",
    "bash",
    "env",
    "timeout",
    "sleep",
    "tee",
    "cat",
    "setsid",
    "nohup",
    "sudo",
    "su",
    "systemd",
    "nvidia-smi",
}
FAULTS = {
    "driver_not_loaded": (
        9,
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
        "Make sure that the latest NVIDIA driver is installed and running.\n",
    ),
    "library_mismatch": (18, "Failed to initialize NVML: Driver/library version mismatch"),
    "nvml_unknown_error": (255, "Failed to initialize NVML: Unknown Error"),
    "gpu_lost": (
        15,
        "Unable to determine the device handle for GPU {bus}: GPU is lost.  Reboot the system to recover this GPU",
    ),
}
SICK_CELLS = {"requires_reset": "GPU requires reset", "lost": "GPU is lost", "unknown_error": "Unknown Error"}
ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "fabric.cluster_uuid": "fabric.clusterUuid",
}
APP_ALIASES = {"used_memory": "used_gpu_memory", "name": "process_name"}


def main(arguments: list[str]) -> int:
    """Answer one call; see the module for what is real here."""
    if os.geteuid() != 0 and os.path.exists("/usr/bin/sudo"):
        # The real driver shows everybody's processes; here only root may read their environments.
        os.execv("/usr/bin/sudo", ["sudo", "-n", "/usr/local/bin/nvidia-smi", *arguments])
    config = json.loads(CONFIG.read_text())
    time.sleep(config["delay_s"])
    if config["fault"] == "hang":
        time.sleep(3600)
    if config["fault"] in FAULTS:
        code, text = FAULTS[config["fault"]]
        bus = config["gpus"][0]["bus_id"][4:].upper() if config["gpus"] else "0000:01:00.0"
        print(text.format(bus=bus))
        return code
    return answer(config, arguments)


def answer(config: dict, arguments: list[str]) -> int:
    """Choose the form that was asked for."""
    options: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("-i", "--id", "-f", "--filename") and not equals:
            value = next(words, "")
        options[name] = value
    wanted = options.get("-i") or options.get("--id")
    gpus = [gpu for gpu in config["gpus"] if wanted is None or is_named(gpu, wanted.split(","))]
    if "--version" in options:
        print(version_text(config))
        return 0
    if not gpus:
        print("No devices were found")
        return 6
    for gpu in gpus:
        gpu["all_processes"] = [*gpu["processes"], *live_processes(gpu)]
        gpu["used_now"] = min(gpu["memory_mib"], gpu["used_mib"] + sum(p["memory_mib"] for p in gpu["all_processes"]))
    csv = options.get("--format", "").split(",")
    if "--query-gpu" in options:
        return print_table(options["--query-gpu"], [dict(gpu_cells(config, gpu)) for gpu in gpus], csv, ALIASES)
    if "--query-compute-apps" in options:
        rows = [app_cells(gpu, process) for gpu in gpus for process in gpu["all_processes"] if process["type"] == "C"]
        return print_table(options["--query-compute-apps"], rows, csv, APP_ALIASES)
    if "-L" in options or "--list-gpus" in options:
        for gpu in gpus:
            print(f"GPU {gpu['index']}: {gpu['product']} (UUID: {gpu['uuid']})")
        return 0
    if (
        ("-q" in options or "--query" in options) and ("-x" in options or "--xml-format" in options)
    ) or "-qx" in options:
        print(xml_text(config, gpus))
        return 0
    print("this nvidia-smi belongs to a test lab; it prints no table for people", file=sys.stderr)
    return 2


def is_named(gpu: dict, names: list[str]) -> bool:
    """Tell whether a list of CUDA's or nvidia-smi's form names this GPU."""
    return any(
        name == str(gpu["index"]) or (name.startswith("GPU-") and gpu["uuid"].startswith(name)) or name == gpu["bus_id"]
        for name in (name.strip() for name in names)
    )


def live_processes(gpu: dict) -> list[dict]:
    """Find the processes whose environment puts them on this GPU."""
    found = []
    for folder in sorted(Path("/proc").iterdir(), key=lambda folder: (len(folder.name), folder.name)):
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            environment = dict(
                entry.partition("=")[::2] for entry in (folder / "environ").read_text(errors="replace").split("\0")
            )
            visible = environment.get("CUDA_VISIBLE_DEVICES", "")
            if not visible or not is_named(gpu, visible.split(",")):
                continue
            command = (folder / "comm").read_text().strip()
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
        except OSError:  # it ended meanwhile, or it isn't ours to read
            continue
        if command in CARRIERS or not words[0]:
            continue
        memory = int(environment.get("LAB_GPU_MEMORY_MIB", DEFAULT_PROCESS_MIB))
        found.append({"pid": int(folder.name), "name": words[0], "memory_mib": memory, "type": "C"})
    return found


def print_table(fields: str, rows: list[dict], csv: list[str], aliases: dict[str, str]) -> int:
    """Print a CSV query as nvidia-smi does: one unknown field fails the whole query."""
    names = [aliases.get(field.strip(), field.strip()) for field in fields.split(",")]
    known = KNOWN_FIELDS if aliases is ALIASES else APP_FIELDS
    for name in names:
        if name not in known:
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
    if csv[0] != "csv":
        print(
            'Option --query-* requires "--format=csv"'
            if not csv[0]
            else f'Option "--format={csv[0]}" is not recognized.'
        )
        return 2
    if "noheader" not in csv:
        print(", ".join(f"{name} [{known[name]}]" if known[name] and "nounits" not in csv else name for name in names))
    for row in rows:
        cells = []
        for name in names:
            text = str(row[name])
            unit = known[name]
            cells.append(f"{text} {unit}" if unit and "nounits" not in csv and not text.startswith("[") else text)
        print(", ".join(cells))
    return 0


KNOWN_FIELDS = {
    "timestamp": "", "driver_version": "", "count": "", "name": "", "serial": "", "uuid": "", "pci.bus_id": "",
    "pci.domain": "", "pci.bus": "", "pci.device": "", "pci.device_id": "", "pci.sub_device_id": "", "index": "",
    "persistence_mode": "", "vbios_version": "", "pstate": "", "compute_mode": "", "compute_cap": "",
    "memory.total": "MiB", "memory.reserved": "MiB", "memory.used": "MiB", "memory.free": "MiB",
    "utilization.gpu": "%", "utilization.memory": "%", "temperature.gpu": "", "fan.speed": "%",
    "power.draw": "W", "power.limit": "W", "clocks.current.sm": "MHz", "mig.mode.current": "", "mig.mode.pending": "",
    "ecc.mode.current": "", "ecc.errors.uncorrected.volatile.total": "", "gpu_recovery_action": "",
    "remapped_rows.pending": "", "remapped_rows.failure": "", "fabric.state": "", "fabric.status": "",
    "fabric.clusterUuid": "", "fabric.cliqueId": "",
}  # fmt: skip
APP_FIELDS = {
    "timestamp": "", "gpu_name": "", "gpu_bus_id": "", "gpu_serial": "", "gpu_uuid": "", "pid": "", "process_name": "",
    "used_gpu_memory": "MiB",
}  # fmt: skip


def now() -> str:
    """Print the time as nvidia-smi's CSV does."""
    return time.strftime("%Y/%m/%d %H:%M:%S.000")


def gpu_cells(config: dict, gpu: dict) -> dict[str, object]:
    """Fill in every known field of one GPU."""
    domain, bus, device = gpu["bus_id"].split(":")
    sick = SICK_CELLS.get(gpu["health"])
    cell = f"[{sick}]" if sick else None
    lost = cell if gpu["health"] in ("lost", "unknown_error") else None
    busy = bool(gpu["all_processes"])
    return {
        "timestamp": now(),
        "driver_version": config["driver_version"],
        "count": len(config["gpus"]),
        "name": gpu["product"],
        "serial": "0000000000000",
        "uuid": gpu["uuid"],
        "pci.bus_id": gpu["bus_id"],
        "pci.domain": f"0x{domain[-4:]}",
        "pci.bus": f"0x{bus}",
        "pci.device": f"0x{device.split('.')[0]}",
        "pci.device_id": gpu["device_id"],
        "pci.sub_device_id": "0x16C110DE",
        "index": gpu["index"],
        "persistence_mode": "Enabled",
        "vbios_version": "96.00.A5.00.01",
        "pstate": lost or "P0",
        "compute_mode": lost or "Default",
        "compute_cap": gpu["compute_cap"],
        "memory.total": lost or gpu["memory_mib"],
        "memory.reserved": lost or gpu["reserved_mib"],
        "memory.used": lost or gpu["used_now"],
        "memory.free": lost or max(0, gpu["memory_mib"] - gpu["reserved_mib"] - gpu["used_now"]),
        "utilization.gpu": cell or (37 if busy else 0),
        "utilization.memory": cell or (12 if busy else 0),
        "temperature.gpu": cell or 41,
        "fan.speed": "[N/A]",
        "power.draw": cell or "69.85",
        "power.limit": cell or "700.00",
        "clocks.current.sm": cell or 345,
        "mig.mode.current": "Disabled",
        "mig.mode.pending": "Disabled",
        "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": cell or 0,
        "gpu_recovery_action": {"requires_reset": "Reset", "lost": "Reboot"}.get(gpu["health"], "None"),
        "remapped_rows.pending": "Yes" if gpu["health"] == "remap_pending" else "No",
        "remapped_rows.failure": "No",
        "fabric.state": "N/A",
        "fabric.status": "N/A",
        "fabric.clusterUuid": "N/A",
        "fabric.cliqueId": "N/A",
    }


def app_cells(gpu: dict, process: dict) -> dict[str, object]:
    """Fill in every known field of one process on one GPU."""
    return {
        "timestamp": now(),
        "gpu_name": gpu["product"],
        "gpu_bus_id": gpu["bus_id"],
        "gpu_serial": "0000000000000",
        "gpu_uuid": gpu["uuid"],
        "pid": process["pid"],
        "process_name": process["name"],
        "used_gpu_memory": process["memory_mib"],
    }


def version_text(config: dict) -> str:
    """Print what `--version` prints."""
    driver = config["driver_version"]
    return (
        f"NVIDIA-SMI version  : {driver}\nNVML version        : {'.'.join(driver.split('.')[:2])}\n"
        f"DRIVER version      : {driver}\nCUDA Version        : {config['cuda_version']}"
    )


def xml_text(config: dict, gpus: list[dict]) -> str:
    """Print `-q -x`, with the elements that programs read, in their order."""
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{time.strftime('%a %b %e %H:%M:%S %Y')}</timestamp>",
        f"\t<driver_version>{config['driver_version']}</driver_version>",
        f"\t<cuda_version>{config['cuda_version']}</cuda_version>",
        f"\t<attached_gpus>{len(gpus)}</attached_gpus>",
    ]
    for gpu in gpus:
        cells = gpu_cells(config, gpu)
        lines += [f'\t<gpu id="{gpu["bus_id"]}">', *xml_elements(gpu_elements(gpu, cells), "\t\t"), "\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>"])


def gpu_elements(gpu: dict, cells: dict) -> list[tuple]:
    """Lay out one GPU's element: pairs of a tag and a text or a list of such pairs."""

    def value(name: str) -> str:
        text, unit = str(cells[name]), KNOWN_FIELDS[name]
        return text.strip("[]") if text.startswith("[") else f"{text} {unit}".strip()

    domain, bus, device = gpu["bus_id"].split(":")
    processes = [
        (
            "process_info",
            [
                ("gpu_instance_id", "N/A"),
                ("compute_instance_id", "N/A"),
                ("pid", process["pid"]),
                ("type", process["type"]),
                ("process_name", process["name"]),
                ("used_memory", f"{process['memory_mib']} MiB"),
            ],
        )
        for process in gpu["all_processes"]
    ]
    return [
        ("product_name", gpu["product"]),
        ("product_brand", "NVIDIA"),
        ("persistence_mode", "Enabled"),
        ("mig_mode", [("current_mig", "Disabled"), ("pending_mig", "Disabled")]),
        ("mig_devices", "None"),
        ("serial", "0000000000000"),
        ("uuid", gpu["uuid"]),
        ("minor_number", gpu["index"]),
        ("gpu_reset_status", [("reset_required", "Yes" if gpu["health"] == "requires_reset" else "No")]),
        ("gpu_recovery_action", value("gpu_recovery_action")),
        (
            "pci",
            [
                ("pci_bus", bus),
                ("pci_device", device.split(".")[0]),
                ("pci_domain", domain[-4:]),
                ("pci_device_id", gpu["device_id"].removeprefix("0x")),
                ("pci_bus_id", gpu["bus_id"]),
            ],
        ),
        ("performance_state", value("pstate")),
        (
            "fb_memory_usage",
            [(tag, value(f"memory.{tag}")) for tag in ("total", "reserved", "used", "free")],
        ),
        ("compute_mode", value("compute_mode")),
        ("utilization", [("gpu_util", value("utilization.gpu")), ("memory_util", value("utilization.memory"))]),
        ("ecc_mode", [("current_ecc", "Enabled"), ("pending_ecc", "Enabled")]),
        (
            "remapped_rows",
            [
                ("remapped_row_corr", 0),
                ("remapped_row_unc", 0),
                ("remapped_row_pending", value("remapped_rows.pending")),
                ("remapped_row_failure", value("remapped_rows.failure")),
            ],
        ),
        (
            "temperature",
            [("gpu_temp", f"{value('temperature.gpu')} C" if gpu["health"] == "ok" else value("temperature.gpu"))],
        ),
        ("gpu_power_readings", [("power_state", "P0"), ("power_draw", value("power.draw"))]),
        ("fabric", [("state", "N/A"), ("status", "N/A")]),
        ("processes", processes),
        ("accounted_processes", []),
    ]


def xml_elements(elements: list[tuple], indent: str) -> list[str]:
    """Write pairs of tag and content as indented XML."""
    lines = []
    for tag, content in elements:
        if isinstance(content, list):
            lines += [f"{indent}<{tag}>", *xml_elements(content, indent + "\t"), f"{indent}</{tag}>"]
        else:
            text = str(content).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            lines.append(f"{indent}<{tag}>{text}</{tag}>")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""One host of the YAML, to the noun."""

from __future__ import annotations

from collections.abc import Mapping

from llmgwctl.config.nodes import Node
from llmgwctl.config.reading import (
    Report,
    env_of,
    flag,
    mebibytes,
    millicores,
    optional_text,
    optional_whole,
    pairs_of,
    text_of,
    texts_of,
    warn_of_secret_words,
    whole,
    words_of,
)
from llmgwctl.config.wording import one_of, quoted
from llmgwctl.domain.desired import (
    Connection,
    EngineInstall,
    Host,
    Reserve,
    Simulate,
    SimulatedGpus,
    SimulatedReplica,
)
from llmgwctl.engines import registry
from llmgwctl.engines.common import check_install_env

DEFAULT_GPU_CLASS = "demo"
DEFAULT_GPU_MEMORY_MIB = 80 * 1024
_ONLY_SIMULATED = ("cores", "memory_gb", "running", "unreachable", "fail_start", "slow_s")


def host_of(node: Node, report: Report) -> Host:
    """Return the host that a mapping describes, with defaults filled in; the schema has accepted the mapping."""
    name_node = node.value["name"]
    report = report.about(f"Host `{quoted(name_node.text)}`")
    name = text_of(name_node, "The name", report)
    written = node.get("connection")
    connection = Connection(written.value) if written else Connection.SSH
    default_address = "127.0.0.1" if connection is Connection.LOCAL else name
    gpu_class = optional_text(node.get("gpu_class"), "gpu_class", report)
    jump = node.get("jump")
    if jump is not None and jump.text == name:
        report.error("it jumps through itself.", "Name another host in `jump`.", jump.at)
    return Host(
        name=name,
        address=text_of(node.get("address"), "The address", report, default_address),
        port=optional_whole(node.get("port")),
        user=optional_text(node.get("user"), "The user", report),
        connection=connection,
        jump=optional_text(jump, "jump", report),
        labels=pairs_of(node.get("labels")),
        fabric=optional_text(node.get("fabric"), "fabric", report),
        gpu_class=gpu_class,
        listen=optional_text(node.get("listen"), "listen", report),
        engines=engines_of(node.get("engines"), report),
        reserve=_reserve(node.get("reserve")),
        schedulable=flag(node.get("schedulable"), True),
        drain=flag(node.get("drain"), False),
        sudo=flag(node.get("sudo"), False),
        simulate=_simulate(node.get("simulate"), connection, gpu_class, report),
        at=node.at,
    )


def engines_of(node: Node | None, report: Report) -> Mapping[str, EngineInstall]:
    """Return where engines are installed, sorted by name; each has to exist."""
    installs: dict[str, EngineInstall] = {}
    names = registry.names() if node else ()
    for name, child in sorted(node.items()) if node else ():
        if name not in names and node is not None:
            hint = report.did_you_mean(name, names) or f"Write {one_of(names)}."
            report.error(f"there is no engine `{quoted(name)}`.", hint, node.key_at(name))
        command, env = child.get("command"), child.get("env")
        installs[name] = EngineInstall(words_of(command), env_of(env, report))
        _check_install(name, installs[name], command, env, report)
    return installs


def _check_install(name: str, install: EngineInstall, command: Node | None, env: Node | None, report: Report) -> None:
    report = report.about(f"{report.entry}, engine `{quoted(name)}`")
    for problem in check_install_env(install.env):
        value = env.get(problem.field.removeprefix("env.")) if env else None
        report.error(f"{problem.summary}.", problem.detail, value.at if value else None)
    warn_of_secret_words(command, (), report)


def _reserve(node: Node | None) -> Reserve:
    if node is None:
        return Reserve()
    return Reserve(millicores(node.get("cores")), mebibytes(node.get("memory_gb")), words_of(node.get("gpus")))


def _simulate(node: Node | None, connection: Connection, gpu_class: str | None, report: Report) -> Simulate | None:
    if node is None:
        return Simulate() if connection is Connection.SIMULATED else None
    if connection is not Connection.SIMULATED:
        for key in _ONLY_SIMULATED:
            if key in node.value:
                report.warning(
                    f"simulate.{key} means nothing on a host whose connection is {connection.value}.",
                    "There only GPUs can be pretended. Write `connection: simulated` to pretend the whole host.",
                    node.key_at(key),
                )
    memory = node.get("memory_gb")
    cores = node.get("cores")
    slow = node.get("slow_s")
    gpus = _gpus(node, gpu_class, report)
    return Simulate(
        gpus=gpus,
        millicores=millicores(cores) if cores else None,
        memory_mib=mebibytes(memory) if memory else None,
        running=_running(node.get("running"), sum(g.count for g in gpus), report),
        unreachable=flag(node.get("unreachable"), False),
        fail_start=texts_of(node.get("fail_start"), "The model", report),
        slow_s=float(slow.value) if slow else 0.0,
    )


def _gpus(node: Node, host_class: str | None, report: Report) -> tuple[SimulatedGpus, ...]:
    gpus = node.get("gpus")
    gpu_class = text_of(node.get("gpu_class"), "gpu_class", report, host_class or DEFAULT_GPU_CLASS)
    memory_mib = mebibytes(node.get("gpu_memory_gb"), DEFAULT_GPU_MEMORY_MIB)
    if gpus is None:
        return ()
    if not isinstance(gpus.value, list):
        count = int(gpus.value)
        return (SimulatedGpus(gpu_class, memory_mib, count),) if count else ()
    return tuple(
        SimulatedGpus(
            text_of(group.get("gpu_class"), "gpu_class", report, gpu_class),
            mebibytes(group.get("memory_gb"), memory_mib),
            whole(group.get("count"), 1),
        )
        for group in gpus.elements()
    )


def _running(node: Node | None, gpus: int, report: Report) -> tuple[SimulatedReplica, ...]:
    replicas: list[SimulatedReplica] = []
    taken: dict[int, str] = {}
    for entry in node.elements() if node else ():
        replica = entry.value["replica"].text
        indices: list[int] = []
        for gpu in (entry.get("gpus") or entry).elements():
            index = int(gpu.value)
            if index >= gpus:
                last = f"its GPUs are 0 to {gpus - 1}" if gpus else "it has no GPU"
                report.error(f"simulate.running: there is no GPU {index}; {last}.", "Write one of those.", gpu.at)
            elif index in taken:
                report.error(
                    f"simulate.running: GPU {index} is held by `{quoted(taken[index])}` already.",
                    "Give each GPU to one replica.",
                    gpu.at,
                )
            taken.setdefault(index, replica)
            indices.append(index)
        if replica in {r.replica for r in replicas}:
            report.error(
                f"simulate.running: `{quoted(replica)}` is listed twice.", "Remove one.", entry.value["replica"].at
            )
        replicas.append(SimulatedReplica(replica, entry.value["profile"].text, tuple(indices)))
    return tuple(replicas)

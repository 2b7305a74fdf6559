"""Whether a running replica still is what the catalog asks for, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping

from llmgwctl.domain.catalog import Model, SecretRef
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.plan import Condition, Reason, ReasonCode
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.planner.classify import Finding
from llmgwctl.planner.launching import Launcher
from llmgwctl.planner.options import PlanOptions


def change_of(model: Model, finding: Finding, launcher: Launcher, options: PlanOptions) -> Reason | None:
    """Return why a running replica has to be replaced, if it has to."""
    record = finding.record
    declared = record.origin == "runtime" and model.origin.value == "declared"
    code = ReasonCode.DECLARED if declared else ReasonCode.LAUNCH_CHANGED
    if record.id in options.replace:
        return Reason(code, "replaced as asked for")
    if finding.condition is Condition.CHANGED:
        return Reason(code, finding.text)
    profile = model.profile(record.profile)
    if profile is None:
        return Reason(code, f"profile {record.profile!r} is no longer declared")
    if profile.nodes != len(record.members) or profile.gpus_per_node != len(record.members[0].gpus):
        return Reason(code, f"profile {profile.name} asks for other GPUs than it has")
    if (profile.gpu_class or "") != record.gpu_class and record.gpu_class:
        return Reason(code, f"profile {profile.name} asks for GPU class {profile.gpu_class}")
    expected = launcher.expected(model, profile, record)
    if [launch.digest for launch in expected] != [m.launch.digest for m in record.members]:
        what = _difference(record.members[0].launch, expected[0])
        runtime = f"model {model.name} was added at run time and has since been declared; " if declared else ""
        return Reason(code, f"{runtime}{what}")
    changed = _changed_secrets(record, options.secret_digests)
    return Reason(code, f"the value of {', '.join(changed)} changed") if changed else None


def _changed_secrets(record: ReplicaRecord, now: Mapping[str, str]) -> list[str]:
    """Return the variables whose secret is known now, and is not what the replica was started with."""
    recorded = dict(record.secret_digests)
    return [
        name
        for name, value in record.members[0].launch.env
        if isinstance(value, SecretRef) and name in recorded and now.get(str(value), recorded[name]) != recorded[name]
    ]


def _difference(old: LaunchSpec, new: LaunchSpec) -> str:
    """Say in a few words what of a launch changed."""
    if old.argv != new.argv:
        return "its command changed"
    if old.env != new.env:
        names = sorted({k for k, _ in set(old.env) ^ set(new.env)})
        return f"its environment changed ({', '.join(names)})"
    if (old.address, old.port) != (new.address, new.port):
        return "its address changed"
    return "its launch changed"

"""A replica's record as it is read from a file: of the right shape, and possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from llmgwctl.domain.catalog import ModelClass, Origin
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.state import MemberRecord, ReplicaRecord
from llmgwctl.planner.naming import model_of
from llmgwctl.store.codec import CodecError, decode, kind_of

REPLICA_ID = re.compile(r".+/[0-9]{1,9}", re.DOTALL | re.ASCII)
"""MODEL/INDEX; a model's name may hold anything, and a host may show leading zeros."""

_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})?Z", re.ASCII)
_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}", re.ASCII)
_OWNER = re.compile(r"(org|team|project):.+", re.DOTALL)
_Rule = tuple[bool, str, object, str]


def record_of(name: str, data: object, place: str) -> ReplicaRecord:
    """Return the record that stands under a name. Raises CodecError naming the place that does not fit."""
    record = decode(ReplicaRecord, data, place, strict=True)
    must_be_possible(record, name, place)
    return record


def must_be_possible(record: ReplicaRecord, name: str, place: str) -> None:
    """Raise CodecError naming the place where a record says what can't be."""
    for fits, key, value, expected in _rules(record, name):
        if not fits:
            raise CodecError(f"{place}.{key} should be {expected}, not {kind_of(value)}")


def is_time(text: str) -> bool:
    """Whether a text is a time as we write them (RFC 3339, UTC)."""
    match = _TIME.fullmatch(text)
    if match is None:
        return False
    try:
        datetime.fromisoformat(match[1])
    except ValueError:
        return False
    return True


def _rules(record: ReplicaRecord, name: str) -> Iterator[_Rule]:
    yield record.id == name, "id", record.id, f"{name!r}, as the key that it stands under"
    yield REPLICA_ID.fullmatch(name) is not None, "id", name, "MODEL/INDEX"
    yield record.model == model_of(name), "model", record.model, f"{model_of(name)!r}, as in its id"
    yield bool(record.profile), "profile", "", "a profile's name"
    yield bool(record.engine), "engine", "", "an engine's name"
    yield bool(record.members), "members", [], "a list of at least one member"
    owner = record.owner
    yield owner is None or _OWNER.fullmatch(owner) is not None, "owner", owner, "org:ID, team:ID, project:ID or null"
    yield _is_one(ModelClass, record.model_class), "model_class", record.model_class, "a model's class"
    yield _is_one(Origin, record.origin), "origin", record.origin, "declared or runtime"
    yield (
        not record.started_at or is_time(record.started_at),
        "started_at",
        record.started_at,
        "a time like 2026-01-31T09:00:00Z",
    )
    for key in ("order", "millicores", "memory_mib"):
        yield getattr(record, key) >= 0, key, getattr(record, key), "0 or more"
    for rank, member in enumerate(record.members):
        for fits, key, value, expected in _member_rules(member):
            yield fits, f"members[{rank}].{key}", value, expected


def _member_rules(member: MemberRecord) -> Iterator[_Rule]:
    yield bool(member.node), "node", "", "a host's name"
    indices = member.gpu_indices
    yield len(indices) == len(member.gpus), "gpu_indices", list(indices), "a list with an index for each GPU"
    yield all(i >= 0 for i in indices), "gpu_indices", min(indices, default=0), "0 or more each"
    yield member.restarts >= 0, "restarts", member.restarts, "0 or more"
    for fits, key, value, expected in _launch_rules(member.launch):
        yield fits, f"launch.{key}", value, expected


def _launch_rules(launch: LaunchSpec) -> Iterator[_Rule]:
    # The folder is removed with all that is in it when the replica is stopped.
    yield _FOLDER.fullmatch(launch.folder) is not None, "folder", launch.folder, "a folder's name"
    yield not launch.root or launch.root.startswith("/"), "root", launch.root, "a path from / on"
    yield 0 <= launch.port <= 65535, "port", launch.port, "a port, 0 to 65535"
    yield 0 <= launch.ports <= 65535, "ports", launch.ports, "0 to 65535"
    times = {
        "startup_timeout_s": launch.startup_timeout_s,
        "readiness.timeout_s": launch.readiness.timeout_s,
        "stop.grace_s": launch.stop.grace_s,
        "stop.second_grace_s": launch.stop.second_grace_s,
    }
    for key, seconds in times.items():
        yield seconds >= 0, key, seconds, "0 or more"


def _is_one(kind: type[ModelClass] | type[Origin], value: str) -> bool:
    return any(member.value == value for member in kind)

"""Why a replica cannot be placed: every cause, with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.desired import Host
from llmgwctl.domain.plan import Cause, Standing
from llmgwctl.planner.ledger import Ledger, LimitHit
from llmgwctl.planner.rooms import Room


def causes_of(model: Model, rooms: Sequence[Room], ledger: Ledger, hosts: Mapping[str, Host]) -> tuple[Cause, ...]:
    """Return the causes, the deciding one first (the order of rule R11), then what stands beside it."""
    causes: list[Cause] = []
    for profile in model.profiles:
        hit = ledger.limit_hit(model.owner, profile.size, profile.gpu_class or "")
        causes += _profile_causes(model, profile, rooms, ledger, hit)
    causes.sort(key=lambda c: -_FURTHEST.index(c.code))
    unreachable = [r.name for r in rooms if not r.reachable]
    if unreachable:
        causes.append(
            Cause(
                "unreachable",
                f"{_count(len(unreachable), 'host')} can't be reached, so what is free there is not known: "
                f"{_names(unreachable)}.",
                (("nodes", len(unreachable)),),
            )
        )
    closed = [n for n in sorted(hosts) if hosts[n].drain or not hosts[n].schedulable]
    if closed:
        causes.append(
            Cause(
                "fits_no_node" if len(closed) == len(rooms) else "no_free_capacity",
                f"{_count(len(closed), 'host')} take nothing new (cordoned or drained): {_names(closed)}.",
                (("nodes", len(closed)),),
            )
        )
    return tuple(dict.fromkeys(causes))


def _profile_causes(
    model: Model, profile: Profile, rooms: Sequence[Room], ledger: Ledger, hit: LimitHit | None
) -> list[Cause]:
    able = [r for r in rooms if r.reachable and _could_hold_empty(r, profile)]
    head = f"profile {profile.name} ({_wants(profile)})"
    numbers = _numbers(profile, rooms)
    if not _enough_in_a_fabric(able, profile):
        return [
            Cause("fits_no_node", f"{head}: no node could hold it even when empty: {_lacks(profile, rooms)}", numbers)
        ]
    if hit:
        unit = _unit(hit.resource)
        return [
            Cause(
                "limit",
                f"{head}: it needs {_show(hit.resource, hit.needed)} {unit}, and {hit.scope} has "
                f"{_show(hit.resource, hit.available)} left below its limit.",
                (
                    ("scope", hit.scope),
                    ("resource", hit.resource),
                    ("needed", _number(hit.resource, hit.needed)),
                    ("available", _number(hit.resource, hit.available)),
                ),
            )
        ]
    without = [r.name for r in able if profile.engine in r.missing_engines]
    if len(without) == len(able):
        return [
            Cause(
                "preflight",
                f"{head}: engine {profile.engine} was not found on {_names(without)}: install it, or say where "
                f"it is in hosts.engines.{profile.engine}.command or settings.engines.",
                numbers,
            )
        ]
    open_rooms = [r for r in able if r.open and profile.engine not in r.missing_engines]
    free = sum(len(r.free(profile.gpu_class, profile.engine)) for r in open_rooms)
    no_port = [r.name for r in open_rooms if _room_now(r, profile) and r.free_ports(1, profile.port) is None]
    if no_port:
        what = f"port {profile.port} is in use" if profile.port else "no port of settings.ports is free"
        return [Cause("ports", f"{head}: {what} on {_names(no_port)}, outside the kernel's ephemeral range.", numbers)]
    code = _refusal(model, profile, open_rooms, ledger)
    together = "one node" if profile.nodes == 1 else f"{profile.nodes} nodes of one fabric"
    pieces = (
        f" ({_count(free, 'GPU')} of the class are free, but not together with the rest on {together})"
        if profile.gpus_per_node and free >= profile.gpus_per_node * profile.nodes
        else ""
    )
    return [Cause(code, f"{head}: {_REFUSALS[code]}{pieces}: {_lacks(profile, able)}", numbers)]


_REFUSALS = {
    "no_guarantee": "no free room, and nothing guarantees it any",
    "beyond_guarantee": "no free room, and it is not within a guarantee of its scopes",
    "guarantees_full": "within a guarantee, but what would have to stop is guaranteed as well",
    "fragmented": "within a guarantee, but the room is in pieces",
}
# The order of rule R11: of several profiles the one that came furthest tells the model's reason.
_FURTHEST = (
    "fits_no_node",
    "preflight",
    "ports",
    "limit",
    "no_guarantee",
    "beyond_guarantee",
    "guarantees_full",
    "fragmented",
)


def _refusal(model: Model, profile: Profile, rooms: Sequence[Room], ledger: Ledger) -> str:
    """Return why nobody gave way (R11)."""
    if not ledger.has_guarantee(model.owner):
        return "no_guarantee"
    if not ledger.within(model.owner, profile.size, profile.gpu_class or ""):
        return "beyond_guarantee"
    loose = [h for h in ledger.holdings.values() if ledger.standing(h) is not Standing.GUARANTEED]
    if profile.gpus_per_node:
        free = sum(len(r.free(profile.gpu_class, profile.engine)) for r in rooms)
        free += sum(h.amount.gpus for h in loose if h.gpu_class == profile.gpu_class)
        return "fragmented" if free >= profile.size.gpus else "guarantees_full"
    cores = sum(r.millicores or 0 for r in rooms) + sum(h.amount.millicores for h in loose)
    memory = sum(r.memory_mib or 0 for r in rooms) + sum(h.amount.memory_mib for h in loose)
    enough = cores >= profile.size.millicores and memory >= profile.size.memory_mib
    return "fragmented" if enough else "guarantees_full"


def _could_hold_empty(room: Room, profile: Profile) -> bool:
    return (
        room.has_label(profile.node_selector)
        and _whole_gpus(room, profile) >= profile.gpus_per_node
        and (room.whole_millicores is None or profile.millicores <= room.whole_millicores)
        and (room.whole_memory_mib is None or profile.memory_mib <= room.whole_memory_mib)
    )


def _whole_gpus(room: Room, profile: Profile) -> int:
    if profile.gpu_class is None:
        return 0
    wanted = profile.gpu_class.lower()
    return sum(
        1
        for g in room.sellable.values()
        if wanted in (g.gpu_class.lower(), g.product.lower().replace(" ", "-"))
        and (profile.engine == "sim" or not g.pretended)
    )


def _room_now(room: Room, profile: Profile) -> bool:
    return room.fits_host(profile) and len(room.free(profile.gpu_class, profile.engine)) >= profile.gpus_per_node


def _enough_in_a_fabric(rooms: Sequence[Room], profile: Profile) -> bool:
    if profile.nodes == 1:
        return bool(rooms)
    sizes: dict[str, int] = {}
    for room in rooms:
        if room.fabric:
            sizes[room.fabric] = sizes.get(room.fabric, 0) + 1
    return max(sizes.values(), default=0) >= profile.nodes


def _numbers(profile: Profile, rooms: Sequence[Room]) -> tuple[tuple[str, int | float | str], ...]:
    """Return how many nodes were looked at, and how many lacked what; a node counts for each thing that it lacks."""
    seen = [r for r in rooms if r.reachable]
    lacking = _lacking(profile, seen)
    free = sum(len(r.free(profile.gpu_class, profile.engine)) for r in seen if r.open)
    return (
        ("profile", profile.name),
        ("resource", "gpus" if profile.gpus_per_node else "cores"),
        ("needed", profile.size.gpus if profile.gpus_per_node else profile.millicores / 1000),
        ("available", free if profile.gpus_per_node else max((r.millicores or 0 for r in seen), default=0) / 1000),
        ("nodes", len(seen)),
        *((f"lack_{name}", count) for name, count in lacking.items()),
    )


def _lacking(profile: Profile, rooms: Sequence[Room]) -> dict[str, int]:
    return {
        "class": sum(bool(profile.gpu_class) and _whole_gpus(r, profile) == 0 for r in rooms),
        "gpus": sum(
            _whole_gpus(r, profile) > 0 and len(r.free(profile.gpu_class, profile.engine)) < profile.gpus_per_node
            for r in rooms
        ),
        "memory": sum(r.memory_mib is not None and profile.memory_mib > r.memory_mib for r in rooms),
        "cores": sum(r.millicores is not None and profile.millicores > r.millicores for r in rooms),
        "label": sum(not r.has_label(profile.node_selector) for r in rooms),
        "fabric": sum(profile.nodes > 1 and r.fabric is None for r in rooms),
    }


_LACK_WORDS = {
    "class": "have no GPU of the class",
    "gpus": "have too few free GPUs",
    "memory": "have too little memory",
    "cores": "have too few cores",
    "label": "lack a label of node_selector",
    "fabric": "are in no fabric",
}


def _lacks(profile: Profile, rooms: Sequence[Room]) -> str:
    """Say, for the nodes looked at, what how many of them lack."""
    seen = [r for r in rooms if r.reachable]
    if not seen:
        return "no node could be looked at."
    parts = [f"{count} {_LACK_WORDS[name]}" for name, count in _lacking(profile, seen).items() if count]
    foreign = sum(r.foreign_gpus.get((profile.gpu_class or "").lower(), 0) for r in seen)
    sick = sum(r.unhealthy_gpus.get((profile.gpu_class or "").lower(), 0) for r in seen)
    notes = [f"{_count(foreign, 'GPU')} taken by running processes"] * bool(foreign)
    notes += [f"{_count(sick, 'GPU')} not healthy"] * bool(sick)
    aside = f" ({'; '.join(notes)})" if notes else ""
    found = ", ".join(parts) or "together they don't suffice"
    return f"of {_count(len(seen), 'node')} looked at, {found}{aside}."


def _wants(profile: Profile) -> str:
    parts = []
    if profile.gpus_per_node:
        parts.append(f"{_count(profile.gpus_per_node, 'GPU')} of {profile.gpu_class}")
    if profile.millicores:
        parts.append(f"{profile.millicores / 1000:g} cores")
    if profile.memory_mib:
        parts.append(f"{profile.memory_mib / 1024:g} GB")
    text = ", ".join(parts) or "no GPU"
    return text if profile.nodes == 1 else f"{text} on each of {profile.nodes} nodes"


def _unit(resource: str) -> str:
    return {"cores": "cores", "memory_gb": "GB"}.get(resource, "GPUs")


def _number(resource: str, amount: int) -> int | float:
    return amount / 1000 if resource == "cores" else amount / 1024 if resource == "memory_gb" else amount


def _show(resource: str, amount: int) -> str:
    return f"{_number(resource, amount):g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _names(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more

"""Why a replica cannot be placed: every cause, with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.desired import Host
from llmgwctl.domain.plan import Cause, Standing
from llmgwctl.planner.ledger import Ledger, LimitHit
from llmgwctl.planner.rooms import Room

Numbers = tuple[tuple[str, int | float | str], ...]

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
_REFUSALS = {
    "no_guarantee": "no free room, and nothing guarantees it any",
    "beyond_guarantee": "no free room, and it is not within a guarantee of its scopes",
    "guarantees_full": "within a guarantee, but what would have to stop is guaranteed as well",
    "fragmented": "within a guarantee, but the room is in pieces",
}
_LACK_WORDS = {
    "class": "have no GPU of the class",
    "gpus": "have too few free GPUs",
    "memory": "have too little memory",
    "cores": "have too few cores",
    "label": "lack a label of node_selector",
    "fabric": "are in no fabric",
}
_RESOURCES = {"memory": "memory_gb", "cores": "cores"}


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the nodes have for one request: the same for all models that ask for the same."""

    able: tuple[Room, ...]
    open: tuple[Room, ...]
    free: int
    lacking: Mapping[str, int]
    numbers: Numbers
    lacks: str
    lacks_empty: str


class Explainer:
    """Explains refusals by what is free, and held, at the end of a plan."""

    def __init__(
        self,
        rooms: Sequence[Room],
        ledger: Ledger,
        hosts: Mapping[str, Host],
        others: Mapping[str, frozenset[str]],
    ) -> None:
        self._rooms = rooms
        self._others = others
        self._ledger = ledger
        self._facts: dict[object, _Facts] = {}
        loose = [h for h in ledger.holdings.values() if ledger.standing(h) is not Standing.GUARANTEED]
        # A quota counts GPUs of any class (D13): what is of another one is a piece that does not fit, too.
        self._loose_gpus = sum(h.amount.gpus for h in loose) + sum(
            len({g.uuid for gpus in r.gpus.values() for g in gpus}) for r in rooms if r.open
        )
        open_rooms = [r for r in rooms if r.open]
        self._loose_cores = sum(h.amount.millicores for h in loose) + _sum(r.millicores for r in open_rooms)
        self._loose_memory = sum(h.amount.memory_mib for h in loose) + _sum(r.memory_mib for r in open_rooms)
        self._beside = tuple(_beside(rooms, hosts))

    def causes(self, model: Model, replica: str) -> tuple[Cause, ...]:
        """Return the causes, the deciding one first (the order of rule R11), then what stands beside it."""
        causes = []
        for profile in sorted(model.profiles, key=lambda p: p.name):
            hit = self._ledger.limit_hit(model.owner, profile.size, profile.gpu_class or "")
            causes.append(self._cause(model, profile, hit))
        causes.sort(key=lambda c: -_FURTHEST.index(c.code))
        same = sorted(node for node, names in self._others.items() if replica in names)
        if same:
            text = f"another state runs a replica called {replica} on {_names(same)}: two can't be beside each other."
            causes.append(Cause("preflight", text, (("nodes", len(same)),)))
        return tuple(dict.fromkeys((*causes, *self._beside)))

    def _cause(self, model: Model, profile: Profile, hit: LimitHit | None) -> Cause:
        facts = self._facts_of(profile)
        head = f"profile {profile.name} ({_wants(profile)})"
        numbers: Numbers = (("profile", profile.name), *facts.numbers)
        if not _enough_in_a_fabric(facts.able, profile):
            return Cause("fits_no_node", f"{head}: no node could hold it even when empty: {facts.lacks_empty}", numbers)
        if hit:
            return _limit(head, profile, hit)
        if not any(profile.engine not in r.missing_engines for r in facts.able):
            return Cause("preflight", f"{head}: {_not_found(profile, facts.able)}", numbers)
        no_port = [r.name for r in facts.open if _room_now(r, profile) and r.free_ports(1, profile.port) is None]
        if no_port and (profile.nodes == 1 or _enough_in_a_fabric(facts.open, profile)):
            what = f"port {profile.port} is in use" if profile.port else "no port of settings.ports is free"
            aside = "" if profile.port else " outside the kernel's ephemeral range"
            ports: Numbers = (("profile", profile.name), ("resource", "ports"), ("needed", 1), ("available", 0))
            return Cause("ports", f"{head}: {what}{aside} on {_names(no_port)}.", (*ports, *facts.numbers[3:]))
        code = self._refusal(model, profile)
        together = "one node" if profile.nodes == 1 else f"{profile.nodes} nodes of one fabric"
        pieces = (
            f" ({_count(facts.free, 'GPU')} of the class are free, but not together with the rest on {together})"
            if profile.gpus_per_node and facts.free >= profile.gpus_per_node * profile.nodes
            else ""
        )
        return Cause(code, f"{head}: {_REFUSALS[code]}{pieces}: {facts.lacks}", numbers)

    def _refusal(self, model: Model, profile: Profile) -> str:
        """Return why nobody gave way (R11)."""
        if not self._ledger.has_guarantee(model.owner):
            return "no_guarantee"
        if not any(self._ledger.within(model.owner, p.size, p.gpu_class or "") for p in model.profiles):
            return "beyond_guarantee"
        size = profile.size
        enough = (
            self._loose_gpus >= size.gpus
            and self._loose_cores >= size.millicores
            and self._loose_memory >= size.memory_mib
        )
        return "fragmented" if enough else "guarantees_full"

    def _facts_of(self, profile: Profile) -> _Facts:
        key = (
            (profile.gpu_class or "").lower(),
            profile.engine,
            profile.gpus_per_node,
            profile.nodes,
            profile.millicores,
            profile.memory_mib,
            profile.node_selector,
        )
        if key not in self._facts:
            self._facts[key] = self._look(profile)
        return self._facts[key]

    def _look(self, profile: Profile) -> _Facts:
        seen = [r for r in self._rooms if r.reachable]
        able = tuple(r for r in seen if _could_hold_empty(r, profile))
        rooms = tuple(r for r in able if r.open and profile.engine not in r.missing_engines)
        looked_at = [r for r in seen if r.open] or seen
        lacking = _lacking(profile, looked_at, empty=False)
        return _Facts(
            able=able,
            open=rooms,
            free=sum(len(r.free(profile.gpu_class, profile.engine)) for r in rooms),
            lacking=lacking,
            numbers=_numbers(profile, looked_at, lacking),
            lacks=_lacks(profile, looked_at, lacking, empty=False),
            lacks_empty=_lacks(profile, seen, _lacking(profile, seen, empty=True), empty=True),
        )


def _sum(amounts: Iterable[int | None]) -> float:
    """Return a sum in which what a node doesn't report is no bound."""
    return sum(math.inf if amount is None else amount for amount in amounts)


def _beside(rooms: Sequence[Room], hosts: Mapping[str, Host]) -> Iterable[Cause]:
    """Yield what holds for every model: hosts that can't be reached, or take nothing new."""
    unreachable = [r.name for r in rooms if not r.reachable]
    if unreachable:
        yield Cause(
            "unreachable",
            f"{_count(len(unreachable), 'host')} can't be reached, so what is free there is not known: "
            f"{_names(unreachable)}.",
            (("nodes", len(unreachable)),),
        )
    closed = [n for n in sorted(hosts) if hosts[n].drain or not hosts[n].schedulable]
    if closed:
        yield Cause(
            "fits_no_node" if len(closed) == len(rooms) else "no_free_capacity",
            f"{_count(len(closed), 'host')} take nothing new (cordoned or drained): {_names(closed)}.",
            (("nodes", len(closed)),),
        )


def _limit(head: str, profile: Profile, hit: LimitHit) -> Cause:
    return Cause(
        "limit",
        f"{head}: it needs {_show(hit.resource, hit.needed)} {_unit(hit.resource)}, and {hit.scope} has "
        f"{_show(hit.resource, hit.available)} left below its limit.",
        (
            ("profile", profile.name),
            ("scope", hit.scope),
            ("resource", hit.resource),
            ("needed", _number(hit.resource, hit.needed)),
            ("available", _number(hit.resource, hit.available)),
        ),
    )


def _not_found(profile: Profile, rooms: Iterable[Room]) -> str:
    where = _names(r.name for r in rooms)
    if profile.engine == "sim":
        return f"python3 was not found on {where}, and the simulated engine needs it: install it there."
    return (
        f"engine {profile.engine} was not found on {where}: install it, or say where it is in "
        f"hosts.engines.{profile.engine}.command or settings.engines."
    )


def _could_hold_empty(room: Room, profile: Profile) -> bool:
    return (
        room.has_label(profile.node_selector)
        and len(room.usable(profile.gpu_class, profile.engine)) >= profile.gpus_per_node
        and (room.whole_millicores is None or profile.millicores <= room.whole_millicores)
        and (room.whole_memory_mib is None or profile.memory_mib <= room.whole_memory_mib)
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


def _numbers(profile: Profile, rooms: Sequence[Room], lacking: Mapping[str, int]) -> Numbers:
    """Return the scarcest resource, what of it a replica needs and there is, and how many nodes lacked what.

    Where the whole need is there in pieces, `needed` and `available` are a node's: those of the best one.
    """
    scarce = max(("gpus", "memory", "cores"), key=lambda name: lacking[name])
    if (scarce in _RESOURCES and lacking[scarce] > 0) or not profile.gpus_per_node:
        scarce = scarce if scarce in _RESOURCES else "cores"
        needed, best = (
            (profile.memory_mib / 1024, max((r.memory_mib or 0 for r in rooms), default=0) / 1024)
            if scarce == "memory"
            else (profile.millicores / 1000, max((r.millicores or 0 for r in rooms), default=0) / 1000)
        )
        figures: Numbers = (("resource", _RESOURCES[scarce]), ("needed", _whole(needed)), ("available", _whole(best)))
    else:
        free = [len(r.free(profile.gpu_class, profile.engine)) for r in rooms]
        total, most = sum(free), max(free, default=0)
        in_pieces = total >= profile.size.gpus
        figures = (
            ("resource", "gpus"),
            ("needed", profile.gpus_per_node if in_pieces else profile.size.gpus),
            ("available", most if in_pieces else total),
        )
    return (*figures, ("nodes", len(rooms)), *((f"lack_{name}", count) for name, count in lacking.items()))


def _lacking(profile: Profile, rooms: Sequence[Room], *, empty: bool) -> dict[str, int]:
    """Return how many nodes lack what, now or even if they were empty; a node counts for each thing that it lacks."""
    counts = dict.fromkeys(_LACK_WORDS, 0)
    for room in rooms:
        usable = len(room.usable(profile.gpu_class, profile.engine))
        free = usable if empty else len(room.free(profile.gpu_class, profile.engine))
        memory = room.whole_memory_mib if empty else room.memory_mib
        cores = room.whole_millicores if empty else room.millicores
        counts["class"] += bool(profile.gpu_class) and usable == 0
        counts["gpus"] += usable > 0 and free < profile.gpus_per_node
        counts["memory"] += memory is not None and profile.memory_mib > memory
        counts["cores"] += cores is not None and profile.millicores > cores
        counts["label"] += not room.has_label(profile.node_selector)
        counts["fabric"] += profile.nodes > 1 and room.fabric is None
    return counts


def _lacks(profile: Profile, rooms: Sequence[Room], lacking: Mapping[str, int], *, empty: bool) -> str:
    """Say, for the nodes looked at, what how many of them lack."""
    if not rooms:
        return "no node could be looked at."
    words = {**_LACK_WORDS, "gpus": "have too few GPUs"} if empty else _LACK_WORDS
    parts = [f"{count} {words[name]}" for name, count in lacking.items() if count]
    foreign = sum(r.foreign_gpus.get((profile.gpu_class or "").lower(), 0) for r in rooms)
    sick = sum(r.unhealthy_gpus.get((profile.gpu_class or "").lower(), 0) for r in rooms)
    notes = [f"{_count(foreign, 'GPU')} taken by running processes"] * bool(foreign)
    notes += [f"{_count(sick, 'GPU')} not healthy"] * bool(sick)
    aside = f" ({'; '.join(notes)})" if notes else ""
    found = ", ".join(parts) or "together they don't suffice"
    return f"of {_count(len(rooms), 'node')} looked at, {found}{aside}."


def _wants(profile: Profile) -> str:
    parts = []
    if profile.gpus_per_node:
        parts.append(f"{_count(profile.gpus_per_node, 'GPU')} of {profile.gpu_class}")
    if profile.millicores:
        parts.append(f"{profile.millicores / 1000:g} cores")
    if profile.memory_mib:
        parts.append(f"{profile.memory_mib / 1024:.4g} GB")
    text = ", ".join(parts) or "no GPU"
    return text if profile.nodes == 1 else f"{text} on each of {profile.nodes} nodes"


def _unit(resource: str) -> str:
    return {"cores": "cores", "memory_gb": "GB"}.get(resource, "GPUs")


def _number(resource: str, amount: int) -> int | float:
    return _whole(amount / 1000 if resource == "cores" else amount / 1024 if resource == "memory_gb" else amount)


def _whole(value: float) -> int | float:
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded


def _show(resource: str, amount: int) -> str:
    return f"{_number(resource, amount):g}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _names(names: Iterable[str], most: int = 5) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more

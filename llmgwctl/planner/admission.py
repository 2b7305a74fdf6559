"""Admission: which candidates start where, in what order, and who gives way to them (rules R5 to R10)."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.plan import Reason, ReasonCode
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.planner.launching import Launcher
from llmgwctl.planner.ledger import Holding, Ledger, holding_of
from llmgwctl.planner.naming import replica_id
from llmgwctl.planner.placement import Fleet, Seat
from llmgwctl.planner.survey import ports_of
from llmgwctl.planner.takes import Ground, Take, Tenant, find_take


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that should start: anew, again (`record`), or with another command (`record`, `running`).

    `elsewhere` marks one that may not stay where it is, `victim` one that gave way and looks for another place, and
    `asked` one whose own place turned out not to do.
    """

    model: Model
    index: int
    reason: Reason
    headroom: bool = False
    record: ReplicaRecord | None = None
    running: bool = False
    elsewhere: bool = False
    victim: bool = False
    asked: bool = False

    @property
    def id(self) -> str:
        """The replica's name."""
        return replica_id(self.model.name, self.index)

    @property
    def in_place(self) -> bool:
        """Whether it runs where it may stay, so that its own room is its first choice."""
        return self.running and not self.elsewhere


@dataclass(frozen=True, slots=True)
class Start:
    """A candidate with its places; `after` are the replicas whose stops make its room."""

    candidate: Candidate
    profile: Profile
    seats: tuple[Seat, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Yield:
    """A running replica that gives way: to whom, and on what ground."""

    record: ReplicaRecord
    beneficiary: str
    ground: Ground

    @property
    def reason(self) -> Reason:
        """Why it stops or moves."""
        code = ReasonCode.RECLAIMED if self.ground.kind == "claim" else ReasonCode.PREEMPTED
        return Reason(code, self.ground.text, self.beneficiary)


@dataclass(slots=True)
class Admitted:
    """The outcome: who starts, who is refused, who gave way."""

    starts: dict[str, Start] = field(default_factory=dict)
    refused: dict[str, Candidate] = field(default_factory=dict)
    yields: dict[str, Yield] = field(default_factory=dict)


@dataclass(slots=True)
class Admission:
    """The working memory; `released` names, by node, the replicas whose stop gives room back there.

    `staying` run on as they are; those that are `fixed` may not be stopped by anybody.
    """

    fleet: Fleet
    ledger: Ledger
    launcher: Launcher
    released: dict[str, list[str]]
    staying: dict[str, ReplicaRecord]
    fixed: frozenset[str]
    fills: bool
    models: Mapping[str, Model]
    out: Admitted = field(default_factory=Admitted)
    _order: int = 0

    def admit(self, candidates: Iterable[Candidate]) -> Admitted:
        """Start what can start; who is refused blocks nobody, and is asked again after each step that frees room."""
        self._order = self.ledger.next_order()
        queue: list[tuple[tuple[object, ...], Candidate]] = []
        for candidate in candidates:
            self._push(queue, candidate)
        while queue:
            key, candidate = heapq.heappop(queue)
            now = self._key(candidate)
            if now > key:
                heapq.heappush(queue, (now, candidate))
                continue
            if self._start(candidate):
                if candidate.running:
                    # It leaves room behind, perhaps for one that was refused before it.
                    self._again(queue)
                continue
            if _is_settled(candidate):
                # It had the first turn on free room; for a take it waits as everybody else does.
                self._push(queue, replace(candidate, asked=True))
                continue
            take = None if candidate.headroom else self._find_take(candidate)
            if take is None:
                self.out.refused[candidate.id] = candidate
                continue
            losers = self._carry_out(candidate, take)
            self._again(queue, losers, without=take.grounds)
        return self.out

    # -- the order (R8) -------------------------------------------------------------------------------------------

    def _push(self, queue: list[tuple[tuple[object, ...], Candidate]], candidate: Candidate) -> None:
        heapq.heappush(queue, (self._key(candidate), candidate))

    def _again(
        self,
        queue: list[tuple[tuple[object, ...], Candidate]],
        more: Iterable[Candidate] = (),
        without: Collection[str] = (),
    ) -> None:
        """Ask the refused again, and `more`; everybody's key may have changed. Victims' earlier wishes are void."""
        waiting = [candidate for _, candidate in queue] + list(self.out.refused.values())
        self.out.refused.clear()
        queue.clear()
        for candidate in (*(c for c in waiting if c.id not in without), *more):
            self._push(queue, candidate)

    def _key(self, candidate: Candidate) -> tuple[object, ...]:
        """Return the admission order: minimum, within a guarantee, class, priority, larger, name, index."""
        model = candidate.model
        size = max(model.profiles, key=lambda p: (p.size.gpus, p.size.millicores, p.size.memory_mib)).size
        within = any(self.ledger.within(model.owner, p.size, p.gpu_class or "") for p in model.profiles)
        return (
            # What has a place already is settled before anything new may take that place.
            not _is_settled(candidate),
            candidate.headroom,
            not within,
            model.model_class.rank,
            -model.priority,
            -size.gpus,
            -size.millicores,
            -size.memory_mib,
            model.name,
            candidate.index,
        )

    # -- free room (R5) -------------------------------------------------------------------------------------------

    def _start(self, candidate: Candidate) -> bool:
        with_own = self._lift(candidate)
        for profile in preferred(candidate.model, self.fleet):
            if self.ledger.limit_hit(candidate.model.owner, profile.size, profile.gpu_class or ""):
                continue
            seats = self._seats(candidate, profile)
            if seats:
                self._sit(candidate, profile, seats, ())
                return True
        self._put_back(candidate, with_own)
        return False

    def _seats(self, candidate: Candidate, profile: Profile) -> tuple[Seat, ...] | None:
        ports = self.launcher.engine(profile).ports_needed(profile)
        record = candidate.record
        if record is not None and not candidate.elsewhere and profile.name == record.profile:
            places = [(m.node, m.gpus, m.port) for m in record.members]
            seats = self.fleet.reseat(profile, places, ports)
            if seats:
                return seats
        return self.fleet.seat(profile, ports)

    def _lift(self, candidate: Candidate) -> Holding | None:
        """Give a running candidate's own room and holding back, as its next life takes their place."""
        if candidate.id not in self.ledger.holdings:
            return None
        holding = self.ledger.remove(candidate.id)
        if candidate.in_place and candidate.record is not None:
            self._release(candidate.record)
        return holding

    def _put_back(self, candidate: Candidate, holding: Holding | None) -> None:
        """Nothing was found: what runs keeps its place rather than leave the model without a replica."""
        if holding is None:
            return
        self.ledger.add(holding)
        record = candidate.record
        if candidate.in_place and record is not None:
            for member in record.members:
                self.fleet.take(member.node, member.gpus, record.millicores, record.memory_mib, ports_of(member))
                self.released[member.node].remove(record.id)

    def _sit(self, candidate: Candidate, profile: Profile, seats: tuple[Seat, ...], victims: tuple[str, ...]) -> None:
        after = {r for s in seats for r in self.released.get(s.node, ()) if r != candidate.id} | set(victims)
        self.out.starts[candidate.id] = Start(candidate, profile, seats, tuple(sorted(after)))
        self.ledger.add(self._holding(candidate, profile))
        self._order += 1

    def _holding(self, candidate: Candidate, profile: Profile) -> Holding:
        return holding_of(
            candidate.model, candidate.id, profile.name, profile.size, profile.gpu_class or "", self._order
        )

    def _release(self, record: ReplicaRecord) -> None:
        for member in record.members:
            self.fleet.give_back(member.node, member.gpus, record.millicores, record.memory_mib, ports_of(member))
            self.released.setdefault(member.node, []).append(record.id)

    # -- taking (R6, R7) ------------------------------------------------------------------------------------------

    def _find_take(self, candidate: Candidate) -> Take | None:
        own = self._lift(candidate)
        try:
            tenants = self._tenants(candidate)
            for profile in preferred(candidate.model, self.fleet):
                ports = self.launcher.engine(profile).ports_needed(profile)
                take = find_take(self._holding(candidate, profile), profile, ports, self.ledger, self.fleet, tenants)
                if take:
                    return take
            return None
        finally:
            self._put_back(candidate, own)

    def _tenants(self, candidate: Candidate) -> dict[str, Tenant]:
        """Return everything that runs or is to run, with the room that it holds."""
        tenants = {}
        for replica, holding in self.ledger.holdings.items():
            start, record = self.out.starts.get(replica), self.staying.get(replica)
            fixed = replica in self.fixed or replica == candidate.id
            if start is not None:
                ports = self.launcher.engine(start.profile).ports_needed(start.profile)
                places = tuple(
                    (s.node, tuple(g.uuid for g in s.gpus), range(s.port, s.port + ports)) for s in start.seats
                )
                tenants[replica] = Tenant(holding, places, start.profile.millicores, start.profile.memory_mib, fixed)
            elif record is not None:
                places = tuple((m.node, m.gpus, ports_of(m)) for m in record.members)
                tenants[replica] = Tenant(holding, places, record.millicores, record.memory_mib, fixed)
        return tenants

    def _carry_out(self, candidate: Candidate, take: Take) -> list[Candidate]:
        """Stop the victims and start the candidate; returns the victims that may look for another place."""
        self._lift(candidate)
        tenants = self._tenants(candidate)
        losers: list[tuple[str, Candidate]] = []
        for replica, ground in take.grounds.items():
            self.ledger.remove(replica)
            for node, gpus, ports in tenants[replica].places:
                tenant = tenants[replica]
                self.fleet.give_back(node, gpus, tenant.millicores, tenant.memory_mib, ports)
            loser = self._unseat(replica, candidate.id, ground)
            if loser:
                losers.append((replica, loser))
        ports_needed = self.launcher.engine(take.profile).ports_needed(take.profile)
        seats = (
            self.fleet.seat_on(take.profile, take.nodes, ports_needed)
            if take.nodes
            else self.fleet.seat(take.profile, ports_needed)
        )
        if not seats:
            raise AssertionError(f"{candidate.id} was given room that is not there")
        stopped = tuple(r for r in take.grounds if r in self.out.yields)
        self._sit(candidate, take.profile, seats, stopped)
        return [self._as_wanted(loser) for _, loser in losers if self._is_wanted(loser)]

    def _unseat(self, replica: str, beneficiary: str, ground: Ground) -> Candidate | None:
        """Take a victim's place in the plan away; returns it as a candidate for another."""
        start = self.out.starts.pop(replica, None)
        record = start.candidate.record if start else self.staying.pop(replica)
        running = start is None or (start.candidate.running and record is not None)
        if running and record is not None:
            self.out.yields[replica] = Yield(record, beneficiary, ground)
            for member in record.members:
                released = self.released.setdefault(member.node, [])
                if replica not in released:
                    released.append(replica)
        if start is not None:
            return replace(start.candidate, elsewhere=start.candidate.running, victim=start.candidate.running)
        model = self.models.get(record.model) if record else None
        if model is None or record is None:
            return None
        reason = self.out.yields[replica].reason
        return Candidate(model, record.index, reason, record=record, running=True, elsewhere=True, victim=True)

    def _is_wanted(self, loser: Candidate) -> bool:
        return self.fills or self.ledger.count(loser.model.name) < loser.model.scaling.min

    def _as_wanted(self, loser: Candidate) -> Candidate:
        return replace(loser, headroom=self.ledger.count(loser.model.name) >= loser.model.scaling.min)


def _is_settled(candidate: Candidate) -> bool:
    """Whether it has a place already, which is kept for it before anything new may take it."""
    return candidate.record is not None and not candidate.elsewhere and not candidate.asked


def preferred(model: Model, fleet: Fleet) -> Iterable[Profile]:
    """Return the profiles, highest priority first; among equals the class with the most free GPUs."""
    if len(model.profiles) == 1:
        return model.profiles

    def free(profile: Profile) -> int:
        return sum(len(r.free(profile.gpu_class, profile.engine)) for r in fleet.rooms.values() if r.open)

    several = len({p.priority for p in model.profiles}) < len(model.profiles)
    return sorted(model.profiles, key=lambda p: (-p.priority, -free(p) if several else 0, p.name))

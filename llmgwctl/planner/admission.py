"""Admission: which candidates start where, in what order, and who gives way to them (rules R5 to R10)."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.plan import Reason, ReasonCode
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.planner import packing
from llmgwctl.planner.launching import Launcher
from llmgwctl.planner.ledger import Holding, Ledger, holding_of
from llmgwctl.planner.naming import replica_id
from llmgwctl.planner.placement import Fleet, Nodes, Seat
from llmgwctl.planner.rooms import Room
from llmgwctl.planner.settling import stays
from llmgwctl.planner.survey import holdings, ports_of
from llmgwctl.planner.takes import Ground, Take, Tenant, find_take
from llmgwctl.planner.waits import Place, waits_of


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
    """A candidate with its places; `pinned` ones stay there, the others may still be packed anew.

    `victims` stop for it, and `at` is the step in which it found its place.
    """

    candidate: Candidate
    profile: Profile
    ports: int
    seats: tuple[Seat, ...]
    pinned: bool
    victims: tuple[str, ...]
    at: int

    @property
    def places(self) -> tuple[Place, ...]:
        """What it takes."""
        return tuple(
            Place(
                seat.node,
                tuple(g.uuid for g in seat.gpus),
                range(seat.port, seat.port + self.ports),
                self.profile.millicores,
                self.profile.memory_mib,
            )
            for seat in self.seats
        )


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
    """The outcome: who starts, who is refused, who gave way, and what each start has to wait for.

    Those `apart` stop in an action of their own, before the one that starts them again. Those `kept` gave way, and
    could stay all the same.
    """

    starts: dict[str, Start] = field(default_factory=dict)
    refused: dict[str, Candidate] = field(default_factory=dict)
    yields: dict[str, Yield] = field(default_factory=dict)
    waits: dict[str, set[str]] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)
    kept: dict[str, ReplicaRecord] = field(default_factory=dict)


@dataclass(slots=True)
class Admission:
    """The working memory.

    `staying` run on as they are; those that are `fixed` may not be stopped by anybody. `stops` are what is stopped
    already, and `rooms` what was free before. `others` names, by node, the replicas that another state runs there.
    """

    fleet: Fleet
    ledger: Ledger
    launcher: Launcher
    staying: dict[str, ReplicaRecord]
    stops: dict[str, tuple[Place, ...]]
    rooms: Mapping[str, Room]
    fixed: frozenset[str]
    fills: bool
    models: Mapping[str, Model]
    others: Mapping[str, frozenset[str]]
    out: Admitted = field(default_factory=Admitted)
    _queue: list[tuple[tuple[object, ...], Candidate]] = field(default_factory=list)
    _stopped_at: dict[str, int] = field(default_factory=dict)
    _hopeless: set[object] = field(default_factory=set)
    _patience: int = 200_000
    _packed_anew: bool = False
    _step: int = 0
    _order: int = 0

    def admit(self, candidates: Iterable[Candidate]) -> Admitted:
        """Start what can start; who is refused blocks nobody, and is asked again after each step that frees room."""
        self._order = self.ledger.next_order()
        for candidate in candidates:
            self._push(candidate)
        while self._queue:
            key, candidate = heapq.heappop(self._queue)
            now = self._key(candidate)
            if now > key:
                heapq.heappush(self._queue, (now, candidate))
            elif self._start(candidate):
                if self.out.refused and self._opens(candidate):
                    self._ask_again()
            elif _is_settled(candidate):
                # It had the first turn on free room; from now on it waits as everybody else does.
                self._push(replace(candidate, asked=True))
            elif not candidate.headroom and (take := self._find_take(candidate)):
                self._ask_again(self._carry_out(candidate, take), without=take.grounds)
            else:
                self.out.refused[candidate.id] = candidate
        self._settle()
        self._wait()
        return self.out

    # -- the order (R8) -------------------------------------------------------------------------------------------

    def _push(self, candidate: Candidate) -> None:
        heapq.heappush(self._queue, (self._key(candidate), candidate))

    def _ask_again(self, more: Iterable[Candidate] = (), without: Collection[str] = ()) -> None:
        """Ask the refused again, and `more`; everybody's key may have changed. Victims' earlier wishes are void."""
        waiting = [candidate for _, candidate in self._queue] + list(self.out.refused.values())
        self.out.refused.clear()
        self._queue.clear()
        self._hopeless.clear()
        for candidate in (*(c for c in waiting if c.id not in without), *more):
            self._push(candidate)

    def _key(self, candidate: Candidate) -> tuple[object, ...]:
        """Return the admission order: minimum, within a guarantee, class, priority, larger, name, index."""
        model = candidate.model
        size = max(model.profiles, key=lambda p: (p.size.gpus, p.size.millicores, p.size.memory_mib)).size
        within = any(self.ledger.within(model.owner, p.size, p.gpu_class or "") for p in model.profiles)
        return (
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
        self._packed_anew = False
        own = self._lift(candidate)
        profiles = [
            (profile, self._ports(profile))
            for profile in preferred(candidate.model, self.fleet)
            if not self.ledger.limit_hit(candidate.model.owner, profile.size, profile.gpu_class or "")
        ]
        for profile, ports in profiles:
            seats = self._own_seats(candidate, profile, ports)
            if seats or (seats := self.fleet.seat(profile, ports, self._avoid(candidate.id))):
                self._sit(candidate, profile, seats)
                return True
        if profiles and self._repack(candidate, tuple(profiles)):
            return True
        self._put_back(candidate, own)
        return False

    def _own_seats(self, candidate: Candidate, profile: Profile, ports: int) -> tuple[Seat, ...] | None:
        record = candidate.record
        if record is None or candidate.elsewhere or profile.name != record.profile:
            return None
        return self.fleet.reseat(profile, [(m.node, m.gpus, m.port) for m in record.members], ports)

    def _avoid(self, replica: str) -> Nodes:
        """Return the nodes where another state's replica has that name, and with it the folder and the unit."""
        return frozenset(node for node, names in self.others.items() if replica in names)

    def _ports(self, profile: Profile) -> int:
        return self.launcher.engine(profile).ports_needed(profile)

    def _lift(self, candidate: Candidate) -> Holding | None:
        """Give a running candidate's own room and holding back, as its next life takes their place."""
        if candidate.id not in self.ledger.holdings:
            return None
        holding = self.ledger.remove(candidate.id)
        if candidate.in_place and candidate.record is not None:
            self._stop(candidate.id, places_of(candidate.record))
        return holding

    def _put_back(self, candidate: Candidate, holding: Holding | None) -> None:
        """Nothing was found: what runs keeps its place rather than leave the model without a replica."""
        if holding is None:
            return
        self.ledger.add(holding)
        if candidate.in_place and candidate.record is not None:
            own = places_of(candidate.record)
            self.stops[candidate.id] = self.stops[candidate.id][: -len(own)]
            for place in own:
                self.fleet.take(place.node, place.gpus, place.millicores, place.memory_mib, place.ports)

    def _stop(self, replica: str, places: tuple[Place, ...]) -> None:
        self.stops[replica] = (*self.stops.get(replica, ()), *places)
        self._step += 1
        self._stopped_at[replica] = self._step
        for place in places:
            self.fleet.give_back(place.node, place.gpus, place.millicores, place.memory_mib, place.ports)

    def _sit(
        self, candidate: Candidate, profile: Profile, seats: tuple[Seat, ...], victims: tuple[str, ...] = ()
    ) -> None:
        pinned = bool(victims) or (candidate.record is not None and not candidate.elsewhere)
        self._step += 1
        self.out.starts[candidate.id] = Start(
            candidate, profile, self._ports(profile), seats, pinned, victims, self._step
        )
        self.ledger.add(self._holding(candidate, profile))
        self._order += 1

    def _holding(self, candidate: Candidate, profile: Profile) -> Holding:
        return holding_of(
            candidate.model, candidate.id, profile.name, profile.size, profile.gpu_class or "", self._order
        )

    def _repack(self, candidate: Candidate, profiles: tuple[tuple[Profile, int], ...]) -> bool:
        """Pack what is to start anew together with one more: "fits" is asked of them all at once, not in turn."""
        profiles = tuple((p, ports) for p, ports in profiles if self.fleet.has_pieces(p))
        wish = tuple(p for p, _ in profiles)
        if not profiles or wish in self._hopeless:
            return False
        movable = [s for s in self.out.starts.values() if not s.pinned]
        self._hopeless.add(wish)
        if not movable or self._patience < len(movable):
            return False
        self._patience -= len(movable)
        before = [(s.profile, s.ports, s.seats) for s in movable]
        packing.give_back(self.fleet, before)
        wants = [packing.Want(s.candidate.id, ((s.profile, s.ports),), self._avoid(s.candidate.id)) for s in movable]
        wants.append(packing.Want(candidate.id, profiles, self._avoid(candidate.id)))
        placed = packing.pack(self.fleet, wants)
        if placed is None:
            packing.take_again(self.fleet, before)
            return False
        self._hopeless.clear()
        self._packed_anew = True
        self._step += 1
        for start in movable:
            _, seats = placed[start.candidate.id]
            self.out.starts[start.candidate.id] = replace(start, seats=seats, at=self._step)
        self._sit(candidate, *placed[candidate.id])
        return True

    def _opens(self, candidate: Candidate) -> bool:
        """Whether a start may let one start, or take, that was refused before (R8: after every step start over).

        It leaves room behind, others were packed anew for it, it is headroom that may be taken, or another lost its
        cover to it.
        """
        if candidate.running or self._packed_anew:
            return True
        if candidate.headroom:
            return any(not refused.headroom for refused in self.out.refused.values())
        path = self.ledger.path(candidate.model.owner)
        scopes = [s for s in path if self.ledger.quota(s).guarantee and self.ledger.beyond(s)]
        if not scopes:
            return False
        after = {s: self.ledger.cover(s) for s in scopes}
        with self.ledger.supposing([candidate.id]):
            return any(self.ledger.cover(s) - after[s] for s in scopes)

    # -- taking (R6, R7) ------------------------------------------------------------------------------------------

    def _find_take(self, candidate: Candidate) -> Take | None:
        own = self._lift(candidate)
        try:
            tenants = self._tenants(candidate)
            for profile in preferred(candidate.model, self.fleet):
                start = self._holding(candidate, profile)
                avoid = self._avoid(candidate.id)
                take = find_take(start, profile, self._ports(profile), self.ledger, self.fleet, tenants, avoid)
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
                tenants[replica] = Tenant(holding, start.places, fixed)
            elif record is not None:
                tenants[replica] = Tenant(holding, places_of(record), fixed)
        return tenants

    def _carry_out(self, candidate: Candidate, take: Take) -> list[Candidate]:
        """Stop the victims and start the candidate; returns the victims that may look for another place."""
        self._lift(candidate)
        losers = [self._unseat(replica, candidate.id, ground) for replica, ground in take.grounds.items()]
        ports = self._ports(take.profile)
        seats = (
            self.fleet.seat_on(take.profile, take.nodes, ports)
            if take.nodes
            else self.fleet.seat(take.profile, ports, self._avoid(candidate.id))
        )
        if not seats:
            raise AssertionError(f"{candidate.id} was given room that is not there")
        stopped = (r for r, gone in self.out.yields.items() if gone.beneficiary == candidate.id)
        self._sit(candidate, take.profile, seats, tuple(stopped))
        return self._as_wanted([c for c in losers if c], take.grounds)

    def _unseat(self, replica: str, beneficiary: str, ground: Ground) -> Candidate | None:
        """Take a victim's place away; returns it as a candidate for another."""
        self.ledger.remove(replica)
        for other, gone in self.out.yields.items():
            if gone.beneficiary == replica:  # what it had taken is taken with it
                self.out.yields[other] = replace(gone, beneficiary=beneficiary, ground=ground)
        start = self.out.starts.pop(replica, None)
        record = start.candidate.record if start else self.staying.pop(replica)
        if record is not None and (start is None or start.candidate.running):
            self.out.yields[replica] = Yield(record, beneficiary, ground)
        if start is not None:
            packing.give_back(self.fleet, [(start.profile, start.ports, start.seats)])
            return replace(start.candidate, elsewhere=start.candidate.running, victim=start.candidate.running)
        model = self.models.get(record.model) if record else None
        if record is not None:
            self._stop(replica, places_of(record))
        if model is None or record is None:
            return None
        reason = self.out.yields[replica].reason
        return Candidate(model, record.index, reason, record=record, running=True, elsewhere=True, victim=True)

    def _as_wanted(self, losers: list[Candidate], gone: Collection[str]) -> list[Candidate]:
        """Return those that their models still want, the lowest index first: as minimum, and above it as headroom."""
        waiting = [c for _, c in self._queue] + list(self.out.refused.values())
        asking = Counter(c.model.name for c in waiting if not c.headroom and not c.in_place and c.id not in gone)
        wanted = []
        for loser in sorted(losers, key=lambda c: (c.model.name, c.index)):
            name = loser.model.name
            short = loser.model.scaling.min - self.ledger.count(name) - asking[name]
            if short > 0:
                asking[name] += 1
                wanted.append(replace(loser, headroom=False))
            elif self.fills:
                wanted.append(replace(loser, headroom=True))
        return wanted

    def _settle(self) -> None:
        """Let victims stay that found room on the nodes they had to leave: their stop and their start cancel out."""
        for replica, gone in sorted(self.out.yields.items()):
            start = self.out.starts.get(replica)
            if start is None or start.candidate.reason.code not in (ReasonCode.RECLAIMED, ReasonCode.PREEMPTED):
                continue  # it is gone for good, or was to be replaced anyhow
            seated = {r: (s.profile, s.ports, s.seats) for r, s in self.out.starts.items()}
            changed = stays(replica, gone.record, seated, self.fleet)
            if changed is None:
                continue
            moved = [replica, *changed]
            packing.give_back(self.fleet, [seated[r] for r in moved])
            for other, seats in changed.items():
                self.out.starts[other] = replace(self.out.starts[other], seats=seats)
            packing.take_again(self.fleet, [(*seated[r][:2], changed[r]) for r in changed])
            for place in self.stops.pop(replica):
                self.fleet.take(place.node, place.gpus, place.millicores, place.memory_mib, place.ports)
            self._stay(replica, gone)

    def _stay(self, replica: str, gone: Yield) -> None:
        """Forget that a victim gave way; what it had taken itself goes to whom it gave way to."""
        del self.out.yields[replica], self.out.starts[replica]
        self.ledger.remove(replica)
        for holding in holdings([gone.record], self.models):
            self.ledger.add(holding)
        self.out.kept[replica] = gone.record
        for other, left in self.out.yields.items():
            if left.beneficiary == replica:
                self.out.yields[other] = replace(left, beneficiary=gone.beneficiary, ground=gone.ground)
        for name, start in self.out.starts.items():
            if replica in start.victims:
                self.out.starts[name] = replace(start, victims=tuple(v for v in start.victims if v != replica))

    # -- the end --------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Work out what each start has to wait for.

        Where a victim's new place needs the room of somebody who needs the victim's old one, it stops first and starts
        in an action of its own.
        """
        self.out.waits = waits = self._waits()
        while circle := _circle(waits, self.out.apart):
            movers = [r for r in circle if self.out.starts[r].candidate.victim and r not in self.out.apart]
            if not movers:
                raise AssertionError(f"starts wait for each other in a circle: {sorted(circle)}")
            self.out.apart.add(max(movers, key=lambda r: self.ledger.importance(self.ledger.holdings[r])))

    def _waits(self) -> dict[str, set[str]]:
        needs = waits_of({r: s.places for r, s in self.out.starts.items()}, self.stops, self.rooms)
        found: dict[str, set[str]] = {}
        for replica, start in self.out.starts.items():
            found[replica] = set(start.victims) | {r for r in needs[replica].exactly if self._is_before(r, start)}
            # Cores and memory have no holder: of those that move, only the ones that found their place before count.
            found[replica] |= {
                r
                for r in needs[replica].roughly
                if self._is_before(r, start)
                and (r not in self.out.starts or (self.out.starts[r].at, r) < (start.at, replica))
            }
        return found

    def _is_before(self, stopped: str, start: Start) -> bool:
        """Whether a stop was planned before the start had its place; nobody waits for a later one."""
        return self._stopped_at.get(stopped, 0) <= start.at


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


def places_of(record: ReplicaRecord) -> tuple[Place, ...]:
    """Return what a recorded replica takes."""
    return tuple(Place(m.node, m.gpus, ports_of(m), record.millicores, record.memory_mib) for m in record.members)


def _circle(waits: Mapping[str, set[str]], apart: Collection[str]) -> set[str]:
    """Return those that wait for each other in a circle, or for one that does; nothing where there is an order."""
    left = {replica: {w for w in on if w in waits and w not in apart} for replica, on in waits.items()}
    while True:
        ready = {replica for replica, on in left.items() if not on}
        if not ready:
            return set(left)
        left = {replica: on - ready for replica, on in left.items() if replica not in ready}

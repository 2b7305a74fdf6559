"""Who stays, who stops, who starts where: the decisions of one plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmgwctl.diagnostics import Diagnostic, error
from llmgwctl.domain.catalog import Model, Profile, SecretRef
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.plan import (
    Action,
    ActionKind,
    Cause,
    Condition,
    HeadroomStop,
    MemberPlacement,
    Reason,
    ReasonCode,
    Shortfall,
    Standing,
)
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.planner.classify import Finding
from llmgwctl.planner.ledger import Ledger, holding_of
from llmgwctl.planner.naming import replica_id
from llmgwctl.planner.options import PlanOptions
from llmgwctl.planner.placement import Fleet, Seat
from llmgwctl.planner.shortfalls import causes_of
from llmgwctl.planner.survey import View, holdings, ports_of


@dataclass(slots=True)
class Decision:
    """What was decided; `ledger` counts what will run afterwards."""

    actions: list[Action] = field(default_factory=list)
    shortfalls: list[Shortfall] = field(default_factory=list)
    headroom_stops: list[HeadroomStop] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    ledger: Ledger | None = None


@dataclass(slots=True)
class Candidate:
    """A replica that should start: anew, again (`record`), or with another command (`record`, `running`)."""

    model: Model
    index: int
    reason: Reason
    headroom: bool = False
    record: ReplicaRecord | None = None
    running: bool = False
    elsewhere: bool = False

    @property
    def id(self) -> str:
        """The replica's name."""
        return replica_id(self.model.name, self.index)

    @property
    def order(self) -> tuple[object, ...]:
        """The admission order of rule R8 for free room: minimum, class, priority, larger first, name, index."""
        size = max(self.model.profiles, key=lambda p: (p.size.gpus, p.size.millicores, p.size.memory_mib)).size
        # What has a place already is settled before anything new may take that place.
        settled = 0 if self.record is not None and not self.elsewhere else 1
        return (
            settled,
            self.headroom,
            self.model.model_class.rank,
            -self.model.priority,
            -size.gpus,
            -size.millicores,
            -size.memory_mib,
            self.model.name,
            self.index,
        )


def decide(view: View, options: PlanOptions) -> Decision:
    """Settle every recorded and every wanted replica."""
    return _Deciding(view, options).run()


class _Deciding:
    """The working memory of one decision."""

    def __init__(self, view: View, options: PlanOptions) -> None:
        self.view = view
        self.options = options
        self.out = Decision()
        self.fleet = Fleet(view.rooms())
        self.candidates: list[Candidate] = []
        self.staying: list[ReplicaRecord] = []
        self.released: dict[str, list[str]] = {}
        self.causes: dict[str, tuple[Cause, ...]] = {}
        self.before = view.ledger()

    def run(self) -> Decision:
        by_model: dict[str, list[Finding]] = {}
        for finding in self.view.findings:
            by_model.setdefault(finding.record.model, []).append(finding)
        models = {} if self.options.destroy else self.view.models
        for name in sorted({*by_model, *models}):
            model = models.get(name)
            if self.options.targets and name not in self.options.targets:
                self.staying += [f.record for f in by_model.get(name, []) if f.alive]
            elif model is None:
                for finding in by_model[name]:
                    self._end(finding, Reason(ReasonCode.NOT_WANTED, self._why_unwanted(name)))
            else:
                self._size(model, by_model.get(name, []))
        for stray in self.view.strays:
            self._stop(stray, self._why_stray(stray, models))
        self._seat_all()
        self._finish()
        return self.out

    def _why_unwanted(self, name: str) -> str:
        if self.options.destroy:
            return "everything is to be destroyed"
        return f"no model is called {name!r} any more"

    def _why_stray(self, stray: ReplicaRecord, models: Mapping[str, Model]) -> Reason:
        if stray.model not in models:
            return Reason(ReasonCode.NOT_WANTED, self._why_unwanted(stray.model))
        return Reason(ReasonCode.INTERRUPTED, "left over there: the state records it elsewhere, or not at all")

    # -- how many, and which ------------------------------------------------------------------------------------

    def _size(self, model: Model, findings: list[Finding]) -> None:
        """Decide which of a model's replicas stay, start again or go, and how many are missing."""
        alive = [f for f in findings if f.alive]
        dead = [f for f in findings if not f.alive]
        scaling = model.scaling
        for finding in alive[scaling.max :]:
            self._end(finding, Reason(ReasonCode.SCALED_DOWN, f"scaling.max is {scaling.max}"))
        for finding in alive[: scaling.max]:
            self._stay_or_change(model, finding)
        wanted = scaling.max if self._fills() else scaling.min
        running = min(len(alive), scaling.max)
        missing = max(0, wanted - running)
        for finding in dead[:missing]:
            self.candidates.append(self._again(model, finding))
        for finding in dead[missing:]:
            self._end(finding, Reason(ReasonCode.SCALED_DOWN, f"scaling.min is {scaling.min}, and {running} run"))
        # An index is free once nothing of it can run any more.
        used = {f.record.index for f in alive} | {f.record.index for f in dead}
        used |= {s.index for s in self.view.strays if s.model == model.name}
        minimum_left = max(0, scaling.min - running - len(dead[:missing]))
        for number in range(missing - len(dead[:missing])):
            index = next(i for i in range(len(used) + 1) if i not in used)
            used.add(index)
            headroom = number >= minimum_left
            reason = (
                Reason(ReasonCode.HEADROOM, f"idle capacity, up to scaling.max {scaling.max}")
                if headroom
                else Reason(ReasonCode.NEW, f"scaling.min is {scaling.min}, and {running} run")
            )
            self.candidates.append(Candidate(model, index, reason, headroom))

    def _fills(self) -> bool:
        return self.options.fill or self.view.desired.settings.headroom == "fill"

    def _again(self, model: Model, finding: Finding) -> Candidate:
        code = {
            Condition.GONE: ReasonCode.PROCESS_GONE,
            Condition.NODE_GONE: ReasonCode.NODE_GONE,
            Condition.INTERRUPTED: ReasonCode.INTERRUPTED,
        }.get(finding.condition, ReasonCode.FAILED)
        return Candidate(model, finding.record.index, Reason(code, finding.text), record=finding.record)

    def _stay_or_change(self, model: Model, finding: Finding) -> None:
        """Keep what runs as declared; replace what does not; wait where it can't be seen."""
        record = finding.record
        if finding.condition is Condition.UNKNOWN:
            self.staying.append(record)
            self._note(ActionKind.DEFER, record, Reason(ReasonCode.NODE_UNREACHABLE, finding.text), model)
            return
        drained = [m.node for m in record.members if self.view.hosts[m.node].drain]
        change = self._change(model, finding)
        if change is not None:
            self.candidates.append(Candidate(model, record.index, change, record=record, running=True))
        elif drained:
            reason = Reason(ReasonCode.DRAINED, f"host {', '.join(drained)} is drained")
            self.candidates.append(Candidate(model, record.index, reason, record=record, running=True, elsewhere=True))
        else:
            self.staying.append(record)
            text = finding.text if finding.condition is not Condition.HEALTHY else "runs as declared"
            self._note(ActionKind.KEEP, record, Reason(ReasonCode.UNCHANGED, text), model)

    def _change(self, model: Model, finding: Finding) -> Reason | None:
        """Return why a running replica has to be replaced, if it has to."""
        record = finding.record
        code = ReasonCode.LAUNCH_CHANGED
        if record.origin == "runtime" and model.origin.value == "declared":
            code = ReasonCode.DECLARED
        if record.id in self.options.replace:
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
        expected = self.view.launcher.expected(model, profile, record)
        if [launch.digest for launch in expected] != [m.launch.digest for m in record.members]:
            what = _difference(record.members[0].launch, expected[0])
            runtime = (
                f"model {model.name} was added at run time and has since been declared; "
                if code is ReasonCode.DECLARED
                else ""
            )
            return Reason(code, f"{runtime}{what}")
        changed = self._changed_secrets(record)
        if changed:
            return Reason(code, f"the value of {', '.join(changed)} changed")
        return None

    def _changed_secrets(self, record: ReplicaRecord) -> list[str]:
        """Return the variables whose secret is known now, and is not what the replica was started with."""
        recorded = dict(record.secret_digests)
        now = self.options.secret_digests
        return [
            name
            for name, value in record.members[0].launch.env
            if isinstance(value, SecretRef)
            and name in recorded
            and now.get(str(value), recorded[name]) != recorded[name]
        ]

    # -- ending --------------------------------------------------------------------------------------------------

    def _end(self, finding: Finding, reason: Reason) -> None:
        """Stop what runs, clean up what failed, forget what is gone, wait for what can't be seen."""
        record = finding.record
        if finding.condition is Condition.UNKNOWN:
            self.staying.append(record)
            waits = f"is to be stopped ({reason.text}), but {finding.text}"
            self._note(ActionKind.DEFER, record, Reason(ReasonCode.NODE_UNREACHABLE, waits))
        elif not finding.alive and not any(finding.seen):
            code = ReasonCode.NODE_GONE if finding.condition is Condition.NODE_GONE else reason.code
            self._note(ActionKind.FORGET, record, Reason(code, f"{reason.text}; {finding.text}"))
        else:
            self._stop(record, reason, alive=finding.alive)

    def _stop(self, record: ReplicaRecord, reason: Reason, *, alive: bool = True) -> None:
        self._refuse_protected(record, reason)
        self._release(record, alive=alive)
        self._note(ActionKind.STOP, record, reason)

    def _release(self, record: ReplicaRecord, *, alive: bool = True) -> None:
        """Give back a stopping replica's room; what starts on its nodes afterwards waits for the stop.

        What is dead already holds no cores and no memory, and its ports may be another's by now.
        """
        for member in record.members:
            if alive:
                self.fleet.give_back(member.node, member.gpus, record.millicores, record.memory_mib, ports_of(member))
            self.released.setdefault(member.node, []).append(record.id)

    def _refuse_protected(self, record: ReplicaRecord, reason: Reason) -> None:
        if record.prevent_stop:
            self.out.diagnostics.append(
                error(
                    f"{record.id} may not be stopped: prevent_stop is set ({reason.text}).",
                    f"Take prevent_stop back from model {record.model} and apply that first.",
                )
            )

    # -- placing -------------------------------------------------------------------------------------------------

    def _seat_all(self) -> None:
        """Seat the candidates in admission order, each wholly or not at all."""
        without = frozenset(c.id for c in self.candidates) | frozenset(a.replica for a in self.out.actions if a.stops)
        self.out.ledger = ledger = self.view.ledger(without)
        pending = sorted(self.candidates, key=lambda c: c.order)
        moved = True
        while pending and moved:
            # A replica that finds another place leaves room behind, perhaps for one that was refused before it.
            refused = [c for c in pending if not self._seat(c, ledger)]
            settled = {c.id for c in pending} - {c.id for c in refused}
            moved = any(c.running and c.id in settled for c in pending)
            pending = refused
        for candidate in pending:
            self._refuse(candidate, ledger)

    def _seat(self, candidate: Candidate, ledger: Ledger) -> bool:
        record = candidate.record
        if candidate.running and record is not None and not candidate.elsewhere:
            self._release(record)
        for profile in _by_preference(candidate.model, self.fleet):
            if ledger.limit_hit(candidate.model.owner, profile.size, profile.gpu_class or ""):
                continue
            engine = self.view.launcher.engine(profile)
            seats = None
            if record is not None and not candidate.elsewhere and profile.name == record.profile:
                places = [(m.node, m.gpus, m.port) for m in record.members]
                seats = self.fleet.reseat(profile, places, engine.ports_needed(profile))
            seats = seats or self.fleet.seat(profile, engine.ports_needed(profile))
            if seats:
                self._start(candidate, profile, seats)
                rank = 1 + ledger.count(candidate.model.name)
                ledger.add(holding_of(candidate.model, candidate.id, profile.size, profile.gpu_class or "", rank))
                return True
        if candidate.running and record is not None and not candidate.elsewhere:
            # Nothing was found: the old one keeps its place rather than leave the model without a replica.
            self._take_back(record)
        return False

    def _take_back(self, record: ReplicaRecord) -> None:
        for member in record.members:
            self.fleet.take(member.node, member.gpus, record.millicores, record.memory_mib, ports_of(member))
            self.released[member.node].remove(record.id)

    def _start(self, candidate: Candidate, profile: Profile, seats: tuple[Seat, ...]) -> None:
        model, record = candidate.model, candidate.record
        kind = ActionKind.START
        if candidate.running and record is not None:
            self._refuse_protected(record, candidate.reason)
            same = sorted(m.node for m in record.members) == sorted(s.node for s in seats)
            kind = ActionKind.REPLACE if same else ActionKind.MOVE
        waits = {r for s in seats for r in self.released.get(s.node, []) if r != candidate.id}
        self.out.actions.append(
            Action(
                kind=kind,
                replica=candidate.id,
                model=model.name,
                profile=profile.name,
                engine=profile.engine,
                reason=candidate.reason,
                placement=tuple(_placement(s) for s in seats),
                launches=self.view.launcher.launches(model, profile, candidate.index, seats),
                before=record,
                owner=model.owner,
                model_class=model.model_class.value,
                simulated=profile.engine == "sim",
                origin=model.origin.value,
                millicores=profile.millicores,
                memory_mib=profile.memory_mib,
                gpu_class=profile.gpu_class or "",
                prevent_stop=model.prevent_stop,
                waits_for=tuple(sorted(waits)),
            )
        )

    def _refuse(self, candidate: Candidate, ledger: Ledger) -> None:
        model, record = candidate.model, candidate.record
        if model.name not in self.causes:
            self.causes[model.name] = causes_of(model, list(self.fleet.rooms.values()), ledger, self.view.hosts)
        causes = self.causes[model.name]
        if candidate.headroom:
            if all(h.model != model.name for h in self.out.headroom_stops):
                self._stop_headroom(model, causes)
            return
        self.out.shortfalls.append(Shortfall(model.name, candidate.id, causes))
        if candidate.running and record is not None:
            self.staying.append(record)
            ledger.add(holdings([record], self.view.models)[0])
            text = f"{candidate.reason.text}, but there is no room for it: what runs is left running"
            self._note(ActionKind.KEEP, record, Reason(ReasonCode.UNCHANGED, text), model)
        elif record is not None:
            # What failed holds nothing any more; it is cleaned up, and starts again once there is room.
            self._note(ActionKind.STOP, record, candidate.reason, model)

    def _stop_headroom(self, model: Model, causes: tuple[Cause, ...]) -> None:
        running = sum(r.model == model.name for r in self.staying) + sum(
            a.model == model.name and a.starts for a in self.out.actions
        )
        cause = causes[0] if causes else Cause("no_free_capacity", "no free room")
        code = "no_free_capacity"
        if cause.code == "limit":
            numbers = dict(cause.numbers)
            code = f"limit:{numbers['scope']}:{numbers['resource']}"
        self.out.headroom_stops.append(HeadroomStop(model.name, running, model.scaling.max, code, cause.text))

    # -- telling -------------------------------------------------------------------------------------------------

    def _note(self, kind: ActionKind, record: ReplicaRecord, reason: Reason, model: Model | None = None) -> None:
        """Add an action on what is recorded, where it is."""
        self.out.actions.append(
            Action(
                kind=kind,
                replica=record.id,
                model=record.model,
                profile=record.profile,
                engine=record.engine,
                reason=reason,
                placement=tuple(MemberPlacement(m.node, m.gpus, m.gpu_indices, m.port) for m in record.members),
                launches=tuple(m.launch for m in record.members),
                before=record,
                owner=model.owner if model else record.owner,
                model_class=model.model_class.value if model else record.model_class,
                simulated=record.simulated,
                origin=record.origin,
            )
        )

    def _finish(self) -> None:
        """Give every action its standing: what will run by what will be held, what stops by what was."""
        after = self.out.ledger.standings() if self.out.ledger else {}
        before = self.before.standings()
        self.out.actions = [
            replace(a, standing=(before if a.kind is ActionKind.STOP else after).get(a.replica, _default_standing(a)))
            for a in self.out.actions
        ]


def _default_standing(action: Action) -> Standing:
    return Standing.SHARED if action.owner is None else Standing.BORROWED


def _placement(seat: Seat) -> MemberPlacement:
    return MemberPlacement(seat.node, tuple(g.uuid for g in seat.gpus), tuple(g.index for g in seat.gpus), seat.port)


def _by_preference(model: Model, fleet: Fleet) -> Iterable[Profile]:
    """Yield the profiles, highest priority first; among equals the class with the most free GPUs."""
    if len(model.profiles) == 1:
        return model.profiles

    def free(profile: Profile) -> int:
        return sum(len(r.free(profile.gpu_class, profile.engine)) for r in fleet.rooms.values() if r.open)

    several = len({p.priority for p in model.profiles}) < len(model.profiles)
    return sorted(model.profiles, key=lambda p: (-p.priority, -free(p) if several else 0, p.name))


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

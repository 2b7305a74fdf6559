"""Who stays, who stops, who starts where: the decisions of one plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llmgwctl.diagnostics import Diagnostic, error
from llmgwctl.domain.catalog import Model
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
from llmgwctl.planner.admission import Admission, Admitted, Candidate, Start, places_of
from llmgwctl.planner.changed import change_of
from llmgwctl.planner.classify import Finding
from llmgwctl.planner.ledger import Ledger
from llmgwctl.planner.options import PlanOptions
from llmgwctl.planner.placement import Fleet, Seat
from llmgwctl.planner.shortfalls import Explainer
from llmgwctl.planner.survey import View
from llmgwctl.planner.waits import Place


@dataclass(slots=True)
class Decision:
    """What was decided; `ledger` counts what will run afterwards."""

    actions: list[Action] = field(default_factory=list)
    shortfalls: list[Shortfall] = field(default_factory=list)
    headroom_stops: list[HeadroomStop] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    ledger: Ledger | None = None


def decide(view: View, options: PlanOptions) -> Decision:
    """Settle every recorded and every wanted replica."""
    return _Deciding(view, options).run()


class _Deciding:
    """The working memory of one decision."""

    def __init__(self, view: View, options: PlanOptions) -> None:
        self.view = view
        self.options = options
        self.models: Mapping[str, Model] = {} if options.destroy else view.models
        self.fills = options.fill or view.desired.settings.headroom == "fill"
        self.out = Decision()
        self.fleet = Fleet(view.rooms())
        self.candidates: list[Candidate] = []
        self.staying: dict[str, tuple[ReplicaRecord, Reason]] = {}
        self.fixed: set[str] = set()
        self.ended: set[str] = set()
        self.stops: dict[str, tuple[Place, ...]] = {}

    def run(self) -> Decision:
        by_model: dict[str, list[Finding]] = {}
        for finding in self.view.findings:
            by_model.setdefault(finding.record.model, []).append(finding)
        for name in sorted({*by_model, *self.models}):
            findings = by_model.get(name, [])
            if self.options.targets and name not in self.options.targets:
                self._leave_alone(findings)
            elif name in self.models:
                self._size(self.models[name], findings)
            else:
                for finding in findings:
                    self._end(finding, Reason(ReasonCode.NOT_WANTED, self._why_unwanted(name)))
        for stray in self.view.strays:
            self._stop(stray, self._why_stray(stray))
        self._tell(self._admit())
        return self.out

    def _why_unwanted(self, name: str) -> str:
        if self.options.destroy:
            return "everything is to be destroyed"
        return f"no model is called {name!r} any more"

    def _why_stray(self, stray: ReplicaRecord) -> Reason:
        if stray.model not in self.models:
            return Reason(ReasonCode.NOT_WANTED, self._why_unwanted(stray.model))
        return Reason(ReasonCode.INTERRUPTED, "left over there: the state records it elsewhere, or not at all")

    # -- how many, and which ------------------------------------------------------------------------------------

    def _leave_alone(self, findings: list[Finding]) -> None:
        """Count what runs of a model that is no target; nobody may stop it either."""
        self.fixed |= {f.record.id for f in findings}
        self.ended |= {f.record.id for f in findings if not f.alive}

    def _size(self, model: Model, findings: list[Finding]) -> None:
        """Decide which of a model's replicas stay, start again or go, and how many are missing."""
        alive = [f for f in findings if f.alive]
        dead = [f for f in findings if not f.alive]
        scaling = model.scaling
        for finding in alive[scaling.max :]:
            self._end(finding, Reason(ReasonCode.SCALED_DOWN, f"scaling.max is {scaling.max}"))
        for finding in alive[: scaling.max]:
            self._stay_or_change(model, finding)
        wanted = scaling.max if self.fills else scaling.min
        running = min(len(alive), scaling.max)
        missing = max(0, wanted - running)
        minimum_left = max(0, scaling.min - running)
        for number, finding in enumerate(dead[:missing]):
            self.candidates.append(self._again(model, finding, headroom=number >= minimum_left))
        for finding in dead[missing:]:
            self._end(finding, Reason(ReasonCode.SCALED_DOWN, f"scaling.min is {scaling.min}, and {running} run"))
        # An index is free once nothing of it can run any more.
        used = {f.record.index for f in alive} | {f.record.index for f in dead}
        used |= {s.index for s in self.view.strays if s.model == model.name}
        for number in range(len(dead[:missing]), missing):
            index = next(i for i in range(len(used) + 1) if i not in used)
            used.add(index)
            headroom = number >= minimum_left
            reason = (
                Reason(ReasonCode.HEADROOM, f"idle capacity, up to scaling.max {scaling.max}")
                if headroom
                else Reason(ReasonCode.NEW, f"scaling.min is {scaling.min}, and {running} run")
            )
            self.candidates.append(Candidate(model, index, reason, headroom))

    def _again(self, model: Model, finding: Finding, *, headroom: bool) -> Candidate:
        code = {
            Condition.GONE: ReasonCode.PROCESS_GONE,
            Condition.NODE_GONE: ReasonCode.NODE_GONE,
            Condition.INTERRUPTED: ReasonCode.INTERRUPTED,
        }.get(finding.condition, ReasonCode.FAILED)
        return Candidate(model, finding.record.index, Reason(code, finding.text), headroom, finding.record)

    def _stay_or_change(self, model: Model, finding: Finding) -> None:
        """Keep what runs as declared; replace what does not; wait where it can't be seen."""
        record = finding.record
        if finding.condition is Condition.UNKNOWN:
            self._wait(record, Reason(ReasonCode.NODE_UNREACHABLE, finding.text), model)
            return
        drained = [m.node for m in record.members if self.view.hosts[m.node].drain]
        change = change_of(model, finding, self.view.launcher, self.options)
        if record.prevent_stop or model.prevent_stop:
            self.fixed.add(record.id)
        if change is not None:
            self.candidates.append(Candidate(model, record.index, change, record=record, running=True))
        elif drained:
            reason = Reason(ReasonCode.DRAINED, f"host {', '.join(drained)} is drained")
            self.candidates.append(Candidate(model, record.index, reason, record=record, running=True, elsewhere=True))
        else:
            text = finding.text if finding.condition is not Condition.HEALTHY else "runs as declared"
            self.staying[record.id] = (record, Reason(ReasonCode.UNCHANGED, text))

    # -- ending --------------------------------------------------------------------------------------------------

    def _end(self, finding: Finding, reason: Reason) -> None:
        """Stop what runs, clean up what failed, forget what is gone, wait for what can't be seen."""
        record = finding.record
        if finding.condition is Condition.UNKNOWN:
            waits = f"is to be stopped ({reason.text}), but {finding.text}"
            self._wait(record, Reason(ReasonCode.NODE_UNREACHABLE, waits))
        elif not finding.alive and not any(finding.seen):
            code = ReasonCode.NODE_GONE if finding.condition is Condition.NODE_GONE else reason.code
            self.ended.add(record.id)
            self._note(ActionKind.FORGET, record, Reason(code, f"{reason.text}; {finding.text}"))
        else:
            self._stop(record, reason, alive=finding.alive)

    def _wait(self, record: ReplicaRecord, reason: Reason, model: Model | None = None) -> None:
        """Take it to run: it holds its quota and is nobody's victim."""
        self.fixed.add(record.id)
        self._note(ActionKind.DEFER, record, reason, model)

    def _stop(self, record: ReplicaRecord, reason: Reason, *, alive: bool = True) -> None:
        self._refuse_protected(record, reason)
        self.ended.add(record.id)
        places = places_of(record)
        self.stops[record.id] = (*self.stops.get(record.id, ()), *places)  # two, where one of them is a stray
        for place in places:
            # What is dead already holds no cores and no memory, and its ports may be another's by now.
            if alive:
                self.fleet.give_back(place.node, place.gpus, place.millicores, place.memory_mib, place.ports)
        self._note(ActionKind.STOP, record, reason)

    def _refuse_protected(self, record: ReplicaRecord, reason: Reason) -> None:
        if record.prevent_stop:
            self.out.diagnostics.append(
                error(
                    f"{record.id} may not be stopped: prevent_stop is set ({reason.text}).",
                    f"Take prevent_stop back from model {record.model} and apply that first.",
                )
            )

    # -- admission -----------------------------------------------------------------------------------------------

    def _admit(self) -> Admitted:
        self.out.ledger = ledger = self.view.ledger(frozenset(self.ended))
        running = {c.id: c.record for c in self.candidates if c.running and c.record is not None}
        admission = Admission(
            fleet=self.fleet,
            ledger=ledger,
            launcher=self.view.launcher,
            stops=self.stops,
            rooms=self.view.rooms(),
            staying={replica: record for replica, (record, _) in self.staying.items()} | running,
            fixed=frozenset(self.fixed),
            fills=self.fills,
            models=self.models,
            others=self.view.others,
        )
        return admission.admit(self.candidates)

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell(self, admitted: Admitted) -> None:
        for replica, gone in admitted.yields.items():
            self.staying.pop(replica, None)
            if replica not in admitted.starts or replica in admitted.apart:
                self._refuse_protected(gone.record, gone.reason)
                self._note(ActionKind.STOP, gone.record, gone.reason)
        for replica, record in admitted.kept.items():
            self.staying.setdefault(replica, (record, Reason(ReasonCode.UNCHANGED, "runs as declared")))
        for record, reason in self.staying.values():
            self._note(ActionKind.KEEP, record, reason, self.models.get(record.model))
        for replica, start in admitted.starts.items():
            anew = replace(start.candidate, record=None, running=False, victim=False)
            told = replace(start, candidate=anew) if replica in admitted.apart else start
            self._started(told, tuple(sorted(admitted.waits[replica])))
        self._refused(admitted)
        self._stand()

    def _started(self, start: Start, waits_for: tuple[str, ...]) -> None:
        candidate, model, record = start.candidate, start.candidate.model, start.candidate.record
        placement = tuple(_placement(s) for s in start.seats)
        kind = ActionKind.START
        if candidate.running and record is not None:
            if candidate.victim and start.profile.name == record.profile and placement == _places(record):
                self._note(ActionKind.KEEP, record, Reason(ReasonCode.UNCHANGED, "runs as declared"), model)
                return
            self._refuse_protected(record, candidate.reason)
            same = sorted(m.node for m in record.members) == sorted(s.node for s in start.seats)
            kind = ActionKind.REPLACE if same else ActionKind.MOVE
        self.out.actions.append(
            Action(
                kind=kind,
                replica=candidate.id,
                model=model.name,
                profile=start.profile.name,
                engine=start.profile.engine,
                reason=candidate.reason,
                placement=placement,
                launches=self.view.launcher.launches(model, start.profile, candidate.index, start.seats),
                before=record,
                owner=model.owner,
                model_class=model.model_class.value,
                simulated=start.profile.engine == "sim",
                origin=model.origin.value,
                millicores=start.profile.millicores,
                memory_mib=start.profile.memory_mib,
                gpu_class=start.profile.gpu_class or "",
                prevent_stop=model.prevent_stop,
                waits_for=waits_for,
            )
        )

    def _refused(self, admitted: Admitted) -> None:
        causes: dict[str, tuple[Cause, ...]] = {}
        ledger = self.out.ledger
        if ledger is None:
            raise AssertionError("nothing was admitted")
        if not admitted.refused:
            return
        explainer = Explainer(list(self.fleet.rooms.values()), ledger, self.view.hosts, self.view.others)
        for candidate in sorted(admitted.refused.values(), key=lambda c: (c.headroom, c.model.name, c.index)):
            model, record = candidate.model, candidate.record
            if model.name not in causes:
                causes[model.name] = explainer.causes(model, candidate.id)
            if candidate.headroom:
                self._stop_headroom(model, causes[model.name], ledger.count(model.name))
                if record is not None and not candidate.running:
                    self._note(ActionKind.STOP, record, candidate.reason, model)
                continue
            self.out.shortfalls.append(Shortfall(model.name, candidate.id, causes[model.name]))
            if record is None or candidate.victim:
                continue
            if candidate.running:
                text = f"{candidate.reason.text}, but there is no room for it: what runs is left running"
                self._note(ActionKind.KEEP, record, Reason(ReasonCode.UNCHANGED, text), model)
            else:
                # What failed holds nothing any more; it is cleaned up, and starts again once there is room.
                self._note(ActionKind.STOP, record, candidate.reason, model)

    def _stop_headroom(self, model: Model, causes: tuple[Cause, ...], running: int) -> None:
        # A model that lacks minimum replicas is told of as short, not as stopped in its headroom.
        if running < model.scaling.min or any(h.model == model.name for h in self.out.headroom_stops):
            return
        cause = causes[0] if causes else Cause("no_free_capacity", "no free room")
        code = "no_free_capacity"
        if cause.code == "limit":
            numbers = dict(cause.numbers)
            code = f"limit:{numbers['scope']}:{numbers['resource']}"
        self.out.headroom_stops.append(HeadroomStop(model.name, running, model.scaling.max, code, cause.text))

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
                placement=_places(record),
                launches=tuple(m.launch for m in record.members),
                before=record,
                owner=model.owner if model else record.owner,
                model_class=model.model_class.value if model else record.model_class,
                simulated=record.simulated,
                origin=record.origin,
            )
        )

    def _stand(self) -> None:
        """Give every action its standing: what will run by what will be held, what stops by what was."""
        after = self.out.ledger.standings() if self.out.ledger else {}
        before = self.view.ledger().standings()
        self.out.actions = [
            replace(a, standing=(before if a.kind is ActionKind.STOP else after).get(a.replica, _default_standing(a)))
            for a in self.out.actions
        ]


def _default_standing(action: Action) -> Standing:
    return Standing.SHARED if action.owner is None else Standing.BORROWED


def _placement(seat: Seat) -> MemberPlacement:
    return MemberPlacement(seat.node, tuple(g.uuid for g in seat.gpus), tuple(g.index for g in seat.gpus), seat.port)


def _places(record: ReplicaRecord) -> tuple[MemberPlacement, ...]:
    return tuple(MemberPlacement(m.node, m.gpus, m.gpu_indices, m.port) for m in record.members)

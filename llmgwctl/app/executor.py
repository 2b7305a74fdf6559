"""Carries out a plan's actions: parallel over hosts, each after what it waits for, every step recorded."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmgwctl.app.clock import now
from llmgwctl.app.events import Failure, Report
from llmgwctl.app.interrupts import Interrupts
from llmgwctl.app.secrets import Secrets, recorded_digests
from llmgwctl.domain.desired import Host
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.plan import Action, ActionKind, Plan
from llmgwctl.domain.state import MemberRecord, ReplicaRecord
from llmgwctl.errors import LlmgwctlError, StateError
from llmgwctl.hosts.session import Life, StartError, StartOrder, StartRefusedError
from llmgwctl.hosts.sessions import Sessions
from llmgwctl.planner.sequence import awaited
from llmgwctl.store.statefile import StateWriter

LOG_LINES = 20
LOG_BYTES = 64 * 1024
_TELL_EVERY_S = 10.0
_ABORT_PATIENCE_S = 2.0
_FIRST_POLL_S, _LONGEST_POLL_S = 0.1, 2.0


_Finished = queue.SimpleQueue[tuple[int, Failure | None]]


@dataclass(slots=True)
class _Work:
    """A plan's actions, by their places; `waiting` ones aren't begun, and `unsettled` ones hold up what awaits them."""

    actions: Sequence[Action]
    awaited: Sequence[set[int]]
    waiting: list[int]
    unsettled: set[int]


@dataclass(slots=True)
class Outcome:
    """What became of the actions; `unsaved` is why the state could not be written any more."""

    done: list[Action] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    skipped: list[Action] = field(default_factory=list)
    interrupted: bool = False
    unsaved: StateError | None = None

    def count(self, kind: ActionKind) -> int:
        """Return how many actions of a kind were done."""
        return sum(a.kind is kind for a in self.done)


class _AbortedError(Exception):
    """The user does not want to wait any more."""


class _UnrecordedError(Exception):
    """The state can't be written; the text says what was done without being recorded, or was not begun for it."""


class Executor:
    """Does one plan. Only what the plan says is done; what fails leaves nothing behind, and stops what waits for it."""

    def __init__(
        self,
        hosts: Mapping[str, Host],
        sessions: Sessions,
        writer: StateWriter,
        secrets: Secrets,
        report: Report,
        interrupts: Interrupts,
    ) -> None:
        self._hosts = hosts
        self._sessions = sessions
        self._writer = writer
        self._secrets = secrets
        self._report = report
        self._interrupts = interrupts
        self._lock = threading.Lock()
        self._over = False
        self._unsaved: StateError | None = None
        self._lineage = writer.begin()
        self._orders: dict[str, int] = {}
        self._order = max((r.order for r in writer.state.replicas.values()), default=0)

    def run(self, plan: Plan, parallelism: int) -> Outcome:
        """Do every action of a plan; returns when all are done, failed or skipped, or when the user can't wait."""
        outcome = Outcome()
        actions = list(plan.changes())
        work = _Work(actions, awaited(actions), list(range(len(actions))), set(range(len(actions))))
        failed: set[int] = set()
        running: dict[int, Action] = {}
        finished: _Finished = queue.SimpleQueue()
        while work.waiting or running:
            if failed or self._ending:
                self._skip(work, failed, outcome)
            if not self._ending:
                self._submit(work, running, parallelism, finished)
            if not running:
                continue
            result = self._next(finished)
            if result is None:
                outcome.failures += [
                    Failure(a, f"{a.replica} was interrupted; what was begun is recorded") for a in running.values()
                ]
                break
            place, failure = result
            del running[place]
            work.unsettled.discard(place)
            if failure is None:
                outcome.done.append(actions[place])
            else:
                failed.add(place)
                outcome.failures.append(failure)
        with self._lock:
            self._over = True
        outcome.interrupted = self._interrupts.stopping.is_set()
        outcome.unsaved = self._unsaved
        return outcome

    @property
    def _ending(self) -> bool:
        """Whether nothing more may be begun."""
        return self._unsaved is not None or self._interrupts.stopping.is_set()

    def _skip(self, work: _Work, failed: set[int], outcome: Outcome) -> None:
        """Drop what can't be begun any more."""
        left = []
        for place in work.waiting:
            action = work.actions[place]
            blocked = sorted(work.awaited[place] & failed)
            if blocked or self._ending:
                ending = "the state can't be written" if self._unsaved else "interrupted"
                why = f"{work.actions[blocked[0]].replica} failed" if blocked else ending
                with self._lock:
                    self._report.skipped(action, why)
                outcome.skipped.append(action)
                work.unsettled.discard(place)
                failed.add(place)
            else:
                left.append(place)
        work.waiting = left

    def _submit(self, work: _Work, running: dict[int, Action], parallelism: int, finished: _Finished) -> None:
        """Begin what has nothing to wait for, in the plan's order; never more than can run at once.

        The threads are daemons: one that hangs on a dead host must not hold up the end of the program.
        """
        left: list[int] = []
        for position, place in enumerate(work.waiting):
            if len(running) >= parallelism:
                left += work.waiting[position:]
                break
            if work.awaited[place] & work.unsettled:
                left.append(place)
                continue
            action = running[place] = work.actions[place]
            if action.starts:  # counted here, in the plan's order, not as the threads happen to run
                self._order += 1
                self._orders[action.replica] = self._order
            threading.Thread(target=self._run_one, args=(place, action, finished), daemon=True).start()
        work.waiting = left

    def _next(self, finished: _Finished) -> tuple[int, Failure | None] | None:
        """Return the next result; None when the user interrupted twice and has waited long enough."""
        deadline: float | None = None
        while True:
            try:
                return finished.get(timeout=0.2)  # short, so that a signal's handler gets its turn
            except queue.Empty:
                if not self._interrupts.aborting.is_set():
                    continue
            deadline = deadline or time.monotonic() + _ABORT_PATIENCE_S
            if time.monotonic() > deadline:
                return None

    def _run_one(self, place: int, action: Action, finished: _Finished) -> None:
        begun = time.monotonic()
        self._tell(lambda: self._report.begun(action))
        failure: Failure | None = None
        try:
            self._do(action)
        except _AbortedError:
            failure = Failure(action, f"{action.replica} was interrupted before its end; what was begun is recorded")
        except _UnrecordedError as problem:
            failure = Failure(action, f"{action.replica} {problem}")
        except LlmgwctlError as problem:
            failure = Failure(action, self._secrets.redact(problem.message), self._secrets.redact(problem.detail))
        except Exception as problem:
            text = self._secrets.redact(f"{type(problem).__name__}: {problem}")
            failure = Failure(action, f"{action.replica}: an error of llmgwctl itself: {text}")
        elapsed_s = time.monotonic() - begun
        if failure is None:
            self._tell(lambda: self._report.done(action, elapsed_s))
        else:
            told = failure
            self._tell(lambda: self._report.failed(told, elapsed_s))
        finished.put((place, failure))

    def _tell(self, tell: Callable[[], None]) -> None:
        with self._lock:
            if not self._over:
                tell()

    # -- one action ------------------------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        before = action.before
        if self._unsaved is not None:
            raise _UnrecordedError("was not begun")
        if action.kind in (ActionKind.STOP, ActionKind.FORGET) and before:
            # What is to be forgotten may run all the same, where its folder was removed under it.
            self._stop(before)
        elif action.kind is ActionKind.MOVE and before and _apart(action, before):
            self._start(action)
            self._stop(before, forget=False)
        else:
            if before:
                self._stop(before)
            self._start(action)

    def _stop(self, record: ReplicaRecord, *, forget: bool = True) -> None:
        """Stop every member, the followers first: a leader that ends first makes them log false alarms."""
        for member in reversed(record.members):
            host = self._hosts.get(member.node)
            if host is not None:
                self._sessions.of(host).stop(member.launch, self._lineage)
        if forget:
            self._record(lambda: self._writer.remove(record), "was stopped, which could not be recorded")

    def _record(self, write: Callable[[], None], otherwise: str) -> None:
        """Change the state; `otherwise` says how things are where that fails. Refuses once the lock is let go."""
        with self._lock:
            if self._over:
                raise _AbortedError
            try:
                write()
            except StateError as problem:
                self._unsaved = self._unsaved or problem
                raise _UnrecordedError(otherwise) from None

    def _start(self, action: Action) -> None:
        """Record the intent, start every member, wait until the head serves, record the result."""
        secrets = [self._secrets.of_launch(launch) for launch in action.launches]
        digests = recorded_digests(action.launches[0], secrets[0], self._lineage)
        record = _record_of(action, self._orders[action.replica], digests)
        before = action.before
        runs_on = before if before and action.kind is ActionKind.MOVE and _apart(action, before) else None
        begins_again = before is not None and runs_on is None
        self._record(
            lambda: self._writer.put(record),
            "was stopped, and not started again" if begins_again else "was not started",
        )
        boot_ids = []
        begun = 0  # the members of which something may be on a host
        try:
            for rank, (place, launch) in enumerate(zip(action.placement, action.launches, strict=True)):
                order_of = StartOrder(
                    replica=action.replica,
                    member=rank,
                    model=action.model,
                    profile=action.profile,
                    lineage=self._lineage,
                    node=place.node,
                    launch=launch,
                    secrets=secrets[rank],
                    simulated=action.simulated,
                )
                begun = rank + 1
                boot_ids.append(self._sessions.of(self._hosts[place.node]).start(order_of))
            self._await(action)
            for place, launch in zip(action.placement, action.launches, strict=True):
                self._sessions.of(self._hosts[place.node]).mark_ready(launch)
        except LlmgwctlError as problem:
            # What a host refused is not begun, and what is there under that name is somebody else's.
            self._clean_up(action, record, begun - isinstance(problem, StartRefusedError), runs_on, problem)
            raise
        members = tuple(replace(m, boot_id=boot) for m, boot in zip(record.members, boot_ids, strict=True))
        ready = replace(record, members=members, starting=False)
        self._record(lambda: self._writer.put(ready), "was started and is ready, which could not be recorded")

    def _clean_up(
        self, action: Action, record: ReplicaRecord, begun: int, runs_on: ReplicaRecord | None, problem: LlmgwctlError
    ) -> None:
        """Stop the members that a failed start began, and forget it; what can't be cleaned up stays recorded.

        What was to be moved and still runs at its old place is recorded there again.
        A member whose start gave no answer counts as begun: a lost answer is no proof that nothing runs.
        """
        try:
            for place, launch in reversed(list(zip(action.placement, action.launches, strict=True))[:begun]):
                self._sessions.of(self._hosts[place.node]).stop(launch, self._lineage)
        except LlmgwctlError as second:
            problem.detail = f"{problem.detail}\nIt could not be cleaned up either: {second.message}".strip()
            return
        try:
            self._record(lambda: self._writer.put(runs_on) if runs_on else self._writer.remove(record), "")
        except _UnrecordedError:
            problem.detail = f"{problem.detail}\nIt was cleaned up, which could not be recorded.".strip()

    def _await(self, action: Action) -> None:
        """Wait until every member lives and the head serves. Raises StartError with the log's last lines."""
        begun = told = time.monotonic()
        poll_s = _FIRST_POLL_S
        limit_s = max(launch.startup_timeout_s for launch in action.launches)
        while True:
            state = ""
            for place, launch in zip(action.placement, action.launches, strict=True):
                session = self._sessions.of(self._hosts[place.node])
                status = session.status(launch)
                if status.life is not Life.ALIVE or status.restarts:
                    how = status.detail or "its process ended"
                    raise self._start_error(action, place.node, launch, f"ended before it was ready: {how}")
                state = state or session.serving(launch)
            if not state:
                return
            elapsed_s = time.monotonic() - begun
            if elapsed_s > limit_s:
                head = action.placement[0].node
                text = f"was not ready after {limit_s:g} s (startup_timeout): {state}"
                raise self._start_error(action, head, action.launches[0], text)
            if time.monotonic() - told >= _TELL_EVERY_S:
                told = time.monotonic()
                with self._lock:
                    self._report.waiting(action, state, elapsed_s)
            if self._interrupts.aborting.wait(poll_s):
                raise _AbortedError
            poll_s = min(poll_s * 1.3, _LONGEST_POLL_S)

    def _start_error(self, action: Action, node: str, launch: LaunchSpec, what: str) -> StartError:
        log = self._sessions.of(self._hosts[node]).log_tail(launch.root, launch.folder, LOG_LINES, LOG_BYTES)
        detail = f"The last lines of its log:\n{log.rstrip()}" if log.strip() else "It logged nothing."
        return StartError(f"{action.replica} on {node} {what}", detail)


def _apart(action: Action, record: ReplicaRecord) -> bool:
    """Whether the new place shares no host with the old one, so that it can start before the old one stops."""
    return not {p.node for p in action.placement} & {m.node for m in record.members}


def _record_of(action: Action, order: int, secret_digests: tuple[tuple[str, str], ...]) -> ReplicaRecord:
    members: Sequence[MemberRecord] = [
        MemberRecord(place.node, place.gpus, place.gpu_indices, launch)
        for place, launch in zip(action.placement, action.launches, strict=True)
    ]
    return ReplicaRecord(
        id=action.replica,
        model=action.model,
        profile=action.profile,
        engine=action.engine,
        members=tuple(members),
        owner=action.owner,
        model_class=action.model_class,
        order=order,
        started_at=now(),
        secret_digests=secret_digests,
        millicores=action.millicores,
        memory_mib=action.memory_mib,
        gpu_class=action.gpu_class,
        simulated=action.simulated,
        origin=action.origin,
        prevent_stop=action.prevent_stop,
        starting=True,
    )

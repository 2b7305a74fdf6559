"""What the planner decides, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmgwctl.diagnostics import Severity
from llmgwctl.domain.catalog import ModelClass, SecretRef
from llmgwctl.domain.desired import Reserve, Settings
from llmgwctl.domain.inventory import Gpu, Phase
from llmgwctl.domain.plan import ActionKind, Condition
from llmgwctl.domain.state import State
from llmgwctl.domain.tenancy import Quota
from llmgwctl.planner.options import PlanOptions

from .world import (
    EMPTY,
    LINEAGE,
    applied,
    brief,
    desired,
    host,
    lose,
    model,
    node,
    observation,
    plan_of,
    profile,
    running,
    see,
    unreachable,
)


def test_starts_the_minimum_and_a_second_plan_is_empty():
    """Every minimum replica gets GPUs of its class; nothing is left to do afterwards."""
    want = desired([host("a1")], [model("m", profile(gpus=2), count=3, most=4)])
    seen = observation(node("a1"))
    plan = plan_of(want, EMPTY, seen)
    assert brief(plan) == [("start", f"m/{i}", "a1", "new") for i in range(3)]
    assert [p.gpu_indices for a in plan.actions for p in a.placement] == [(0, 1), (2, 3), (4, 5)]
    state, seen = applied(plan, EMPTY, seen)
    again = plan_of(want, state, seen)
    assert again.empty
    assert again.count(ActionKind.KEEP) == 3


def test_the_highest_priority_profile_that_fits_wins():
    """A profile of lower priority is taken only where the higher one finds no room."""
    big, small = profile("big", 8, priority=10), profile("small", 1, priority=1)
    want = desired([host("a1"), host("a2")], [model("m", small, big, count=3)])
    plan = plan_of(want, EMPTY, observation(node("a1"), node("a2", gpus=4)))
    assert [(a.profile, a.placement[0].node) for a in plan.actions] == [("big", "a1"), ("small", "a2"), ("small", "a2")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"health": "gpu_lost"}, "sick"),
        ({"taken_by": "pid 4711 python3"}, "foreign"),
    ],
)
def test_gpus_that_are_sick_or_taken_are_left_alone(changes, reason):
    """A GPU with a fault, or with a process of somebody else, is never given out."""
    seen = node("a1", gpus=2)
    seen = replace(seen, gpus=(replace(seen.gpus[0], **changes), seen.gpus[1]))
    plan = plan_of(desired([host("a1")], [model("m", count=2)]), EMPTY, observation(seen))
    assert [a.placement[0].gpu_indices for a in plan.actions] == [(1,)], reason
    assert [s.replica for s in plan.shortfalls] == ["m/1"]


def test_reserved_gpus_cores_and_memory_are_left_alone():
    """What a host reserves, by UUID or by index, is not given out."""
    reserve = Reserve(millicores=60000, memory_mib=500 * 1024, gpus=("0", "GPU-a1-1"))
    want = desired(
        [host("a1", reserve=reserve)],
        [model("cores", profile(millicores=8000)), model("m", profile()), model("ram", profile(memory_mib=20 * 1024))],
    )
    plan = plan_of(want, EMPTY, observation(node("a1", gpus=4)))
    assert [(a.replica, a.placement[0].gpu_indices) for a in plan.actions] == [("m/0", (2,))]
    assert {s.replica: s.causes[0].code for s in plan.shortfalls} == {
        "cores/0": "fits_no_node",
        "ram/0": "fits_no_node",
    }


def test_a_node_that_does_not_report_memory_is_not_excluded():
    """Unknown memory is no reason against a node."""
    want = desired([host("a1")], [model("m", profile(memory_mib=10**6))])
    assert brief(plan_of(want, EMPTY, observation(node("a1", memory_mib=None)))) == [("start", "m/0", "a1", "new")]


def test_node_selector_needs_every_label():
    """A profile goes only where all its labels are."""
    want = desired([host("a1"), host("a2")], [model("m", profile(node_selector=(("nvme", "yes"), ("zone", "b"))))])
    seen = observation(node("a1", labels=(("zone", "b"),)), node("a2", labels=(("nvme", "yes"), ("zone", "b"))))
    assert brief(plan_of(want, EMPTY, seen)) == [("start", "m/0", "a2", "new")]


def test_a_multi_node_replica_stays_in_one_fabric():
    """Members are on distinct nodes of one fabric; a fabric that is too small is not mixed with another."""
    want = desired([host(f"a{i}") for i in range(1, 5)], [model("m", profile(gpus=8, nodes=2))])
    seen = observation(
        node("a1", fabric="x"), node("a2", fabric="y"), node("a3", fabric="y"), node("a4", gpus=4, fabric="x")
    )
    plan = plan_of(want, EMPTY, seen)
    assert brief(plan) == [("start", "m/0", "a2,a3", "new")]
    head, follower = plan.actions[0].launches
    assert "--headless" in follower.argv
    assert "--headless" not in head.argv
    assert head.ports > 1


def test_an_engine_that_was_looked_for_and_not_found_is_not_placed():
    """A host without the engine takes no replica of it; a host of which nothing is known may."""
    want = desired([host("a1"), host("a2")], [model("m", profile(gpus=8), count=2)])
    found = {"python3": "/usr/bin/python3", "vllm": "", "sglang": "/usr/bin/sglang"}
    seen = observation(node("a1", commands_found=found), node("a2"))
    assert brief(plan_of(want, EMPTY, seen)) == [("start", "m/0", "a2", "new")]
    only = observation(node("a1", commands_found=found), node("a2", gpus=0))
    assert plan_of(want, EMPTY, only).shortfalls[0].causes[0].code == "preflight"


def test_ports_keep_out_of_the_ephemeral_range():
    """A configured port that the kernel may give to an outgoing connection is not used."""
    settings = Settings(ports_from=32766, ports_to=32770)
    want = desired([host("a1")], [model("m", count=3)], settings=settings)
    plan = plan_of(want, EMPTY, observation(node("a1", ports_in_use=(22,))))
    assert [a.placement[0].port for a in plan.actions] == [32766, 32767]
    assert plan.shortfalls[0].causes[0].code == "ports"


def test_a_fixed_port_is_taken_once_per_host():
    """Two replicas with a fixed port go to two hosts."""
    want = desired([host("a1"), host("a2")], [model("m", profile(port=9000), count=3)])
    plan = plan_of(want, EMPTY, observation(node("a1"), node("a2")))
    assert sorted((a.placement[0].node, a.placement[0].port) for a in plan.actions) == [("a1", 9000), ("a2", 9000)]
    assert plan.shortfalls[0].causes[0].code == "ports"


def test_pretended_gpus_are_for_the_simulated_engine():
    """A real engine never gets a GPU that isn't there."""
    pretended = Gpu(0, "SIM-a1-0", "Simulated demo", "demo", 1024, pretended=True)
    want = desired(
        [host("a1")], [model("real", profile(gpu_class="demo")), model("sim", profile(gpu_class="demo", engine="sim"))]
    )
    plan = plan_of(want, EMPTY, observation(replace(node("a1", 0), gpus=(pretended,))))
    assert [a.replica for a in plan.actions] == ["sim/0"]
    assert plan.shortfalls[0].causes[0].code == "fits_no_node"


def test_an_unreachable_host_is_deferred_and_nothing_is_started_twice():
    """What is recorded on a host that doesn't answer counts as running."""
    want = desired([host("a1"), host("a2")], [model("m", profile(gpus=8), count=1)])
    state, seen = running(want, node("a1"), node("a2"))
    seen = observation(unreachable(seen.nodes[0]), seen.nodes[1])
    plan = plan_of(want, state, seen)
    assert brief(plan) == [("defer", "m/0", "a1", "node_unreachable")]
    assert plan.drift == ()
    assert plan.empty


def test_a_replica_below_a_folder_that_is_not_looked_at_is_deferred():
    """Another login user, or folders that can't be read, must not make a running replica look gone."""
    want = desired([host("a1"), host("a2")], [model("m", profile(gpus=8))])
    state, seen = running(want, node("a1"), node("a2"))
    blind = lose(seen, "m/0")
    for changes in ({"replica_root": "/home/llm/.local/state/llmgwctl/replicas"}, {"replicas_hidden": True}):
        nodes = [replace(n, **changes) if n.name == "a1" else n for n in blind.nodes]
        assert brief(plan_of(want, state, observation(*nodes))) == [("defer", "m/0", "a1", "node_unreachable")]


def test_a_host_that_is_no_longer_declared_is_gone():
    """Taking a host out of the declaration lets its replicas start elsewhere."""
    want = desired([host("a1"), host("a2")], [model("m", profile(gpus=8))])
    state, seen = running(want, node("a1"), node("a2"))
    want = desired([host("a2")], [model("m", profile(gpus=8))])
    assert brief(plan_of(want, state, observation(seen.nodes[1]))) == [("start", "m/0", "a2", "node_gone")]


def test_a_vanished_process_is_started_again_in_its_place():
    """The same GPUs and port are used, so that clients find it again."""
    want = desired([host("a1")], [model("m", count=2), model("n", count=1)])
    state, seen = running(want, node("a1"))
    plan = plan_of(want, state, lose(seen, "m/1"))
    assert brief(plan) == [("start", "m/1", "a1", "process_gone")]
    before = state.replicas["m/1"].members[0]
    assert (plan.actions[0].placement[0].gpus, plan.actions[0].placement[0].port) == (before.gpus, before.port)
    assert plan.drift[0].condition is Condition.GONE


def test_a_failed_process_is_started_again():
    """A process that its supervisor gave up is started anew, with its last words as the reason."""
    want = desired([host("a1")], [model("m")])
    state, seen = running(want, node("a1"))
    plan = plan_of(want, state, see(seen, "m/0", phase=Phase.FAILED, detail="killed by signal 9"))
    assert brief(plan) == [("start", "m/0", "a1", "failed")]
    assert "killed by signal 9" in plan.actions[0].reason.text


def test_a_process_that_left_its_folder_is_gone_and_cleaned_up():
    """A reboot without systemd, or a kill of all of it, is no failure; what is not wanted any more is stopped."""
    want = desired([host("a1")], [model("m")])
    state, seen = running(want, node("a1"))
    seen = see(seen, "m/0", phase=Phase.FAILED, detail="its processes are gone", vanished=True)
    plan = plan_of(want, state, seen)
    assert brief(plan) == [("start", "m/0", "a1", "process_gone")]
    assert plan.drift[0].condition is Condition.GONE
    assert brief(plan_of(desired([host("a1")], []), state, seen)) == [("stop", "m/0", "a1", "not_wanted")]


@pytest.mark.parametrize("lost", ["a1", "a2"])
def test_a_replica_that_is_half_gone_is_stopped_not_forgotten(lost):
    """Forgetting would leave its other member running."""
    spread = model("m", profile(gpus=8, nodes=2))
    hosts = [host("a1", fabric="f"), host("a2", fabric="f")]
    want = desired(hosts, [spread])
    state, seen = running(want, node("a1", fabric="f"), node("a2", fabric="f"))
    nodes = [replace(n, replicas=()) if n.name == lost else n for n in seen.nodes]
    unwanted = plan_of(desired(hosts, []), state, observation(*nodes))
    assert [(a.kind, a.replica) for a in unwanted.actions] == [(ActionKind.STOP, "m/0")]
    undeclared = desired([h for h in hosts if h.name != lost], [])
    plan = plan_of(undeclared, state, observation(*(n for n in seen.nodes if n.name != lost)))
    assert [(a.kind, a.replica) for a in plan.actions] == [(ActionKind.STOP, "m/0")]


def test_a_process_between_two_lives_is_started_at_once():
    """A process that ended, and that its supervisor would restart in a moment, is told and repaired by an apply."""
    want = desired([host("a1")], [model("m")])
    state, seen = running(want, node("a1"))
    ended = see(seen, "m/0", phase=Phase.STARTING, detail="killed by signal 9; it is restarted")
    plan = plan_of(want, state, ended)
    assert brief(plan) == [("start", "m/0", "a1", "failed")]
    assert "killed by signal 9" in plan.drift[0].text


def test_a_restart_by_the_supervisor_is_told_once():
    """A restart is drift until an apply has recorded it."""
    want = desired([host("a1")], [model("m")])
    state, seen = running(want, node("a1"))
    seen = see(seen, "m/0", restarts=1)
    plan = plan_of(want, state, seen)
    assert brief(plan) == []
    assert [d.condition for d in plan.drift] == [Condition.RESTARTED]
    assert not plan.empty
    state, seen = applied(plan, state, seen)
    assert plan_of(want, state, seen).empty


def test_a_changed_launch_is_replaced_in_place():
    """Other arguments mean another process, on the same GPUs and port."""
    want = desired([host("a1")], [model("m", profile(args=("--seed", "1")))])
    state, seen = running(want, node("a1"))
    want = desired([host("a1")], [model("m", profile(args=("--seed", "2")))])
    plan = plan_of(want, state, seen)
    assert brief(plan) == [("replace", "m/0", "a1", "launch_changed")]
    assert plan.actions[0].placement[0].gpus == state.replicas["m/0"].members[0].gpus


def test_a_change_that_finds_no_room_leaves_what_runs():
    """A replica is not stopped for a new definition that cannot start."""
    want = desired([host("a1")], [model("m", profile(gpus=4))])
    state, seen = running(want, node("a1"))
    want = desired([host("a1")], [model("m", profile(gpus=16))])
    plan = plan_of(want, state, seen)
    assert [(a.kind, a.replica) for a in plan.actions] == [(ActionKind.KEEP, "m/0")]
    assert plan.shortfalls[0].causes[0].code == "fits_no_node"


def test_a_label_or_class_change_alone_moves_nothing():
    """Only what makes it another process replaces a replica."""
    want = desired([host("a1")], [model("m", profile(priority=1), priority=0)])
    state, seen = running(want, node("a1"))
    want = desired([host("a1")], [model("m", profile(priority=9, startup_timeout_s=5.0), priority=7)])
    assert plan_of(want, state, seen).empty


def test_the_newest_replica_goes_first():
    """Scaling down stops by the order of starts, not by the index."""
    want = desired([host("a1")], [model("m", count=3)])
    state, seen = running(want, node("a1"))
    plan = plan_of(want, state, lose(seen, "m/0"))
    state, seen = applied(plan, state, lose(seen, "m/0"))
    smaller = desired([host("a1")], [model("m", count=2)])
    assert brief(plan_of(smaller, state, seen)) == [("stop", "m/0", "a1", "scaled_down")]


def test_a_model_that_is_gone_is_stopped_and_its_room_used():
    """The start that needs the room comes after the stop, and says so."""
    state, seen = running(desired([host("a1")], [model("old", profile(gpus=8))]), node("a1"))
    want = desired([host("a1")], [model("new", profile(gpus=8))])
    plan = plan_of(want, state, seen)
    assert brief(plan) == [("stop", "old/0", "a1", "not_wanted"), ("start", "new/0", "a1", "new")]
    assert plan.actions[1].waits_for == ("old/0",)


def test_a_gone_replica_of_an_unwanted_model_is_forgotten():
    """Nothing is left to stop, so only the record goes."""
    want = desired([host("a1")], [model("m")])
    state, seen = running(want, node("a1"))
    plan = plan_of(desired([host("a1")], []), state, lose(seen, "m/0"))
    assert brief(plan) == [("forget", "m/0", "a1", "not_wanted")]


def test_an_unwanted_replica_on_an_unreachable_host_waits():
    """It can't be stopped now, and its name is not used again meanwhile."""
    want = desired([host("a1"), host("a2")], [model("m", count=2)])
    state, seen = running(want, node("a1"), node("a2"))
    seen = observation(unreachable(seen.nodes[0]), seen.nodes[1])
    plan = plan_of(desired([host("a1"), host("a2")], []), state, seen)
    assert {a[0] for a in brief(plan)} <= {"defer", "stop"}
    assert ("defer", "m/0", "a1", "node_unreachable") in brief(plan)


def test_cordon_keeps_and_places_nothing_new_and_drain_moves():
    """`schedulable: false` keeps what runs; `drain: true` moves it where there is room."""
    want = desired([host("a1"), host("a2")], [model("m", profile(gpus=8))])
    state, seen = running(want, node("a1"), node("a2"))
    cordoned = desired([host("a1", schedulable=False), host("a2")], [model("m", profile(gpus=8), count=2)])
    assert brief(plan_of(cordoned, state, seen)) == [("start", "m/1", "a2", "new")]
    drained = desired([host("a1", drain=True), host("a2")], [model("m", profile(gpus=8))])
    assert brief(plan_of(drained, state, seen)) == [("move", "m/0", "a2", "drained")]


def test_leftovers_of_ours_are_stopped_and_what_fits_is_taken_back():
    """A lost record is rebuilt from what runs as declared; a replica recorded elsewhere is a stray."""
    want = desired([host("a1")], [model("m", count=2)])
    state, seen = running(want, node("a1"))
    lost = State(LINEAGE, 5, {"m/0": state.replicas["m/0"]})
    plan = plan_of(want, lost, seen)
    assert brief(plan) == []
    assert [(d.replica, d.condition) for d in plan.drift] == [("m/1", Condition.ORPHANED)]
    restored, _ = applied(plan, lost, seen)
    assert set(restored.replicas) == {"m/0", "m/1"}
    other = see(seen, "m/1", launch_digest="another")
    assert ("stop", "m/1", "a1", "interrupted") in brief(plan_of(want, lost, other))


def test_another_states_replicas_are_left_alone():
    """A replica with another lineage is told of, and its GPUs are not free."""
    want = desired([host("a1")], [model("m", profile(gpus=8))])
    _, seen = running(want, node("a1"))
    seen = see(seen, "m/0", lineage="someone-else")
    plan = plan_of(want, State("mine", 1), seen)
    assert brief(plan) == []
    assert "another state" in plan.diagnostics[0].summary
    assert plan.shortfalls


def test_a_protected_model_is_not_stopped():
    """prevent_stop makes a plan that stops it one that may not be applied."""
    want = desired([host("a1")], [model("m", prevent_stop=True)])
    state, seen = running(want, node("a1"))
    plan = plan_of(desired([host("a1")], []), state, seen)
    assert [d.severity.value for d in plan.diagnostics] == ["error"]
    freed, seen = applied(plan_of(desired([host("a1")], [model("m")]), state, seen), state, seen)
    assert plan_of(desired([host("a1")], []), freed, seen).diagnostics == ()


def test_a_changed_secret_replaces_and_an_unknown_one_does_not():
    """Only a digest that is known now and differs counts."""
    want = desired([host("a1")], [model("m", profile(env=(("HF_TOKEN", SecretRef("from_env", ("HF",))),)))])
    state, seen = running(want, node("a1"))
    record = replace(state.replicas["m/0"], secret_digests=(("HF_TOKEN", "old"),))
    state = State(LINEAGE, 1, {"m/0": record})
    assert plan_of(want, state, seen).empty
    assert plan_of(want, state, seen, PlanOptions(secret_digests={"from_env HF": "old"})).empty
    plan = plan_of(want, state, seen, PlanOptions(secret_digests={"from_env HF": "new"}))
    assert brief(plan) == [("replace", "m/0", "a1", "launch_changed")]


def test_fill_starts_headroom_in_free_room_only():
    """Replicas between min and max start on idle capacity, after every minimum."""
    models = [model("big", profile(gpus=4), count=1), model("more", profile(gpus=2), count=1, most=9)]
    want = desired([host("a1")], models)
    plan = plan_of(want, EMPTY, observation(node("a1")), PlanOptions(fill=True))
    assert brief(plan) == [
        ("start", "big/0", "a1", "new"),
        ("start", "more/0", "a1", "new"),
        ("start", "more/1", "a1", "headroom"),
    ]
    assert [(h.model, h.running, h.max, h.code) for h in plan.headroom_stops] == [("more", 2, 9, "no_free_capacity")]


def test_order_of_entries_never_matters():
    """The same fleet in another order gives the same plan."""
    hosts = [host(f"a{i}") for i in range(1, 5)]
    models = [model(f"m{i}", profile(gpus=1 + i % 4), count=1 + i % 3) for i in range(8)]
    nodes = [node(f"a{i}", gpus=4 + i % 2) for i in range(1, 5)]
    first = plan_of(desired(hosts, models), EMPTY, observation(*nodes))
    second = plan_of(desired(hosts[::-1], models[::-1]), EMPTY, observation(*nodes[::-1]))
    assert first == second


def test_targets_leave_the_others_alone():
    """Only the named models change; what others hold is still taken."""
    want = desired([host("a1")], [model("m", profile(gpus=4)), model("n", profile(gpus=4))])
    plan = plan_of(want, EMPTY, observation(node("a1")), PlanOptions(targets=frozenset({"n"})))
    assert brief(plan) == [("start", "n/0", "a1", "new")]


def test_a_failed_replica_gives_no_cores_back():
    """What failed holds none, so cleaning it up makes no room for more than the host has."""
    want = desired([host("a1")], [model("old", profile(millicores=40000))])
    state, seen = running(want, node("a1"))
    want = desired([host("a1")], [model("new", profile(millicores=40000), count=2)])
    plan = plan_of(want, state, see(seen, "old/0", phase=Phase.FAILED))
    assert brief(plan) == [("stop", "old/0", "a1", "not_wanted"), ("start", "new/0", "a1", "new")]
    assert [s.replica for s in plan.shortfalls] == ["new/1"]


def test_destroy_stops_everything():
    """Everything recorded is stopped; nothing is started."""
    want = desired([host("a1")], [model("m", count=2)])
    state, seen = running(want, node("a1"))
    plan = plan_of(want, state, seen, PlanOptions(destroy=True))
    assert [a[:2] for a in brief(plan)] == [("stop", "m/0"), ("stop", "m/1")]


def test_an_interrupted_start_is_found_out_by_looking():
    """An intent without a result is found out by looking: running as told is kept, nothing there is started."""
    want = desired([host("a1")], [model("m")])
    state, seen = running(want, node("a1"))
    intent = State(LINEAGE, 1, {"m/0": replace(state.replicas["m/0"], starting=True)})
    assert brief(plan_of(want, intent, seen)) == []
    assert brief(plan_of(want, intent, lose(seen, "m/0"))) == [("start", "m/0", "a1", "interrupted")]


def test_members_meet_at_the_heads_host_where_it_listens_everywhere():
    """0.0.0.0 is no address to go to; the host's is, and its name in the declaration may be known to nobody."""
    hosts = [host("a1", listen="0.0.0.0", fabric="f"), host("a2", listen="0.0.0.0", fabric="f")]
    want = desired(hosts, [model("m", profile(gpus=8, nodes=2))])
    plan = plan_of(want, EMPTY, observation(node("a1", fabric="f"), node("a2", fabric="f")))
    heads = {launch.argv[launch.argv.index("--master-addr") + 1] for launch in plan.actions[0].launches}
    assert heads == {"10.0.0.1"}


def test_another_states_replica_of_that_name_is_kept_away_from():
    """Folder and unit would be the same: another host is chosen, and without one the reason is told."""
    want = desired([host("a1"), host("a2")], [model("m")])
    _, seen = running(want, node("a1"), node("a2"))
    theirs = [replace(n, replicas=tuple(replace(r, lineage="theirs") for r in n.replicas)) for n in seen.nodes]
    theirs = [replace(n, gpus=node(n.name).gpus) for n in theirs]
    plan = plan_of(want, EMPTY, observation(*theirs))
    assert brief(plan) == [("start", "m/0", "a2", "new")]
    short = plan_of(desired([host("a1")], [model("m")]), EMPTY, observation(theirs[0]))
    assert "another state runs a replica called m/0 on a1" in " ".join(c.text for c in short.shortfalls[0].causes)


def test_what_hangs_is_a_warning_for_an_apply_records_nothing():
    """A plan after an apply has no changes, also while an engine hangs."""
    want = desired([host("a1")], [model("m")])
    state, seen = running(want, node("a1"))
    plan = plan_of(want, state, see(seen, "m/0", phase=Phase.UNHEALTHY))
    assert plan.empty
    assert any("m/0" in d.summary and "--replace" in d.detail for d in plan.diagnostics)


def test_one_machine_under_two_names_refuses_the_plan():
    """By its identity or by a GPU's: what is on it would be given out twice."""
    want = desired([host("a1"), host("a2")], [model("m")])
    twice = [replace(node("a1"), machine="boot/id/h"), replace(node("a2"), machine="boot/id/h")]
    shared = [node("a1"), replace(node("a2"), gpus=node("a1").gpus)]
    for nodes in (twice, shared):
        errors = [d for d in plan_of(want, EMPTY, observation(*nodes)).diagnostics if d.severity is Severity.ERROR]
        assert [("a1" in d.summary, "a2" in d.summary) for d in errors] == [(True, True)]


def test_gpus_that_vanish_or_fall_ill_under_a_replica_are_told():
    """It is left running, and named."""
    want = desired([host("a1")], [model("m", profile(gpus=2))])
    state, seen = running(want, node("a1"))
    (there,) = seen.nodes
    sick = replace(there, gpus=(replace(there.gpus[0], health="gpu_lost"), *there.gpus[2:]))
    plan = plan_of(want, state, observation(sick))
    told = " ".join(d.summary for d in plan.diagnostics)
    assert brief(plan) == []
    assert "no longer shows: GPU-a1-1" in told
    assert "GPU-a1-0 (gpu_lost)" in told


def test_orgs_that_are_guaranteed_more_than_there_is_are_warned_of():
    """By GPUs of any class, and by class."""
    quotas = (
        Quota("org:a", guarantee=(("gpus", 6),)),
        Quota("org:b", guarantee=(("gpu_classes.h100-80gb", 9), ("gpus", 3))),
    )
    plan = plan_of(desired([host("a1")], [], quotas=quotas), EMPTY, observation(node("a1")))
    told = [d.summary for d in plan.diagnostics]
    assert any("9 GPUs, and the hosts have 8" in t for t in told)
    assert any("9 GPUs of h100-80gb, and the hosts have 8" in t for t in told)


def test_the_order_of_profiles_changes_no_byte():
    """Names break ties, in the causes too."""
    first, second = profile("p0", gpus=9), profile("p1", gpus=9)
    plans = [
        plan_of(desired([host("a1")], [model("m", *order)]), EMPTY, observation(node("a1")))
        for order in ((first, second), (second, first))
    ]
    assert plans[0].shortfalls == plans[1].shortfalls
    assert len(plans[0].shortfalls[0].causes) == 2


def test_a_host_that_is_called_otherwise_keeps_its_replicas():
    """A new name in the declaration is no new machine: nothing stops, and the record follows."""
    want = desired([host("a1")], [model("m", count=2)])
    state, seen = running(want, node("a1"))
    (there,) = seen.nodes
    renamed = desired([replace(want.hosts[0], name="b1")], [model("m", count=2)])
    seen = observation(replace(there, name="b1"))
    plan = plan_of(renamed, state, seen)
    assert brief(plan) == []
    assert all("is now called b1" in d.text for d in plan.drift)
    state, seen = applied(plan, state, seen)
    assert {m.node for r in state.replicas.values() for m in r.members} == {"b1"}
    assert plan_of(renamed, state, seen).empty


def test_what_is_wanted_is_packed_together_before_anybody_goes_without():
    """A class that no host has is no reason to pack a large replica late; a lesser one doesn't get its room."""
    critical = model("o", profile("p0", 3), count=2, model_class=ModelClass.CRITICAL)
    choosy = model("p", profile("p0", 4), profile("p1", 1, gpu_class="l4-24gb", priority=1))
    lesser = model("m", profile("p0", 4), model_class=ModelClass.OPPORTUNISTIC)
    want = desired([host("a1"), host("a3")], [critical, choosy, lesser])
    nodes = (node("a1", 6), node("a3", 4))
    plan = plan_of(want, EMPTY, observation(*nodes))
    assert {a.replica for a in plan.actions} == {"o/0", "o/1", "p/0"}
    assert [s.replica for s in plan.shortfalls] == ["m/0"]
    state, seen = running(want, *nodes)
    assert brief(plan_of(want, state, lose(seen, "o/0"))) == [("start", "o/0", "a1", "process_gone")]

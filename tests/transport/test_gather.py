"""The gatherer: every host has a row, whatever the others do."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from llmgwctl.domain.desired import Host
from llmgwctl.domain.inventory import Node
from llmgwctl.errors import LlmgwctlError
from llmgwctl.hosts.gather import gather

AT = "2026-01-01T00:00:00Z"


def hosts(*names: str) -> list[Host]:
    return [Host(name, name, labels=(("zone", "a"),), fabric="ib-1") for name in names]


def test_rows_are_sorted_and_complete():
    """Order of the answer does not depend on the order of the hosts; the time is what was handed in."""
    seen: list[tuple[int, int]] = []
    found = gather(
        hosts("c", "a", "b"),
        lambda h: Node(h.name),
        workers=2,
        deadline_s=5,
        taken_at=AT,
        progress=lambda done, of: seen.append((done, of)),
    )
    assert found.taken_at == AT
    assert [n.name for n in found.nodes] == ["a", "b", "c"]
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_failures_become_rows_with_the_reason():
    """Known and unexpected failures are rows: unreachable, with labels and fabric kept, without a traceback."""

    def probe(host: Host) -> Node:
        if host.name == "a":
            raise LlmgwctlError("the plain reason")
        raise ZeroDivisionError("by zero")

    found = gather(hosts("a", "b"), probe, workers=2, deadline_s=5, taken_at=AT)
    assert [n.error for n in found.nodes] == ["the plain reason", "unexpected ZeroDivisionError: by zero"]
    assert all(not n.reachable and n.labels == (("zone", "a"),) and n.fabric == "ib-1" for n in found.nodes)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("a (llm@10.0.0.1:22) does not answer: down, or away.", "llm@10.0.0.1:22 does not answer: down, or away"),
        ("a ([::1]:22): there is no key. Use ssh-add.", "[::1]:22: there is no key. Use ssh-add"),
        ("a: the probe printed nothing.", "the probe printed nothing"),
        ("The jump host can't be used: b (llm@b:22) is away.", "the jump host can't be used: b (llm@b:22) is away"),
        ("ab (llm@b:22) is away...", "ab (llm@b:22) is away..."),
        ("a: it said \x1b[31mred\x1b[0m\x07\nand \u202emore.", "it said red? and ?more"),
    ],
)
def test_a_reason_fits_into_a_sentence_about_its_host(message: str, reason: str):
    """It tells the host's name no second time, ends without a full stop, and is one line that steers no terminal."""

    def probe(host: Host) -> Node:
        raise LlmgwctlError(message)

    found = gather(hosts("a"), probe, workers=1, deadline_s=5, taken_at=AT)
    assert found.nodes[0].error == reason


def test_hung_hosts_do_not_starve_the_others():
    """More hung hosts than workers: each is given up at its deadline, and its worker is replaced."""
    release = threading.Event()

    def probe(host: Host) -> Node:
        if host.name.startswith("hung"):
            release.wait(60)
        return Node(host.name)

    names = [f"hung-{n}" for n in range(6)] + [f"well-{n}" for n in range(20)]
    found = gather(hosts(*names), probe, workers=3, deadline_s=0.3, taken_at=AT)
    release.set()
    assert {n.error for n in found.nodes if n.name.startswith("hung")} == {"no answer within 0.3 s"}
    assert all(n.reachable for n in found.nodes if n.name.startswith("well"))


def test_a_hung_probe_does_not_hold_up_the_end_of_the_process():
    """The process ends by itself although a probe's thread sleeps for an hour."""
    code = (
        "import time; from llmgwctl.domain.desired import Host; from llmgwctl.hosts.gather import gather\n"
        "o = gather([Host('a', 'a')], lambda h: time.sleep(3600), workers=1, deadline_s=0.2, taken_at='t')\n"
        "print(o.nodes[0].error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "no answer within 0.2 s\n"


def test_no_hosts():
    """An empty fleet is an empty observation."""
    assert gather([], lambda h: Node(h.name), workers=5, deadline_s=1, taken_at=AT).nodes == ()

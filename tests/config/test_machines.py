"""One machine has one name, whichever way its second one is written."""

import pytest

from .support import desired, problems

SAME = {
    "two locals": ("connection: local", "connection: local", "", "both are this one"),
    "the same address": ("address: x", "address: x", "", "both are reached at x, port 22"),
    "the name is the address": ("address: b", "user: u", "", "both are reached at b, port 22"),
    "a name in capitals": ("address: Gpu.Example.org", "address: gpu.example.ORG", "", "at gpu.example.org, port 22"),
    "a dot at the end": ("address: gpu.example.org", "address: gpu.example.org.", "", "port 22"),
    "two forms of IPv6": ("address: '::1'", "address: '0:0:0:0:0:0:0:1'", "", "at ::1, port 22"),
    "the default port": ("address: x", "{address: x, port: 22}", "", "port 22"),
    "the settings' port": ("address: x", "{address: x, port: 2222}", "settings: {ssh: {port: 2222}}", "port 2222"),
    "the same jump": ("{address: x, jump: u@j}", "{address: x, jump: u@j}", "", "at x, port 22 through u@j"),
    "another user": ("{address: x, user: a}", "{address: x, user: b}", "", "port 22"),
}
OTHER = {
    "another port": ("address: x", "{address: x, port: 2222}", ""),
    "the settings' port is not its own": ("address: x", "{address: x, port: 22}", "settings: {ssh: {port: 2222}}"),
    "another jump": ("{address: x, jump: i}", "{address: x, jump: j}", ""),
    "no jump": ("address: x", "{address: x, jump: j}", ""),
    "local and over SSH": ("connection: local", "address: x", ""),
    "simulated": ("{connection: simulated, address: x}", "{connection: simulated, address: x}", ""),
}


def hosts(first, second, rest):
    keys = [text if text.startswith("{") else f"{{{text}}}" for text in (first, second)]
    return f"hosts: [{{name: a, <<: {keys[0]}}}, {{name: b, <<: {keys[1]}}}]\n{rest}\n"


@pytest.mark.parametrize("case", SAME)
def test_one_machine_under_two_names_is_refused(case):
    """Its GPUs would be given out twice; both places are named."""
    *written, words = SAME[case]
    (line,) = problems(hosts(*written))
    assert line.startswith("a.yaml:1:")
    assert "error: Host `b`: it is the same machine as the host `a`, at a.yaml:1:9: " in line
    assert words in line


@pytest.mark.parametrize("case", OTHER)
def test_what_may_be_another_machine_is_not(case):
    """Another port or jump leads elsewhere, and each simulated host is one by itself."""
    assert len(desired(hosts(*OTHER[case])).hosts) == 2


def test_the_place_is_what_was_written_and_not_the_order_of_files():
    """The second by name is told at its address, wherever it stands."""
    two = "hosts:\n  - name: b\n    address: x\n", "hosts:\n  - name: a\n    address: x\n"
    (line,) = problems(*two)
    assert line.startswith("a.yaml:3:14: error: Host `b`: it is the same machine as the host `a`, at b.yaml:2:5")

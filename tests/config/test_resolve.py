"""Every rule of the catalog, the hosts and the settings: what is refused, what is filled in."""

# ruff: noqa: E501 (a case a line reads better than a case broken up)

from pathlib import Path

import pytest

from llmgwctl.config.documents import load
from llmgwctl.config.plain import plain_model
from llmgwctl.config.resolve import resolve
from llmgwctl.config.runtime import model_from_mapping, with_runtime
from llmgwctl.domain.catalog import ModelClass, Origin, Scaling, SecretRef
from llmgwctl.domain.desired import Connection, Simulate, SimulatedGpus, SimulatedReplica
from llmgwctl.errors import ConfigError

from .support import MODEL, desired, model_with, problems, warnings


def model(lines="", profile=""):
    return desired(model_with(lines, profile)).models[0]


def profile_of(text):
    return model(profile=text).profiles[0]


def test_defaults_of_a_model():
    """What is left out is filled in as the contract says."""
    found = model()
    profile = found.profiles[0]
    assert (found.scaling, found.model_class, found.owner, found.priority) == (
        Scaling(0, 1),
        ModelClass.OPPORTUNISTIC,
        None,
        0,
    )
    assert (profile.engine, profile.tp, profile.pp, profile.gpus_per_node, profile.nodes) == ("vllm", 1, 1, 1, 1)
    assert (profile.weight, profile.startup_timeout_s, profile.memory_mib, profile.millicores) == (1.0, 1200.0, 0, 0)
    assert str(found.at) == "a.yaml:2:5"


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ("{min: -3}", Scaling(0, 1)),
        ("{min: 3}", Scaling(3, 3)),
        ("{min: 3, max: 0}", Scaling(3, 3)),
        ("{max: 0}", Scaling(0, 1)),
        ("{min: 1, max: 4}", Scaling(1, 4)),
        ("", Scaling(0, 1)),
    ],
)
def test_scaling_defaults(scaling, expected):
    """A negative min is 0; a max that is absent or 0 is min, at least 1."""
    assert model(f"scaling: {scaling}").scaling == expected


def test_class_follows_the_minimum():
    """Without a class a model is standard where it has a minimum, else opportunistic; a written one wins."""
    assert model("scaling: {min: 1}").model_class is ModelClass.STANDARD
    assert model("class: critical").model_class is ModelClass.CRITICAL


@pytest.mark.parametrize(
    ("keys", "gpus"),
    [
        ("tp: 4", 4),
        ("tp: 4, pp: 2", 8),
        ("tp: 4, pp: 2, nodes: 2", 4),
        ("tp: 4, pp: 2, nodes: 2, gpus_per_node: 4", 4),
        ("tp: 0, nodes: -1", 1),
    ],
)
def test_gpus_per_node_is_worked_out(keys, gpus):
    """Without gpus_per_node it is tp x pp / nodes; sizes of 0 or less are 1."""
    assert profile_of(keys).gpus_per_node == gpus


@pytest.mark.parametrize(
    "keys", ["weight: 0", "weight: -1", "startup_timeout: 0", "startup_timeout: -5s", "startup_timeout: 0s"]
)
def test_nothing_or_less_means_the_default(keys):
    """Weights and time-outs of 0 or less are their defaults."""
    assert (profile_of(keys).weight, profile_of(keys).startup_timeout_s) == (1.0, 1200.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("20m", 1200),
        ("2h", 7200),
        ("1h30m", 5400),
        ("0.5s", 0.5),
        ("1d", 86400),
    ],
)
def test_durations(text, seconds):
    """Durations have units and may be joined."""
    assert profile_of(f"startup_timeout: {text}").startup_timeout_s == seconds


def test_latencies_are_whole_milliseconds():
    """An SLO is kept exactly, and what is finer than a millisecond is refused, not rounded."""
    found = model("slo: {ttft_p99: 1.5s, tpot_p99: 40ms}")
    assert (found.slo.ttft_p99_ms, found.slo.tpot_p99_ms) == (1500, 40)
    (line,) = problems(model_with("slo: {ttft_p99: 1.5ms}"))
    assert line.startswith("a.yaml:4:21: error: Model `m`: slo.ttft_p99 is 1.5ms.")


def test_amounts_are_exact():
    """0.1 and 0.2 of a core are within 0.3; GiB become MiB, cores become thousandths."""
    parts = [profile_of(f"cpu_cores: {c}, min_memory_gb: {c}") for c in ("0.1", "0.2", "0.3")]
    assert [p.millicores for p in parts] == [100, 200, 300]
    assert parts[0].memory_mib + parts[1].memory_mib <= parts[2].memory_mib
    assert profile_of("min_memory_gb: 1.5").memory_mib == 1536


def test_a_cpu_profile_takes_no_gpu():
    """Llamacpp without gpu_class takes no GPU, whatever tp says, and is warned about where it says no memory."""
    text = "models:\n  - {name: m, source: /m.gguf, profiles: [{name: p, engine: llamacpp, tp: 4}]}\n"
    profile = desired(text).models[0].profiles[0]
    assert (profile.cpu_only, profile.gpus_per_node) == (True, 0)
    (line,) = warnings(text)
    assert line.startswith("a.yaml:2:43: warning: Model `m`, profile `p`: it runs without a GPU")
    assert warnings(text.replace("tp: 4", "min_memory_gb: 2")) == []


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (MODEL + MODEL.partition("\n")[2], "6:11", "The model `m` is declared twice; first at a.yaml:2:11"),
        (model_with("aliases: [m]"), "4:15", "its own name"),
        (model_with("aliases: [a, a]"), "4:18", "claimed by this model already"),
        (model_with("aliases: [b]") + "  - {name: b, source: s, profiles: [{name: p, gpu_class: g}]}\n", "4:15", "another model's name"),
        (model_with("aliases: [x]") + "  - {name: n, aliases: [x], source: s, profiles: [{name: p, gpu_class: g}]}\n", "7:25", "claimed by the model `m` already, at a.yaml:4:15"),
        (model_with("fallbacks: [n]"), "4:17", "the fallback `n` is no model"),
        (model_with("scaling: {min: 3, max: 2}"), "4:28", "scaling.max is 2, below scaling.min, which is 3"),
        (model_with("scaling: {max: -1}"), "4:20", "below scaling.min"),
        (model_with(profile="engine: vlm"), "5:44", "Did you mean `vllm`?"),
        (model_with(profile="tp: 4, gpus_per_node: 3"), "5:43", "gpus_per_node x nodes is 3 x 1, but tp x pp is 4 x 1"),
        (model_with(profile="tp: 3, nodes: 2"), "5:43", "gpus_per_node x nodes is 1 x 2, but tp x pp is 3 x 1"),
        (model_with("owner: team:a"), "4:12", "the owner `team:a` is not declared"),
        ("models:\n  - {name: m, source: s, profiles: [{name: p}]}", "2:", "can't run without a GPU"),
        ("models:\n  - {name: m, source: s, profiles: [{name: p, engine: sim}]}", "2:", "can't run without a GPU"),
        ("models:\n  - {name: m, source: s, profiles: [{name: p, engine: llamacpp, nodes: 2, min_memory_gb: 1}]}", "2:", "can't span 2 nodes"),
        ("models:\n  - {name: m, source: s, profiles: [{name: p, gpu_class: g}, {name: p, gpu_class: g}]}", "2:69", "declared twice"),
        (model_with(profile="env: {LD_PRELOAD: x}"), "5:", "LD_PRELOAD"),
        (model_with().replace("source: s", "source: -s"), "3:13", "begins with `-`"),
        (model_with().replace("name: m", "name: ' m'"), "2:11", "begins or ends with a blank"),
    ],
)  # fmt: skip
def test_rules_of_the_catalog(text, place, words):
    """Each rule is refused at its place, with the model and what is wrong."""
    found = [line for line in problems(text) if line.startswith(f"a.yaml:{place}")]
    about = [line for line in found if "model `" in line.lower()]
    assert any(words.lower() in line.lower() for line in about), problems(text)


def test_near_names_are_offered():
    """A fallback and an owner that are nearly right are told the right one."""
    text = (
        model_with("fallbacks: [lama]\nowner: team:serch")
        + "  - {name: llama, source: s, profiles: [{name: p, gpu_class: g}]}\n"
    )
    found = problems(text + "quotas: {team:search: {}}\n")
    assert ["Did you mean `llama`?" in found[0], "Did you mean `team:search`?" in found[1]] == [True, True]


def test_a_fallback_may_be_an_alias():
    """A name and an alias both count as what a fallback names."""
    assert (
        problems(
            model_with("fallbacks: [x]")
            + "  - {name: n, aliases: [x], source: s, profiles: [{name: p, gpu_class: g}]}\n"
        )
        == []
    )


def test_names_may_be_anything_that_can_be_typed():
    """Names of models may hold blanks, quotes and what a shell would take for a command."""
    text = model_with().replace("name: m", r'''name: "a \"b\" 'c' $(d) `e` é/f"''')
    assert desired(text).models[0].name == "a \"b\" 'c' $(d) `e` é/f"


def test_order_of_files_and_entries_never_matters():
    """Hosts, models and quotas are sorted by name; aliases keep their order."""
    one = "hosts: [{name: b}, {name: a}]\n"
    two = model_with("aliases: [z, y]") + "quotas: {team:b: {}, org:a: {}}\n"
    forward, backward = desired(one, two), desired(two, one)
    assert forward == backward
    assert [h.name for h in forward.hosts] == ["a", "b"]
    assert [q.scope for q in forward.quotas] == ["org:a", "team:b"]
    assert forward.models[0].aliases == ("z", "y")


def test_a_name_defined_twice_names_both_places():
    """Hosts, quotas and settings of two files are told with both places."""
    text = "hosts: [{name: h}]\nquotas: {org:a: {}}\nsettings: {}\n"
    found = problems(text, text.replace("{}\n", "{retries: 1}\n"))
    assert [line.partition(" error")[0] for line in found] == ["b.yaml:1:16:", "b.yaml:2:10:", "b.yaml:3:1:"]
    assert all(f"first at a.yaml:{place}" in line for line, place in zip(found, ("1:16", "2:10", "3:1"), strict=True))


def test_everything_wrong_is_told_at_once_by_place():
    """Errors of the schema and of the rules come together, sorted by place."""
    found = problems(
        model_with("aliases: [m]\nclas: x", "tp: four"),
        "hosts: [{name: h, port: 0}]\n" + model_with().replace("name: m", "name: n"),
    )
    assert [line.split(": error")[0] for line in found] == ["a.yaml:4:15", "a.yaml:5:5", "a.yaml:7:40", "b.yaml:1:25"]


def test_environment_values():
    """Numbers and true/false are the text written; secrets stay references; a literal that looks secret is warned of."""
    text = model_with(
        profile="env: {B: 1.50, A: true, C: {from_env: X}, D: {from_command: [p, 1x]}, HF_TOKEN: hf, MAX_TOKENS: 5}"
    )
    profile = desired(text).models[0].profiles[0]
    assert profile.env == (
        ("A", "true"), ("B", "1.50"), ("C", SecretRef("from_env", ("X",))), ("D", SecretRef("from_command", ("p", "1x"))),
        ("HF_TOKEN", "hf"), ("MAX_TOKENS", "5"),
    )  # fmt: skip
    (line,) = warnings(text)
    assert "HF_TOKEN: {from_env: HF_TOKEN}" in line
    assert "hf " not in line


def test_host_defaults_and_keys():
    """A host's address is its name, 127.0.0.1 where it is local; labels are text as written."""
    hosts = desired(
        "hosts: [{name: a, labels: {n: 1}, reserve: {cores: 0.5, memory_gb: 1, gpus: [GPU-1]}}, {name: b, connection: local}]"
    ).hosts
    assert (hosts[0].address, hosts[0].connection, hosts[0].labels, hosts[0].listen_address) == (
        "a",
        Connection.SSH,
        (("n", "1"),),
        "a",
    )
    assert (hosts[0].reserve.millicores, hosts[0].reserve.memory_mib, hosts[0].reserve.gpus) == (500, 1024, ("GPU-1",))
    assert (hosts[1].address, hosts[1].simulate) == ("127.0.0.1", None)


@pytest.mark.parametrize(
    ("simulate", "gpus"),
    [
        ("{gpus: 2, gpu_class: x, gpu_memory_gb: 24}", (SimulatedGpus("x", 24576, 2),)),
        ("{gpus: 2}", (SimulatedGpus("demo", 81920, 2),)),
        ("{gpus: 0}", ()),
        (
            "{gpus: [{gpu_class: x, memory_gb: 1, count: 2}, {gpu_class: y}]}",
            (SimulatedGpus("x", 1024, 2), SimulatedGpus("y", 81920, 1)),
        ),
    ],
)
def test_both_forms_of_simulated_gpus(simulate, gpus):
    """GPUs are a number, or groups that differ."""
    assert desired(f"hosts: [{{name: h, connection: simulated, simulate: {simulate}}}]").hosts[0].simulate == Simulate(
        gpus
    )


def test_simulated_seeds_and_faults():
    """A host is seeded with replicas of ours; GPUs that it has not, or twice, are refused, unknown names warned of."""
    text = model_with() + (
        "hosts:\n  - name: h\n    connection: simulated\n    simulate: {gpus: 2, running: [{replica: m/0, profile: p, gpus: [0, 1]}], "
        "fail_start: [m], slow_s: 0.5, unreachable: true}\n"
    )
    assert desired(text).hosts[0].simulate == Simulate(
        (SimulatedGpus("demo", 81920, 2),), None, None, (SimulatedReplica("m/0", "p", (0, 1)),), True, ("m",), 0.5
    )
    assert "no GPU 2; its GPUs are 0 to 1" in problems(text.replace("[0, 1]", "[0, 2]"))[0]
    assert "GPU 0 is held by `m/0`" in problems(text.replace("[0, 1]", "[0, 0]"))[0]
    assert "model `n` is not declared" in warnings(text.replace("m/0", "n/0"))[0]
    assert "no profile `q`" in warnings(text.replace("profile: p, gpus: [", "profile: q, gpus: ["))[0]


def test_only_gpus_are_pretended_on_a_real_host():
    """On an ssh or local host everything but GPUs is warned of, and kept."""
    assert warnings("hosts: [{name: h, connection: local, simulate: {gpus: 2, gpu_class: demo}}]") == []
    (line,) = warnings("hosts: [{name: h, simulate: {gpus: 2, cores: 4}}]")
    assert line.startswith("a.yaml:1:39: warning: Host `h`: simulate.cores means nothing")


def test_jumps():
    """A jump through oneself or in a circle is refused; one that is nearly a declared host is warned of."""
    assert "jumps through itself" in problems("hosts: [{name: a, jump: a}]")[0]
    assert "circle: a -> b -> a" in problems("hosts: [{name: a, jump: b}, {name: b, jump: a}]")[0]
    assert "Did you mean `bastion`?" in warnings("hosts: [{name: bastion}, {name: b, jump: bastoin}]")[0]
    assert warnings("hosts: [{name: bastion}, {name: b, jump: bastion}, {name: c, jump: u@bastoin:22}]") == []


def test_settings():
    """Settings are kept, those too that nothing acts on yet; a backend's own keys are its options."""
    found = desired(
        "settings: {state: {backend: postgres, dsn: {from_env: DSN}, pool: 3}, ssh: {parallelism: 9}, guard: {max_lost: 2, max_stops: 10%}, "
        "ports: {from: 30000, to: 30100}, weights: pull, exports: {x: [1]}, retries: 2}"
    ).settings
    assert (found.state.backend, dict(found.state.options)) == (
        "postgres",
        {"dsn": SecretRef("from_env", ("DSN",)), "pool": 3},
    )
    assert (found.guard.max_lost, found.guard.max_stops, found.ports_from, found.ports_to) == ("2", "10%", 30000, 30100)
    assert (found.weights, dict(found.exports), found.retries, found.ssh.parallelism) == ("pull", {"x": [1]}, 2, 9)
    assert "Did you mean `path`?" in problems("settings: {state: {pth: x}}")[0]
    assert "before they begin" in problems("settings: {ports: {from: 9, to: 8}}")[0]
    for path, what in (('"/a\\nb"', "control character"), ("'/a\"b'", "double quote"), ("'/a\\b'", "backslash")):
        (problem,) = problems(f"settings: {{replica_dir: {path}}}")
        assert what in problem
        assert "a.yaml:1:25" in problem
    assert desired("settings: {replica_dir: /a $b%/c/}").settings.replica_dir == "/a $b%/c"
    assert "there is no engine `vlm`" in problems("settings: {engines: {vlm: {command: [x]}}}")[0]


def test_empty_sections_are_nothing():
    """A key with nothing after it is as if it were absent."""
    assert desired("hosts:\nmodels:\nquotas:\n  team:a:\nsettings:\n").quotas[0].scope == "team:a"
    assert desired().hosts == ()


def test_a_model_goes_to_the_yaml_form_and_back():
    """`plain_model` gives what resolves to the same model."""
    text = model_with(
        "aliases: [x]\nclass: critical\nscaling: {min: 1, max: 3}\nslo: {ttft_p99: 250ms}\ncontext_length: 4096\n"
        "capabilities: {tools: true}\nupdate: {strategy: surge}\npriority: 2\nprevent_stop: true",
        "tp: 2, args: [--max-num-seqs, 64], env: {A: {from_command: [a, b]}, B: x}, min_memory_gb: 1.5, cpu_cores: 0.5, node_selector: {z: a}, weight: 2, port: 8000",
    )
    found = desired(text)
    again = model_from_mapping("m", plain_model(found.models[0]), desired())
    assert plain_model(again) == plain_model(found.models[0])
    assert again.origin is Origin.RUNTIME
    assert again.profiles == found.models[0].profiles


def test_runtime_models_fit_beside_the_declared():
    """A runtime model can't take a declared name or alias, needs what it names, and memory where it has no GPU."""
    beside = desired(model_with("aliases: [x]") + "quotas: {team:a: {}}\n")
    entry = {"source": "s", "profiles": [{"name": "p", "gpu_class": "g"}], "fallbacks": ["x"], "owner": "team:a"}
    assert model_from_mapping("n", entry, beside).fallbacks == ("x",)

    def refused(name, **changes):
        with pytest.raises(ConfigError) as caught:
            model_from_mapping(name, {**entry, **changes}, beside)
        return str(caught.value)

    assert "declared in the configuration, at a.yaml:2:5" in refused("m")
    assert "an alias of the model `m`" in refused("x")
    assert "another model's name" in refused("n", aliases=["m"])
    assert "claimed by the model `m`" in refused("n", aliases=["x"])
    assert "is no model" in refused("n", fallbacks=["nothing"])
    assert "owner `team:b` is not declared" in refused("n", owner="team:b")
    assert "says nothing of memory" in refused("n", profiles=[{"name": "p", "engine": "llamacpp"}])
    assert "Unknown key `sourc`" in refused("n", sourc="s")


def test_bad_runtime_entries_are_left_out_with_a_warning():
    """What was added at run time joins the declaration where it fits; the rest is named, and harms nothing."""
    declared = desired(model_with() + "quotas: {org:a: {limit: {gpus: 4}}}\n")
    good = {"source": "s", "profiles": [{"name": "p", "gpu_class": "g"}]}
    found = with_runtime(
        declared,
        {
            "b": {**good, "fallbacks": ["c"]},
            "c": {**good, "owner": "team:t"},
            "m": good,
            "x": {**good, "fallbacks": ["y"]},
            "z": 1,
        },
        {"team:t": {"parent": "org:a"}, "project:p": {"parent": "team:t", "guarantee": {"gpus": 5}}, "org:a": {}},
    )
    assert [(m.name, m.origin) for m in found.models] == [
        ("b", Origin.RUNTIME),
        ("c", Origin.RUNTIME),
        ("m", Origin.DECLARED),
    ]
    assert [q.scope for q in found.quotas] == ["org:a", "team:t"]
    assert [d.summary.split("`")[1] for d in found.diagnostics] == ["org:a", "project:p", "m", "x", "z"]
    assert "above the limit of `org:a`" in found.diagnostics[1].detail
    assert "the fallback `y` is no model" in found.diagnostics[3].detail


def test_much_that_is_wrong_is_told_without_delay():
    """Beyond a hundred problems near names are no longer looked for, which would take minutes in a large fleet."""
    models = "models:\n" + "".join(
        f"  - {{name: m{n}, source: s, fallbacks: [mm{n}], profiles: [{{name: p, gpu_class: g}}]}}\n"
        for n in range(300)
    )
    found = problems(models)
    assert len(found) == 300
    assert "Did you mean" in found[0]
    assert "Did you mean" not in found[-1]


@pytest.mark.parametrize(
    "text", ['hosts: [{name: "h\\n"}]', 'quotas: {"org:a\\n": {}}', 'hosts: [{name: h, user: "u\\n"}]']
)
def test_a_line_break_at_the_end_is_no_part_of_a_name(text):
    """A pattern's end is the text's end: a trailing line break does not slip through."""
    assert len(problems(text)) == 1


@pytest.mark.parametrize("folder", sorted(Path(__file__).parents[2].glob("examples/*/")), ids=lambda p: p.name)
def test_examples_are_valid_without_a_warning(folder):
    """Every example resolves, and nothing about it is worth a warning."""
    assert resolve(load(str(folder))).diagnostics == ()

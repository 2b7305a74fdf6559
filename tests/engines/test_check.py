"""What is refused before anything is planned, and what is passed on untouched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmgwctl.domain.catalog import Capabilities, SecretRef
from llmgwctl.domain.desired import EngineInstall
from llmgwctl.engines import registry
from tests.engines.cases import EMBEDDINGS, model, profile, site, sites


def words(text: str) -> list[str]:
    return text.split()


VLLM_OWNED = words("""
    --model=x --served-model-name --host --port --uds --grpc --grpc-port --headless -tp
    --tensor-parallel-size -pp --pipeline-parallel-size -dp --data-parallel-size --data-parallel-backend
    -dpn -dpl -dpa --nnodes -n -n2 --node-rank -r --master-addr --master-port
    --distributed-executor-backend --max-model-len --api-key --device-ids --config --root-path
    --ssl-keyfile --ssl-certfile --middleware --api-server-count -asc --runner --convert
    --shutdown-timeout --prefill-context-parallel-size -pcp --tensor_parallel_size=4 --max_model_len
    --tensor-parallel --tensor-p=2 --serv --max-model-l -tp4 -tp=4 -t --config.model --no-headless --ssl
    --data-par
""")
SGLANG_OWNED = words("""
    --model --model-path --served-model-name --host --port --tp --tp-size --tensor-parallel-size --pp
    --pp-size --pipeline-parallel-size --dp --dp-size --data-parallel-size --nnodes --node-rank
    --dist-init-addr --nccl-init-addr --nccl-port --context-length --api-key --admin-api-key
    --base-gpu-id --gpu-id-step --enable-metrics --is-embedding --fastapi-root-path --grpc-port
    --smg-grpc-mode --use-ray --sidecar --sidecar-args --config --ssl-keyfile --context-l --tp_size=2
    --dist-init --admin --mod --sidec
""")
LLAMA_OWNED = words("""
    -m -m=/x.gguf --model -mu --model-url -hf -hfr --hf-repo --hf-token -dr --docker-repo
    --gpt-oss-20b-default -a --alias --host --port --reuse-port -c -c4096 --ctx-size --ctx_size -kvu
    --kv-unified -no-kvu --no-kv-unified --kv-unified-per-slot --api-key --api-key-file --api-prefix
    --embedding --embeddings --rerank --reranking --models-dir --models-max --metrics --tools --tools-x
    --mcp-config -ag --agent --ui-mcp-proxy --sleep-idle-seconds --log-file --rpc --device -dev
""")
SIM_OWNED = words("--model --model=x --alias --host --port --port=1 --context-length --embeddings --headless")
SOURCES = {"llamacpp": "/models/chat.gguf"}
OWNED = {"vllm": VLLM_OWNED, "sglang": SGLANG_OWNED, "llamacpp": LLAMA_OWNED, "sim": SIM_OWNED}


def check(engine: str, *args: str, wanted=None, **fields):
    wanted = wanted or model(SOURCES.get(engine, "/models/chat"))
    return registry.get(engine).check(wanted, profile(engine, args=args, **fields))


@pytest.mark.parametrize(("engine", "flag"), [(e, f) for e, flags in OWNED.items() for f in flags])
def test_what_an_adapter_writes_is_refused_with_what_to_write_instead(engine, flag):
    """Every spelling that the engine would understand is found, at its place."""
    (problem,) = check(engine, "--seed", "1", flag)
    assert (problem.field, problem.index) == ("args", 2)
    assert "not for args" in problem.summary
    assert problem.detail


ALLOWED = {
    "vllm": words("""
    --gpu-memory-utilization 0.9 --max-num-seqs=64 -q fp8 -O3 -ep -dcp 2 --model-impl auto
    --tool-call-parser hermes --enable-auto-tool-choice --reasoning-parser qwen3 --limit-mm-per-prompt
    {"image":4} --seed -1 --speculative-config.method ngram --config-format hf --hf-overrides
    {"--model":1} --enforce-eager
"""),
    "sglang": words("""
    --mem-fraction-static 0.8 --attn-dp-size 2 --pp-max-micro-batch-size 4 --model-impl auto
    --tool-server demo --model-loader-extra-config {} --watchdog-timeout 600 --dist-timeout 60 --ep-size
    2 --tool-call-parser qwen
"""),
    "llamacpp": words("""
    -b 512 -ub 256 -fa on -ctk q8_0 --mmproj /m.gguf --jinja -sm row -ts 3,1 -ngl 20 -t 4 -tb 8 -np 1
    --model-draft /d.gguf --temp -0.5 --chat-template-kwargs {"a":1} --pooling mean --tags a,b --slots
"""),
    "sim": words("--load-time-s 3 --loading 503 --fail-message x --workers 2"),
}


@pytest.mark.parametrize("engine", ALLOWED)
def test_other_flags_are_the_users(engine):
    """Flags that only look like owned ones are left alone."""
    assert check(engine, *ALLOWED[engine]) == ()


@pytest.mark.parametrize(
    ("engine", "old", "new"),
    [
        ("vllm", "--task", "capabilities"),
        ("vllm", "--disable-log-requests", "--enable-log-requests"),
        ("vllm", "--swap_space=4", "remove it"),
        ("vllm", "--device", "remove it"),
        ("vllm", "--guided-decoding-backend", "--structured-outputs-config"),
        ("vllm", "--enable-reasoning", "--reasoning-parser"),
        ("vllm", "--speculative-model", "--speculative-config"),
        ("vllm", "--rope-scaling", "--hf-overrides"),
        ("vllm", "--override-pooler-config", "--pooler-config"),
        ("sglang", "--enable-dp-attention", "--attn-dp-size"),
        ("sglang", "--grpc-mode", "--smg-grpc-mode"),
        ("llamacpp", "--draft-max", "--spec-draft-n-max"),
        ("llamacpp", "--no-mmap", "--load-mode"),
        ("llamacpp", "--mlock", "--load-mode"),
    ],
)
def test_removed_flags_are_named_with_their_successor(engine, old, new):
    """A catalog that was right for an older engine says what to write now."""
    (problem,) = check(engine, "--seed", "1", old)
    assert "no longer knows" in problem.summary
    assert new in problem.detail


@pytest.mark.parametrize("flag", ["--hf-token", "-hft"])
def test_a_token_for_the_hub_goes_into_a_variable(flag):
    """It is not the model, as the other flags that begin so, and a command line is no place for it."""
    (problem,) = check("llamacpp", flag, "x")
    assert "HF_TOKEN: {from_env: HF_TOKEN}" in problem.detail


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("other-model",), "belongs to no flag"),
        (("--seed=1", "other-model"), "belongs to no flag"),
        (("--",), "`--` is not allowed"),
        (("--chat-template", "a\0b"), "NUL"),
        (("--chat-template", "x" * 131_072), "longer than 128 KiB"),
        (("--max-num-seqs 64",), "a flag and its value in one entry"),
    ],
)
@pytest.mark.parametrize("engine", OWNED)
def test_words_that_no_engine_could_take_are_refused(engine, args, says):
    """A stray word would become the model, or kill the start."""
    (problem,) = check(engine, *args)
    assert says in problem.summary


ODD = (
    "--x",
    "two words",
    "--y",
    'it\'s "quoted"',
    "--z",
    "$(touch /tmp/x) `id` ; | & > * ~",
    "--xa",
    "a\nb\tc",
    "--xb",
    "",
)


@pytest.mark.parametrize("engine", OWNED)
def test_args_reach_the_command_line_exactly_as_written(engine):
    """No quoting, splitting or expansion happens on the way; the user's words are the last ones."""
    wanted, way = model(SOURCES.get(engine, "/models/chat")), profile(engine, args=ODD)
    adapter = registry.get(engine)
    assert adapter.check(wanted, way) == ()
    assert adapter.launch(wanted, way, sites(1, 1), 0).argv[-len(ODD) :] == ODD


@pytest.mark.parametrize(
    "name",
    words("""
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES
    HIP_VISIBLE_DEVICES VLLM_PORT VLLM_HOST_IP VLLM_API_KEY LLAMA_ARG_MODELS_DIR LLAMA_API_KEY
    MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK LD_PRELOAD VLLM_ENGINE_READY_TIMEOUT_S
    VLLM_RPC_BASE_PATH SGLANG_HOST_IP LLMGWCTL_CLEAN
"""),
)
@pytest.mark.parametrize("engine", OWNED)
def test_variables_that_belong_to_the_placement_are_refused(engine, name):
    """A secret reference does not get them through either."""
    (problem,) = check(engine, env=((name, SecretRef("from_env", ("X",))),))
    assert problem.field == f"env.{name}"
    assert problem.detail


def test_variables_must_be_variables():
    """A bad name or a NUL would break the start script."""
    found = check("vllm", env=(("A B", "x"), ("GOOD", "a\0b"), ("HF_TOKEN", SecretRef("from_env", ("T",)))))
    assert [p.field for p in found] == ["env.A B", "env.GOOD"]


@pytest.mark.parametrize(
    ("engine", "changes", "field"),
    [
        ("sglang", {"name": "chat:latest"}, "model.name"),
        ("llamacpp", {"name": "a,b"}, "model.name"),
        ("llamacpp", {"aliases": ("ok", "a,b")}, "model.aliases"),
        ("llamacpp", {"source": "gpt2"}, "model.source"),
        ("vllm", {"name": "-x"}, "model.name"),
        ("vllm", {"aliases": ("a\0b",)}, "model.aliases"),
        ("vllm", {"source": "./models/x"}, "model.source"),
        ("vllm", {"source": "~/models/x"}, "model.source"),
        ("sim", {"source": "-x"}, "model.source"),
    ],
)
def test_names_and_sources_that_an_engine_cannot_take(engine, changes, field):
    """What would be misread is refused, and the place in a list is told."""
    wanted = replace(model(SOURCES.get(engine, "/models/chat")), **changes)
    (problem,) = check(engine, wanted=wanted)
    assert problem.field == field
    if field == "model.aliases":
        assert problem.index == len(changes["aliases"]) - 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "sim"])
def test_an_engine_that_needs_a_gpu_says_so(engine):
    """Only llama.cpp serves from CPU cores."""
    (problem,) = check(engine, gpus_per_node=0)
    assert problem.field == "gpu_class"
    assert registry.get(engine).cpu_capable is False


def test_llama_cpp_runs_on_cores_but_on_one_node():
    """A replica of llama.cpp never spans nodes."""
    assert registry.get("llamacpp").cpu_capable is True
    assert check("llamacpp", gpus_per_node=0) == ()
    (problem,) = check("llamacpp", nodes=2)
    assert problem.field == "nodes"


@pytest.mark.parametrize("value", [(), ("0",), ("-1",), ("many",), ("4096",)])
def test_slots_are_a_number(value):
    """A context is multiplied by the slots, so they have to be known."""
    assert [p.summary for p in check("llamacpp", "-np", *value)] == ["`-np` needs the number of slots"]


def test_more_than_one_slot_needs_a_context_length():
    """Else each slot would get less than the model's context, silently."""
    (problem,) = check("llamacpp", "--parallel", "4")
    assert "context_length" in problem.summary


def test_convert_goes_with_embeddings_only():
    """`--convert` refines what the capability asks for."""
    assert check("vllm", "--convert", "embed", wanted=model(capabilities=EMBEDDINGS)) == ()
    assert len(check("vllm", "--convert", "embed")) == 1


def test_every_problem_is_told_at_once():
    """One look at a catalog finds everything that is wrong with it."""
    found = check("vllm", "--port", "1", "--task", "embed", "-tp", "2", env=(("VLLM_PORT", "1"),))
    assert [(p.field, p.index) for p in found] == [("env.VLLM_PORT", None), ("args", 0), ("args", 2), ("args", 4)]


def test_the_profiles_environment_wins_over_the_installations_and_the_adapter_over_both():
    """An installation may set what it likes, but never which GPUs are seen."""
    install = EngineInstall(
        ("/opt/vllm/bin/vllm",), (("A", "install"), ("B", "install"), ("CUDA_VISIBLE_DEVICES", "7"))
    )
    way = profile("vllm", env=(("B", "profile"), ("VLLM_LOGGING_COLOR", "1")))
    spec = registry.get("vllm").launch(model(), way, (site(install=install),), 0)
    env = dict(spec.env)
    assert spec.argv[:3] == ("/opt/vllm/bin/vllm", "serve", "/models/chat")
    assert (env["A"], env["B"], env["VLLM_LOGGING_COLOR"]) == ("install", "profile", "1")
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert list(env) == sorted(env)


@pytest.mark.parametrize(
    ("engine", "command", "start"),
    [
        ("vllm", ("/v/bin/vllm", "serve"), ("/v/bin/vllm", "serve", "/models/chat")),
        ("sglang", ("/v/bin/sglang",), ("/v/bin/sglang", "serve", "--model-path")),
        (
            "sglang",
            ("python3", "-m", "sglang.launch_server"),
            ("python3", "-m", "sglang.launch_server", "--model-path"),
        ),
        ("llamacpp", ("llama", "serve"), ("llama", "serve", "-m")),
        ("sim", ("/usr/bin/python3.9",), ("/usr/bin/python3.9", "sim_server.py", "--model")),
    ],
)
def test_an_installations_command_comes_first(engine, command, start):
    """Where an engine is installed replaces the look-up by PATH, and `serve` is not said twice."""
    spec = registry.get(engine).launch(model(), profile(engine), (site(install=EngineInstall(command)),), 0)
    assert spec.argv[: len(start)] == start


def test_a_longer_start_changes_no_process():
    """`startup_timeout` is ours to keep, so changing it must not restart a replica."""
    engine = registry.get("vllm")
    digests = {
        engine.launch(model(), profile("vllm", startup_timeout_s=s), sites(1, 1), 0).digest for s in (60.0, 7200.0)
    }
    assert len(digests) == 1


def test_addresses_with_colons_and_wildcards():
    """Members are told an address that they can reach: brackets for IPv6, the node's name for a wildcard."""
    way = profile("sglang", nodes=2)
    v6 = (site("a", "fd00::1"), site("b", "fd00::2"))
    assert "[fd00::1]:20002" in registry.get("sglang").launch(model(), way, v6, 1).argv
    everywhere = (site("a", "0.0.0.0"), site("b", "0.0.0.0"))
    spec = registry.get("vllm").launch(model(), replace(way, engine="vllm"), everywhere, 1)
    assert spec.argv[spec.argv.index("--master-addr") + 1] == "a"
    assert "VLLM_HOST_IP" not in dict(spec.env)


def test_llama_cpps_default_flags_are_old_ones():
    """Builds and bindings of very different age understand what is written unless the user asks for more."""
    known = set(words("-m -hf --alias --host --port -c -np -t --no-kv-unified --metrics --embeddings -ngl"))
    wanted = replace(model("/m.gguf", context_length=512), capabilities=Capabilities(True, True, True))
    argv = registry.get("llamacpp").launch(wanted, profile("llamacpp"), sites(1, 1), 0).argv
    assert {word for word in argv if word.startswith("-")} <= known

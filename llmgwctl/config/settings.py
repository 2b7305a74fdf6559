"""The settings of the YAML, to the noun."""

from __future__ import annotations

from collections.abc import Mapping

from llmgwctl.config.hosts import engines_of
from llmgwctl.config.nodes import Node, plain
from llmgwctl.config.reading import Report, optional_text, optional_whole, text_of, whole
from llmgwctl.config.wording import quoted
from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.desired import Guard, Settings, SshSettings, StateSettings
from llmgwctl.domain.launch import unfit_for_root

_FILE_KEYS = ("backend", "path")
_SECRET_KINDS = ("from_env", "from_file", "from_command")


def settings_of(node: Node, report: Report) -> Settings:
    """Return the settings that a mapping describes, with defaults filled in; the schema has accepted the mapping."""
    report = report.about("Settings")
    default = Settings()
    ports_from, ports_to = _ports(node.get("ports"), default, report)
    exports = node.get("exports")
    return Settings(
        state=_state(node.get("state"), report),
        ssh=_ssh(node.get("ssh"), report),
        engines=engines_of(node.get("engines"), report),
        headroom=text_of(node.get("headroom"), "headroom", report, default.headroom),
        ports_from=ports_from,
        ports_to=ports_to,
        replica_dir=_replica_dir(node.get("replica_dir"), report),
        guard=_guard(node.get("guard")),
        retries=whole(node.get("retries"), default.retries),
        weights=text_of(node.get("weights"), "weights", report, default.weights),
        exports=_options(exports) if exports else {},
    )


def _replica_dir(node: Node | None, report: Report) -> str | None:
    path = optional_text(node, "replica_dir", report)
    if path is None or node is None:
        return None
    unfit = unfit_for_root(path)
    if unfit:
        report.error(
            f"replica_dir `{quoted(path)}` {unfit}.",
            "Write a path without quotes, backslashes and line breaks, such as /var/lib/llmgwctl/replicas.",
            node.at,
        )
    return path.rstrip("/") or path


def _state(node: Node | None, report: Report) -> StateSettings:
    if node is None:
        return StateSettings()
    backend = text_of(node.get("backend"), "backend", report, "file")
    options = {key: _option(child) for key, child in node.items() if key not in _FILE_KEYS}
    if backend == "file":
        for key in options:
            hint = report.did_you_mean(key, _FILE_KEYS) or "The backend `file` knows `path` only."
            report.error(f"unknown key `{quoted(key)}` in `state`.", hint, node.key_at(key))
    return StateSettings(backend, text_of(node.get("path"), "path", report, StateSettings().path), options)


def _ssh(node: Node | None, report: Report) -> SshSettings:
    default = SshSettings()
    if node is None:
        return default
    connect, command = node.get("connect_timeout_s"), node.get("command_timeout_s")
    return SshSettings(
        user=optional_text(node.get("user"), "The user", report),
        port=optional_whole(node.get("port")),
        known_hosts=optional_text(node.get("known_hosts"), "known_hosts", report),
        host_keys=text_of(node.get("host_keys"), "host_keys", report, default.host_keys),
        connect_timeout_s=float(connect.value) if connect else default.connect_timeout_s,
        command_timeout_s=float(command.value) if command else default.command_timeout_s,
        parallelism=whole(node.get("parallelism"), default.parallelism),
    )


def _ports(node: Node | None, default: Settings, report: Report) -> tuple[int, int]:
    if node is None:
        return default.ports_from, default.ports_to
    first, last = whole(node.get("from"), default.ports_from), whole(node.get("to"), default.ports_to)
    if last < first:
        report.error(
            f"ports end at {last}, before they begin at {first}.", "Write `ports: {from: 20000, to: 29999}`.", node.at
        )
    return first, last


def _guard(node: Node | None) -> Guard:
    if node is None:
        return Guard()
    lost, stops = node.get("max_lost"), node.get("max_stops")
    return Guard(lost.text if lost else None, stops.text if stops else None)


def _options(node: Node) -> Mapping[str, object]:
    return {key: _option(child) for key, child in node.items()}


def _option(node: Node) -> object:
    """Return a value that only its user understands; a secret stays a reference."""
    if isinstance(node.value, dict) and len(node.value) == 1:
        ((kind, source),) = node.items()
        if kind in _SECRET_KINDS and source.value is not None:
            words = tuple(e.text for e in source.elements()) or (source.text,)
            return SecretRef(kind, words)
    if isinstance(node.value, dict):
        return _options(node)
    return plain(node)

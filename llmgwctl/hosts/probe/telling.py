"""What every reader tells alike: facts, failures and health."""

from __future__ import annotations

from collections.abc import Sequence

from llmgwctl.hosts.probe.failures import Failure, read_failure

Fact = None | bool | int | float | str | Sequence["Fact"] | dict[str, "Fact"]


Facts = dict[str, Fact]


def failed(failure: Failure) -> Facts:
    """Return the facts that a failure leaves."""
    facts: Facts = {"usable": "unknown" if failure.usable is None else failure.usable, "error": failure.code}
    facts["user_message"] = failure.message
    if failure.gpus is not None:
        facts["gpus"] = "unknown" if failure.gpus < 0 else failure.gpus
    return facts


def failure_facts(text: str, exit_code: int | None, _: Sequence[str]) -> Facts:
    """Read a text that should have been an answer, and is a failure."""
    failure = read_failure(text, exit_code)
    if failure is None:
        return {"usable": "unknown", "error": "unreadable", "user_message": f"Not understood: {text.strip()[:160]}"}
    return failed(failure)


_HEALTH_MESSAGES = {
    "gpu_requires_reset": "{0} requires a reset.",
    "gpu_lost": "{0} has fallen off the bus; reboot the host.",
    "gpu_handle_unknown_error": "{0} does not answer.",
    "gpu_sensor_error": "{0}: a sensor reads ERR!.",
    "gpu_reset_required": "{0}: row remapping is pending; reset or reboot the host before scheduling on it.",
    "gpu_row_remap_failed": "{0}: remapping a memory row failed; the card must be replaced.",
    "fabric_not_ready": "{0}: the NVLink fabric is not ready, so CUDA fails; look at nvidia-fabricmanager.",
}


DEGRADED = frozenset({"gpu_reset_required", "gpu_sensor_error"})


def health_message(code: str, gpu: str) -> str:
    """Say in a sentence what a GPU's health code means; `gpu` names it."""
    return _HEALTH_MESSAGES.get(code, "{0}: " + code).format(gpu)

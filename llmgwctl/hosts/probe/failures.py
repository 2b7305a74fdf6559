"""What a tool or a shell prints instead of an answer, as a code and in words."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer; `gpus` is how many GPUs it proves (None: it says nothing, -1: some, not how many)."""

    code: str
    message: str
    gpus: int | None = 0
    usable: bool | None = False


def read_failure(text: str, exit_code: int | None = None, *, tool: str = "nvidia-smi") -> Failure | None:
    """Return what a failure's text and exit code mean; None where neither is known to be a failure."""
    for pattern, code, message, gpus in _KNOWN:
        match = pattern.search(text)
        if match:
            groups = [g or "" for g in match.groups()]
            return Failure(code, message.format(*groups) if groups else message, gpus)
    missing = _missing_command(text)
    if missing:
        return _not_found(missing)
    if _FISH_WORDS.search(text):
        return Failure("remote_shell_not_posix", _FISH, None)
    if exit_code == 124:
        return Failure("driver_hung", f"{tool} did not answer in time; the driver may hang.", None)
    if not text.strip():
        if exit_code == 127:
            return _not_found(tool)
        if exit_code in _BY_EXIT_CODE:
            return Failure(*_BY_EXIT_CODE[exit_code])
        return Failure("empty_payload", f"{tool} printed nothing (exit status {exit_code}).", None)
    return Failure(*_BY_EXIT_CODE[exit_code]) if exit_code in _BY_EXIT_CODE else None


def first_line(text: str) -> str:
    """Return the first line that says something, cut to a readable length."""
    line = next((s.strip() for s in text.splitlines() if s.strip()), "")
    return line if len(line) <= 160 else line[:157] + "..."


_BDF = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)"
_DRIVER = (
    "The NVIDIA kernel driver is not running on this host (kernel upgrade without DKMS rebuild, Secure Boot, nouveau)."
)
_MISMATCH = (
    "User-space NVIDIA libraries and the loaded kernel module differ in version; reboot the host "
    "(or reload the modules)."
)
_NVML = (
    "NVML fails here. Inside a container while the host is fine: the device cgroup was reset (systemctl "
    "daemon-reload); restart the container. On the host: look into dmesg for Xid errors."
)
_NO_DEVICES = "The NVIDIA driver runs, but finds no device."
_FABRIC = "CUDA is not ready (error 802): the fabric manager is missing, stopped or of another version than the driver."
_AMD = "The amdgpu kernel driver is not loaded on this host."
_BY_EXIT_CODE: dict[int | None, tuple[str, str, int | None]] = {
    # From nvidia-smi's manual.
    6: ("no_devices", _NO_DEVICES, 0),
    9: ("driver_not_loaded", _DRIVER, 0),
    12: ("driver_not_loaded", "NVIDIA's library libnvidia-ml.so is not on this host.", 0),
    15: ("gpu_lost", "A GPU has fallen off the bus; reboot the host.", -1),
    18: ("driver_library_mismatch", _MISMATCH, 0),
}


def _known(pattern: str, code: str, message: str, gpus: int | None = 0) -> tuple[re.Pattern[str], str, str, int | None]:
    return re.compile(pattern, re.IGNORECASE), code, message, gpus


_KNOWN = (
    _known(
        rf"device handle for\s+GPU\s*(?:\d+\s*:?\s+)?{_BDF}\s*:\s*(?:the\s+)?GPU (?:is lost|has fallen)",
        "gpu_lost",
        "GPU {0} has fallen off the bus; reboot the host.",
        -1,
    ),
    _known(
        rf"device handle for\s+GPU\s*(?:\d+\s*:?\s+)?{_BDF}\s*:\s*(?:the\s+)?GPU requires",
        "gpu_requires_reset",
        "GPU {0} requires a reset.",
        -1,
    ),
    _known(
        rf"device handle for\s+GPU\s*(?:\d+\s*:?\s+)?{_BDF}", "gpu_handle_unknown_error", "GPU {0} does not answer.", -1
    ),
    _known(r"fallen off the bus|GPU is lost", "gpu_lost", "A GPU has fallen off the bus; reboot the host.", -1),
    _known(r"GPU requires (?:a )?reset", "gpu_requires_reset", "A GPU requires a reset.", -1),
    _known(r"driver/library version mismatch|RM version mismatch", "driver_library_mismatch", _MISMATCH),
    _known(
        r"communicate with the NVIDIA driver|NVML: driver not loaded|NVIDIA driver is not loaded",
        "driver_not_loaded",
        _DRIVER,
    ),
    _known(
        r"libnvidia-ml\.so|NVML: not found",
        "driver_not_loaded",
        "NVIDIA's library libnvidia-ml.so is not on this host.",
    ),
    _known(r"no devices were found|no NVIDIA GPU", "no_devices", _NO_DEVICES),
    _known(r"failed to initialize NVML", "nvml_unknown_error", _NVML),
    _known(r"error 802|system not yet initialized|cudaErrorSystemNotReady", "fabric_not_ready", _FABRIC, None),
    _known(
        r"no CUDA[- ]capable device|no CUDA (?:devices|GPUs)|driver version is insufficient|cudaErrorNoDevice|"
        r"CUDA_ERROR_|error 80[34]",
        "cuda_not_available",
        "nvidia-smi answers, but CUDA programs find no device.",
        None,
    ),
    _known(r"Field \"(.+?)\" is not a valid field", "unknown_field", "This driver does not know the field {0}.", None),
    _known(
        r"sorry, you must have a tty",
        "sudo_requires_tty",
        'sudoers has "Defaults requiretty"; allow !requiretty for this user or do without sudo.',
        None,
    ),
    _known(
        r"a password is required|terminal is required to (?:read|authenticate)|no tty present and no askpass|"
        r"\[sudo\] password|interactive authentication is required",
        "sudo_needs_password",
        "sudo asks for a password; allow NOPASSWD for this user or do without sudo.",
        None,
    ),
    _known(
        r"not in the sudoers|is not allowed to (?:execute|run sudo)",
        "sudo_not_allowed",
        "This user may not use sudo on the host.",
        None,
    ),
    _known(
        r"missing the following (?:required )?groups|/dev/kfd.*permission denied",
        "amd_permission_denied",
        "This user may not open the AMD GPUs: add it to the groups render and video.",
        None,
    ),
    _known(r"cannot find a device|can ?not find a device", "amd_smi_device_not_found", "amd-smi knows no such device."),
    _known(
        r"amdgpu not found in modules|DRIVER_NOT_LOADED|detect any GPU devices|ROCk module is NOT loaded|"
        r"driver not initialized|no AMD GPUs? (?:found|detected|specified)|rocm.*driver.*not",
        "amdgpu_driver_not_loaded",
        _AMD,
    ),
    _known(
        r"not respond|unresponsive|amdgpu.*(?:ring .* timeout|reset)|GPU recovery|"
        r"AMDSMI_STATUS_(?:TIMEOUT|BUSY|IO|UNEXPECTED)|RSMI_STATUS_(?:BUSY|UNEXPECTED|FILE_ERROR)|low-level error",
        "amd_gpu_unresponsive",
        "An AMD GPU does not answer; reset it or reboot the host.",
        -1,
    ),
    _known(
        r"account is currently not available|nologin|This account is (?:disabled|locked)",
        "login_refused",
        "The account may not log in: its shell is nologin.",
        None,
    ),
    _known(
        r"password has expired|must change your password|account has expired",
        "login_refused",
        "The account or its password has expired.",
        None,
    ),
)
_FISH = "The remote login shell is fish; commands must be wrapped in /bin/sh -c."
_CSH = "The remote login shell is csh/tcsh; commands must be wrapped in /bin/sh -c."
_FISH_WORDS = re.compile(r"^fish: |config\.fish|^fish\b.*\(line \d+\)", re.MULTILINE)
# csh's own words: capital `Command not found.` for a POSIX builtin, and its syntax errors.
_CSH_WORDS = re.compile(
    r"^(?:export|unset|local|readonly|set|if|then|case): (?:Command not found|Expression Syntax|Variable name)|"
    r"Illegal variable name|Ambiguous output redirect|Badly placed \(|Missing end of string|Unmatched ['\"`]|"
    r"^\w+=\S*: Command not found|Undefined variable",
    re.MULTILINE,
)
_MISSING = (
    re.compile(r"command not found: (\S+)"),  # zsh
    re.compile(r"unknown command:? ['\"`]?([\w./-]+)", re.IGNORECASE),  # fish
    re.compile(r"(?:^|[\s:])([\w./+-]+): (?:command )?not found", re.IGNORECASE | re.MULTILINE),
    re.compile(r"(?:^|[\s:])([\w./+-]+): No such file or directory", re.MULTILINE),
    re.compile(r"failed to run command ['\"‘`]?([\w./+-]+)"),  # timeout, env
    re.compile(r"Command ['\"‘`]?([\w./+-]+)['\"’`]? not found"),  # Debian's command-not-found
)


def _missing_command(text: str) -> str | None:
    if _CSH_WORDS.search(text):
        return "csh"
    for pattern in _MISSING:
        match = pattern.search(text)
        if match:
            return match[1]
    return None


def _not_found(command: str) -> Failure:
    name = command.rpartition("/")[2]
    if name == "csh":
        return Failure("remote_shell_not_posix", _CSH, None)
    if name == "nvidia-smi":
        return Failure("nvidia_smi_not_found", "nvidia-smi is not on PATH; on WSL2 it is /usr/lib/wsl/lib/nvidia-smi.")
    return Failure("command_not_found", f"The host has no command {name}.", None)

"""Whether a host's key may be trusted: strictly by the known_hosts files, new hosts only where that is asked for."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path

from llmgwctl.domain.desired import SshSettings
from llmgwctl.hosts.known_hosts import SSH_PORT, KnownHosts, Standing, Verdict, fingerprint, type_of
from llmgwctl.hosts.ssh_config import Hop
from llmgwctl.hosts.transport import TransportError, Trouble

SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
USER_KNOWN_HOSTS = "~/.ssh/known_hosts"


class Trust:
    """The configuration's known_hosts (relative to `base_dir`), the user's and the system's; each is read once."""

    def __init__(self, settings: SshSettings, base_dir: Path) -> None:
        self._settings = settings
        self._own = base_dir / Path(settings.known_hosts or USER_KNOWN_HOSTS).expanduser()
        self._known: dict[tuple[str, ...], KnownHosts] = {}
        self._lock = threading.Lock()

    def key_types(self, hop: Hop) -> tuple[str, ...]:
        """Return the kinds of key that the host is known by."""
        return self._known_hosts(hop).key_types(hop.key_name, hop.port)

    def check(self, hop: Hop, key: bytes) -> None:
        """Raise TransportError unless the key is the host's; records it where new hosts are accepted."""
        known = self._known_hosts(hop)
        verdict = known.check(hop.key_name, hop.port, key)
        if verdict.standing is Standing.UNKNOWN and self._settings.host_keys == "accept-new":
            try:
                verdict = known.add(self._own, hop.key_name, hop.port, key)
            except OSError as problem:
                raise TransportError(
                    Trouble.HOST_KEY_UNKNOWN,
                    f"{hop.where}: its new key can't be added to {self._own}: {problem.strerror}.",
                ) from None
        if verdict.standing is not Standing.KNOWN:
            raise _distrusted(hop, key, verdict, self._own)

    def _known_hosts(self, hop: Hop) -> KnownHosts:
        with self._lock:
            known = self._known.get(hop.known_hosts)
            if known is None:
                users = hop.known_hosts or (USER_KNOWN_HOSTS, USER_KNOWN_HOSTS + "2")
                paths = dict.fromkeys([self._own, *(Path(f).expanduser() for f in users), SYSTEM_KNOWN_HOSTS])
                known = self._known[hop.known_hosts] = KnownHosts(paths)
            return known


def _distrusted(hop: Hop, key: bytes, verdict: Verdict, file: Path) -> TransportError:
    line, shown = verdict.because, f"{type_of(key)} {fingerprint(key)}"
    if verdict.standing is Standing.UNKNOWN or line is None:
        port = "" if hop.port == SSH_PORT else f"-p {hop.port} "
        return TransportError(
            Trouble.HOST_KEY_UNKNOWN,
            f"{hop.where}: its host key {shown} is in no known_hosts file. If it is right: "
            f"ssh-keyscan {port}{shlex.quote(hop.key_name)} >> {shlex.quote(str(file))} (compare the fingerprint), "
            "or set settings.ssh.host_keys: accept-new.",
        )
    if verdict.standing is Standing.REVOKED:
        return TransportError(
            Trouble.HOST_KEY_CHANGED, f"{hop.where}: its host key {shown} is revoked by {line.file}:{line.line}."
        )
    if verdict.standing is Standing.AUTHORITY:
        return TransportError(
            Trouble.HOST_KEY_UNKNOWN,
            f"{hop.where}: only a @cert-authority line knows it ({line.file}:{line.line}), and host certificates are "
            f"not supported. Add its key {shown} to {file}.",
        )
    return TransportError(
        Trouble.HOST_KEY_CHANGED,
        f"{hop.where}: ITS HOST KEY HAS CHANGED. Known from {line.file}:{line.line}: {line.key_type} "
        f"{line.fingerprint}; shown now: {shown}. Either it was installed anew, or someone is in between. "
        "Only if you know why: remove that line.",
    )

"""The login: which keys are shown, and in which words the rest is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import paramiko

from llmgwctl.hosts.ssh_config import Hop
from llmgwctl.hosts.ssh_dial import DroppedError, said
from llmgwctl.hosts.ssh_keys import Identity, KeyRing
from llmgwctl.hosts.ssh_protocol import ClientProtocol
from llmgwctl.hosts.transport import TransportError, Trouble, host_words

CHOOSE = "`IdentityFile` and `IdentitiesOnly yes` in ~/.ssh/config choose the key that it knows"


def authenticate(hop: Hop, protocol: ClientProtocol, ring: KeyRing, deadline: float) -> None:
    """Log in with one of the user's keys. Raises DroppedError where another try may succeed, else TransportError."""
    identities, problems = ring.identities(hop)
    if not identities:
        why = "; ".join(problems) or "the agent has none, and ~/.ssh has none of id_ed25519, id_ecdsa, id_rsa"
        raise TransportError(
            Trouble.NO_KEY,
            f"{hop.where}: there is no key to log in with: {why}. "
            "Passwords are never asked for; use ssh-add, or IdentityFile in ~/.ssh/config.",
        )
    shown: list[Identity] = []
    answered = 0
    refusal: BaseException | None = None
    for identity in identities:
        shown.append(identity)
        if _accepted(hop, protocol, identity, deadline):
            ring.remember(hop, identity)
            return
        refusal = protocol.get_exception() or refusal
        if not protocol.is_active() or not _takes_keys(refusal):
            break
        answered += 1
    if protocol.is_active():
        raise _refused(hop, refusal, shown, problems)
    raise _ended(hop, protocol, refusal, shown, answered)


def _accepted(hop: Hop, protocol: ClientProtocol, identity: Identity, deadline: float) -> bool:
    done = threading.Event()
    try:
        protocol.auth_publickey(hop.user, identity.key, event=done)
    except paramiko.SSHException:
        return False
    if not done.wait(max(0.05, deadline - time.monotonic())):
        raise TransportError(
            Trouble.TIMEOUT, f"{hop.where} does not answer the login within {hop.connect_timeout_s:g} s."
        )
    return protocol.is_authenticated()


def _takes_keys(refusal: BaseException | None) -> bool:
    methods = _methods(refusal)
    return not methods or "publickey" in methods


def _methods(refusal: BaseException | None) -> Sequence[str]:
    """Return what the server accepts instead, or besides; nothing where it did not say."""
    return getattr(refusal, "allowed_types", None) or ()


def _refused(
    hop: Hop, refusal: BaseException | None, shown: Sequence[Identity], problems: Sequence[str]
) -> TransportError:
    methods = host_words(", ".join(_methods(refusal)))
    if isinstance(refusal, paramiko.ssh_exception.PartialAuthentication):
        hint = f"It accepts the key but also wants: {methods}."
    elif not _takes_keys(refusal):
        hint = f"It accepts no keys, only: {methods}."
    else:
        hint = f"Is the key in {hop.user}'s ~/.ssh/authorized_keys on it?"
    extra = f" Not tried: {'; '.join(problems)}." if problems else ""
    return TransportError(Trouble.AUTH, f"{hop.where} refuses the login. Tried: {_listed(shown)}.{extra} {hint}")


def _ended(
    hop: Hop, protocol: ClientProtocol, refusal: BaseException | None, shown: Sequence[Identity], answered: int
) -> TransportError | DroppedError:
    """Return why the connection ended during the login.

    sshd ends it at the key that is one too many. Some servers do so without a word: after a refused key an end is
    the server's will, and before one an accident.
    """
    if isinstance(refusal, paramiko.SSHException) and not isinstance(refusal, paramiko.AuthenticationException):
        return TransportError(Trouble.AUTH, f"{hop.where}: the login with {shown[-1]} broke off: {said(refusal)}.")
    words = protocol.farewell
    if "authentication failures" in words:
        return TransportError(
            Trouble.AUTH,
            f"{hop.where} ended the login after {_count(len(shown))} ({words}): it tries no more than its "
            f"MaxAuthTries. {CHOOSE}. Tried: {_listed(shown)}.",
        )
    if words:
        return TransportError(Trouble.AUTH, f"{hop.where} ended the login: {words}. Tried: {_listed(shown)}.")
    if answered:
        return TransportError(
            Trouble.AUTH,
            f"{hop.where} closed the connection after {_count(answered, 'refused ')}, without a word. If it tries no "
            f"more than that (MaxAuthTries): {CHOOSE}. Tried: {_listed(shown)}.",
        )
    return DroppedError("during the login")


def _count(keys: int, kind: str = "") -> str:
    return f"{keys} {kind}key{'s' if keys > 1 else ''}"


def _listed(shown: Sequence[Identity]) -> str:
    return "; ".join(map(str, shown))

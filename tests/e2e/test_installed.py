"""The package as others get it: a wheel holds all that the program needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, timeout=300)
    (built,) = folder.glob("llmgwctl-*.whl")
    return built


def test_the_wheel_holds_the_program_its_schemas_and_what_goes_to_hosts(wheel):
    """Nothing that is in the checkout's package or schemas is left out, and nothing else comes in."""
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    package = {str(p.relative_to(ROOT)) for p in _files(ROOT / "llmgwctl")}
    schemas = {f"llmgwctl/schemas/{p.name}" for p in _files(ROOT / "schemas")}
    assert names == package | schemas


def test_the_program_runs_from_the_wheel(wheel, tmp_path):
    """Its schemas are found inside the package, and the main job runs without the checkout."""
    site, fleet = tmp_path / "site", tmp_path / "fleet"
    zipfile.ZipFile(wheel).extractall(site)
    fleet.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLMGWCTL_", "PYTHON"))} | {"PYTHONPATH": str(site)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=tmp_path).stdout

    where = run("-c", "from llmgwctl.config.schema import schema_path; print(schema_path('config'))")
    assert Path(where.strip()) == site / "llmgwctl/schemas/config.schema.json"
    (fleet / "fleet.yaml").write_text(
        "hosts: [{name: h, connection: local, simulate: {gpus: 1, gpu_class: demo}}]\n"
        "models: [{name: m, source: m, profiles: [{name: p, engine: sim, gpu_class: demo}], scaling: {min: 1}}]\n"
    )
    assert "1 to start" in run("-m", "llmgwctl", "-C", str(fleet), "plan")


def _files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]

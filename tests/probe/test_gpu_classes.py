"""A printed GPU name and size give one class, or `unknown`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from llmgwctl.domain.gpu_classes import classify, from_alias

NAMES = Path(__file__).parents[2] / ".." / "shared" / "data" / "inventory" / "gpu_names.yaml"


@pytest.mark.parametrize(
    ("product", "memory_mib", "wanted"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "h100-80gb"),
        ("NVIDIA H100 NVL", 95830, "h100-94gb"),
        ("NVIDIA L4", 23034, "l4-24gb"),
        ("NVIDIA L40", 46068, "l40-48gb"),
        ("NVIDIA L40S", 46068, "l40s-48gb"),
        ("NVIDIA A10G", 23028, "a10g-24gb"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96gb"),
        ("Quadro RTX 6000", 24220, "rtx6000-24gb"),
        ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx6000ada-48gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtxpro6000-96gb"),
        ("Tesla V100S-PCIE-32GB", 32510, "v100-32gb"),
        ("GRID A100D-20C", 20480, "vgpu:a100-20gb"),
        ("NVIDIA A40-48Q", 49152, "vgpu:a40-48gb"),
        ("GRID T4-8Q", 8192, "vgpu:t4-8gb"),
    ],
)
def test_known_names(product: str, memory_mib: int, wanted: str):
    """The family is matched on whole words, the size within 7 %."""
    assert classify(product, memory_mib) == wanted


@pytest.mark.parametrize(
    ("product", "memory_mib"),
    [
        ("NVIDIA H100 80GB HBM3", 20480),  # a soft slice
        ("NVIDIA A100-SXM4-80GB", 40960),  # a slice that is as large as another card of the family
        ("NVIDIA GeForce RTX 4090", 49140),  # a modified card
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376),
        ("Graphics Device", 5912),
        ("NVIDIA H100 80GB ...", None),
        ("NVIDIA L400", 81559),
        ("NVIDIA A100", None),  # 40 or 80
        ("Navi 32 [Radeon RX 7700 XT / 7800 XT]", 16368),
        ("", None),
    ],
)
def test_no_guess(product: str, memory_mib: int | None):
    """What the table does not hold stays unknown."""
    assert classify(product, memory_mib) == "unknown"


def test_amd_goes_by_device_id():
    """AMD's names do not name the product; the PCI device id does."""
    name = "AMD INSTINCT MI200 (MCM) OAM LC MBA HPE C2"
    assert classify(name, None) == "unknown"
    assert classify(name, 65520, pci_device_id="0x7408") == "mi250x-64gb"


def test_mig():
    """A slice is named after its card and its profile; a slice of an unknown card is unknown."""
    assert classify("NVIDIA H100 80GB HBM3", 81559, mig_profile="3g.40gb") == "mig:h100-80gb/3g.40gb"
    assert classify("Graphics Device", 81559, mig_profile="3g.40gb") == "unknown"


def test_unified():
    """A card that shares the host's memory has no size."""
    assert classify("NVIDIA GB10", None, unified=True) == "gb10-unified"
    assert classify("Orin (nvgpu)", None, unified=True) == "jetson-orin-unified"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("A100-80GB", "a100-80gb"), ("NVIDIA-H100-80GB-HBM3", "h100-80gb"), ("h200-141gb", "h200-141gb"), ("A100", None)],
)
def test_aliases(text: str, wanted: str | None):
    """Other tools' spellings are understood, ambiguous ones are not."""
    assert from_alias(text) == wanted


def _rows():
    return yaml.safe_load(NAMES.read_text()) if NAMES.exists() else []


@pytest.mark.skipif(not NAMES.exists(), reason="the collected names are not here")
@pytest.mark.parametrize("row", _rows(), ids=lambda r: str(r["printed"])[:50])
def test_every_collected_name(row):
    """Every row of the collected names gets the class that was proposed for it."""
    wanted = re.split(r"[ (,]", str(row["gpu_class"]))[0]
    if wanted == "ambiguous":
        wanted = "unknown"
    memory = re.match(r"\d{3,6}(?!\s*GB)", str(row.get("memory_mib", "")))
    printed, _, device = str(row["printed"]).partition(" + ")
    names = [n for n in re.split(r" / (?=NVIDIA|AMD|GRID)", printed) if n != "..."]
    for name in names:
        bare = re.sub(r" \(A3.*| / \.\.\.$", "", name)
        got = classify(bare, int(memory[0]) if memory else None, pci_device_id=device)
        if wanted.startswith("vgpu:<parent>"):
            assert re.fullmatch(r"vgpu:(a100-20|a40-48)gb", got), (name, got)
        else:
            assert got == wanted, (name, got)

"""Turns the name that a tool prints for a GPU into its class, by a closed table; never guesses."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNKNOWN = "unknown"
TOLERANCE = 0.07
"""How far the printed size may be from the nominal one: drivers and ECC keep a part (22.5 of an A10's 24 GiB)."""


@dataclass(frozen=True, slots=True)
class Family:
    """Cards of one name; `sizes_gib` are the nominal ones that were sold."""

    name: str
    words: tuple[str, ...]
    sizes_gib: tuple[int, ...]


def classify(
    product: str,
    memory_mib: int | None,
    *,
    unified: bool = False,
    pci_device_id: str = "",
    mig_profile: str = "",
) -> str:
    """Return `FAMILY-SIZEgb`, `FAMILY-unified`, `vgpu:…`, `mig:…/PROFILE`, or `unknown`.

    `pci_device_id` (`0x74a1`) decides for AMD, whose names may not name the product. Without a size the class is given
    only where the name leaves no choice. Names and sizes: public captures and data sheets.
    """
    if mig_profile:
        parent = classify(product, memory_mib, unified=unified, pci_device_id=pci_device_id)
        return UNKNOWN if parent == UNKNOWN else f"mig:{parent}/{mig_profile.lower()}"
    family = _AMD_BY_DEVICE.get(pci_device_id.lower().removeprefix("0x"))
    if family is None:
        virtual = _VGPU.search(product.strip())
        if virtual:
            return _vgpu_class(virtual)
        words = _words(product)
        family = _family(words)
        if family is None:
            return UNKNOWN
        stated = [s for s in _stated_sizes(words) if s in family.sizes_gib]
        if stated:
            family = Family(family.name, family.words, tuple(stated))
    if family.name in _UNIFIED:
        return f"{family.name}-unified"
    if family.name in _APUS:
        return f"{family.name}-{family.sizes_gib[0]}gb"
    if not family.sizes_gib:
        return family.name
    if memory_mib is None:
        # A discrete card that reports no memory is not told apart from a part that shares the host's.
        if unified:
            return UNKNOWN
        return f"{family.name}-{family.sizes_gib[0]}gb" if len(family.sizes_gib) == 1 else UNKNOWN
    size = nominal_size_gib(memory_mib, family.sizes_gib)
    return UNKNOWN if size is None else f"{family.name}-{size}gb"


def from_alias(text: str) -> str | None:
    """Return the class that another tool's spelling means: `A100-80GB`, `NVIDIA-H100-80GB-HBM3`; None if unknown."""
    lowered = text.strip().lower()
    if _CLASS.fullmatch(lowered):
        name, _, size = lowered.rpartition("-")
        family = next((f for f in FAMILIES if f.name == name), None)
        if family and (size == "unified" or int(size.removesuffix("gb")) in family.sizes_gib):
            return lowered
    found = classify(text.replace("-", " ").replace("_", " "), None)
    return None if found == UNKNOWN else found


def nominal_size_gib(memory_mib: int, sizes_gib: tuple[int, ...]) -> int | None:
    """Return the nominal size that a printed one stands for; None where it is none of them."""
    gib = memory_mib / 1024
    near = [s for s in sizes_gib if abs(gib - s) <= TOLERANCE * s]
    return min(near, key=lambda s: abs(gib - s)) if near else None


_CLASS = re.compile(r"[a-z0-9]+-(\d+gb|unified)")
_VGPU = re.compile(r"^(?:GRID|NVIDIA)\s+(\S+?)-(?:\d+-)?(\d+)[QCAB]\d?(?:ME|MEP)?$", re.IGNORECASE)
_MAKERS = frozenset({
    "nvidia", "amd", "ati", "intel", "corporation", "instinct", "geforce", "tesla", "quadro", "radeon", "ascend",
    "huawei", "inc", "advanced", "micro", "devices",
})  # fmt: skip
# Words beside the family that say nothing about what fits: form factor, kind of memory, cooling.
_NEUTRAL = frozenset({
    "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "sxm7", "pcie", "pci", "oam", "hbm2", "hbm2e", "hbm3", "hbm3e", "ac",
    "lc", "graphics", "gpu", "accelerator", "generation",
})  # fmt: skip
_PRO_WORDS = frozenset(["blackwell", "workstation", "server", "edition", "max", "q"])
_SIZE = re.compile(r"(\d+)g(?:i?b)?")
_UNIFIED = frozenset({"gb10", "jetson-orin", "jetson-thor", "jetson-xavier"})
_APUS = frozenset({"mi300a"})
"""Their tools print one partition's share, which means nothing: the size is the card's."""


def _vgpu_class(match: re.Match[str]) -> str:
    card, size = match[1].lower(), match[2]
    for family in _BY_LENGTH:
        name = family.name
        if card == name or (card.startswith(name) and card[len(name) :] in _VGPU_SUFFIXES):
            return f"vgpu:{name}-{size}gb"
    return UNKNOWN


# Letters that a vGPU's card name has for the memory or form: A100D is the A100 with 80 GB.
_VGPU_SUFFIXES = frozenset(("d", "dx", "x", "l", "xl", "xm", "-ada"))


def _words(product: str) -> tuple[str, ...]:
    text = re.sub(r"\((?:r|tm|c)\)", " ", product.lower())
    bracket = re.search(r"\[([^\]]+)\]\s*$", text)
    if bracket:
        text = bracket[1]
    if "/" in text or text.endswith("..."):
        return ()  # one string for several products (`RX 7700 XT / 7800 XT`), or a name cut by a table
    words = [w for w in re.split(r"[\s\-_,.()]+", text) if w]
    while words and words[0] in _MAKERS:
        words.pop(0)
    return tuple(words)


def _family(words: tuple[str, ...]) -> Family | None:
    for family in _BY_LENGTH:
        length = len(family.words)
        if words[:length] == family.words:
            rest = words[length:]
            allowed = _NEUTRAL | _PRO_WORDS if family.name.startswith("rtxpro") else _NEUTRAL
            return family if all(w in allowed or _SIZE.fullmatch(w) for w in rest) else None
    return None


def _stated_sizes(words: tuple[str, ...]) -> list[int]:
    return [int(m[1]) for m in map(_SIZE.fullmatch, words) if m]


def _table(text: str) -> tuple[Family, ...]:
    """Read lines of `NAME SIZE,SIZE [words of the printed name]`; without words the name is printed as it is."""
    families = []
    for line in text.strip().splitlines():
        name, sizes, *words = line.split()
        gib = tuple(int(s) for s in sizes.split(",") if s != "-")
        families.append(Family(name, tuple(words) or (name,), gib))
    return tuple(families)


FAMILIES = _table("""
h100 80,96,64
h100 94 h100 nvl
h200 141
h200 141 h200 nvl
h20 96,141
h800 80
h800 94 h800 nvl
gh200 96,144
b200 180
b300 288
gb200 186
gb300 288
gb10 -
a100 40,64,80
a100x 80
a800 40,80
a10 24
a10g 24
a16 16
a2 16
a30 24
a30x 24
a40 48
l2 24
l4 24
l20 48
l40 48
l40g 24
l40s 48
t4 16
t4g 16
v100 16,32
v100 32 v100s
p100 12,16
p40 24
p4 8
m40 12,24
m60 8
k80 12
rtx5090 32 rtx 5090
rtx5090d 32 rtx 5090 d
rtx5080 16 rtx 5080
rtx5070ti 16 rtx 5070 ti
rtx5070 12 rtx 5070
rtx5060ti 8,16 rtx 5060 ti
rtx5060 8 rtx 5060
rtx4090 24 rtx 4090
rtx4090d 24 rtx 4090 d
rtx4080super 16 rtx 4080 super
rtx4080 16 rtx 4080
rtx4070tisuper 16 rtx 4070 ti super
rtx4070ti 12 rtx 4070 ti
rtx4070super 12 rtx 4070 super
rtx4070 12 rtx 4070
rtx4060ti 8,16 rtx 4060 ti
rtx4060 8 rtx 4060
rtx3090ti 24 rtx 3090 ti
rtx3090 24 rtx 3090
rtx3080ti 12 rtx 3080 ti
rtx3080 10,12 rtx 3080
rtx3070ti 8 rtx 3070 ti
rtx3070 8 rtx 3070
rtx3060ti 8 rtx 3060 ti
rtx3060 8,12 rtx 3060
rtx3050 6,8 rtx 3050
rtx2080ti 11 rtx 2080 ti
rtx2080super 8 rtx 2080 super
rtx2080 8 rtx 2080
rtx2070super 8 rtx 2070 super
rtx2070 8 rtx 2070
rtx2060super 8 rtx 2060 super
rtx2060 6,12 rtx 2060
gtx1660ti 6 gtx 1660 ti
gtx1660super 6 gtx 1660 super
gtx1660 6 gtx 1660
gtx1080ti 11 gtx 1080 ti
gtx1080 8 gtx 1080
gtx1070ti 8 gtx 1070 ti
gtx1070 8 gtx 1070
gtx1060 3,6 gtx 1060
titanv 12 titan v
titanrtx 24 titan rtx
titanxp 12 titan xp
rtxpro6000 96 rtx pro 6000
rtxpro5000 48,72 rtx pro 5000
rtxpro4500 32 rtx pro 4500
rtxpro4000 24 rtx pro 4000
rtxpro2000 16 rtx pro 2000
rtx6000ada 48 rtx 6000 ada
rtx5880ada 48 rtx 5880 ada
rtx5000ada 32 rtx 5000 ada
rtx4500ada 24 rtx 4500 ada
rtx4000ada 20 rtx 4000 ada
rtx4000sffada 20 rtx 4000 sff ada
rtx2000ada 16 rtx 2000 ada
rtxa6000 48 rtx a6000
rtxa5500 24 rtx a5500
rtxa5000 24 rtx a5000
rtxa4500 20 rtx a4500
rtxa4000 16 rtx a4000
rtxa2000 6,12 rtx a2000
rtx8000 48 rtx 8000
rtx6000 24 rtx 6000
rtx5000 16 rtx 5000
rtx4000 8 rtx 4000
p6000 24
p400 2
gv100 32
gp100 16
jetson-orin - orin nvgpu
jetson-orin - orin
jetson-thor - thor nvgpu
jetson-thor - thor
jetson-xavier - xavier nvgpu
mi50 16,32
mi60 32
mi100 32
mi210 64
mi250 64
mi250x 64
mi300a 128
mi300x 192
mi308x -
mi325x 256
mi350x 288
mi355x 288
w7900 48 pro w7900
w6800 32 pro w6800
rx7900xtx 24 rx 7900 xtx
rx7900xt 20 rx 7900 xt
r9700 32 ai pro r9700
ascend310 8 310
ascend910a 32 910a
ascend910b1 64 910b1
ascend910b2 64 910b2
ascend910b3 64 910b3
ascend910b4 32 910b4
ascend910b4 64 910b4 1
ascend910c 64 ascend910
arca770 16 arc a770
arcb580 12 arc b580
arcprob60 24 arc pro b60
max1100 48 data center gpu max 1100
max1550 128 data center gpu max 1550
flex170 16 data center gpu flex 170
""")

# Most words first, then the longest: `l40s` before `l40` before `l4`.
_BY_LENGTH = sorted(FAMILIES, key=lambda f: (len(f.words), sum(map(len, f.words))), reverse=True)


def _named(name: str) -> Family:
    return next(f for f in FAMILIES if f.name == name)


# PCI device ids by AMD's own list (amdgpu.ids); a virtual function counts as its card.
_AMD_BY_DEVICE = {
    device: _named(name)
    for name, devices in {
        "mi100": "738c 738e",
        "mi210": "740f",
        "mi250x": "7408",
        "mi300a": "74a0",
        "mi300x": "74a1 74b5 74a9 74bd",
        "mi308x": "74a2 74a8 74b6",
        "mi325x": "74a5 74b9",
        "mi350x": "75a0 75b0",
        "mi355x": "75a3 75b3",
    }.items()
    for device in devices.split()
}

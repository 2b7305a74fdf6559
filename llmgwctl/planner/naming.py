"""Names that are computed, never drawn: replicas, and the folders of their members."""

from __future__ import annotations

import hashlib
import re

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_SLUG_LENGTH = 40


def replica_id(model: str, index: int) -> str:
    """Return `MODEL/INDEX`."""
    return f"{model}/{index}"


def model_of(replica: str) -> str:
    """Return the model's name; it may hold slashes itself."""
    return replica.rpartition("/")[0]


def folder_name(model: str, index: int, member: int) -> str:
    """Return a member's folder and unit instance: letters, digits, `._-` only, different for different models.

    A model's name may hold anything, so what was replaced or cut is made up for by a part of its SHA-256.
    """
    slug = _UNSAFE.sub("-", model)[:_SLUG_LENGTH]
    if slug != model:
        slug = f"{slug.strip('-') or 'model'}-{hashlib.sha256(model.encode()).hexdigest()[:10]}"
    return f"{slug}.{index}.{member}"

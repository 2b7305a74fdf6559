"""The tenancy tree of the YAML: scopes, their quotas, and the rules between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from llmgwctl.config.nodes import Node
from llmgwctl.config.reading import Report, mebibytes, millicores
from llmgwctl.config.wording import quoted
from llmgwctl.diagnostics import SourceRange
from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.tenancy import CORES, GPUS, MEMORY, Measured, Quota, scope_level

CLASS_PREFIX = "gpu_classes."
_PARENTS = {"org": (), "team": ("org",), "project": ("team", "org")}
_UNITS = {CORES: 1000, MEMORY: 1024}


def quota_of(scope: str, node: Node, at: SourceRange | None) -> Quota:
    """Return the quota under a scope; the schema has accepted it. An empty one declares the scope."""
    parent = node.get("parent")
    return Quota(
        scope, parent.text if parent else None, _measured(node.get("guarantee")), _measured(node.get("limit")), at
    )


def check_tree(quotas: Mapping[str, Quota], declared: Iterable[str], nodes: Mapping[str, Node], report: Report) -> None:
    """Add what is wrong with the tree: parents, levels, cycles, and guarantees beyond limits.

    `declared` are all scopes, those too whose entries could not be read; `nodes` are the entries, for places.
    """
    known = set(declared)
    for scope, quota in quotas.items():
        about = report.about(f"Quota `{quoted(scope)}`")
        node = nodes[scope]
        if quota.parent is not None:
            _check_parent(quota, known, (node.get("parent") or node).at, about)
        if cycle := _cycle(quotas, scope):
            about.error(
                f"its parents lead back to itself: {' -> '.join(map(quoted, cycle))}.",
                "Take one parent out.",
                (node.get("parent") or node).at,
            )
            continue
        for resource, amount in quota.guarantee:
            _check_limits(quotas, quota, resource, amount, _place(node, "guarantee", resource), about)
        _check_classes(quotas, quota, _place(node, "guarantee", "gpu_classes"), about)
    _warn_of_children(quotas, nodes, report)


def check_use(quotas: Mapping[str, Quota], models: Iterable[Model], nodes: Mapping[str, Node], report: Report) -> None:
    """Warn of guarantees that cover no replica of any model beneath them: they would protect nothing (D3)."""
    beneath: dict[str, dict[tuple[int, int, int, str | None], tuple[str, Profile]]] = {}
    for model in models:
        for scope in _path(quotas, model.owner):
            sizes = beneath.setdefault(scope, {})
            for profile in model.profiles:
                size = profile.size
                sizes.setdefault(
                    (size.gpus, size.millicores, size.memory_mib, profile.gpu_class), (model.name, profile)
                )
    for scope, quota in quotas.items():
        sizes = beneath.get(scope, {})
        if not sizes or not any(amount for _, amount in quota.guarantee):
            continue
        about = report.about(f"Quota `{quoted(scope)}`")
        place = (nodes[scope].get("guarantee") or nodes[scope]).at
        takes = [_takes(profile, quota.guarantee) for _, profile in sizes.values()]
        named = ", ".join(resource for resource, _ in quota.guarantee)
        using = [t for t in takes if any(t)]
        if not using:
            about.warning(
                f"no model beneath it uses what its guarantee names ({named}).",
                "Name what the models' profiles take, or take the guarantee out.",
                place,
            )
        elif not any(all(t <= a for t, (_, a) in zip(take, quota.guarantee, strict=True)) for take in using):
            about.warning(
                "its guarantee is smaller than the smallest replica of every model beneath it, so it covers none.",
                "Raise the guarantee to the size of a replica, or add a smaller profile.",
                place,
            )


def _measured(node: Node | None) -> Measured:
    if node is None:
        return ()
    amounts: dict[str, int] = {}
    for key, child in node.items():
        if child.value is None:
            continue
        if key == CORES:
            amounts[CORES] = millicores(child)
        elif key == MEMORY:
            amounts[MEMORY] = mebibytes(child)
        elif key == GPUS:
            amounts[GPUS] = int(child.value)
        else:
            amounts.update((CLASS_PREFIX + name, int(count.value)) for name, count in child.items())
    return tuple(sorted(amounts.items()))


def _check_parent(quota: Quota, known: set[str], at: SourceRange | None, report: Report) -> None:
    level, parent = scope_level(quota.scope), str(quota.parent)
    allowed = _PARENTS[level]
    if not allowed:
        report.error("an org has no parent.", "Take `parent` out.", at)
    elif scope_level(parent) not in allowed:
        wanted = " or ".join({"org": "an org", "team": "a team"}[a] for a in allowed)
        report.error(
            f"the parent `{quoted(parent)}` is {'an' if parent.startswith('o') else 'a'} {scope_level(parent)}; "
            f"a {level}'s parent is {wanted}.",
            f"Write {' or '.join(a + ':ID' for a in allowed)}.",
            at,
        )
    elif parent not in known:
        hint = report.did_you_mean(parent, known) or f"Declare it: `{parent}: {{}}` under `quotas`."
        report.error(f"the parent `{quoted(parent)}` is not declared.", hint, at)


def _cycle(quotas: Mapping[str, Quota], scope: str) -> list[str]:
    """Return the scopes from a scope back to itself; nothing where its parents end."""
    walked = [scope]
    while (quota := quotas.get(walked[-1])) is not None and quota.parent is not None:
        if quota.parent in walked:
            return [*walked, scope] if quota.parent == scope else []
        walked.append(quota.parent)
    return []


def _path(quotas: Mapping[str, Quota], scope: str | None) -> Iterator[str]:
    """Yield a scope and its ancestors; ends where parents lead in a circle."""
    seen: set[str] = set()
    while scope is not None and scope in quotas and scope not in seen:
        seen.add(scope)
        yield scope
        scope = quotas[scope].parent


def _check_limits(
    quotas: Mapping[str, Quota], quota: Quota, resource: str, amount: int, at: SourceRange | None, report: Report
) -> None:
    # GPUs of a class are GPUs, so a limit on GPUs bounds them as well.
    bounds = {resource, GPUS} if resource.startswith(CLASS_PREFIX) else {resource}
    for scope in _path(quotas, quota.scope):
        for bound, limit in quotas[scope].limit:
            if bound in bounds and amount > limit:
                whose = "its own limit" if scope == quota.scope else f"the limit of `{quoted(scope)}`"
                report.error(
                    f"the guarantee of {_shown(resource, amount)} is above {whose}, {_shown(bound, limit)}.",
                    "Lower the guarantee or raise the limit: no start goes beyond a limit.",
                    at,
                )


def _check_classes(quotas: Mapping[str, Quota], quota: Quota, at: SourceRange | None, report: Report) -> None:
    """Refuse classes that are each within a limit on GPUs, but not together."""
    amounts = [amount for resource, amount in quota.guarantee if resource.startswith(CLASS_PREFIX)]
    together = _of_classes(quota)
    for scope in _path(quotas, quota.scope):
        limit = dict(quotas[scope].limit).get(GPUS)
        if limit is not None and together > limit >= max(amounts):
            whose = "its own limit" if scope == quota.scope else f"the limit of `{quoted(scope)}`"
            report.error(
                f"the guarantees of gpu_classes, {together} together, are above {whose}, {_shown(GPUS, limit)}.",
                "Lower them or raise the limit: no start goes beyond a limit. Or guarantee `gpus` as well: that bounds "
                "all of them.",
                at,
            )


def _of_classes(quota: Quota) -> int:
    """Return the GPUs that are guaranteed by class; 0 where a guarantee of `gpus` bounds them all."""
    if GPUS in dict(quota.guarantee):
        return 0
    return sum(amount for resource, amount in quota.guarantee if resource.startswith(CLASS_PREFIX))


def _warn_of_children(quotas: Mapping[str, Quota], nodes: Mapping[str, Node], report: Report) -> None:
    children: dict[str, list[str]] = {}
    for scope, quota in quotas.items():
        if quota.parent is not None:
            children.setdefault(quota.parent, []).append(scope)

    def beneath(scope: str, resource: str, above: tuple[str, ...]) -> int:
        total = 0
        for child in children.get(scope, ()):
            own = dict(quotas[child].guarantee).get(resource)
            if own is None and child not in above:
                own = beneath(child, resource, (*above, child))
            total += max(own or 0, _of_classes(quotas[child]) if resource == GPUS else 0)
        return total

    for scope, quota in quotas.items():
        for resource, amount in quota.guarantee:
            total = beneath(scope, resource, (scope,))
            if total > amount:
                report.about(f"Quota `{quoted(scope)}`").warning(
                    f"the scopes beneath it are guaranteed {_shown(resource, total)} together, but it has "
                    f"{_shown(resource, amount)}.",
                    "Not all of them can claim theirs at once: raise this guarantee or lower theirs.",
                    _place(nodes[scope], "guarantee", resource),
                )


def _takes(profile: Profile, named: Measured) -> list[int]:
    """Return what a replica takes of each named resource."""
    size = profile.size
    amounts = {GPUS: size.gpus, CORES: size.millicores, MEMORY: size.memory_mib}
    if profile.gpu_class:
        amounts[CLASS_PREFIX + profile.gpu_class] = size.gpus
    return [amounts.get(resource, 0) for resource, _ in named]


def _place(node: Node, key: str, resource: str) -> SourceRange | None:
    child = node
    for step in (key, *resource.split(".", 1)):
        child = child.get(step) or child
    return child.at


def _shown(resource: str, amount: int) -> str:
    unit = _UNITS.get(resource)
    return f"{resource} {amount / unit:g}" if unit else f"{quoted(resource)} {amount}"

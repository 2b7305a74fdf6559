"""The literal search of the quota rules for what is taken: every set of replicas, judged and compared one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from .reference_world import (
    CLASSES,
    GPUS,
    Model,
    Replicas,
    Running,
    World,
    cover,
    held,
    limits_met,
    place,
    potential,
    ranks,
    uses,
    within,
)


@dataclass(frozen=True)
class Options:
    """Where the rules leave freedom.

    `joint`: what this plan starts may be re-packed. `anywhere`: victims may be on any node, not only where the
    replica goes. `interchangeable`: whichever replica of a model and profile is stopped, the newest is what is lost.
    """

    joint: bool = True
    anywhere: bool = True
    interchangeable: bool = True


class Take:
    """The search of one replica's victims."""

    def __init__(
        self,
        world: World,
        options: Options,
        replicas: Replicas,
        order: int,
        model: Model,
        profile: int,
        only: tuple[str, ...] | None,
    ) -> None:
        self.world, self.options, self.model, self.index, self.only = world, options, model, profile, only
        self.profile = model.profiles[profile]
        self.replicas, self.order = replicas, order
        self.rank = ranks(self.replicas)
        self.before = cover(world, self.replicas)
        self.path = world.path(model.owner)

    def best(self) -> tuple[tuple[object, ...], Replicas, Replicas, tuple[str, ...]] | None:
        """Return the best valid set: its key, the victims, the others, and where the replica goes."""
        best = None
        for victims in self.sets():
            rest = tuple(r for r in self.replicas if r not in victims)
            if limits_met(self.world, rest, self.model, self.profile):
                continue
            placed = place(self.world, rest, self.profile, self.options.joint, self.only)
            if placed is None:
                continue
            after = (*placed[0], Running(self.model.name, self.order, self.index, placed[1], new=True))
            key = self.key(victims, after)
            if (best is None or key < best[0]) and self.valid(victims, rest, after):
                best = key, victims, *placed
        return best

    def sets(self) -> Iterator[Replicas]:
        """Yield every set of replicas that may be victims; of those that are alike on a node, the newest."""
        groups: dict[tuple[str, int, tuple[str, ...]], list[Running]] = {}
        unreachable = {n.name for n in self.world.nodes if not n.reachable}
        limit_only = not self.options.anywhere and self.only is None
        if limit_only and place(self.world, self.replicas, self.profile, self.options.joint) is None:
            return
        for replica in sorted(self.replicas, key=lambda r: -r.order):
            movable = not unreachable.intersection(replica.places)
            here = self.only is None or set(self.only) & set(replica.places)
            if movable and here and not self.world.model(replica.model).prevent_stop and self.could_be(replica):
                groups.setdefault((replica.model, replica.profile, replica.places), []).append(replica)
        for counts in product(*(range(len(group) + 1) for group in groups.values())):
            chosen = [group[:count] for group, count in zip(groups.values(), counts, strict=True)]
            if victims := tuple(r for group in chosen for r in group):
                yield victims

    def could_be(self, replica: Running) -> bool:
        """Whether any ground could hold, which saves looking at sets in vain."""
        own, other = self.class_of_model(), self.world.class_of(replica)
        theirs = self.world.path_of(replica)
        return own >= other or any(self.world.scope(t).guarantee for t in self.path if t not in theirs)

    def class_of_model(self) -> int:
        return CLASSES.index(self.model.model_class)

    # Validity (R6).

    def valid(self, victims: Replicas, rest: Replicas, after: Replicas) -> bool:
        return (
            self.protected(rest)
            and all(self.ground(v, victims, after) for v in victims)
            and potential(self.world, after) > potential(self.world, self.replicas)
        )

    def protected(self, rest: Replicas) -> bool:
        """Whether no scope without the replica covers less, per model and profile."""
        now = cover(self.world, rest)
        for scope in self.world.scopes:
            if scope.name not in self.path:
                was = Counter((r.model, r.profile) for r in self.before[scope.name])
                if was - Counter((r.model, r.profile) for r in now[scope.name]):
                    return False
        return True

    def ground(self, victim: Running, victims: Replicas, after: Replicas) -> bool:
        return self.claims(victim, after) or self.outclasses(victim, victims, after)

    def claims(self, victim: Running, after: Replicas) -> bool:
        theirs = self.world.path_of(victim)
        for name in self.path:
            guarantee = self.world.scope(name).guarantee
            claimable = name not in theirs and uses(self.profile.size, guarantee)
            if claimable and within(held(self.world, after, name), guarantee):
                return True
        return False

    def outclasses(self, victim: Running, victims: Replicas, after: Replicas) -> bool:
        own, other = self.class_of_model(), self.world.class_of(victim)
        if not (own > other or (own == other and self.is_headroom(victim, victims))):
            return False
        covered = cover(self.world, after)
        started = next(r for r in after if r.order == self.order)
        shared = [name for name in self.path if self.was_covered(victim, victims, name)]
        return all(started in covered[name] for name in shared)

    # What a victim costs.

    def nth(self, victim: Running, victims: Replicas) -> int:
        """Return how many like it are lost before it."""
        like = [v for v in victims if (v.model, v.profile) == (victim.model, victim.profile)]
        return sorted(like, key=lambda v: -v.order).index(victim)

    def lost_rank(self, victim: Running, victims: Replicas) -> int:
        if not self.options.interchangeable:
            return self.rank[victim]
        like = [r for r in self.replicas if (r.model, r.profile) == (victim.model, victim.profile)]
        newest_first = sorted((self.rank[r] for r in like), reverse=True)
        return newest_first[self.nth(victim, victims)]

    def is_headroom(self, victim: Running, victims: Replicas) -> bool:
        return self.lost_rank(victim, victims) > self.world.model(victim.model).min

    def was_covered(self, victim: Running, victims: Replicas, scope: str) -> bool:
        if not self.options.interchangeable:
            return victim in self.before[scope]
        like = [r for r in self.replicas if (r.model, r.profile) == (victim.model, victim.profile)]
        covered = sum(r in self.before[scope] for r in like)
        return self.nth(victim, victims) >= len(like) - covered

    # The order of sets (R7): the greater a victim's key, the more precious.

    def key(self, victims: Replicas, after: Replicas) -> tuple[object, ...]:
        coarse = sorted((self.coarse(v, victims, after) for v in victims), reverse=True)
        single = sorted((self.single(v, victims) for v in victims), reverse=True)
        gpus = sum(self.world.size(v)[GPUS] for v in victims)
        # Lists compare as the counts do: fewer of the most precious key first, and a part before the whole.
        return (coarse, len(victims), gpus, single)

    def coarse(self, victim: Running, victims: Replicas, after: Replicas) -> tuple[int, int, int, int]:
        theirs = self.world.path_of(victim)
        levels = [self.world.level(s) for s in theirs if self.was_covered(victim, victims, s)]
        return (
            int(not self.is_headroom(victim, victims)),
            int(self.from_too_far(victim, after)),
            max(levels, default=0),
            self.world.class_of(victim),
        )

    def from_too_far(self, victim: Running, after: Replicas) -> bool:
        """Return k2: with the victim gone the outermost scope of the replica without it is beyond its guarantee.

        A guarantee of nothing counts as none.
        """
        theirs = self.world.path_of(victim)
        if not self.claims(victim, after):
            return self.world.model(victim.model).owner != self.model.owner
        for name in reversed(self.path):
            guarantee = self.world.scope(name).guarantee
            if name not in theirs and any(guarantee.values()):
                holds = held(self.world, self.replicas, name)
                holds.update(self.profile.size)
                return not within(holds, guarantee)
        return False

    def single(self, victim: Running, victims: Replicas) -> tuple[int, int, int]:
        names = sorted((m.name for m in self.world.models), reverse=True)
        model = self.world.model(victim.model)
        return (model.priority, names.index(model.name), -self.lost_rank(victim, victims))

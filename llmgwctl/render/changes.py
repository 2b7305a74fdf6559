"""What differs between the command that runs and the one that will, option by option."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.plan import Action
from llmgwctl.render.plan_json import shown_env
from llmgwctl.render.text import plain

# A word that begins an option: -1 is a value.
_OPTION = re.compile(r"(--?[^\d\W][^=]*)(?:=(.*))?", re.DOTALL)
_Words = Mapping[str, Mapping[str, Sequence[str]]]


def launch_changes(action: Action) -> Iterator[str]:
    """Yield a line for each option and variable of the head that changes, is new (+) or goes (-)."""
    if action.before is None or not action.before.members or not action.launches:
        return
    was, member = action.before.members[0].launch, action.before.members[0]
    will, place = action.launches[0], action.placement[0]
    if not was.argv:
        return  # a simulated host's seed has no command of its own
    old = _words_by_name(was, member.gpu_indices)
    new = _words_by_name(will, place.gpu_indices)
    changed = _changed(old, new)
    for section, name in changed:
        before, after = _shown(old[section].get(name)), _shown(new[section].get(name))
        label = plain(name) if name else "command"
        equals = "=" if section == "env" else " "
        if before is None:
            yield f"+ {label}{equals}{after}".rstrip()
        elif after is None:
            yield f"- {label}{equals}{before}".rstrip()
        else:
            yield f"~ {label}{equals}{before or '(none)'} -> {after or '(none)'}"
    if was.argv != will.argv and not any(section == "argv" for section, _ in changed):
        yield "~ the same words in another order"


def _words_by_name(launch: LaunchSpec, gpu_indices: Sequence[int]) -> _Words:
    env = shown_env(launch, gpu_indices)
    return {"argv": _options(launch.argv), "env": {name: [value] for name, value in env.items()}}


def _changed(old: _Words, new: _Words) -> list[tuple[str, str]]:
    """Return the section and the name of each difference, sorted."""
    from deepdiff import DeepDiff  # takes a tenth of a second to import, and most plans change no command

    # Paths are lists, because a name may hold anything that could be taken for a part of a path.
    tree = DeepDiff(old, new, view="tree")
    paths = [level.path(output_format="list") for levels in tree.values() for level in levels]
    return sorted({(str(path[0]), str(path[1])) for path in paths})


def _options(argv: Sequence[str]) -> dict[str, list[str]]:
    """Return the words by option; those before the first option are under an empty name."""
    options: dict[str, list[str]] = {"": []}
    name = ""
    for word in argv:
        match = _OPTION.fullmatch(word)
        if match:
            name = match[1]
            options.setdefault(name, []).extend([match[2]] if match[2] is not None else [])
        else:
            options[name].append(word)
    return options


def _shown(words: Sequence[str] | None) -> str | None:
    return None if words is None else plain(" ".join(words))

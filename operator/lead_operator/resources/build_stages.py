"""The stages of a DatasetCache's build as the rest of the operator reads them: `spec.build.stages`, then the end.

What a stage does is the recipe's business, and the operator knows none by name. The last one makes the cache of what
the others have left: it waits for all of them, and without a list it is the whole build.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lead_operator.errors import SpecError
from lead_operator.resources.body import Reader
from lead_operator.resources.pod_settings import ComputeResources, parse_resources

MERGE = "merge"  # how the last stage is shown; no stage of a list has this name


@dataclass(frozen=True)
class BuildStage:
    """One stage, done by `workers` pods at once."""

    name: str  # empty: the last one, which commits the manifest
    after: tuple[str, ...]  # that must be complete before, and those before them; in the order of the list
    workers: int
    resources: ComputeResources
    path: str  # of its resources in the spec, for messages

    @property
    def shown_name(self) -> str:
        """Its name for people."""
        return self.name or MERGE

    @property
    def commits(self) -> bool:
        """Whether the manifest comes of it."""
        return not self.name


def parse_build_stages(build: Reader, usual: ComputeResources) -> tuple[BuildStage, ...]:
    """Reads the stages in the order of the list, the last one after them; raises SpecError naming entry and remedy."""
    found: dict[str, BuildStage] = {}
    for entry in build.children("stages") if "stages" in build.value else []:
        stage = _stage(entry, found, usual)
        found[stage.name] = stage
    last = BuildStage("", tuple(found), build.get("parallelism", int), usual, f"{build.path}.resources")
    return (*found.values(), last)


def _stage(entry: Reader, before: dict[str, BuildStage], usual: ComputeResources) -> BuildStage:
    name = entry.get("name", str)
    if name in before or name == MERGE:
        what = "the build's last stage, which needs no entry" if name == MERGE else "an earlier stage"
        raise SpecError(f"{entry.owner}: {entry.path}.name is {name!r}, the name of {what}; give each its own")
    direct = entry.get("after", list) if "after" in entry.value else []
    unknown = [each for each in direct if each not in before]
    if unknown:
        known = ", ".join(before) or "none"
        raise SpecError(
            f"{entry.owner}: {entry.path}.after names {unknown[0]!r}, expected stages that stand before {name!r} "
            f"({known}); correct the name or the order"
        )
    return BuildStage(
        name=name,
        after=_all_before(direct, before),
        workers=entry.get("workers", int) if "workers" in entry.value else 1,
        resources=_resources(entry, usual),
        path=f"{entry.path}.resources",
    )


def _all_before(direct: Iterable[str], before: dict[str, BuildStage]) -> tuple[str, ...]:
    names = {*direct, *(name for each in direct for name in before[each].after)}
    return tuple(name for name in before if name in names)


def _resources(entry: Reader, usual: ComputeResources) -> ComputeResources:
    """Returns the build's resources with those that a stage names for itself added, or in their place."""
    if "resources" not in entry.value:
        return usual
    own = parse_resources(entry.child("resources"))
    return ComputeResources({**usual.requests, **own.requests}, {**usual.limits, **own.limits})

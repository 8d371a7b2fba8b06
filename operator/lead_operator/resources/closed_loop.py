"""`spec.closedLoop` of a TrainingRun: what drives in a simulator with its weights, and when. Body in, dataclass out."""

from collections.abc import Mapping
from dataclasses import dataclass

from lead_operator.errors import SpecError
from lead_operator.near_names import near_name
from lead_operator.resources.body import Reader
from lead_operator.resources.pod_settings import ComputeResources, parse_resources


@dataclass(frozen=True)
class Regression:
    """How far below the best result of a stage instance a new one may be."""

    metric: str  # DrivingScore | RouteCompletion | Success
    max_drop: int  # percentage points


@dataclass(frozen=True)
class ClosedLoop:
    """What drives, with what, and what of its results stays."""

    every_epochs: int  # 0: only where the annotation asks for it
    stages: tuple[str, ...]  # whose weights are driven
    image: str
    command: tuple[str, ...]
    routes_prefix: str  # empty: the command's own routes
    resources: ComputeResources
    timeout_s: int
    regression: Regression | None
    keep: int

    @property
    def metric(self) -> str:
        """By which the best result is chosen."""
        return self.regression.metric if self.regression else "DrivingScore"


def parse_closed_loop(spec: Reader, evaluates: Mapping[str, bool]) -> ClosedLoop | None:
    """Reads what a run asks for; None where it asks for nothing.

    `evaluates` holds for each stage whether it is one of kind Evaluation, which has no weights of its own.
    """
    if spec.optional("closedLoop", dict) is None:
        return None
    reader = spec.child("closedLoop")
    regression = reader.child("regression") if reader.optional("regression", dict) is not None else None
    return ClosedLoop(
        every_epochs=reader.get("everyEpochs", int),
        stages=_stages(reader, evaluates),
        image=reader.get("image", str),
        command=tuple(str(part) for part in reader.get("command", list)),
        routes_prefix=reader.child("routes").get("prefix", str) if reader.optional("routes", dict) is not None else "",
        resources=parse_resources(reader.child("resources")),
        timeout_s=reader.get("timeoutSeconds", int),
        regression=Regression(regression.get("metric", str), regression.get("maxDrop", int)) if regression else None,
        keep=reader.get("keep", int),
    )


def _stages(reader: Reader, evaluates: Mapping[str, bool]) -> tuple[str, ...]:
    """Returns the stages named, by default all that train; raises SpecError. The API server refuses others too."""
    trained = [name for name, evaluating in evaluates.items() if not evaluating]
    named = reader.optional("stages", list)
    if named is None:
        return tuple(trained)
    if not named:
        raise SpecError(
            f"{reader.owner}: {reader.path}.stages is empty; expected one stage that trains or more, of "
            f"{', '.join(trained)}; leave it out to drive the weights of all"
        )
    for name in named:
        if named.count(name) > 1:
            raise SpecError(f"{reader.owner}: {reader.path}.stages names {name!r} twice; name each stage once")
        if name in trained:
            continue
        near = near_name(str(name), trained)
        evaluating = name in evaluates
        found = "a stage of kind Evaluation, without weights of its own" if evaluating else "no stage of this run"
        raise SpecError(
            f"{reader.owner}: {reader.path}.stages names {name!r}, which is {found}"
            f"{f'; did you mean {near}?' if near else ''}; stages that train are: {', '.join(trained)}"
        )
    return tuple(named)

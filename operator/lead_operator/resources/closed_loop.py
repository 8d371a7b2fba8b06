"""`spec.closedLoop` of a TrainingRun: what drives in a simulator with its weights, and when. Body in, dataclass out."""

from dataclasses import dataclass

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


def parse_closed_loop(spec: Reader) -> ClosedLoop | None:
    """Reads what a run asks for; None where it asks for nothing."""
    if spec.optional("closedLoop", dict) is None:
        return None
    reader = spec.child("closedLoop")
    regression = reader.child("regression") if reader.optional("regression", dict) is not None else None
    return ClosedLoop(
        every_epochs=reader.get("everyEpochs", int),
        image=reader.get("image", str),
        command=tuple(str(part) for part in reader.get("command", list)),
        routes_prefix=reader.child("routes").get("prefix", str) if reader.optional("routes", dict) is not None else "",
        resources=parse_resources(reader.child("resources")),
        timeout_s=reader.get("timeoutSeconds", int),
        regression=Regression(regression.get("metric", str), regression.get("maxDrop", int)) if regression else None,
        keep=reader.get("keep", int),
    )

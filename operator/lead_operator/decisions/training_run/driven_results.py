"""What results of driving come to: the numbers in status.closedLoop, the best so far, and whether one is a regression.

Pure. Results were written by pods: those of an attempt that the operator has not started count for nothing. The newest
is that of the highest attempt, so that a late one of an earlier attempt replaces nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lead_operator.decisions.conditions import Finding
from lead_operator.decisions.formatting import format_number, on_one_line, plausible_time
from lead_operator.decisions.observed import ObservedDrive
from lead_operator.names import Condition
from lead_operator.resources.closed_loop import ClosedLoop
from lead_operator.resources.closed_loop_status import BestDrive, ClosedLoopStatus, SuccessShares
from lead_operator.settings import StorageProfile
from lead_protocol.closed_loop_record import DrivenNumbers

DRIVEN, REGRESSION = "Driven", "Regression"
_TEXTS = {"DrivingScore": "driving score", "RouteCompletion": "route completion", "Success": "success"}


@dataclass(frozen=True)
class Comparison:
    """The newest result and, of the same stage instance, the best one and the best one before it."""

    newest: ObservedDrive
    best: ObservedDrive
    best_before: ObservedDrive | None


def compare(results: Iterable[ObservedDrive], metric: str) -> Comparison | None:
    """Returns how the newest result stands; None where there is none."""
    ordered = sorted(results, key=lambda drive: drive.attempt)
    if not ordered:
        return None
    newest = ordered[-1]
    same = [drive for drive in ordered if (drive.stage, drive.seed) == (newest.stage, newest.seed)]
    return Comparison(newest, best_of(same, metric), best_of(same[:-1], metric) if same[:-1] else None)


def best_of(drives: Iterable[ObservedDrive], metric: str) -> ObservedDrive:
    """Returns the best of at least one result; of equal ones the first."""
    return max(drives, key=lambda drive: score_of(drive.numbers, metric) or -1.0)


def kept_attempts(results: Iterable[ObservedDrive], wanted: ClosedLoop) -> tuple[int, ...]:
    """Returns which attempts' results of one stage instance stay: the newest `keep`, and the best."""
    ordered = sorted(results, key=lambda drive: drive.attempt)
    if not ordered:
        return ()
    return tuple(
        sorted({*(drive.attempt for drive in ordered[-wanted.keep :]), best_of(ordered, wanted.metric).attempt})
    )


def score_of(numbers: DrivenNumbers, metric: str) -> float | None:
    """Returns a metric in percent; None where nothing was recorded."""
    found = {
        "DrivingScore": numbers.driving_score,
        "RouteCompletion": numbers.route_completion,
        "Success": numbers.success_whole_route,
    }
    return found[metric]


def with_results(
    status: ClosedLoopStatus, compared: Comparison | None, wanted: ClosedLoop, profile: StorageProfile | None
) -> ClosedLoopStatus:
    """Returns the status with the numbers of the newest result."""
    if compared is None:
        return status
    drive, numbers = compared.newest, compared.newest.numbers
    return replace(
        status,
        attempt=drive.attempt,
        stage=drive.stage,
        seed=drive.seed,
        epoch=drive.epoch,
        driving_score=_text(numbers.driving_score),
        route_completion=_text(numbers.route_completion),
        success=SuccessShares(
            whole_route=_text(numbers.success_whole_route), bench2_drive=_text(numbers.success_bench2drive)
        ),
        infractions_per_km={kind: format_number(rate) for kind, rate in sorted(numbers.infractions_per_km.items())},
        interventions=numbers.interventions,
        max_acceleration=_text(numbers.max_acceleration),
        max_jerk=_text(numbers.max_jerk),
        routes=numbers.routes,
        recorded=numbers.recorded,
        uri=_uri(drive, profile),
        saved_at=plausible_time(drive.saved_at),
        best=BestDrive(
            epoch=compared.best.epoch,
            score=_text(score_of(compared.best.numbers, wanted.metric)),
            uri=_uri(compared.best, profile),
        ),
    )


def judge(compared: Comparison, wanted: ClosedLoop) -> Finding:
    """Returns the condition ClosedLoop of a newest result."""
    drive, numbers, limit = compared.newest, compared.newest.numbers, wanted.regression
    text = f"{whose(drive.stage, drive.seed, drive.epoch)}: {_summary(numbers)}"
    if limit is None or compared.best_before is None:
        return Finding(Condition.CLOSED_LOOP, True, DRIVEN, text)
    before = score_of(compared.best_before.numbers, limit.metric)
    now, name = score_of(numbers, limit.metric), _TEXTS[limit.metric]
    drop = None if before is None else before - (now or 0.0)
    if drop is None or drop <= limit.max_drop:
        return Finding(Condition.CLOSED_LOOP, True, DRIVEN, text)
    text = (
        f"{name} fell to {_text(now) or 'nothing'} from {_text(before)} % (epoch {compared.best_before.epoch}), by "
        f"more than closedLoop.regression.maxDrop ({limit.max_drop}); {text}; compare the result files of both"
    )
    return Finding(Condition.CLOSED_LOOP, False, REGRESSION, text)


def whose(stage: str, seed: int | None, epoch: int | None) -> str:
    """Returns which weights were driven."""
    return on_one_line(f"epoch {epoch} of stage {stage}, seed {seed}")


def _summary(numbers: DrivenNumbers) -> str:
    if not numbers.recorded:
        return f"none of {numbers.routes} routes has a record; its result files may show why"
    missing = (
        f"; {numbers.recorded} of {numbers.routes} routes have a record" if numbers.recorded < numbers.routes else ""
    )
    return (
        f"driving score {_text(numbers.driving_score)} %, route completion {_text(numbers.route_completion)} %, "
        f"success {_text(numbers.success_whole_route)} % (whole route, no collision, no red light), "
        f"{_text(numbers.success_bench2drive)} % by Bench2Drive's rule, {numbers.interventions} interventions{missing}"
    )


def _text(value: float | None) -> str:
    return "" if value is None else format_number(value)


def _uri(drive: ObservedDrive, profile: StorageProfile | None) -> str:
    return profile.uri(drive.results_prefix) if profile else drive.results_prefix

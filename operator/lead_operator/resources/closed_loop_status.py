"""`status.closedLoop` of a TrainingRun: the newest result, the best one, and the attempt that drives."""

from dataclasses import dataclass, field

from lead_operator.resources.status_format import Flag, Int, StatusPart

DRIVING, RETRYING, STOPPED, SUCCEEDED, FAILED = "Driving", "Retrying", "Stopped", "Succeeded", "Failed"


@dataclass(frozen=True, kw_only=True)
class SuccessShares(StatusPart):
    """Share of all routes that count as a success, in percent, by the rule that counts them."""

    whole_route: str = ""
    bench2_drive: str = ""


@dataclass(frozen=True, kw_only=True)
class BestDrive(StatusPart):
    """The best result of a stage instance."""

    epoch: Int | None = None
    score: str = ""
    uri: str = ""


@dataclass(frozen=True, kw_only=True)
class DriveStatus(StatusPart):
    """The newest attempt to drive."""

    attempt: Int = 0
    stage: str = ""
    seed: Int | None = None
    epoch: Int = 0
    phase: str = ""
    tries: Int = 0
    requested: str = ""
    created: Flag = False
    start_time: str | None = None
    end_time: str | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class DrivenInstance(StatusPart):
    """Up to which epoch evaluations of a stage instance are over."""

    stage: str
    seed: Int
    epoch: Int = 0


@dataclass(frozen=True, kw_only=True)
class ClosedLoopStatus(StatusPart):
    """The block of the status; its numbers are those of the newest result."""

    attempt: Int | None = None
    stage: str = ""
    seed: Int | None = None
    epoch: Int | None = None
    driving_score: str = ""
    route_completion: str = ""
    success: SuccessShares | None = None
    infractions_per_km: dict[str, str] = field(default_factory=dict)
    interventions: Int | None = None
    max_acceleration: str = ""
    max_jerk: str = ""
    routes: Int | None = None
    recorded: Int | None = None
    uri: str = ""
    saved_at: str | None = None
    best: BestDrive | None = None
    drive: DriveStatus | None = None
    driven: tuple[DrivenInstance, ...] = ()
    requested: str = ""

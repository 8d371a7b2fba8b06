"""What measured stages mean, in one sentence: what bounds a run, and what would help. Pure; printed by `lead bench`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

AMPLE = 1.2  # a stage this much faster than the step does not hold it up


@dataclass(frozen=True)
class StageRate:
    """What one stage does alone."""

    stage: str  # network | disk | decode | hand-over | step
    samples_per_s: float
    detail: str = ""


@dataclass(frozen=True)
class Kept:
    """What of its caches a node keeps from one epoch to the next; the rest comes from the store in every epoch."""

    share: float = 1.0  # 0..1
    whole_bytes: int = 0  # of all shards


def advice(
    rates: Sequence[StageRate], threads: int, cores: int, kind: str = "threads", kept: Kept | None = None
) -> str:
    """Returns one sentence; `kind`: what the run's `threads` are; without `disk` nothing is read from one."""
    kept = kept or Kept()
    speed = {rate.stage: rate.samples_per_s for rate in rates}
    step, delivered = speed["step"], speed["hand-over"]
    if _streams_too_slowly(speed, kept):
        return _too_little_is_kept(speed, kept)
    if delivered >= AMPLE * step:
        if speed["network"] < step and kept.share >= 1:
            return (
                f"Bound by the network in a node's first epoch ({speed['network']:.0f} samples/s against "
                f"{step:.0f} of the step), by the step afterwards: keep the session cache on a PersistentVolume."
            )
        return f"Bound by the step: loading delivers {delivered / step:.1f} times what the model trains on."
    if speed.get("disk", math.inf) < AMPLE * min(delivered, speed["decode"]):
        return (
            "Bound by the disk of the session cache: put it on a faster local SSD, or give the pod memory to cache it."
        )
    if speed["decode"] < AMPLE * delivered:
        more = "raise num_threads" if threads < cores else "give the run more cores"
        return (
            f"Bound by decoding: {threads} {kind} on {cores} cores decode {speed['decode']:.0f} samples/s, the step "
            f"could take {step:.0f}; {more}, or build the cache with smaller pictures."
        )
    return (
        f"Bound by the hand-over: samples are decoded at {speed['decode']:.0f} a second but delivered at "
        f"{delivered:.0f}; lower batch_size or free memory bandwidth, and check for keys whose shape changes."
    )


def _at_most(speed: dict[str, float], kept: Kept) -> float:
    """Returns how many samples a second the network allows if only what is not kept is fetched."""
    return speed["network"] / (1 - kept.share) if kept.share < 1 else math.inf


def _streams_too_slowly(speed: dict[str, float], kept: Kept) -> bool:
    """Returns whether what every epoch streams holds up the step, or all that loading delivers."""
    step, delivered = speed["step"], speed["hand-over"]
    return _at_most(speed, kept) < (step if delivered >= AMPLE * step else AMPLE * delivered)


def _too_little_is_kept(speed: dict[str, float], kept: Kept) -> str:
    held = f"{100 * kept.share:.0f}% of the cache stays" if kept.share else "nothing of the cache stays"
    more = "give the session cache room" if kept.share else "set session_cache to a folder of a local SSD with room"
    return (
        f"Bound by the network in every epoch: {held} on this machine's disk and the rest is streamed, at most "
        f"{_at_most(speed, kept):.0f} samples/s against {speed['step']:.0f} of the step; {more} for all "
        f"{kept.whole_bytes / 1e9:.1f} GB."
    )

"""Which checkpoints a policy lets go: one rule for `lead train` on a folder and for the operator on a bucket. Pure.

It knows neither keys nor stores: who deletes, and in what order, is decided by its two callers.
"""

from collections.abc import Sequence

from lead_protocol.manifests import CheckpointManifest

FEWEST_CHECKPOINTS = 2  # a spoiled newest checkpoint must have one to fall back to
BEST_BY = "loss"


def expendable(
    newest_first: Sequence[CheckpointManifest], *, keep_last: int, keep_best: int
) -> list[CheckpointManifest]:
    """Returns all but the newest `keep_last`, never fewer than two, and the `keep_best` of least mean loss.

    A mean loss is comparable only at an epoch's end; of two equal ones the newer counts as the better.
    """
    kept = {manifest.step for manifest in newest_first[: max(keep_last, FEWEST_CHECKPOINTS)]}
    ranked = [manifest for manifest in newest_first if manifest.step_in_epoch == 0 and BEST_BY in manifest.metrics]
    ranked.sort(key=lambda manifest: manifest.metrics[BEST_BY])
    kept |= {manifest.step for manifest in ranked[:keep_best]}
    return [manifest for manifest in newest_first if manifest.step not in kept]

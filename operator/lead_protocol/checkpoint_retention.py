"""Which checkpoints a policy lets go: one rule for `lead train` on a folder and for the operator on a bucket. Pure.

It knows neither keys nor stores: who deletes, and in what order, is decided by its two callers. The newest manifest
records the metric by which its instance ranks epochs.
"""

from collections.abc import Sequence

from lead_protocol.manifests import CheckpointManifest

FEWEST_CHECKPOINTS = 2  # a corrupt newest checkpoint needs one to fall back to
VALIDATION = "val/"  # begins the tag of every validation metric


def expendable(
    newest_first: Sequence[CheckpointManifest], *, keep_last: int, keep_best: int, keep_every_epochs: int = 0
) -> list[CheckpointManifest]:
    """Returns what no rule keeps: newest `keep_last`, never fewer than two; `keep_best`; each `keep_every_epochs`-th.

    `keep_every_epochs` counts completed epochs; 0 keeps none for that reason.
    """
    kept = {manifest.step for manifest in newest_first[: max(keep_last, FEWEST_CHECKPOINTS)]}
    kept |= {manifest.step for manifest in ranked(newest_first)[:keep_best]}
    if keep_every_epochs:
        kept |= {m.step for m in newest_first if m.step_in_epoch == 0 and m.epoch % keep_every_epochs == 0}
    return [manifest for manifest in newest_first if manifest.step not in kept]


def ranked(newest_first: Sequence[CheckpointManifest]) -> list[CheckpointManifest]:
    """Returns the checkpoints that can be compared, best first; of two equal ones the newer counts as the better.

    A mean of training is comparable only at an epoch's end, a validation metric wherever it was measured.
    """
    if not newest_first:
        return []
    metric, sign = newest_first[0].best_by, -1.0 if newest_first[0].best_is_greatest else 1.0
    anywhere = metric.startswith(VALIDATION)
    able = [m for m in newest_first if metric in m.metrics and (anywhere or m.step_in_epoch == 0)]
    return sorted(able, key=lambda manifest: sign * manifest.metrics[metric])

"""One trial of a Katib experiment: submits a TrainingRun, prints its loss per epoch, and deletes it when stopped.

Katib runs it as a Job (`katib_sweep.yaml`) and reads the lines `loss=0.5` from its log. The pods of the TrainingRun
themselves get no sidecar and no right in the cluster.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from lead_client import Cluster, TrainingRun
from lead_client.errors import ClientError


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the options of a command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="of the TrainingRun: the trial's")
    parser.add_argument("--cache", required=True, help="name of a DatasetCache")
    parser.add_argument("--recipe", default="lead")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, required=True)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains and prints `loss=…`; returns 1 where the run fails."""
    options = options_of(sys.argv[1:] if arguments is None else arguments)
    manifest = TrainingRun(
        options.name,
        recipe=options.recipe,
        preset=options.preset,
        datasets=[{"cache_ref": {"name": options.cache}}],
        stages=[{"name": "train", "epochs": options.epochs}],
        config={"lr": options.lr},
    )
    try:
        run = Cluster().submit(manifest)

        def stopped(number: int, frame: FrameType | None) -> None:
            run.delete()  # Katib stopped the trial early
            sys.exit(0)

        signal.signal(signal.SIGTERM, stopped)
        seen = 0
        for status in run.changes():
            progress = status.stages[0].progress if status.stages else None
            if progress is not None and progress.loss is not None and (progress.epoch or 0) > seen:
                seen = progress.epoch or 0
                print(f"loss={progress.loss}", flush=True)
        run.wait(timeout=60)  # RunFailed with the condition's sentence
        return 0
    except ClientError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())

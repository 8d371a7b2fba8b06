"""A TrainingRun that was submitted, with what it has written: the same calls for a cluster and for this machine."""

import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lead_client.checkpoints import Checkpoint, Instance, checkpoints_of
from lead_client.errors import ConditionError, MissingExtra, NoCheckpoint, RunFailed
from lead_client.handle import Handle
from lead_client.objects.training_run_status import TrainingRunStatus

if TYPE_CHECKING:
    import pandas


class Run(Handle[TrainingRunStatus]):
    """One TrainingRun."""

    kind: ClassVar[str] = "TrainingRun"
    ended: ClassVar[tuple[str, ...]] = ("Succeeded", "Failed")
    failed: ClassVar[type[ConditionError]] = RunFailed

    @abstractmethod
    def suspend(self) -> None:
        """Commits a checkpoint and releases what the run uses; `resume` goes on from it."""

    @abstractmethod
    def resume(self) -> None:
        """Goes on after `suspend`."""

    @abstractmethod
    def scale(self, nodes: int) -> None:
        """Changes the number of pods: the group commits a checkpoint, and one of the new size goes on from it.

        A number that the recipe's batch cannot be divided by is reported in the condition ConfigChecked and not used.
        """

    @abstractmethod
    def logs(self) -> Iterator[str]:
        """Yields the lines (JSON) that the run's processes have logged, each with its process."""

    @abstractmethod
    def instances(self) -> Sequence[Instance]:
        """Returns each stage and seed that has begun, in order, with where its objects lie."""

    def checkpoints(self, stage: str | None = None, seed: int | None = None) -> list[Checkpoint]:
        """Returns the committed checkpoints that are not known to be corrupt, newest first within a stage and seed.

        Stages are in the order of the spec, so the last checkpoint of a run is that of its last stage.
        """
        return [each for one in self._chosen(stage, seed) for each in checkpoints_of(one)]

    def checkpoint(self, stage: str | None = None, seed: int | None = None, *, best: bool = False) -> Checkpoint:
        """Returns the newest checkpoint, or the best by the recipe's own metric; by default of the last stage that has
        one, and of its first seed. Raises NoCheckpoint."""
        for one in reversed(self._chosen(stage, seed)):
            same = [each for each in self._chosen(one.stage, seed) if checkpoints_of(each)]
            if same and (found := checkpoints_of(same[0], best=best)):
                return found[0]
        named = "".join([f" of stage {stage}" if stage else "", f" of seed {seed}" if seed is not None else ""])
        raise NoCheckpoint(f"{self.kind} {self.name} has no checkpoint{named} yet; wait for its first epoch")

    def download(self, folder: str | Path, stage: str | None = None, seed: int | None = None, *,
                 best: bool = False) -> Path:  # fmt: skip
        """Writes a checkpoint's files (see `checkpoint`) to a folder and returns it.

        Every file is compared with the SHA-256 in the manifest; raises CheckpointCorrupt, and then writes nothing.
        """
        return self.checkpoint(stage, seed, best=best).download(folder)

    def load_model(self, stage: str | None = None, seed: int | None = None, *, best: bool = False) -> Any:
        """Returns the recipe's model (a `torch.nn.Module` in eval mode) with the weights of a checkpoint.

        Needs the extra `trainer`; raises MissingExtra without it.
        """
        chosen = self.checkpoint(stage, seed, best=best)
        from lead_client.model import load_model

        with tempfile.TemporaryDirectory(prefix="lead-model-") as folder:
            return load_model(chosen.download(folder, weights_only=True), chosen.weights_name)

    def metrics(self, *tags: str, stage: str | None = None, seed: int | None = None) -> "pandas.DataFrame":
        """Returns scalars as a DataFrame: a row per stage, seed and step (the index), a column per tag.

        Without `tags`, all of them. Rows in which every chosen tag is absent are left out, so that one tag can be
        plotted. In a cluster, event files arrive with each checkpoint. Needs the extra `metrics`.
        """
        try:
            from lead_client.metrics import scalars
        except ModuleNotFoundError as error:
            raise MissingExtra(f"{error.name} is not installed: pip install 'lead-k8s[metrics]'") from error
        return scalars(self.name, self._chosen(stage, seed), tags)

    def _chosen(self, stage: str | None, seed: int | None) -> list[Instance]:
        found = self.instances()
        for given, known in ((stage, {one.stage for one in found}), (seed, {one.seed for one in found})):
            if given is not None and given not in known and found:
                listed = ", ".join(map(str, sorted(known, key=str)))
                raise NoCheckpoint(f"{self.kind} {self.name}: found {given!r}, expected one of {listed}")
        return [one for one in found if stage in (None, one.stage) and seed in (None, one.seed)]

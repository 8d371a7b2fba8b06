"""Weights & Biases beside the event file: the same tags and steps, on rank 0, only where a run asks for it.

W&B is never worth a training run: a missing key, no network, any error is one warning, and training goes on without.
The run's id follows from the stage instance, so a resumed attempt continues the same W&B run. The key comes from
WANDB_API_KEY or from `wandb login`. Offline files of a pod are copied to the store; a local run has
them once, below its logdir.
"""

import hashlib
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import structlog

from lead_protocol.job import TrainJob
from lead_protocol.store.object_store import ObjectStore, StoreError
from lead_trainer.contract.reports import WandbKeys
from lead_trainer.report.gif import as_gif

if TYPE_CHECKING:
    import torch

INIT_TIMEOUT_S = 30.0
FINISH_TIMEOUT_S = 30.0  # within a pod's grace period, after the last commit
_MODES = ("online", "offline", "disabled")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class WandbRunSettings:
    """One W&B run, as `wandb.init` wants it."""

    mode: str  # online | offline
    project: str
    id: str
    resume: str
    name: str
    notes: str
    group: str


def wandb_settings(
    job: TrainJob, keys: WandbKeys, environ: Mapping[str, str], *, identity: str = ""
) -> WandbRunSettings | None:
    """Returns the W&B run of an attempt, None where nobody asked for one.

    The job's policy wins over the recipe's keys; `identity` stands for the run where its UID is not unique.
    """
    mode = wandb_mode(job.logging.wandb_mode, keys, environ)
    if mode == "disabled":
        return None
    instance = f"{job.stage}-s{job.seed}"
    # An attempt that must not resume would write step 1 into a run that is further, which W&B drops.
    own = f"{identity or job.owner.uid}-{instance}" + (f"-a{job.attempt}" if job.checkpoint.resume == "Never" else "")
    continues = keys.resume in ("never", "auto") and (not keys.id or job.attempt > 1)
    return WandbRunSettings(
        mode=mode,
        project=job.logging.wandb_project or keys.project or job.recipe,
        id=keys.id or hashlib.sha256(own.encode()).hexdigest()[:16],
        resume="allow" if continues else keys.resume,
        name=keys.name or f"{job.owner.name}-{instance}",
        notes=keys.notes,
        group=job.owner.name,
    )


def wandb_mode(policy: str, keys: WandbKeys, environ: Mapping[str, str]) -> str:
    """Returns online, offline or disabled: the run's policy, or what the recipe's keys and W&B's own switch ask for."""
    if policy == "disabled" and keys.on:
        asked = environ.get("WANDB_MODE", "online")
        return asked if asked in _MODES else "online"
    return policy


class WandbRun:
    """One attempt's part of a W&B run; after the first trouble it swallows everything."""

    def __init__(
        self, settings: WandbRunSettings, config: Mapping[str, Any], folder: Path, scratch: Path,
        uploads: tuple[ObjectStore, str] | None,
    ) -> None:  # fmt: skip
        """Starts it below `folder`/wandb; offline files go to the prefix of a store too, for a folder that will go."""
        self._uploads, self._offline = uploads, settings.mode == "offline"
        self._run: Any = None
        self._files: Path | None = None
        try:
            self._run = _started(settings, config, folder, scratch)
            self._files = Path(self._run.settings.sync_dir)
        except Exception as error:  # whatever W&B raises: it must not stop training
            self._give_up(error)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Adds one value a tag."""
        self._log({tag: float(value) for tag, value in values.items()}, step)

    def picture(self, tag: str, picture_HWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds an RGB picture."""
        if self._run is not None:
            import wandb

            self._log({tag: wandb.Image(picture_HWC)}, step)

    def clip(self, tag: str, clip_THWC: npt.NDArray[np.uint8], step: int) -> None:
        """Adds RGB pictures that follow each other."""
        if self._run is not None:
            import wandb

            self._log({tag: wandb.Video(io.BytesIO(as_gif(clip_THWC)), format="gif")}, step)

    def histogram(self, tag: str, values: "torch.Tensor", step: int) -> None:
        """Adds how the finite numbers of a tensor are spread."""
        finite = values.detach().float().cpu().flatten()
        finite = finite[finite.isfinite()]
        if self._run is not None and len(finite):
            import wandb

            self._log({tag: wandb.Histogram(finite.tolist())}, step)

    def upload(self) -> None:
        """Copies offline files to the store; one that does not answer now gets them with the next checkpoint."""
        if not self._offline or self._files is None or self._uploads is None:
            return
        store, prefix = self._uploads
        try:
            for path in sorted(path for path in self._files.rglob("*") if path.is_file()):
                key = f"{prefix}{self._files.name}/{path.relative_to(self._files).as_posix()}"
                store.put(key, path.read_bytes())
        except (OSError, StoreError) as error:
            log.warning("W&B files are not uploaded for now", error=str(error))

    def close(self) -> None:
        """Ends the run, uploads what is left, and logs how to upload offline files."""
        if self._run is not None:
            run, self._run = self._run, None
            try:
                run.finish()
            except Exception as error:
                self._give_up(error)
        self.upload()
        if self._offline and self._files is not None:
            log.info(_how_to_sync(self._files, self._uploads))

    def _log(self, values: Mapping[str, Any], step: int) -> None:
        if self._run is None:
            return
        try:
            self._run.log(dict(values), step=step)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._run = None
        reason = (str(error) or type(error).__name__).splitlines()[0]
        log.warning("W&B is off for this attempt; training goes on", error=reason)


def _how_to_sync(files: Path, uploads: tuple[ObjectStore, str] | None) -> str:
    if uploads is None:
        return f"to show this run in W&B: wandb sync {files}"
    store, prefix = uploads
    return f"to show this run in W&B: copy {store.url}/{prefix}{files.name}/ here, then wandb sync {files.name}"


def _started(settings: WandbRunSettings, config: Mapping[str, Any], folder: Path, scratch: Path) -> Any:
    for made in (folder, scratch):
        made.mkdir(parents=True, exist_ok=True)
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR"):  # a pod's home may be read-only
        os.environ.setdefault(name, str(scratch / "wandb-files"))
    import wandb  # slow, and installed only with the extra `trainer`

    return wandb.init(
        project=settings.project,
        id=settings.id,
        resume=settings.resume,  # type: ignore[arg-type]
        name=settings.name,
        notes=settings.notes or None,
        group=settings.group,
        config=dict(config),
        mode=settings.mode,  # type: ignore[arg-type]
        dir=str(folder.resolve()),  # its service is a process that may have begun elsewhere
        settings=wandb.Settings(
            console="off",
            disable_code=True,
            disable_git=True,
            finish_timeout=FINISH_TIMEOUT_S,
            init_timeout=INIT_TIMEOUT_S,
            save_code=False,
            silent=True,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_graphql_retry_max=3,
        ),
    )

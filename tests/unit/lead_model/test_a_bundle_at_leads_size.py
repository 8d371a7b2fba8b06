"""What `lead export` hands to LEAD's evaluation of a run of preset `default`: LEAD's own files, name by name.

The run's files are written as training writes them, of a model without values; a whole run of this size takes minutes.
"""

import json
from pathlib import Path

import pytest
import torch

from lead_protocol.exit_codes import ExitCode
from lead_protocol.object_keys import InstanceKeys
from lead_testing.golden_model import golden_json
from lead_trainer.cli import main
from lead_trainer.contract.installed import load_recipe
from lead_trainer.engine.checkpoints.checkpoint import (
    CheckpointIdentity,
    checkpoint_at,
    commit_checkpoint,
    file_names,
    stage_files,
)
from lead_trainer.engine.checkpoints.retry_budget import RetryBudget
from lead_trainer.engine.checkpoints.snapshot import Snapshot, parts_of
from lead_trainer.engine.step.batch_norms import BatchNorms
from lead_trainer.engine.step.clip import Clipper
from lead_trainer.engine.step.optimizers import Optimizers
from lead_trainer.engine.step.ranking import Ranking
from lead_trainer.engine.step.state import TrainState
from lead_trainer.local.store import NAMESPACE, STAGE, UID, store_in

EPOCHS = 31
# What LEAD's config.json tells of the machine and of flags that LEAD's evaluation has at their defaults without a file.
NOT_TOLD = {
    "assigned_cpu_cores", "bucket_collection_path", "carla_cache_path", "carla_crop_height_type", "crop_height",
    "force_rebuild_bucket", "force_rebuild_data_cache", "local_rank", "need_grad_scaler", "rank", "slurm_job_id",
    "ssd_cache_path", "target_dataset", "use_mixed_precision_training", "visualize_dataset",
    "visualize_failed_scenarios", "waymo_e2e_test_data_root", "waymo_e2e_val_data_root", "workers_per_cpu_cores",
    "world_size",
}  # fmt: skip
# Training alone reads these: where it ran, how many samples it saw at once, that LEAD's code says it compiles.
OF_TRAINING = {"logdir", "batch_size", "compile"}


def a_finished_run(logdir: Path, *, planner: bool) -> None:
    """Leaves the last checkpoint of a run of the preset; no tensor has values."""
    recipe = load_recipe("lead")
    config = recipe.config({"use_planning_decoder": planner}, "default")
    with torch.device("meta"):
        model = recipe.model(config, {})
    optimizers = Optimizers(recipe.optimizer(model, config))
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    state = TrainState(
        model, model, optimizers, scaler, Clipper(), BatchNorms(model), Ranking("loss"), step=EPOCHS, epoch=EPOCHS
    )
    names = file_names(recipe, config, checkpoint_at(state.epoch, 0, state.step))
    loop = state.loop_state({})
    files = stage_files(Snapshot(parts_of(state), loop, {}), names, recipe.config_document(config), logdir / "staged")
    commit_checkpoint(
        store_in(logdir), CheckpointIdentity(InstanceKeys(NAMESPACE, UID, STAGE, 0), 1, "lead", "0" * 64, (), 1),
        loop.model_dump(include={"step", "epoch", "step_in_epoch"}), files, names, parameters="0" * 64,
        parent_sha256=None, metrics={}, budget=RetryBudget(), scratch=logdir / "scratch", final=True,
    )  # fmt: skip


@pytest.mark.parametrize("stage", ["pretrain", "posttrain"])
def test_weights_and_config_json_have_leads_names_shapes_types_and_values(
    stage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_finished_run(tmp_path / "run", planner=stage == "posttrain")
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "bundle")]) == ExitCode.DONE
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == {"config.json", "model_0030_0.pth"}
    weights = torch.load(tmp_path / "bundle/model_0030_0.pth", weights_only=True)
    found = {name: (list(value.shape), str(value.dtype)) for name, value in weights.items()}
    entries = golden_json(f"state_dict_{stage}")["entries"]
    assert found == {name: (entry["shape"], f"torch.{entry['dtype']}") for name, entry in entries.items()}
    assert list(found) == list(entries)
    document = json.loads((tmp_path / "bundle/config.json").read_text())
    leads = golden_json("config_defaults")[f"{stage}_default"]["values"]
    assert leads.keys() - document.keys() == NOT_TOLD
    told = leads.keys() & document.keys() - OF_TRAINING
    assert {key: document[key] for key in told} == {key: leads[key] for key in told}
    sentences = capsys.readouterr().out.splitlines()[1:]
    assert [line.partition(":")[0] for line in sentences] == ([] if stage == "posttrain" else ["use_planning_decoder"])

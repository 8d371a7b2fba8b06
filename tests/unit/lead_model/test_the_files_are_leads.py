"""What a user of LEAD sees in a run's folder and takes to LEAD's evaluation: the seeds' trees, file for file."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_protocol.exit_codes import ExitCode
from lead_protocol.manifests import CheckpointManifest, StoredObject
from lead_protocol.object_keys import InstanceKeys
from lead_protocol.store.folder import FolderStore
from lead_testing import shared_dir
from lead_testing.golden_model import golden_json
from lead_trainer.cli import main
from lead_trainer.example_worlds.lead.tree import write_example_tree
from lead_trainer.local.checkpoint_view import CheckpointView
from lead_trainer.recipes.lead.config_values import from_config_json, load_config
from lead_trainer.recipes.lead.model import build_model

TINY = [
    "preset=demo", "num_threads=1", "batch_size=2", "image_height=32", "image_width=96", "min_x_meter=-16",
    "max_x_meter=16", "min_y_meter=-16", "max_y_meter=16", "pixels_per_meter=1", "log_images_frequency=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a pretrain run, a posttrain run on its weights, and the exported bundle."""
    folder = tmp_path_factory.mktemp("files")
    write_example_tree(folder / "carla", routes=1, frames=19, seed=0)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    shared = ["train", *TINY, f"carla_root={folder / 'carla'}", "epochs=2"]
    pretrain = [f"logdir={folder / 'pretrain'}", "use_grad_clipper=true"]
    posttrain = [f"logdir={folder / 'posttrain'}", f"load_file={folder / 'pretrain/model_0001.pth'}"]
    assert main([*shared, *pretrain]) == ExitCode.DONE
    assert main([*shared, *posttrain, "use_planning_decoder=true", "seed=2"]) == ExitCode.DONE
    assert main(["export", str(folder / "posttrain"), str(folder / "bundle")]) == ExitCode.DONE
    yield folder
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def tree_in_the_guide() -> set[str]:
    """Returns the file names that LEAD's guide shows for a finished pretrain run of 31 epochs."""
    seeds = sorted((shared_dir() / "seeds").glob("000_*"))[0].read_text()
    block = seeds.split("outputs/local_training/pretrain\n")[1].split("```")[0]
    return {line.split("── ")[1].strip() for line in block.splitlines() if "── " in line}


def as_in_the_guide(name: str) -> str:
    """Returns a file's name with the guide's epoch and event-file number."""
    name = re.sub(r"_0001\.", "_0030.", name)
    return re.sub(r"^events\.out\.tfevents\..*", "events.out.tfevents.1764250874.local.105366.0", name)


def test_a_tiny_run_leaves_the_files_of_leads_guide(runs: Path) -> None:
    found = {as_in_the_guide(path.name) for path in (runs / "pretrain").iterdir() if path.is_file()}
    assert found == tree_in_the_guide()
    without_clipper = {as_in_the_guide(path.name) for path in (runs / "posttrain").iterdir() if path.is_file()}
    assert without_clipper == tree_in_the_guide() - {"clipper_0030.pth"}


def test_pictures_are_files_of_their_steps_beside_the_event_file(runs: Path) -> None:
    pictures = sorted((runs / "posttrain/training_viz").iterdir())
    assert [path.name for path in pictures] == [f"prediction_{step:07d}.png" for step in range(1, len(pictures) + 1)]
    shown = cv2.imread(str(pictures[0]))
    assert shown is not None and shown.shape[1] == 1152 and shown.std() > 10
    events = EventAccumulator(str(runs / "posttrain"), size_guidance={"images": 0}).Reload()
    assert len(events.Images("prediction")) == len(pictures)


def test_scalars_have_leads_tags(runs: Path) -> None:
    tags = set(EventAccumulator(str(runs / "posttrain")).Reload().Tags()["scalars"])
    assert {"debug/epoch", "debug/lr_0", "debug/num_gradient_steps", "debug/gradient_steps_skipped", "debug/grad_scale",
            "unscaled_loss/loss_semantic", "unscaled_loss/radar_loss", "unscaled_loss/loss_spatio_temporal_waypoints",
            "scaled_loss/loss_semantic", "scaled_loss/radar_loss", "debug/num_gpu", "debug/model_size",
            "debug/dataset_size", "debug/dataloader_size", "debug/batch_size_per_gpu", "debug/allocated_cpus",
            "debug/steps_left", "debug/max_gpu_mem", "debug/average_loading_time", "debug/finished_percentage",
            "debug/source_dataset",
            "metric/waypoints_ade", "metric/route_fde", "metric/target_speed_error"} <= tags  # fmt: skip


def test_sizes_and_position_are_told_in_leads_units(runs: Path) -> None:
    events = EventAccumulator(str(runs / "posttrain"), size_guidance={"scalars": 0}).Reload()
    told = {name: [event.value for event in events.Scalars(f"debug/{name}")] for name in (
        "num_gradient_steps", "finished_percentage", "model_size", "source_dataset")}  # fmt: skip
    steps = len(told["finished_percentage"])
    assert set(told["num_gradient_steps"]) == {steps}
    assert told["finished_percentage"] == pytest.approx([(n + 1) / steps for n in range(steps)])
    state = torch.load(runs / "posttrain/model_0001.pth", weights_only=True)
    model = build_model(load_config(from_config_json(json.loads((runs / "posttrain/config.json").read_text()))))
    trained = sum(state[name].numel() for name, one in model.named_parameters() if one.requires_grad)
    assert set(told["model_size"]) == {trained} and set(told["source_dataset"]) == {1.0}


def test_scaled_losses_sum_to_the_loss(runs: Path) -> None:
    events = EventAccumulator(str(runs / "posttrain"), size_guidance={"scalars": 0}).Reload()
    scaled = [tag for tag in events.Tags()["scalars"] if tag.startswith("scaled_loss/")]
    sums = sum(np.array([event.value for event in events.Scalars(tag)]) for tag in scaled)
    assert sums == pytest.approx([event.value for event in events.Scalars("debug/loss")], rel=1e-5)
    left = [event.value for event in events.Scalars("debug/steps_left")]
    assert left == list(range(len(left) - 1, -1, -1))


def test_checkpoints_hold_what_leads_hold(runs: Path) -> None:
    model = torch.load(runs / "posttrain/model_0001.pth", weights_only=True)
    assert not any(name.startswith("module.") for name in model)
    optimizer = torch.load(runs / "posttrain/optimizer_0001.pth", weights_only=True)
    group = optimizer["param_groups"][0]
    want = golden_json("optim_schedule")["optimizer"]["group_hyperparameters"]
    assert (group["amsgrad"], group["weight_decay"], group["betas"]) == (
        want["amsgrad"], want["weight_decay"], tuple(want["betas"]),
    )  # fmt: skip
    assert "last_epoch" in torch.load(runs / "posttrain/scheduler_0001.pth", weights_only=True)
    assert (runs / "posttrain/gradient_steps_skipped_0001.txt").read_text().strip() == "0"


def test_the_exported_bundle_is_what_leads_evaluation_loads(runs: Path) -> None:
    """The evaluation builds the network from config.json and loads every model*.pth with strict names."""
    assert {path.name for path in (runs / "bundle").iterdir()} == {"config.json", "model_0001_2.pth"}
    document = json.loads((runs / "bundle/config.json").read_text())
    model = build_model(load_config(from_config_json(document)))
    model.load_state_dict(torch.load(runs / "bundle/model_0001_2.pth", weights_only=True), strict=True)
    read_by_evaluation = {
        "lidar_horz_anchors", "img_vert_anchors", "target_speeds", "target_points_normalization_constants",
        "image_width_before_camera_subselection", "num_used_cameras", "skip_first", "is_pretraining",
    }  # fmt: skip
    assert read_by_evaluation <= document.keys()
    assert document["use_planning_decoder"] and document["seed"] == 2


def test_a_config_json_of_leads_own_gives_its_network(tmp_path: Path) -> None:
    """Other direction: weights and config.json that LEAD wrote are built without a change."""
    document = golden_json("config_defaults")["posttrain_default"]["values"]
    with torch.device("meta"):
        model = build_model(load_config({**from_config_json(document), "compat": "lead"}))
    assert list(model.state_dict()) == list(golden_json("state_dict_posttrain")["entries"])


def view_in(folder: Path, *kept_epochs: int) -> CheckpointView:
    objects = folder / ".lead"
    return CheckpointView(
        folder, objects, FolderStore(objects), InstanceKeys("local", "local", "train", 0), kept_epochs
    )


def checkpoint_in(folder: Path, epoch: int) -> CheckpointManifest:
    """Returns the manifest of an epoch's end, and puts its two files into the store."""
    names = (f"model_{epoch:04d}.pth", f"optimizer_{epoch:04d}.pth")
    files = {name: StoredObject(key=f"files/{name}", size=4, sha256="0" * 64) for name in names}
    for stored in files.values():
        FolderStore(folder / ".lead").put(stored.key, b"ours")
    return CheckpointManifest.model_construct(epoch=epoch + 1, step_in_epoch=0, parts={"model": names[0]}, files=files)


def test_chosen_epochs_keep_their_model_file(tmp_path: Path) -> None:
    """LEAD keeps model_0006.pth with epoch 7 in the list: it looks when it would remove the epoch before."""
    view = view_in(tmp_path, 2)
    for epoch in (0, 1, 2, 3):
        view.show(checkpoint_in(tmp_path, epoch))
    assert sorted(path.name for path in tmp_path.glob("*.pth")) == [
        "model_0001.pth", "model_0003.pth", "optimizer_0003.pth",
    ]  # fmt: skip


def test_files_that_lead_wrote_stay_in_the_folder(tmp_path: Path) -> None:
    leads = {"model_0015.pth", "optimizer_0015.pth"}
    for name in leads:
        (tmp_path / name).write_bytes(b"LEAD's")
    for epoch in (0, 1):
        view_in(tmp_path).show(checkpoint_in(tmp_path, epoch))
    assert {path.name for path in tmp_path.glob("*.pth")} == {*leads, "model_0001.pth", "optimizer_0001.pth"}
    assert {(tmp_path / name).read_bytes() for name in leads} == {b"LEAD's"}

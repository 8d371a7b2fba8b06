"""The block of a step for a person at a terminal, and the histograms in the event file."""

from pathlib import Path

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lead_protocol.store.folder import FolderStore
from lead_testing.toy_recipe import ToyModel
from lead_trainer.engine.batch_norms import BatchNorms
from lead_trainer.engine.clip import Clipper
from lead_trainer.engine.ranking import Ranking
from lead_trainer.engine.state import TrainState
from lead_trainer.recipes.recipe import StepOutput
from lead_trainer.report.progress_block import progress_block
from lead_trainer.report.tensorboard import EventFile


def a_state() -> TrainState:
    model = ToyModel(0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    ranking = Ranking("val/loss")
    ranking.judge({"val/loss": 0.25}, 2, 20)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return TrainState(
        model,
        model,
        optimizer,
        scaler,
        (3e-4,),
        Clipper(),
        BatchNorms(model),
        ranking,
        step=25,
        epoch=2,
        step_in_epoch=5,
    )


def test_the_block_says_where_a_run_is_and_how_well_it_does() -> None:
    output = StepOutput(torch.tensor(1.5), {"loss_plane": torch.tensor(0.5)}, {"psnr": torch.tensor(20.0)})
    block = progress_block(a_state(), output, 0.125, epochs=4, steps=10)
    for words in ("epoch 3/4", "step 5/10", "[############............]", "loss 1.5", "loss_plane 0.5", "psnr 20",
                  "lr 0.0003", "0.125 s/step", "skipped 0", "best val/loss 0.25 after epoch 2"):  # fmt: skip
        assert words in block
    assert "GPU" not in block  # there is none


def test_histograms_hold_the_finite_values(tmp_path: Path) -> None:
    events = EventFile(tmp_path / "events", FolderStore(tmp_path / "store"), "tb/", attempt=1, first_step=0, on=True)
    events.histogram("weights/layer", torch.tensor([1.0, 2.0, float("nan")]), 3)
    events.histogram("weights/spoiled", torch.tensor([float("nan")]), 3)
    events.close()
    read = EventAccumulator(str(tmp_path / "events"))
    read.Reload()
    assert read.Tags()["histograms"] == ["weights/layer"]
    (histogram,) = read.Histograms("weights/layer")
    assert (histogram.step, histogram.histogram_value.num) == (3, 2)

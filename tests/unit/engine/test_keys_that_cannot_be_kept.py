"""What a machine or a place cannot do is refused before training, by the name of the key."""

import pytest
import torch

from lead_testing.toy_jobs import a_toy_job
from lead_trainer.engine.ddp import Group
from lead_trainer.engine.worker import refuse_local_keys
from lead_trainer.errors import BadConfig
from lead_trainer.world import World


def test_shared_batch_norms_are_refused_off_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    group = Group(World(), torch.device("cpu"))
    group.close()
    monkeypatch.setattr(group, "_decisions", object())  # as if there were other ranks
    with pytest.raises(BadConfig, match="sync_batchnorm: found true"):
        group.wrap(torch.nn.BatchNorm1d(2), sync_batchnorm=True, repeatable=True)


@pytest.mark.parametrize("key", ["carla_root", "load_file", "logdir"])
def test_a_local_key_in_a_pods_job_is_refused(key: str) -> None:
    refuse_local_keys(a_toy_job(config={"batch_size": 4, key: ""}))
    with pytest.raises(BadConfig, match=f"{key}: found 'x'"):
        refuse_local_keys(a_toy_job(config={key: "x"}))

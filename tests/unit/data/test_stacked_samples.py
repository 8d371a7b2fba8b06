"""Samples become a batch key by key, and what does not fit together is named."""

import numpy as np
import pytest
import torch

from lead_trainer.contract.samples import stacked
from lead_trainer.data.device_batch import to_device
from lead_trainer.errors import BadData


def test_arrays_numbers_and_texts_are_stacked_in_the_samples_order() -> None:
    batch = stacked([{"a": np.full(2, n, np.float32), "n": np.int64(n), "s": str(n)} for n in (1, 2)])
    assert batch["s"] == ["1", "2"] and batch["n"].tolist() == [1, 2] and batch["n"].dtype == torch.int64
    assert batch["a"].tolist() == [[1.0, 1.0], [2.0, 2.0]] and batch["a"].dtype == torch.float32


def test_a_key_that_some_samples_lack_is_filled_only_where_that_is_asked_for() -> None:
    samples = [{"a": np.ones(2)}, {"b": 3}]
    assert stacked(samples, fill_missing=True)["a"].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(BadData, match="key a has no value in 1 of 2 samples of one batch; every sample must"):
        stacked(samples)


def test_a_batch_on_its_device_is_the_batch_itself() -> None:
    batch = {"a": torch.ones(2), "s": ["x"]}
    assert to_device(batch, torch.device("cpu")) is batch
    moved = to_device(batch, torch.device("meta"))
    assert moved["a"].device.type == "meta" and moved["s"] is batch["s"]

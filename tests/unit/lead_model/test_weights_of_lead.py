"""Weights and config.json that LEAD wrote give LEAD's outputs, unless somebody asks for a mended forward pass."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lead_testing import golden_model as golden
from lead_trainer.contract.config_values import values_in
from lead_trainer.local.run import local_run
from lead_trainer.recipes.lead.compat import Compat
from lead_trainer.recipes.lead.config import LeadConfig
from lead_trainer.recipes.lead.config_values import PACKAGE, from_config_json, load_config, to_config_json
from lead_trainer.recipes.lead.recipe import RECIPE


def leads_document() -> dict[str, Any]:
    """Returns the config.json of the reference's variant `tiny`, whose outputs are recorded."""
    document = golden.golden_json("config_defaults")["posttrain_default"]["values"]
    return {**document, **values_in(PACKAGE, "tiny"), "channel_last": False}


@pytest.fixture
def lead_run(tmp_path: Path) -> str:
    """A folder of LEAD's; returns the words that start a stage from it."""
    (tmp_path / "config.json").write_text(json.dumps(leads_document()))
    (tmp_path / "model_0030.pth").write_bytes(b"")
    return f"load_file={tmp_path / 'model_0030.pth'} logdir={tmp_path / 'next'}"


@pytest.mark.parametrize(
    ("word", "compat"),
    [
        ("lr=0.1", Compat()),
        ("compat=lead", Compat.lead()),
        ("compat=fixed", Compat.fixed()),
        ("compat.lagging_lr=true", Compat(lagging_lr=True)),
    ],
)
def test_whatever_is_said_of_compat_counts(lead_run: str, word: str, compat: Compat) -> None:
    assert local_run([*lead_run.split(), word], [], {}).config.compat == compat


def test_a_config_json_of_ours_says_it_itself() -> None:
    for compat in (Compat(), Compat.lead(), Compat.fixed()):
        document = to_config_json(LeadConfig(compat=compat))
        assert load_config(from_config_json(document)).compat == compat


def test_a_config_json_of_leads_own_says_nothing_of_compat() -> None:
    leads = {key: value for key, value in to_config_json(LeadConfig()).items() if key != "compat"}
    assert load_config(from_config_json(leads)).compat == Compat()


@pytest.mark.parametrize("samples", [0, 6])
def test_weights_that_lead_trained_on_carla_and_waymo_keep_their_unread_encoders(samples: int) -> None:
    past = {"use_past_positions": True, "use_past_speeds": True, "num_past_samples_used": samples}
    mixed = {"use_waymo_e2e_data": True, "LTF": True, "use_planning_decoder": True}
    document = {**to_config_json(load_config(mixed, "demo")), **past}
    leads = load_config(from_config_json({key: value for key, value in document.items() if key != "compat"}))
    state = RECIPE.model(leads, {}).state_dict()
    ours = RECIPE.model(load_config(mixed, "demo"), {}).state_dict()
    assert len(state.keys() - ours.keys()) == 4
    model = RECIPE.model(leads, {})
    RECIPE.load_initial_weights(model, leads, {}, state)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in state.items())


def outputs_beyond_tolerance(**said: Any) -> set[str]:
    """Returns which outputs of LEAD's weights, loaded as a stage loads them, are not LEAD's."""
    config = load_config({**from_config_json(leads_document()), **said})
    model = RECIPE.model(config, {})
    entries = golden.golden_json("state_dict_posttrain_tiny")["entries"]
    weights = {name: torch.from_numpy(golden.weight(name, tuple(entry["shape"]))) for name, entry in entries.items()}
    RECIPE.load_initial_weights(model, config, {}, weights)
    deviations = golden.forward_deviations("tiny", golden.forward_outputs(model.eval(), golden.golden_batch(config)))
    return {name for name, (found, allowed) in deviations.items() if found > allowed}


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("said", [{}, {"compat": "lead"}, {"compat": {"lagging_lr": True}}], ids=str)
def test_leads_weights_give_leads_outputs_whatever_is_said_of_training(said: dict[str, Any]) -> None:
    assert outputs_beyond_tolerance(**said) == set()


# The other switches of the forward pass belong to networks that the reference has no outputs of.
OF_RADAR = ("transposed_radar_sampling", "unmasked_radar_padding")


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("switch", OF_RADAR)
def test_a_switch_of_the_forward_pass_that_is_off_gives_other_outputs(switch: str) -> None:
    assert switch in Compat.fixed().mended_forward
    assert {"radar_predictions", "route"} <= outputs_beyond_tolerance(compat={switch: False})


@pytest.mark.usefixtures("one_thread")
def test_every_switch_that_changes_outputs_is_known_as_one() -> None:
    others = {name: False for name in Compat.model_fields if name not in Compat.fixed().mended_forward}
    assert outputs_beyond_tolerance(compat=others) == outputs_beyond_tolerance(compat=dict.fromkeys(others, True))

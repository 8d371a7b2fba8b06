"""What the reference tells beside its outputs: inputs and weights to the byte, module settings, what an input moves."""

import hashlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lead_testing import golden_model as golden
from lead_trainer.blocks.fusion_transformer import SelfAttention
from lead_trainer.recipes.lead.model import TFv6, build_model

pytestmark = pytest.mark.usefixtures("one_thread")

Batch = dict[str, Tensor]

WIDTHS = {"1152 wide (default, small, regnety032)": 1152, "384 wide (tiny)": 384}


@pytest.mark.parametrize("name", WIDTHS)
def test_inputs_and_labels_are_the_references_own(name: str) -> None:
    want = golden.golden_json("recipe_checks")["batch"][name]
    made = golden.inputs(WIDTHS[name]) | golden.labels(WIDTHS[name])
    assert made.keys() == want.keys()
    for key, array in made.items():
        assert (list(array.shape), str(array.dtype)) == (want[key]["shape"], want[key]["dtype"]), key
        assert array.ravel()[:4].tolist() == want[key]["first4"], key
        assert array.sum(dtype=np.float64) == pytest.approx(want[key]["sum64"], rel=1e-12), key
        assert hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() == want[key]["sha256"], key


@pytest.mark.parametrize("variant", golden.VARIANTS)
def test_weights_drawn_for_our_parameters_are_the_references_own(variant: str) -> None:
    """The digest runs over all weights in the order of the state dict: one other name, shape or place changes it."""
    want = golden.golden_json("recipe_checks")["weights"][variant]
    with torch.device("meta"):
        model = build_model(golden.variant_config(variant, planner=True))
    sha, seen = hashlib.sha256(), set()
    for name, value in model.state_dict().items():
        array = golden.weight(name, tuple(value.shape))
        sha.update(array.tobytes())
        if name in want["examples"]:
            seen.add(name)
            assert array.ravel()[:4].tolist() == want["examples"][name]["first4"], name
            assert zlib.crc32(array.tobytes()) == want["examples"][name]["crc32"], name
    assert seen == want["examples"].keys()
    assert sha.hexdigest() == want["sha256_concat_posttrain_state_dict_order_C_contiguous_native_dtype"]


def test_the_number_of_parameters_of_each_module_is_leads() -> None:
    want = golden.golden_json("state_dict_posttrain")
    with torch.device("meta"):
        model = build_model(golden.variant_config("default", planner=True))
    for name, count in want["parameters_per_module"].items():
        assert sum(parameter.numel() for parameter in model.get_submodule(name).parameters()) == count, name
    assert sum(parameter.numel() for parameter in model.parameters()) == want["num_parameters"]
    assert (
        sum(buffer.numel() for name, buffer in model.named_buffers() if name in want["entries"])
        == (want["num_buffer_elements"])
    )


def test_rates_epsilons_heads_and_activations_are_leads() -> None:
    want = golden.golden_json("module_facts_default")
    with torch.device("meta"):
        model = build_model(golden.variant_config("default", planner=True))
    dropouts = [[name, module.p] for name, module in model.named_modules() if isinstance(module, nn.Dropout)]
    assert len(dropouts) == want["dropout_modules"]["count"]
    assert sorted({rate for _, rate in dropouts}) == want["dropout_modules"]["p_values"]
    assert dropouts[:10] == want["dropout_modules"]["first10"]

    attention = of_kind(model, nn.MultiheadAttention)
    assert {"count": len(attention), **settings(attention, dropout_p="dropout", num_heads="", batch_first="")} == (
        want["multihead_attention"]
    )
    norms = of_kind(model, nn.BatchNorm2d)
    assert {"count": len(norms), **settings(norms, eps="", momentum="")} == want["batchnorm"]
    assert settings(of_kind(model, nn.LayerNorm), eps="")["eps"] == want["layernorm_eps"]
    assert sum(relu.inplace for relu in of_kind(model, nn.ReLU)) == want["relu_inplace"]
    assert {layer.attention_dropout for layer in of_kind(model, SelfAttention)} == set(want["gpt_attention_dropout"])


def test_transformer_layers_are_set_up_as_leads() -> None:
    """LEAD asks for GELU; copying a layer with a module as activation makes torch fall back to the function relu."""
    with torch.device("meta"):
        model = build_model(golden.variant_config("default", planner=True))
    found = [
        {
            "name": name,
            "norm_first": layer.norm_first,
            "activation": type(layer.activation).__name__,
            "ffn": layer.linear1.out_features,
            "heads": layer.self_attn.num_heads,
        }
        for name, layer in model.named_modules()
        if isinstance(layer, nn.TransformerDecoderLayer)
    ]
    assert found == golden.golden_json("module_facts_default")["transformer_decoder_layers"]
    assert {layer.activation for layer in of_kind(model, nn.TransformerDecoderLayer)} == {torch.nn.functional.relu}


def of_kind(model: nn.Module, kind: type) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]


def settings(modules: list[Any], **attributes: str) -> dict[str, list[Any]]:
    """Returns the different values of some attributes, by the reference's name; ours is beside it where it differs."""
    return {
        name: sorted({getattr(module, attribute or name) for module in modules})
        for name, attribute in attributes.items()
    }


def swapped_radar(radar: Tensor) -> None:
    """LEAD refuses points outside of the window, so the reference moved the swapped ones to its border."""
    radar[..., :2] = radar[..., :2].flip(-1).clone()
    radar[..., 0].clamp_(-32, 64)
    radar[..., 1].clamp_(-40, 40)


def reversed_ids(radar: Tensor) -> None:
    radar[..., 4] = 3 - radar[..., 4]


def faster(radar: Tensor) -> None:
    radar[..., 3] += 1


def radar_changed(change: Callable[[Tensor], None]) -> Callable[[Batch], Batch]:
    def changed(batch: Batch) -> Batch:
        radar = batch["radar"].clone()
        change(radar)
        return {"radar": radar}

    return changed


CHANGES: dict[str, Callable[[Batch], Batch]] = {
    "speed+1": lambda batch: {"speed": batch["speed"] + 1},
    "command rolled by one": lambda batch: {"command": batch["command"].roll(1, dims=1)},
    "swap previous/next target point": lambda batch: {
        "target_point_previous": batch["target_point_next"],
        "target_point_next": batch["target_point_previous"],
    },
    "target point x/y swapped": lambda batch: {"target_point": batch["target_point"].flip(-1)},
    "radar x/y swapped": radar_changed(swapped_radar),
    "radar sensor ids reversed": radar_changed(reversed_ids),
    "radar velocity+1": radar_changed(faster),
    "RGB->BGR": lambda batch: {"rgb": batch["rgb"].flip(1)},
    "lidar flipped in y": lambda batch: {"rasterized_lidar": batch["rasterized_lidar"].flip(2)},
}


@pytest.fixture(scope="module")
def tiny() -> tuple[TFv6, Batch, dict[str, Tensor]]:
    torch.set_num_threads(1)
    config = golden.variant_config("tiny", planner=True)
    model, batch = golden.golden_model(config), golden.golden_batch(config)
    return model, batch, golden.forward_outputs(model, batch)


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_input_moves_the_outputs_as_far_as_in_lead(
    change: str, tiny: tuple[TFv6, Batch, dict[str, Tensor]]
) -> None:
    """Each of two outputs may be off by its tolerance, so their distance may be off by twice of it."""
    model, batch, before = tiny
    after = golden.forward_outputs(model, {**batch, **CHANGES[change](batch)})
    tolerances = golden.golden_json("tolerances")["forward"]["tiny"]
    for name, want in golden.golden_json("input_sensitivity_tiny")["changes"][change].items():
        key = f"center_net.{name}" if name == "heatmap_logit" else name
        moved = (after[key] - before[key]).abs().max().item()
        assert moved == pytest.approx(want, abs=2 * tolerances[key]["atol"]), name
        assert want > 0 or moved == 0, name


def test_every_recorded_change_is_tried() -> None:
    assert golden.golden_json("input_sensitivity_tiny")["changes"].keys() == CHANGES.keys()

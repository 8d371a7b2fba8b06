"""The metrics equal those of `av2` 0.3.6 and `nuscenes-devkit` 1.2.0 to 1e-6, at the borders too."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lead_testing.oracles import ask
from lead_trainer.metrics.forecasting import Forecast, metrics_at
from lead_trainer.metrics.offroad import in_mask, off_road_rate

TOLERANCE = 1e-6

AV2 = """
import numpy as np
from av2.datasets.motion_forecasting.eval import metrics
answer = []
for case in question:
    truth, modes, p = (np.array(case[key], dtype=float) for key in ("truth", "modes", "probabilities"))
    known = ~np.isnan(truth).any(axis=1)
    top = np.argsort(-p, kind="stable")[:case["k"]]
    truth, modes, p = truth[known], modes[top][:, known], p[top]
    ade, fde = metrics.compute_ade(modes, truth), metrics.compute_fde(modes, truth)
    brier = metrics.compute_brier_fde(modes, truth, p)
    answer.append({"minADE": ade.min(), "minADE_bestFDE": ade[fde.argmin()], "minFDE": fde.min(),
        "MR": float(metrics.compute_is_missed_prediction(modes, truth).all()),
        "brier_minFDE": brier.min(), "brier_minFDE_bestFDE": brier[fde.argmin()]})
"""

NUSCENES = """
import numpy as np
from nuscenes.eval.prediction.data_classes import Prediction
from nuscenes.eval.prediction.metrics import MinADEK, MinFDEK, MissRateTopK, OffRoadRate, RowMean
answer = []
for case in question["cases"]:
    truth, modes, p = (np.array(case[key], dtype=float) for key in ("truth", "modes", "probabilities"))
    known = ~np.isnan(truth).any(axis=1)
    said = Prediction("i", "s", modes[:, known], p)
    kinds = {"minADE": MinADEK, "minFDE": MinFDEK, "MissRate_2": MissRateTopK}
    answer.append({name: float(kind([case["k"]], [RowMean()])(truth[known], said)[0, 0])
                   for name, kind in kinds.items()})
rate = OffRoadRate.__new__(OffRoadRate)
class Helper:
    def get_map_name_from_sample_token(self, token):
        return "map"
rate.helper, rate.pixels_per_meter, rate.number_of_points = Helper(), 10, 200
rate.drivable_area_polygons = {"map": np.array(question["mask"])}
answer.append([float(rate(None, Prediction("i", "s", np.array(modes), np.ones(len(modes)) / len(modes)))[0])
               for modes in question["paths"]])
"""


def cases() -> list[dict[str, Any]]:
    """Random agents, and one agent for each border: exactly 2 m, one mode, steps without truth, fewer modes than k."""
    made = []
    for number in range(60):
        random = np.random.default_rng(number)
        steps, modes, k = [(60, 6, 6), (60, 6, 1), (12, 1, 5), (12, 6, 5), (12, 25, 10), (12, 3, 10)][number % 6]
        truth = np.cumsum(random.normal(size=(steps, 2)), axis=0)
        spread = random.choice([0.05, 1.0, 5.0])
        predicted = truth + np.cumsum(random.normal(scale=spread, size=(modes, steps, 2)), axis=1)
        if number % 4 == 3:
            truth[random.random(steps) < 0.4] = np.nan
            truth[3] = 0.0
        made.append(case(truth, predicted, random.dirichlet(np.ones(modes)), k))
    straight = np.stack([np.arange(12.0), np.zeros(12)], axis=1)
    for metres in (2.0, 1.9999999, 2.0000001):
        end = straight.copy()
        end[-1, 1] += metres
        made.append(case(straight, np.stack([end]), np.ones(1), 1))
        made.append(
            case(
                straight,
                np.stack([straight + np.array([0.0, metres])] * 6),
                np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1]),
                6,
            )
        )
    return made


def case(truth: npt.NDArray[Any], modes: npt.NDArray[Any], probabilities: npt.NDArray[Any], k: int) -> dict[str, Any]:
    return {"truth": truth.tolist(), "modes": modes.tolist(), "probabilities": probabilities.tolist(), "k": k}


def ours(one: dict[str, Any]) -> dict[str, float]:
    forecast = Forecast(
        torch.tensor([one["modes"]], dtype=torch.float64), torch.tensor([one["probabilities"]], dtype=torch.float64)
    )
    found = metrics_at(forecast, torch.tensor([one["truth"]], dtype=torch.float64), one["k"])
    return {tag.replace(f"_{one['k']}", "", 1) if not tag.startswith("MissRate") else "MissRate_2": value.item()
            for tag, value in found.items()}  # fmt: skip


def assert_equal(mine: dict[str, float], theirs: dict[str, float], number: int) -> None:
    for tag, value in theirs.items():
        assert abs(mine[tag] - value) <= TOLERANCE, f"case {number}: {tag} is {mine[tag]}, the oracle says {value}"


def test_d_45_forecasting_metrics_equal_those_of_av2() -> None:
    asked = cases()
    answers = ask(AV2, asked)
    assert {answer["MR"] for answer in answers} == {0.0, 1.0}
    for number, (one, theirs) in enumerate(zip(asked, answers, strict=True)):
        assert_equal(ours(one), theirs, number)


def test_d_45_forecasting_metrics_and_off_road_rate_equal_those_of_the_nuscenes_devkit() -> None:
    asked, mask, paths = cases(), drivable_mask(), drives()
    *answers, rates = ask(NUSCENES, {"cases": asked, "mask": mask.tolist(), "paths": [path.tolist() for path in paths]})
    assert {answer["MissRate_2"] for answer in answers} == {0.0, 1.0}
    for number, (one, theirs) in enumerate(zip(asked, answers, strict=True)):
        assert_equal(ours(one), theirs, number)
    assert len(set(rates)) > 2
    assert [off_road_rate(path, in_mask(mask)) for path in paths] == rates


def drivable_mask() -> npt.NDArray[np.uint8]:
    """A road of 8 m along x through a map of 60 x 40 m, with a hole."""
    mask = np.zeros((400, 600), np.uint8)
    mask[160:240] = 1
    mask[190:200, 450:470] = 0
    return mask


def drives() -> list[npt.NDArray[np.float64]]:
    """Six modes each: along the road, off it, out of the map, standing still, three points only."""
    made = []
    for number in range(20):
        random = np.random.default_rng(number)
        speed, drift = random.uniform(0, 4.5, size=(6, 1)), random.normal(scale=0.25, size=(6, 1))
        times = np.arange(1, 13) * 0.5
        made.append(np.stack([5 + speed * times * 2, 20 + drift * times + random.normal(scale=0.02, size=12)], axis=-1))
    still = np.tile([[10.0, 20.0]], (12, 1))
    made += [np.stack([still, still - [20.0, 0.0]]), np.stack([still[:2], np.array([[0.5, 20.0], [-0.05, 20.0]])])]
    return made

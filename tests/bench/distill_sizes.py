"""The recipe distill's students at their real sizes on this machine: parameters, real steps, and four samples learnt.

    python tests/bench/distill_sizes.py [--sizes 110m 500m] [--batch 2] [--steps 3] [--overfit 0]

Pictures are dummies of 224 x 224, everything else is what training does. `--overfit N` takes up to N steps on the same
four samples until the loss falls below 1 % of its start, and fails where it does not.
"""

import argparse
import statistics
import sys
import time

import torch

from lead_trainer.contract.samples import Batch
from lead_trainer.contract.step import StepContext
from lead_trainer.engine.attempt.memory import save_memory
from lead_trainer.engine.step.schedule import warmed_up
from lead_trainer.recipes.distill.config import DistillConfig
from lead_trainer.recipes.distill.config_values import load_config
from lead_trainer.recipes.distill.model import parameter_count
from lead_trainer.recipes.distill.recipe import RECIPE, optimizer

OVERFIT_SAMPLES, OVERFIT_SHARE, WARMUP_STEPS = 4, 0.01, 10


class Student:
    """One student with its optimizer and one batch."""

    def __init__(self, config: DistillConfig, batch: int, device: torch.device) -> None:
        torch.manual_seed(config.seed)
        self.config = config
        self.context = StepContext(config=config, facts=RECIPE.facts(config, {}), device=device)
        self.model = RECIPE.model(config, self.context.facts).to(device).train()
        if config.saves_memory:
            save_memory(RECIPE, self.model)
        self.optimizer = optimizer(self.model, config)
        samples = RECIPE.samples(config, {})
        made: Batch = RECIPE.collate([samples.load(index, 0) for index in range(batch)])
        self.batch = {key: value.to(device) for key, value in made.items()}
        self.steps = 0

    def step(self) -> float:
        """Takes one step and returns its loss."""
        factor = warmed_up(lambda _: 1.0, WARMUP_STEPS)(self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * factor
        loss = RECIPE.step(self.model, self.batch, self.context).loss
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if not torch.isfinite(norm):
            raise SystemExit(f"{self.config.model_size}: gradients are not finite in step {self.steps}")
        self.optimizer.step()
        self.steps += 1
        return float(loss.detach())


def main() -> None:
    """Prints a line a size; exits with 1 where four samples are not learnt."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["110m", "500m"])
    parser.add_argument("--model", default="reasoning")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--overfit", type=int, default=0, metavar="STEPS")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    learnt = True
    for size in options.sizes:
        config = load_config({"model": options.model, "model_size": size, "offline": True})
        student = Student(config, OVERFIT_SAMPLES if options.overfit else options.batch, device)
        seconds, losses = [], []
        for _ in range(options.overfit or options.steps):
            began = time.perf_counter()
            losses.append(student.step())
            seconds.append(time.perf_counter() - began)
            if options.overfit and losses[-1] < OVERFIT_SHARE * losses[0]:
                break
        print(
            f"{size}: {parameter_count(config):,} parameters, {len(losses)} steps of {len(student.batch['speed'])} on "
            f"{device.type}, {statistics.median(seconds):.1f} s a step (median), loss {losses[0]:.2f} -> "
            f"{losses[-1]:.4f} ({losses[-1] / losses[0]:.2%})",
            flush=True,
        )
        learnt = learnt and (not options.overfit or losses[-1] < OVERFIT_SHARE * losses[0])
        del student
    sys.exit(not learnt)


if __name__ == "__main__":
    main()

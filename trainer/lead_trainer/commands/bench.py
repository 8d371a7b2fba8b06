"""`lead bench`: how fast loading is, or a model's step, on this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def bench(
    what: str, arguments: Sequence[str], config: Sequence[Path], environ: Mapping[str, str], seconds: float
) -> None:
    """Measures what was named, for about `seconds` each stage or variant."""
    if what == "data":
        from lead_trainer.commands.bench_data import bench_data

        bench_data(arguments, config, environ, seconds)
    else:
        from lead_trainer.commands.bench_model import bench_model

        bench_model(arguments, config, environ, seconds)

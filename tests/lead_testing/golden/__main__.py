"""Prints our numbers as JSON, for a comparison with what public packages say of the same input.

python -m lead_testing.golden bev NPZ
python -m lead_testing.golden images SEED
python -m lead_testing.golden nuscenes TREE
python -m lead_testing.golden nuplan TREE [--grids FILE.npz]
"""

import argparse
import importlib
import json
import sys

import numpy as np
import structlog

KINDS = ("bev", "images", "nuplan", "nuscenes")


def main() -> None:
    """Prints the numbers of what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m lead_testing.golden")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("source", help="images: the seed that input is made with; bev: a file of arrays; else a folder")
    parser.add_argument("--grids", metavar="FILE", help="nuplan: also writes the grids there, as .npz")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    module = importlib.import_module(f"lead_testing.golden.{options.kind}")
    print(json.dumps(module.numbers(options.source)))
    if options.grids:
        np.savez_compressed(options.grids, **module.grids(options.source))


if __name__ == "__main__":
    main()

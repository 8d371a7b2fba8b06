"""Prints our numbers as JSON, for a comparison with what public packages say of the same input.

python -m lead_testing.golden images SEED
python -m lead_testing.golden nuscenes TREE
"""

import argparse
import importlib
import json
import sys

import structlog

KINDS = ("images", "nuscenes")


def main() -> None:
    """Prints the numbers of what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m lead_testing.golden")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("source", help="images: the seed that input is made with; else a folder")
    options = parser.parse_args()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    numbers = importlib.import_module(f"lead_testing.golden.{options.kind}").numbers(options.source)
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()

"""Commands on a raw tree: `verify` reads all of it, `bundles` writes a SensorBundle file for each usable sweep.

Downloading is nuPlan's: its licence asks for an account. `verify --checksums FILE` compares with a list of SHA-256 sums
in the format of `sha256sum`.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lead_protocol.manifests import sha256_of_file
from lead_trainer.contract.raw_data import Scan
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import BadConfig, BadData, TrainerError, exit_code_of
from lead_trainer.local.config_sources import parse_arguments
from lead_trainer.recipes.nuplan.ingest.nuplan_tree import NuplanTree
from lead_trainer.recipes.nuplan.preparation import NuplanPreparation, keys_of
from lead_trainer.recipes.nuplan.sensor_bundle import SensorBundle, write_npz
from lead_trainer.recipes.nuplan.targets.bundles import bundle_of_sweep
from lead_trainer.terminal_text import printable

_SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def main(arguments: Sequence[str]) -> int:
    """Runs a command; returns its exit code: 0, or that of what is wrong, which one sentence names."""
    parser = argparse.ArgumentParser(prog="python -m lead_trainer.recipes.nuplan")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (("verify", "read everything and count what is used"), ("bundles", "write NPZ files")):
        command = commands.add_parser(name, help=text)
        command.add_argument("root", type=Path, help="the folder of the tree")
        if name == "bundles":
            command.add_argument("out", type=Path, help="the folder to write to")
        else:
            command.add_argument("--checksums", type=Path, help="a list of sums, as sha256sum writes it")
    parser.epilog = "keys of the recipe follow, such as data.split=mini or preset=tiny"
    options, keys = parser.parse_known_args(list(arguments))
    options.keys = keys
    try:
        return verify(options) if options.command == "verify" else bundles(options)
    except TrainerError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return exit_code_of(error)


def verify(options: argparse.Namespace) -> int:
    """Reads every file that a cache would be made of, and prints how many sweeps are used, and why others are not."""
    if options.checksums is not None:
        print(f"{check_sums(options.root, options.checksums)} files have the sums of {options.checksums}")
    scan = NuplanPreparation().scan(FolderTree(options.root), _values(options), ("train", "val"))
    counts: dict[str, int] = {}
    for verdict in scan.verdicts:
        counts[verdict.reason] = counts.get(verdict.reason, 0) + verdict.frames
    if not scan.samples:
        listed = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
        raise BadData(f"dataset {options.root}: no sweep is usable ({listed}); fetch the sensor blobs of its logs")
    for bundle in _bundles(options, scan):
        print(f"\r{printable(bundle.log)} {bundle.token}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for reason, count in sorted(counts.items()):
        print(f"{reason}: {count} sweeps")
    return 0


def bundles(options: argparse.Namespace) -> int:
    """Writes `<out>/<log>/<token>.npz` for each usable sweep."""
    scan = NuplanPreparation().scan(FolderTree(options.root), _values(options), ("train", "val"))
    for bundle in _bundles(options, scan):
        target = options.out / bundle.log / f"{bundle.token}.npz"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(write_npz(bundle))
    print(f"{options.out}: {len(scan.samples)} bundles")
    return 0


def check_sums(root: Path, listed: Path) -> int:
    """Returns how many files of a list of SHA-256 sums are there and have them; raises BadData naming one that has not.

    Paths are relative to `root`.
    """
    try:
        lines = listed.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"--checksums {listed}: cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        found = _SUM.fullmatch(line)
        if found is None:
            raise BadConfig(f"--checksums {listed}, line {number}: found {line[:60]!r}, expected `<sha256>  <path>`")
        file = root / found[2]
        if not file.is_file():
            raise BadData(f"file {file} is missing; fetch it again")
        digest = sha256_of_file(file)
        if digest != found[1]:
            raise BadData(f"file {file}: found sha256 {digest}, expected {found[1]}; fetch it again")
    return len(lines)


def _values(options: argparse.Namespace) -> dict[str, object]:
    return dict(NuplanPreparation().config_keys(parse_arguments(options.keys, "argument")))


def _bundles(options: argparse.Namespace, scan: Scan) -> Iterator[SensorBundle]:
    keys, tree = keys_of(_values(options)), NuplanTree(FolderTree(options.root))
    for key in scan.samples:
        yield bundle_of_sweep(tree, tree.log(keys.split, key.route.partition("/")[0]), key.frame, keys)

"""The command line of the data stages: the guide's script names and flags."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lead_trainer.data.source_tree import FolderTree
from lead_trainer.errors import TrainerError, exit_code_of
from lead_trainer.recipes.distill.config_values import load_config
from lead_trainer.recipes.distill.ingest.frame_source import ExtractedFrames, FrameSource, StreamedFrames
from lead_trainer.recipes.distill.ingest.teacher import make_teacher
from lead_trainer.recipes.distill.stages import (
    FRAMES,
    extract_frames,
    generate_ego_history,
    generate_teacher_labels,
    label_report,
    merge_shards,
)
from lead_trainer.terminal_text import printable

SPLITS = ("train", "val")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of every stage."""
    root = argparse.ArgumentParser(prog="python -m lead_trainer.recipes.distill")
    stages = root.add_subparsers(dest="stage", required=True, metavar="STAGE")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--root", type=Path, default=Path(), help="the raw tree (default: this folder)")

    extract = stages.add_parser("extract_frames", parents=[common], help="download clips and write their pictures")
    extract.add_argument("--split", choices=SPLITS, required=True)
    extract.add_argument("--resolution", type=int, default=224)
    extract.add_argument("--num-samples", type=int, default=0, help="0: all")

    labels = stages.add_parser("generate_teacher_labels", parents=[common], help="let the teacher label clips")
    labels.add_argument("--split", choices=SPLITS, required=True)
    labels.add_argument("--batch-size", type=int, default=4)
    labels.add_argument("--shard", type=int, default=0)
    labels.add_argument("--num-shards", type=int, default=1)
    labels.add_argument("--teacher", choices=("alpamayo_r1", "scripted"), default="alpamayo_r1")

    history = stages.add_parser("generate_ego_history", parents=[common], help="write the poses before each t0")
    history.add_argument("--split", choices=(*SPLITS, "all"), required=True)
    history.add_argument("--stream", action="store_true", help="of the data set; default: of the tree's egomotion/")

    merge = stages.add_parser("merge_shards", parents=[common], help="join the shards of labels")
    merge.add_argument("--split", choices=SPLITS, required=True)
    merge.add_argument("--num-shards", type=int, required=True)

    size = stages.add_parser("model_size", help="print the number of a student's parameters")
    size.add_argument("--model", choices=("baseline", "reasoning"), default="reasoning")
    size.add_argument("--model-size", choices=("110m", "500m"), default="500m")
    return root


def run_stage(options: argparse.Namespace) -> str:
    """Runs one stage and returns what it did, for people."""
    if options.stage == "model_size":
        from lead_trainer.recipes.distill.model import parameter_count  # torch, which no data stage needs

        config = load_config({"model": options.model, "model_size": options.model_size})
        return f"{options.model_size}: {parameter_count(config):,} parameters"
    root: Path = options.root
    match options.stage:
        case "extract_frames":
            done = extract_frames(
                StreamedFrames(), root, options.split, resolution=options.resolution, num_samples=options.num_samples
            )
            return f"{len(done.written)} written, {len(done.kept)} were there, {len(done.failed)} failed"
        case "generate_teacher_labels":
            path = generate_teacher_labels(
                make_teacher(options.teacher), root, options.split,
                batch_size=options.batch_size, shard=options.shard, num_shards=options.num_shards,
            )  # fmt: skip
            return f"{path} written"
        case "generate_ego_history":
            source: FrameSource = ExtractedFrames(FolderTree(root, links_may_leave=True), FRAMES)
            if options.stream:
                source = StreamedFrames(source)
            paths = generate_ego_history(source, root, SPLITS if options.split == "all" else (options.split,))
            return f"{', '.join(map(str, paths))} written"
        case _:
            path = merge_shards(root, options.split, options.num_shards)
            return f"{path} written; labels: {label_report(root, options.split)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the stage of the command line; ends in the exit code of the error that ended it."""
    try:
        print(run_stage(parser().parse_args(arguments)))
    except TrainerError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        sys.exit(exit_code_of(error))

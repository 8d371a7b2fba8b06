"""Trees of file pairs: sequences of samples, each of two files; what NavSim's and Waymo's trees have in common.

A sequence is a route, and a sample's frame is its position in the sequence. It opens no file.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import cv2
import numpy as np
import pyarrow as pa

from lead_trainer.contract.raw_data import Bucket, Collection, RouteVerdict, SampleKey, Scan, SourceFile
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.recipes.lead.ingest.frame_files import decode_picture

COLLECTIONS = ("full_pretrain", "full_posttrain")  # both are every frame: these sets have no bad ends to skip
RESIZED_JPEG_QUALITY = 90

Pair = tuple[SourceFile, SourceFile]
PairName = Callable[[str], tuple[str, str] | None]  # path -> (sequence, sample), None for other files


def pairs_by_sequence(files: Sequence[SourceFile], first: PairName, second: PairName) -> dict[str, list[Pair]]:
    """Returns the file pairs of each sequence, in order; raises BadData naming a file that lacks its partner."""
    names = ({}, {})  # type: tuple[dict[tuple[str, str], SourceFile], dict[tuple[str, str], SourceFile]]
    for file in files:
        for side, name_of in zip(names, (first, second), strict=True):
            name = name_of(file.path)
            if name is not None and name in side:
                raise BadData(f"files {side[name].path} and {file.path} are both sample {name[1]} of {name[0]}")
            if name is not None:
                side[name] = file
    alone = sorted(names[0].keys() ^ names[1].keys())
    if alone:
        file = {**names[0], **names[1]}[alone[0]]
        raise BadData(
            f"file {file.path} lacks its partner ({len(alone)} such files); restore the partner, or remove the file"
        )
    sequences: dict[str, list[Pair]] = defaultdict(list)
    for name in sorted(names[0]):
        sequences[name[0]].append((names[0][name], names[1][name]))
    return dict(sequences)


def scan_pairs(sequences: Mapping[str, Sequence[Pair]], collections: Sequence[str], what: str) -> Scan:
    """Returns every pair as a sample of every named collection; raises BadData for no pair, BadConfig for a name."""
    if not sequences:
        raise BadData(f"the tree holds no {what}; correct the source, or source_dataset")
    for name in collections:
        if name not in COLLECTIONS:
            raise BadConfig(f"collections: found {name!r}, which only CARLA has; expected {' or '.join(COLLECTIONS)}")
    routes = sorted(sequences)
    samples = tuple(SampleKey(route, frame) for route in routes for frame in range(len(sequences[route])))
    everything = Bucket("all", np.arange(len(samples), dtype=np.int64))
    counters = {
        "total_routes": len(routes),
        "trainable_routes": len(routes),
        "all_frames": len(samples),
        "trainable_frames": len(samples),
    }
    return Scan(
        verdicts=tuple(RouteVerdict(route, True, "kept", len(sequences[route])) for route in routes),
        samples=samples,
        collections=tuple(Collection(name, (everything,), (1.0,), counters) for name in sorted(set(collections))),
        estimated_bytes=np.array(
            [sum(file.size for file in sequences[key.route][key.frame]) for key in samples], np.int64
        ),
    )


def frame_table(frames: Sequence[int]) -> pa.Table:
    """Returns metas without columns: everything of such a sample is in its record."""
    return pa.table({"frame": pa.array(frames, pa.int32())})


def fitted_jpeg(data: bytes, height: int, width: int, path: str) -> bytes:
    """Returns a picture as stored if it has the wanted size, else made smaller; raises BadConfig if it is smaller."""
    picture = decode_picture(data, path)
    if picture.shape[:2] == (height, width):
        return data
    if picture.shape[0] < height or picture.shape[1] < width:
        raise BadConfig(
            f"image_height, image_width: found {height} x {width}, but {path} was recorded with "
            f"{picture.shape[0]} x {picture.shape[1]}; pictures are never made larger"
        )
    small = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
    good, encoded = cv2.imencode(".jpg", small[:, :, ::-1], [int(cv2.IMWRITE_JPEG_QUALITY), RESIZED_JPEG_QUALITY])
    if not good:
        raise BadData(f"file {path} could not be encoded again at {width} x {height}")
    return bytes(encoded.tobytes())

"""The parsers of raw datasets' files, for `hostile_bytes.py`: pickles by streams of opcodes, others by spoiled files.

What a pickle's parser returns is walked to its end, hashed and copied, as its users would.
"""

import atexit
import gzip
import io
import json
import lzma
import pickle
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from safetensors.torch import save

from lead_testing.caught_calls import without_calls
from lead_testing.forecasting_trees import (
    NUSCENES_LOCATION,
    argoverse2_map,
    nuscenes_map,
    scenario_parquet,
    write_nuscenes_tree,
    write_sensor_log,
)
from lead_testing.hostile_pickles import hostile_stream
from lead_testing.parsers import Parser
from lead_trainer.blocks.stages import read_weights
from lead_trainer.contract.raw_data import SourceFile
from lead_trainer.data.jpeg_picture import JpegPicture, stored_picture
from lead_trainer.errors import BadConfig, BadData
from lead_trainer.example_worlds.lead.sensors import las_bytes, radar_bytes
from lead_trainer.recipes.distill.benchmarks.argoverse2.scenario import read_scenario
from lead_trainer.recipes.distill.benchmarks.argoverse2.sensor_log import read_sensor_log
from lead_trainer.recipes.distill.benchmarks.argoverse2.vector_map import read_vector_map
from lead_trainer.recipes.distill.benchmarks.nuscenes.map_layers import map_path, read_city_map
from lead_trainer.recipes.distill.benchmarks.nuscenes.tables import read_tables
from lead_trainer.recipes.distill.ingest.npz import read_npz
from lead_trainer.recipes.lead.ingest.frame_files import decode_lidar, decode_picture, decode_plane, decode_radar
from lead_trainer.recipes.lead.ingest.plain_pickle import plain_value, read_plain
from lead_trainer.recipes.lead.ingest.torch_pickle import read_gzip_pickle, tensor_value
from lead_trainer.recipes.lead.prepare_waymo import PAST, measured
from lead_trainer.recipes.lead.route_filter import route_result
from lead_trainer.recipes.world.ingest.can_bus import can_actions
from lead_trainer.recipes.world.ingest.pictures import read_picture
from lead_trainer.recipes.world.ingest.processed_tree import read_actions

PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes, bytearray, np.generic, np.ndarray)


def raw_file_parsers() -> dict[str, Parser]:
    """Returns the parsers by name."""
    plain, tensors = _plain_streams(), _tensor_streams()
    refused = (ValueError, MemoryError)  # which the readers turn into BadData
    return {
        **sensor_parsers(),
        **document_parsers(),
        "pickle": Parser(
            plain, without_calls(lambda data: walked(plain_value(data))), refused,
            draw=lambda noise: hostile_stream(plain, noise), apart=True,
        ),
        "pickle of tensors": Parser(
            tensors, without_calls(lambda data: walked(tensor_value(data))), refused,
            draw=lambda noise: hostile_stream(tensors, noise), apart=True,
        ),
        "xz pickle": Parser(
            tuple(map(lzma.compress, plain[:3])), without_calls(lambda data: walked(read_plain(data, "m.pkl"))),
            (BadData,), apart=True,
        ),
        "gzip pickle": Parser(
            tuple(map(gzip.compress, tensors[:3])), without_calls(lambda data: walked(read_gzip_pickle(data, "t.gz"))),
            (BadData,), apart=True,
        ),
    }  # fmt: skip


def sensor_parsers() -> dict[str, Parser]:
    """Returns the parsers of pictures, points and arrays by name."""
    refused = (BadData,)
    picture = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    jpeg, png = (cv2.imencode(suffix, picture)[1].tobytes() for suffix in (".jpg", ".png"))
    plane = cv2.imencode(".png", picture[..., 0].astype(np.uint16) * 257)[1].tobytes()
    points = np.random.default_rng(0).normal(size=(50, 3))
    laz = las_bytes(points, np.zeros(50, np.uint8))
    radar = radar_bytes([np.zeros((3, 4), np.float16)] * 4)
    arrays = io.BytesIO()
    np.savez(arrays, a=np.arange(6.0).reshape(2, 3), name=np.array(["x", "y"]), flag=np.array([True, False]))
    schema = {"a": ("f8", (None, 3)), "name": ("U", (None,)), "flag": ("?", (None,))}
    return {
        "picture": Parser((jpeg, png), lambda data: decode_picture(data, "rgb/1.jpg"), refused, apart=True),
        "label plane": Parser((plane,), lambda data: decode_plane(data, "depth/1.png"), refused, apart=True),
        "picture of a record": Parser((jpeg, png), _stored_picture, refused, apart=True),
        "LAZ": Parser((laz,), lambda data: decode_lidar(data, "lidar/1.laz"), refused, apart=True),
        "npz of radars": Parser((radar,), lambda data: decode_radar(data, "radar/1.npz", 4), refused, apart=True),
        "npz": Parser((arrays.getvalue(),), lambda data: read_npz(data, "a.npz", schema), refused, apart=True),
        **world_parsers(jpeg, png),
    }


def world_parsers(jpeg: bytes, png: bytes) -> dict[str, Parser]:
    """Returns the parsers of the world model's pictures, actions and CAN messages."""
    actions, times = io.BytesIO(), np.arange(8) * 500_000
    np.save(actions, np.zeros((7, 4), np.float32))
    message = {"utime": 0, "steering": -7.5, "throttle": 709, "brake": 0, "gear_position": 7}
    messages = json.dumps([{**message, "utime": 500_000 * number} for number in range(8)]).encode()
    return {
        "picture of a scene": Parser((jpeg, png), lambda data: read_picture(data, "000.jpg"), (BadData,), apart=True),
        "npy": Parser((actions.getvalue(),), lambda data: read_actions(data, "actions.npy", 7), (BadData,), apart=True),
        "CAN messages": Parser((messages,), lambda data: can_actions(data, "can_bus/x.json", times), (BadData,)),
    }


def document_parsers() -> dict[str, Parser]:
    """Returns the parsers of JSON, parquet, feather and files of weights by name."""
    refused = (BadData,)
    verdict = {"status": "Perfect", "scores": {"score_composed": 100.0}, "num_infractions": 0,
               "infractions": {"min_speed_infractions": [], "outside_route_lanes": []}}  # fmt: skip
    state = {"conv.weight": torch.zeros(2, 3), "bn.num_batches_tracked": torch.tensor(4)}
    saved = io.BytesIO()
    torch.save(state, saved)
    av2_map, nuscenes = json.dumps(argoverse2_map(0)).encode(), json.dumps(nuscenes_map()).encode()
    waymo = {"past": {name: [0.0, 1.0, 2.0] for name in PAST}, "command": 1,
             "prediction": {"x": [1.0, 2.0], "y": [0.0, 0.0]},
             "preferences": [{"preference_score": 7, "pos_x": [1.0, 2.0], "pos_y": [0.0, 0.1]}]}  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="lead-hostile-") as name:
        root = Path(name)
        write_sensor_log(root, steps=12)
        write_nuscenes_tree(root, keyframes=12)
        boxes, poses = ((root / f"{file}.feather").read_bytes() for file in ("annotations", "city_SE3_egovehicle"))
        tables = {f"v1.0-mini/{file.name}": file.read_bytes() for file in (root / "v1.0-mini").iterdir()}
    city = map_path(NUSCENES_LOCATION)
    of_annotations = "v1.0-mini/sample_annotation.json"
    return {
        "route verdict": Parser(
            (json.dumps(verdict).encode(),), lambda data: route_result(Files({"r/results.json": data}), "r"), refused,
            apart=True,
        ),
        "Waymo measurement": Parser((json.dumps(waymo).encode(),), _measurement, refused, apart=True),
        "Argoverse 2 map": Parser(
            (av2_map,), lambda data: read_vector_map(data, "map.json"), refused, apart=True
        ),
        "Argoverse 2 scenario table": Parser(
            (scenario_parquet("a", 0, 110, 2),), lambda data: read_scenario(data, "a.parquet"), refused, apart=True
        ),
        "Argoverse 2 log table": Parser(
            (boxes,), lambda data: read_sensor_log(data, poses, "log"), refused, apart=True
        ),
        "Argoverse 2 pose table": Parser(
            (poses,), lambda data: read_sensor_log(boxes, data, "log"), refused, apart=True
        ),
        "nuScenes map": Parser(
            (nuscenes,), lambda data: read_city_map(Files({city: data}), NUSCENES_LOCATION), refused, apart=True
        ),
        "nuScenes table": Parser(
            (tables[of_annotations],),
            lambda data: read_tables(Files({**tables, of_annotations: data}), "v1.0-mini"), refused, apart=True,
        ),
        "weights, safetensors": Parser((save(state),), _weights(".safetensors"), (BadConfig,), apart=True),
        "weights, torch": Parser((saved.getvalue(),), _weights(".pth"), (BadConfig,), apart=True),
    }  # fmt: skip


@dataclass(frozen=True, eq=False)
class Files:
    """A raw tree in memory."""

    content: Mapping[str, bytes]

    def files(self) -> Sequence[SourceFile]:
        """Returns every file, sorted by path."""
        return [SourceFile(path, len(data), "") for path, data in sorted(self.content.items())]

    def read(self, path: str) -> bytes:
        """Returns one file's bytes."""
        return self.content[path]

    def local_file(self, path: str) -> Path:
        """Files in memory lie nowhere."""
        raise NotImplementedError("these files are in memory alone")


def _stored_picture(data: bytes) -> None:
    picture = stored_picture(memoryview(data))
    if isinstance(picture, JpegPicture):
        picture.write_into(np.empty(picture.shape, np.uint8))


def _measurement(data: bytes) -> None:
    measured(gzip.compress(data, 1), "0001.json.gz")


def _weights(suffix: str) -> Callable[[bytes], object]:
    folder = Path(tempfile.mkdtemp(prefix="lead-hostile-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    def read(data: bytes) -> object:
        file = folder / f"weights{suffix}"
        file.write_bytes(data)
        return [value.sum().item() for value in read_weights(file).values()]

    return read


def walked(value: Any) -> int:
    """Walks over a value as whoever uses it would; returns how many values it met."""
    if isinstance(value, dict):
        return 1 + sum(map(walked, value)) + sum(map(walked, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return 1 + sum(map(walked, value))
    assert isinstance(value, PLAIN_TYPES), f"a value is a {type(value)}"
    if isinstance(value, (np.ndarray, np.generic)):
        assert value.dtype.kind in "biufcSU" and not value.dtype.hasobject, f"an array is of {value.dtype}"
        copied = np.array(value)  # of an empty text numpy makes one of a letter
        assert len(copied.tobytes()) == value.nbytes or not value.nbytes
        if value.dtype.kind == "b":
            assert int(copied.sum()) == len(copied[copied]), "booleans are not 0 and 1"
        str(copied.ravel()[:5])
    else:
        hash(bytes(value) if isinstance(value, bytearray) else value)
        repr(value)
    return 1


def _plain_streams() -> tuple[bytes, ...]:
    values: list[Any] = [
        {"a": [1, -2, 3.5, None, "x", True], "of": {"b": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]}, 7: (1, 2), None: b"raw"},
        {"b": np.arange(6, dtype=np.float16).reshape(2, 3), "c": np.float64(2.0), "t": np.array(["ab", "c"])},
        [np.arange(6).reshape(2, 3).T, np.array([True, False]), np.zeros((0, 3), "f4"), np.array(3, ">i2")],
        {"s": {1, 2}, "f": frozenset("ab"), "z": 1 + 2j, "o": OrderedDict(a=1), "e": b""},
        {
            "one": [7],
            "more": [1, 2, 255],
            "wide": [1, 256],
            "row": [[1.0, 2.0, 3.0]],
            "square": [[0.0] * 4] * 2 + [[1.0] * 4],
        },
        [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0], [1.0], np.bytes_(b"ab"), np.str_("é"), 2**62, -(2**40), 70_000],
    ]
    of_numpy_1 = [stream.replace(b"numpy._core", b"numpy.core") for stream in _written(values, (2, 4))]
    return (
        *_written(values, (2, 3, 4, 5)),
        pickle.dumps(bytearray(b"12"), 5),
        *(s for s in of_numpy_1 if b"\x8c" not in s),
    )


def _tensor_streams() -> tuple[bytes, ...]:
    whole = torch.arange(12.0).reshape(3, 4)
    values = [
        {"trajectory": whole, "turned": whole.t()[1:], "image": np.arange(5, dtype=np.uint8)},
        {"labels": torch.tensor([True, False]), "map": torch.zeros(2, 2, dtype=torch.int64), "none": torch.zeros(0, 2)},
    ]
    return tuple(_written(values, (2, 4, 5)))


def _written(values: list[Any], protocols: tuple[int, ...]) -> list[bytes]:
    return [pickle.dumps(value, protocol=protocol) for protocol in protocols for value in values]

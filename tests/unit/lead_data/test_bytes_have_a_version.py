"""Records that change have another version: a cache of an old digest would be read as if it were one of the new code.

What small trees give is written down beside the version. A failure here says that caches built before hold something
else: raise the version, which names new ones, and write down what they hold.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lead_protocol.cache_digest import cache_digest
from lead_testing.label_tree import SIZES, label_tree
from lead_trainer.data.array_block import unpack_arrays
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.example_worlds.lead.real_sets import write_navsim_tree, write_waymo_tree
from lead_trainer.recipes.lead.ingest.frame_files import decode_picture
from lead_trainer.recipes.lead.preparation import LeadPreparation

VERSION = "lead-prepare/4"
GOLDEN = {
    "carla": "a102a9bf6af710f3193c9abe97dbbd671de5df531d32b38610c5c2e9cc71503c",
    "navsim": "ae3025403bc0e2460b73494d476cf32fc0e3cfb98f92f301d73ba9a8364390e4",
    "waymo_e2e": "f4ce3b392b693ea3e755b64ebf2ff6845ce6e01ea4bf87cd350e7d54a342bbb8",
}
REAL = {"LTF": True, "predict_spatial_path": False, "predict_target_speed": False, "use_carla_data": False, **SIZES}
CONFIGS = {
    "carla": SIZES,
    "navsim": {**REAL, "use_navsim_data": True},
    "waymo_e2e": {**REAL, "use_waymo_e2e_data": True},
}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """A small tree of each data set; real data with pictures twice as large as configured."""
    root, size = tmp_path_factory.mktemp("trees"), (2 * SIZES["image_height"], 2 * SIZES["image_width"])
    write_navsim_tree(root / "navsim", logs=1, tokens=2, size=size)
    write_waymo_tree(root / "waymo", sequences=1, frames=2, size=size)
    return {"carla": label_tree(), "navsim": FolderTree(root / "navsim"), "waymo_e2e": FolderTree(root / "waymo")}


@pytest.mark.parametrize("source", GOLDEN)
def test_other_bytes_have_another_version(trees: Mapping[str, Any], source: str) -> None:
    found = content(trees[source], LeadPreparation().config_keys(CONFIGS[source]))
    assert (LeadPreparation.version, found) == (VERSION, GOLDEN[source]), (
        "the bytes changed: raise the version (LeadPreparation.version), or one digest names two kinds of bytes; then "
        f"set VERSION and GOLDEN[{source!r}] = {found!r}"
    )


def test_another_version_is_another_digest() -> None:
    digests = {
        cache_digest(source_sha256="0" * 64, collections=["all"], keys={}, recipe="lead", version=version)
        for version in (VERSION, f"{VERSION}0")
    }
    assert len(digests) == 2


def content(tree: Any, keys: Mapping[str, Any]) -> str:
    """Returns a hash of rows, verdicts, a record in two sizes and its metas, decoded: no codec's release changes it."""
    preparation, told = LeadPreparation(), list[Any]()
    scan = preparation.scan(tree, keys, ["full_pretrain", "full_posttrain"])
    for collection in scan.collections:
        buckets = [[bucket.name, bucket.samples.tolist()] for bucket in collection.buckets]
        told.append([collection.name, buckets, collection.mixture, sorted(collection.counters.items())])
    sample = scan.samples[len(scan.samples) // 2]
    for width in (keys["image_width"], keys["image_width"] // 2):
        record = preparation.record(tree, {**keys, "image_width": width}, sample)
        told += [[name, decoded(name, data)] for name, data in sorted(record.items())]
    metas = preparation.route_metas(tree, keys, sample.route, [sample.frame])
    told += [list(scan.verdicts), list(scan.samples), str(metas.schema), metas.to_pylist()]
    return hashlib.sha256(repr(told).encode()).hexdigest()


def decoded(name: str, data: bytes) -> Any:
    """Returns what one field holds: types, shapes, numbers to three digits; of a picture what encoders agree in."""
    part = name.rpartition("/")[2]
    if part == "image":
        picture, quality = decode_picture(data, name), re.findall(rb"\xff\xdb\x00\x43.{65}", data, re.DOTALL)
        return [picture.shape, round(float(picture.mean())), quality]
    arrays = unpack_arrays(data, compressed=part == "planes")
    return [[key, value.dtype.str, value.shape, hashed(value)] for key, value in arrays.items()]


def hashed(array: npt.NDArray[Any]) -> str:
    """Returns a hash of an array's numbers."""
    plain = np.round(array.astype(np.float64), 3) + 0.0  # no -0
    return hashlib.sha256(plain.tobytes()).hexdigest()

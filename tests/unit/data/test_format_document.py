"""The document of the format is right: the reader printed in it reads what we write, and refuses what is damaged.

Its tables name what there is and nothing else: the keys of the JSON files, the columns, the fields and their arrays.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
import pytest
from pydantic import BaseModel

import lead_trainer.data
from lead_protocol.job import BuildJob, FolderSource, OwnerIdentity
from lead_protocol.manifests import CacheManifest, StoredObject
from lead_protocol.object_keys import CacheKeys
from lead_protocol.store.folder import FolderStore
from lead_testing.built_caches import build_and_publish
from lead_testing.label_tree import SIZES, label_tree
from lead_trainer.contract.installed import load_recipe
from lead_trainer.data.array_block import ALLOWED_TYPES, MAX_BLOCK_BYTES, MAX_DIMENSIONS, pack_arrays
from lead_trainer.data.build_parts import PartRecord
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.cache_tables import read_table
from lead_trainer.data.record import encode_record
from lead_trainer.data.shard import write_shard
from lead_trainer.data.source_tree import FolderTree
from lead_trainer.example_worlds.lead.real_sets import write_navsim_tree, write_waymo_tree

DOCUMENT = Path(lead_trainer.data.__file__).with_name("README.md")


@pytest.fixture(scope="module")
def reader() -> dict[str, Any]:
    """The names that the document's program defines."""
    (program,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL)
    assert "lead_" not in program and len(program.splitlines()) <= 150
    names: dict[str, Any] = {}
    exec(compile(program, str(DOCUMENT), "exec"), names)
    return names


@pytest.fixture
def shard(tmp_path: Path) -> tuple[bytes, dict[int, dict[str, np.ndarray]]]:
    """A shard of three samples with a picture, compressed planes and plain arrays, and the arrays in it."""
    noise = np.random.default_rng(3)
    arrays = {
        sample: {
            "depth": noise.integers(0, 9, (6, 8), np.uint8),
            "boxes": noise.normal(size=(sample % 3, 9)).astype(np.float32),
            "ids": noise.integers(-5, 5, 4).astype(np.int64),
        }
        for sample in (7, 2**40, 0)
    }
    records = [
        (
            sample,
            encode_record(
                sample,
                {
                    "image": b"\xff\xd8" + bytes([sample % 251]) * (sample % 13),
                    "planes": pack_arrays(found, compress=True),
                    "arrays": pack_arrays(found, compress=False),
                },
            ),
        )
        for sample, found in arrays.items()
    ]
    write_shard(tmp_path / "shard", records)
    return (tmp_path / "shard").read_bytes(), arrays


def test_the_documents_reader_reads_every_byte(reader: dict[str, Any], shard: Any) -> None:
    data, arrays = shard
    found = dict(reader["samples"](data))
    assert list(found) == list(arrays)
    for sample, fields in found.items():
        assert fields["image"] == b"\xff\xd8" + bytes([sample % 251]) * (sample % 13)
        for name, compressed in (("planes", True), ("arrays", False)):
            for key, (kind, shape, raw) in reader["block_arrays"](fields[name], compressed).items():
                np.testing.assert_array_equal(np.frombuffer(raw, kind).reshape(shape), arrays[sample][key])


def test_the_documents_reader_takes_no_damaged_shard(reader: dict[str, Any], shard: Any) -> None:
    data, _ = shard
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with pytest.raises(ValueError):
            list(reader["samples"](bytes(damaged)))
    for size in range(0, len(data), 11):
        with pytest.raises(ValueError):
            list(reader["samples"](data[:size]))


class Page:
    """The document's tables, by the heading or words before them."""

    def __init__(self, text: str) -> None:
        self.text = text

    def rows(self, before: str) -> list[list[str]]:
        """Returns the cells of the first table after `before`, without its head."""
        lines = self.text[self.text.index(before) :].splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("|"))
        table = lines[first : next(n for n in range(first, len(lines)) if not lines[n].startswith("|"))]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]

    def names(self, before: str) -> set[str]:
        """Returns what the first column of that table names."""
        return {name for row in self.rows(before) for name in re.findall(r"`([^`]+)`", row[0])}


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(DOCUMENT.read_text())


def keys_of(kind: Any) -> Iterator[str]:
    """Yields the keys of a model as the page writes them; objects of a store are no more taken apart."""
    for name, field in kind.model_fields.items():
        inner, mark = field.annotation, ""
        if get_origin(inner) in (list, dict):
            mark = "[]" if get_origin(inner) is list else ".<name>"
            inner = get_args(inner)[-1]
        if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not StoredObject:
            yield from (f"{name}{mark}.{key}" for key in keys_of(inner))
        else:
            yield name + mark.replace(".<name>", "")


def test_every_key_of_the_json_files_is_named_and_no_other(page: Page) -> None:
    assert page.names("### `MANIFEST.json`") == set(keys_of(CacheManifest))
    assert page.names("### `index/<nnnnn>.json`") == set(keys_of(PartRecord))
    (shown,) = re.findall(r"An \*object\* is `(.*?)`", page.text)
    assert set(re.findall(r'"(\w+)"', shown)) == set(StoredObject.model_fields)
    keys = CacheKeys("local", "d")
    made = [keys.manifest, keys.shard(0, "s"), keys.bucket("c"), keys.metas(0, "s"), keys.routes, keys.shard_record(0),
            keys.scan_piece(0)]  # fmt: skip
    parts = {"<nnnnnn>": "000000", "<nnnnn>": "00000", "<sha256>": "s", "<collection>": "c"}
    shown = page.names("## Objects and their names")
    for mark, value in parts.items():
        shown = {name.replace(mark, value) for name in shown}
    assert {f"{keys.prefix}{name}" for name in shown} == set(made)


def test_the_types_and_limits_of_arrays_are_those_of_the_code(page: Page) -> None:
    text = " ".join(page.text.split())
    (listed,) = re.findall(r"Numpy types are (.*?), and no others; at most (\d+) dimensions", text)
    assert set(re.findall(r"`([^`]+)`", listed[0])) == ALLOWED_TYPES and int(listed[1]) == MAX_DIMENSIONS
    assert f"at most {MAX_BLOCK_BYTES >> 20} MiB" in page.text


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, dict[str, Any]]]:
    """A raw tree of each data set of recipe `lead`, and its config, by what the page calls it."""
    root = tmp_path_factory.mktemp("trees")
    write_navsim_tree(root / "navsim", logs=1, tokens=2, size=(64, 480))
    write_waymo_tree(root / "waymo", sequences=1, frames=2, size=(96, 288))
    plain = {"LTF": True, "predict_spatial_path": False, "predict_target_speed": False, "use_carla_data": False}
    return {
        "carla": (label_tree(), SIZES),
        "navsim": (
            FolderTree(root / "navsim"),
            {**plain, "use_navsim_data": True, "image_height": 64, "image_width": 480},
        ),
        "waymo_e2e": (FolderTree(root / "waymo"), {**plain, "use_waymo_e2e_data": True, **SIZES}),
    }


@pytest.fixture
def built(trees: dict[str, tuple[Any, dict[str, Any]]], tmp_path: Path) -> Callable[[str], CacheReader]:
    def build(name: str) -> CacheReader:
        tree, config = trees[name]
        job = BuildJob(
            owner=OwnerIdentity(namespace="local", name="cache", uid="uid"), generation=1, attempt=1, index=0,
            parallelism=1, recipe="lead", source=FolderSource(path="tree"), collections=["full_pretrain"],
            config=config,
        )  # fmt: skip
        store = FolderStore(tmp_path)
        return CacheReader(store, build_and_publish(job, store, tree, load_recipe("lead"), lambda record: None).digest)

    return build


@pytest.mark.parametrize("source", ["carla", "navsim", "waymo_e2e"])
def test_the_documents_reader_reads_a_cache_whose_fields_are_the_listed_ones(
    reader: dict[str, Any], page: Page, built: Callable[[str], CacheReader], source: str, tmp_path: Path
) -> None:
    cache = built(source)
    rows = page.rows("## Fields of a record")
    first = next(number for number, row in enumerate(rows) if f"source_dataset: {source}`" in row[0])
    last = next(n for n in range(first + 1, len(rows)) if "`lead`" in rows[n][0] or "`distill`" in rows[n][0])
    listed = {row[1].strip("`"): row[2:] for row in rows[first:last]}
    found = dict(reader["cache_samples"](tmp_path, "local", cache.digest))
    assert sorted(found) == list(range(cache.manifest.samples))
    for sample, fields in found.items():
        assert fields == {name: bytes(data) for name, data in cache.fields(sample).items()}
        generic = {name.replace("normal/", "<view>/").replace("perturbated/", "<view>/") for name in fields}
        assert generic == set(listed)
        for name, data in fields.items():
            content, arrays = listed[re.sub(r"^(normal|perturbated)/", "<view>/", name)]
            if content.startswith("block"):
                named = set(re.findall(r"`(\w+)`", arrays)) | {f"radar{number}" for number in range(1, 5)}
                held = set(reader["block_arrays"](data, content.endswith("lz4")))
                assert held and held <= named


def test_the_documents_reader_takes_no_damaged_cache(
    reader: dict[str, Any], built: Callable[[str], CacheReader], tmp_path: Path
) -> None:
    cache = built("waymo_e2e")
    shard = tmp_path / cache.manifest.shards[0].object.key
    sound = shard.read_bytes()
    for damaged in (sound[:-1], sound[:100] + bytes([sound[100] ^ 1]) + sound[101:]):
        shard.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            list(reader["cache_samples"](tmp_path, "local", cache.digest))


def test_the_columns_of_the_tables_are_the_listed_ones(
    page: Page, built: Callable[[str], CacheReader], tmp_path: Path
) -> None:
    manifest = built("carla").manifest
    tables = {
        "buckets/<collection>.parquet": manifest.collections["full_pretrain"].object,
        "routes.parquet": manifest.routes_object,
        "metas/<nnnnn>-<sha256>.parquet": manifest.metas[0],
    }
    rows = {row[0].strip("`"): row[1] for row in page.rows("## Tables (parquet)")}
    assert rows.keys() == tables.keys()
    for name, item in tables.items():
        table = read_table((tmp_path / item.key).read_bytes(), name)
        columns = set(re.findall(r"`(\w+)`", rows[name]))
        assert columns <= set(table.column_names) and (columns == set(table.column_names) or name.startswith("metas/"))
        for key in table.schema.metadata or ():
            assert key == b"ARROW:schema" or f"`{key.decode()}`" in page.text

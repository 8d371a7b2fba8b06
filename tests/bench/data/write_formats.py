"""Writes the same samples in every system's own format; run once in the bench's own environment.

python -m bench.data.write_formats FOLDER COUNT QUALITY

files/<n>.jpg, <n>.lz4    plain files, also the raw tree of our build      lead/     persistent cache and metas
litdata/  mds/  wds/      shards of about `shard_bytes`                   digests.json    of each sample
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import webdataset  # type: ignore[import-not-found]
from litdata.streaming.writer import BinaryWriter  # type: ignore[import-not-found]
from streaming import MDSWriter  # type: ignore[import-not-found]

from bench.data.lead_caches import cache_entry, meta_entry
from bench.data.samples import CONTENTS, decode, digest, jpeg, packed_planes, raw_planes, shard_bytes


def content(number: int, quality: int) -> tuple[bytes, bytes, bytes, str]:
    """Returns picture, packed planes, LEAD's entry and digest of one of the different contents."""
    cv2.setNumThreads(1)
    image, planes = jpeg(number, quality), raw_planes(number)
    block = packed_planes(planes)
    return image, block, cache_entry(image, planes), digest({**decode(image, block), "index": number}).split()[1]


def write_files(folder: Path, count: int, quality: int) -> list[str]:
    """Writes the plain files and LEAD's; returns every sample's digest."""
    for name in ("files", "lead/cache", "lead/metas"):
        (folder / name).mkdir(parents=True)
    with ProcessPoolExecutor(2) as pool:
        contents = list(pool.map(partial(content, quality=quality), range(min(count, CONTENTS)), chunksize=8))
    metas = [meta_entry(number) for number in range(len(contents))]
    for number in range(count):
        image, block, entry, _ = contents[number % CONTENTS]
        (folder / "files" / f"{number:06d}.jpg").write_bytes(image)
        (folder / "files" / f"{number:06d}.lz4").write_bytes(block)
        (folder / "lead" / "cache" / f"{number:06d}.pkl").write_bytes(entry)
        (folder / "lead" / "metas" / f"{number:06d}.pkl").write_bytes(metas[number % CONTENTS])
    return [f"{number:06d} {contents[number % CONTENTS][3]}" for number in range(count)]


def fields_of(folder: Path, number: int) -> dict[str, Any]:
    """Returns a sample as the formats store it."""
    path = folder / "files" / f"{number:06d}"
    return {
        "index": number,
        "image": path.with_suffix(".jpg").read_bytes(),
        "planes": path.with_suffix(".lz4").read_bytes(),
    }


def write_mds(folder: Path, count: int) -> None:
    """Writes MosaicML Streaming's format."""
    columns = {"index": "int", "image": "bytes", "planes": "bytes"}
    with MDSWriter(out=str(folder / "mds"), columns=columns, size_limit=shard_bytes(count)) as writer:
        for number in range(count):
            writer.write(fields_of(folder, number))


def write_litdata(folder: Path, count: int) -> None:
    """Writes LitData's format with its own writer."""
    (folder / "litdata").mkdir()
    writer = BinaryWriter(str(folder / "litdata"), chunk_bytes=shard_bytes(count))
    for number in range(count):
        writer.add_item(number, fields_of(folder, number))
    writer.done()
    writer.merge()


def write_webdataset(folder: Path, count: int) -> None:
    """Writes tar files."""
    (folder / "wds").mkdir()
    pattern = str(folder / "wds" / "shard-%06d.tar")
    with webdataset.ShardWriter(pattern, maxsize=shard_bytes(count), maxcount=10**9, verbose=0) as writer:
        for number in range(count):
            fields = fields_of(folder, number)
            writer.write({"__key__": f"{number:06d}", "jpg": fields["image"], "lz4": fields["planes"]})


def main(folder: Path, count: int, quality: int) -> None:
    """Writes everything that is not there."""
    digests = write_files(folder, count, quality)
    for write in (write_mds, write_litdata, write_webdataset):
        write(folder, count)
    (folder / "digests.json").write_text(json.dumps(digests))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

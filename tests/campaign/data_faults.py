"""The data path under every fault, with full counts: python tests/campaign/data_faults.py OUT.json [--scale 1.0]

What tests/unit/data/test_faults_of_the_data_path.py shows with a few, this repeats hundreds of times: damaged cache
files, spoiled answers of a MinIO behind a proxy, an outage, and kills while the cache fills. Every epoch must equal the
clean one byte for byte; the result says how many were tried, how many failed, and with which seed.
"""

import argparse
import json
import random
import secrets
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from lead_protocol.store.s3 import S3Store
from lead_protocol.store.s3_target import MIB, S3Limits
from lead_testing.data_faults import (
    DAMAGES,
    READ_FAULTS,
    build_test_cache,
    damage_shards,
    deliver,
    kill_while_filling,
    spoil_reads,
)
from lead_testing.minio_server import MinioServer, minio_program
from lead_testing.store_proxy import StoreProxy

LIMITS = S3Limits(read_s=2, total_s=60, part_bytes=5 * MIB, first_pause_s=0.02, longest_pause_s=0.5,
                  longest_retry_after_s=0.1)  # fmt: skip
FLIPS, CALL_FAULTS, KILLS, OUTAGES, OUTAGE_S = (
    200,
    40,
    200,
    5,
    8.0,
)  # tries at scale 1; of each kind of damage and fault


@dataclass
class Tally:
    """Tries of one promise."""

    tries: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def run(self, what: str, trial: Callable[[], bool]) -> None:
        """Counts one try; an exception is a failure like a wrong answer."""
        begin, self.tries = time.monotonic(), self.tries + 1
        try:
            if not trial():
                self.failures.append(f"{what}: the epoch differs, or the damage was not found")
        except Exception:
            self.failures.append(f"{what}: {traceback.format_exc(limit=-2)}")
        self.seconds += time.monotonic() - begin


@dataclass(frozen=True)
class Bench:
    """A cache in a store behind a proxy, and what a clean epoch of it is."""

    server: MinioServer
    proxy: StoreProxy
    store: Callable[[], S3Store]
    digest: str
    clean: str


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """Starts MinIO and the proxy, builds the cache."""
    bucket = f"faults-{secrets.token_hex(4)}"
    with MinioServer(minio_program(), folder / "minio") as server, StoreProxy(server.endpoint) as proxy:
        server.admin().make_bucket(bucket)

        def store() -> S3Store:
            return S3Store(server.target(bucket, endpoint=proxy.endpoint), LIMITS)

        digest = build_test_cache(store())
        yield Bench(server, proxy, store, digest, deliver(store(), digest, None).digest)


def damage(here: Bench, folder: Path, kind: str, seed: int) -> bool:
    """Spoils one cached shard; true when that was found and the epoch is right."""
    deliver(here.store(), here.digest, folder)
    damage_shards(folder, kind, random.Random(seed))
    found = deliver(here.store(), here.digest, folder)
    return found.digest == here.clean and found.stats.corrupt > 0


def spoiled_answers(here: Bench, folder: Path, fault: Any, seed: int) -> bool:
    """Spoils a tenth of the reads."""
    spoil_reads(here.proxy, fault, random.Random(seed), every=10)
    try:
        return deliver(here.store(), here.digest, folder / secrets.token_hex(4)).digest == here.clean
    finally:
        here.proxy.clear()


def killed_fill(here: Bench, folder: Path, seed: int) -> bool:
    """Kills a fill after a random number of bytes; true when only whole shards were left."""
    where = folder / f"killed{seed}"
    kill_while_filling(here.store, here.digest, where, random.Random(seed).randrange(1, 250_000))
    found = deliver(here.store(), here.digest, where)
    return found.digest == here.clean and found.stats.corrupt == 0


def outage(here: Bench, folder: Path, seed: int) -> bool:
    """Stops the server before an epoch begins to fill and starts it again some seconds later."""
    here.server.stop()
    back = threading.Timer(OUTAGE_S, here.server.start)
    back.start()
    try:
        return deliver(here.store(), here.digest, folder / f"outage{seed}").digest == here.clean
    finally:
        back.join()


def main() -> int:
    """Runs the campaign, writes the result, and returns 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of tries")
    options = parser.parse_args()

    def times(count: int) -> range:
        return range(max(1, round(count * options.scale)))

    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="lead-data-faults-") as name:
        folder = Path(name)
        with bench(folder) as here:
            for kind in DAMAGES:
                tally = tallies.setdefault(f"damage {kind}", Tally())
                for seed in times(FLIPS):
                    tally.run(f"seed {seed}", lambda k=kind, s=seed: damage(here, folder / k, k, s))  # type: ignore[misc]
            for fault in READ_FAULTS:
                tally = tallies.setdefault(f"store {fault}", Tally())
                for seed in times(CALL_FAULTS):
                    tally.run(f"seed {seed}", lambda f=fault, s=seed: spoiled_answers(here, folder, f, s))  # type: ignore[misc]
            tally = tallies.setdefault("SIGKILL while filling", Tally())
            for seed in times(KILLS):
                tally.run(f"seed {seed}", lambda s=seed: killed_fill(here, folder, s))  # type: ignore[misc]
            tally = tallies.setdefault(f"store away for {OUTAGE_S:.0f} s", Tally())
            for seed in times(OUTAGES):
                tally.run(f"seed {seed}", lambda s=seed: outage(here, folder, s))  # type: ignore[misc]
    result = {
        name: {"tries": t.tries, "failed": len(t.failures), "seconds": round(t.seconds, 1), "failures": t.failures[:5]}
        for name, t in tallies.items()
    }
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    for name, row in result.items():
        print(f"{name:32} {row['tries']:5} tries {row['failed']:4} failed {row['seconds']:8} s")
    return int(any(t.failures for t in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())

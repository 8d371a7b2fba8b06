"""Disk, decoding, hand-over and step, each alone, on the samples that the network stage fetched to this machine.

Other samples would come over the network in the middle of a stage, and the stage would measure that.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lead_trainer.bench.advice import StageRate
from lead_trainer.bench.cold_cache import FetchedSamples
from lead_trainer.bench.deadlines import each_until, rate_of_processes, rate_of_threads
from lead_trainer.bench.model_step import Variant, seconds_a_step, step_trial
from lead_trainer.contract.recipe import Recipe
from lead_trainer.contract.samples import Batch, Caches, Indices, Sample, Samples
from lead_trainer.contract.training_keys import TrainingKeys
from lead_trainer.data.cache_reader import CacheReader
from lead_trainer.data.loader import Loader, on_device_of
from lead_trainer.data.process_loader import loader_named
from lead_trainer.data.retrying_source import decoded_sample
from lead_trainer.data.session_cache import SessionCache
from lead_trainer.engine.samples.data_facts import computed_facts


@dataclass(frozen=True)
class SamplesHere(Samples):
    """The samples of a draw that need no store."""

    source: Samples
    indices: Indices

    def __len__(self) -> int:
        """Number of these samples."""
        return len(self.indices)

    def epoch_draw(self, epoch: int) -> Indices:
        """Returns the same samples in every epoch."""
        return self.indices

    def load(self, index: int, epoch: int) -> Sample:
        """Returns one sample of the source."""
        return self.source.load(index, epoch)

    def name(self, index: int) -> str:
        """Returns the source's name of a sample."""
        return self.source.name(index)


def samples_here(samples: Samples, fetched_samples: FetchedSamples, threads: int, seconds: float) -> Samples:
    """Returns what may be drawn without the store: all of it, or what was fetched_samples.

    Where records are kept one by one, those of the first samples that are loaded within `seconds`. Where nothing is
    kept, all samples: each is streamed, as it will be in training.
    """
    draw = samples.epoch_draw(0)
    lie_in = samples.shards_of(draw)
    if fetched_samples.shards is not None and lie_in is not None:
        here = draw[np.isin(lie_in, fetched_samples.shards)]
    elif fetched_samples.places:
        loaded: list[int] = []
        each_until(lambda index: loaded.append(_loaded(samples, index)), draw.tolist(), threads, seconds)
        here = np.array(loaded, np.int64)
    else:
        return samples
    return samples if len(here) == len(draw) else SamplesHere(samples, here)


def measure_disk(
    session: SessionCache, fetched_samples: FetchedSamples, readers: Sequence[CacheReader], threads: int, seconds: float
) -> StageRate:
    """Reads and checks the records that are on the disk, of which there must be some."""
    places = fetched_samples.places
    rate = rate_of_threads(lambda n: session.record(*places[n % len(places)]), threads, seconds)
    shards = [entry for reader in readers for entry in reader.manifest.shards]
    size = sum(entry.object.size for entry in shards) / max(1, sum(entry.records for entry in shards))
    read = len({shard.sha256 for shard, _ in places})
    detail = f"{rate * size / 1e6:.0f} MB/s, {size / 1e3:.0f} kB a sample, page cache included"
    return StageRate("disk", rate, f"{detail}; of {read} of {len(shards)} shards")


def measure_decode(samples: Samples, config: TrainingKeys, seconds: float) -> StageRate:
    """Loads samples as the loader does, without making batches."""
    draw = samples.epoch_draw(0)

    def load(number: int) -> None:
        index = int(draw[number % len(draw)])
        decoded_sample(samples, index, samples.load(index, 0))

    count = config.loader_threads
    rate = (rate_of_processes if config.loader == "process" else rate_of_threads)(load, count, seconds)
    detail = f"{1e3 * count / rate:.1f} ms a sample in each of {count} {kind_of(config)}"
    return StageRate("decode", rate, f"{detail}; of {len(draw)} samples")


def kind_of(config: TrainingKeys) -> str:
    """Returns what the loader's workers are."""
    return "processes" if config.loader == "process" else "threads"


def loader_of(recipe: Recipe[Any], config: Any, samples: Samples, device: torch.device) -> Loader:
    """Returns the run's loader over these samples, with smaller batches where they are too few."""
    size = min(config.batch_size, len(samples.epoch_draw(0)))
    return loader_named(config.loader)(
        samples, recipe.collate, batch_size=size, seed=config.seed, threads=config.loader_threads,
        batches_ahead=config.prefetch_factor, device=device, on_device=on_device_of(recipe, config),
    )  # fmt: skip


def measure_hand_over(loader: Loader, config: TrainingKeys, seconds: float) -> StageRate:
    """Takes batches as fast as they come; the first ones are not counted, they make the memory."""
    with closing(_endless(loader)) as batches:
        begin, first = time.perf_counter(), config.prefetch_factor + 2
        while first and time.perf_counter() - begin < seconds:
            next(batches)
            first -= 1
        rate = _batch_rate(batches, seconds)
    stats = loader.stats()
    share = stats.copy_s / max(1e-9, stats.copy_s + stats.load_s)
    return StageRate("hand-over", rate, f"the whole loader; {100 * share:.0f}% of its threads' time is `collate`")


def measure_step(
    recipe: Recipe[Any], config: Any, caches: Caches, batch: Batch, device: torch.device, seconds: float
) -> StageRate:
    """Trains on one batch again and again, weights thrown away."""
    variant = Variant(config.number_format, config.saves_memory)
    trial = step_trial(recipe, config, computed_facts(recipe, config, caches), batch, device, variant)
    rate = trial.rows / seconds_a_step(trial, seconds)
    return StageRate("step", rate, f"forward, backward and update on {device.type}")


def _loaded(samples: Samples, index: int) -> int:
    samples.load(index, 0)
    return index


def _endless(loader: Loader) -> Generator[Batch, None, None]:
    epoch = 0
    while True:
        yield from loader.batches(epoch)
        epoch += 1


def _batch_rate(batches: Iterator[Batch], seconds: float) -> float:
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or not count:
        batch = next(batches)
        count += len(next(iter(batch.values())))
        del batch
    return count / (time.perf_counter() - begin)

"""The scan of a data set whose collections hold one bucket each, drawn once an epoch.

Called by preparations that know the samples of a collection by its name; one that weights its buckets builds its `Scan`
itself.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from lead_trainer.contract.config_values import near_matches
from lead_trainer.contract.raw_data import Bucket, Collection, RouteVerdict, SampleKey, Scan
from lead_trainer.errors import BadConfig


def known_collections(asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """Returns the names once each, sorted; raises BadConfig with the near matches of those that are not known."""
    unknown = [name for name in dict.fromkeys(asked) if name not in known]
    hints = [near_matches(name, known) or f"; expected one of {', '.join(known)}" for name in unknown]
    if unknown:
        raise BadConfig(
            "; ".join(f"collections: found {name!r}{hint}" for name, hint in zip(unknown, hints, strict=True))
        )
    return sorted(set(asked))


def plain_scan(
    verdicts: Iterable[RouteVerdict],
    rows: Mapping[str, Sequence[SampleKey]],
    bytes_of: Callable[[SampleKey], int],
    counters: Mapping[str, Mapping[str, int]] | None = None,
    *,
    routes_together: bool = False,
) -> Scan:
    """Returns the scan; `rows` are samples by collection, in the order they keep, `bytes_of` estimates a raw sample."""
    samples = sorted_samples({key for keys in rows.values() for key in keys})
    position = {key: number for number, key in enumerate(samples)}
    return Scan(
        verdicts=tuple(sorted(verdicts, key=lambda verdict: verdict.route)),
        samples=samples,
        collections=tuple(
            Collection(
                name,
                (Bucket("all", np.array([position[key] for key in keys], np.int64)),),
                (1.0,),
                (counters or {}).get(name, {}),
            )
            for name, keys in sorted(rows.items())
        ),
        estimated_bytes=np.array([bytes_of(key) for key in samples], np.int64),
        routes_together=routes_together,
    )


def sorted_samples(keys: Iterable[SampleKey]) -> tuple[SampleKey, ...]:
    """Returns samples by route and frame."""
    return tuple(sorted(keys, key=lambda key: (key.route, key.frame)))

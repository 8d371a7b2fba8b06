"""Every object key below a storage profile's prefix; written here and nowhere else.

    datasets/…, weights/…                                     what people upload; pods and operator only read it
    caches/<namespace>/<digest>/MANIFEST.json                 the commit of a published cache: written last, create-only
    caches/<namespace>/<digest>/buckets/<collection>.parquet
    caches/<namespace>/<digest>/routes.parquet                per-route verdicts
    caches/<namespace>/<digest>/shards/<nnnnn>-<sha256>.lds
    caches/<namespace>/<digest>/metas/<nnnnn>-<sha256>.parquet    columnar route metas
    builds/<namespace>/<uid>/<generation>.json                which digest a DatasetCache's generation resolved to
    builds/<namespace>/<uid>/progress/<generation>-<index>.json          of a stage: <generation>-<stage>-<index>.json
    builds/<namespace>/<uid>/staged/<digest>/…                a cache that is not published yet: as below caches/, and
    builds/<namespace>/<uid>/staged/<digest>/index/<nnnnn>.json   one part is complete: skip-existing
    builds/<namespace>/<uid>/staged/<digest>/scan/<piece 6>       what one pod has read of a piece of the source for all
    builds/<namespace>/<uid>/staged/<digest>/stages/<stage>/<sample 8>   what a stage of the build made of one sample
    control/<namespace>/<uid>/restarts-<nnnnnn>.json          restart state after so many restarts: create-only
    control/<namespace>/<uid>/ended.json                      the final result of a run: create-only
    control/<namespace>/<uid>/attempts/<instance>/<nnnn>.json one attempt that the operator started
    control/<namespace>/<uid>/done/<instance>.json            a stage instance has ended with its final checkpoint
    control/<namespace>/<uid>/published-<generation>.json     which cache a DatasetCache was published as
    runs/<namespace>/<uid>/<instance>/attempt/<nnnn>.json     fencing: create-only, one an attempt
    runs/<namespace>/<uid>/<instance>/manifest/<step 12>.<q>.json   the commit of a checkpoint
    runs/<namespace>/<uid>/<instance>/quarantine/<step 12>.<q>.json
    runs/<namespace>/<uid>/<instance>/progress/<attempt nnnn>.json
    runs/<namespace>/<uid>/<instance>/checkpoints/<step 12>/<attempt>-<nonce>/<file>
    runs/<namespace>/<uid>/<instance>/tensorboard/<file>
    runs/<namespace>/<uid>/<instance>/memory/<rows 4>-<0|1>.json    how a step is made to fit into memory: create-only
    runs/<namespace>/<uid>/<instance>/perf/<attempt nnnn>.json      how fast an attempt trained
    runs/<namespace>/<uid>/closed_loop/<instance>/manifest/<attempt 6>.json   the commit of a closed-loop evaluation
    runs/<namespace>/<uid>/closed_loop/<instance>/<epoch 4>/<attempt 6>/<file>

`instance` is `<stage>-s<seed>`. Keys hold UIDs, so a re-created resource of the same name
never reads the old one's state. Who may write where: caches/ and control/ are the operator's alone, build pods
write below builds/, training pods below runs/. A namespace is the unit of trust: nothing is shared between two.
"""

import re
from dataclasses import dataclass

_MANIFEST_NAME = re.compile(r"^(\d{12})\.(\d{1,6})\.json$")


CACHES, BUILDS, RUNS, CONTROL = "caches/", "builds/", "runs/", "control/"
LOCAL_NAMESPACE, LOCAL_UID = "local", "local"  # of what is made without a cluster
LOCAL_FOLDER = ".lead"  # below a local run's results: the folder that is its store
RESERVED_PREFIXES = (CACHES, BUILDS, RUNS, CONTROL)  # never a source of raw data


def caches_prefix(namespace: str) -> str:
    """Returns the prefix of a namespace's published caches."""
    return f"{CACHES}{namespace}/"


def builds_prefix(namespace: str) -> str:
    """Returns the prefix of everything that a namespace's build pods write."""
    return f"{BUILDS}{namespace}/"


def runs_prefix(namespace: str) -> str:
    """Returns the prefix of everything that a namespace's training pods write."""
    return f"{RUNS}{namespace}/"


def control_prefix(namespace: str) -> str:
    """Returns the prefix of the operator's records of a namespace's resources."""
    return f"{CONTROL}{namespace}/"


@dataclass(frozen=True)
class CacheKeys:
    """Keys of one cache, by content: published, or staged by one DatasetCache's build."""

    namespace: str
    digest: str
    staged_by: str = ""  # UID of the DatasetCache; empty: published

    @property
    def prefix(self) -> str:
        """Prefix of everything of this cache, with the final slash."""
        if self.staged_by:
            return f"{BuildKeys(self.namespace, self.staged_by).staged_prefix}{self.digest}/"
        return f"{caches_prefix(self.namespace)}{self.digest}/"

    @property
    def published(self) -> "CacheKeys":
        """Keys of the same cache where readers find it."""
        return CacheKeys(self.namespace, self.digest)

    def as_published(self, key: str) -> str:
        """Returns where a staged object of this cache will be published: manifests name objects by that."""
        return f"{self.published.prefix}{key.removeprefix(self.prefix)}"

    def as_staged(self, key: str) -> str:
        """Returns where a published object of this cache is staged."""
        return f"{self.prefix}{key.removeprefix(self.published.prefix)}"

    @property
    def manifest(self) -> str:
        """Key of the manifest: it exists exactly when the cache is complete."""
        return f"{self.prefix}MANIFEST.json"

    @property
    def routes(self) -> str:
        """Key of the per-route verdict table."""
        return f"{self.prefix}routes.parquet"

    def bucket(self, collection: str) -> str:
        """Key of one bucket collection's rows."""
        return f"{self.prefix}buckets/{collection}.parquet"

    def shard(self, index: int, sha256: str) -> str:
        """Key of one shard, named by content."""
        return f"{self.prefix}shards/{index:05d}-{sha256}.lds"

    def shard_record(self, index: int) -> str:
        """Key of the create-only record that shard `index` is complete; of staged caches alone."""
        return f"{self.prefix}index/{index:05d}.json"

    def stage_prefix(self, stage: str) -> str:
        """Prefix of what one stage of the build made; of staged caches alone, and never published."""
        return f"{self.prefix}stages/{stage}/"

    def stage_output(self, stage: str, sample: int) -> str:
        """Key of what one stage of the build made of one sample."""
        return f"{self.stage_prefix(stage)}{sample:08d}"

    @property
    def scan_prefix(self) -> str:
        """Prefix of what pods of the build have read of each piece of the source; never published."""
        return f"{self.prefix}scan/"

    def scan_piece(self, number: int) -> str:
        """Key of what a scan needs of one piece."""
        return f"{self.scan_prefix}{number:06d}"

    def metas(self, index: int, sha256: str) -> str:
        """Key of one columnar file of route metas."""
        return f"{self.prefix}metas/{index:05d}-{sha256}.parquet"


@dataclass(frozen=True)
class BuildKeys:
    """Keys of one DatasetCache resource's build, by UID."""

    namespace: str
    uid: str

    @property
    def prefix(self) -> str:
        """Prefix of everything of this resource's build pods, with the final slash."""
        return f"{builds_prefix(self.namespace)}{self.uid}/"

    def result(self, generation: int) -> str:
        """Key of the record of which digest this generation of the spec resolved to."""
        return f"{self.prefix}{generation}.json"

    def progress(self, generation: int, index: int, stage: str = "") -> str:
        """Key of one build pod's progress record; `stage` is empty for the build that commits the manifest."""
        return f"{self.progress_prefix}{generation}-{f'{stage}-' if stage else ''}{index}.json"

    @property
    def progress_prefix(self) -> str:
        """Prefix of the progress records."""
        return f"{self.prefix}progress/"

    @property
    def staged_prefix(self) -> str:
        """Prefix of the caches that are not published yet."""
        return f"{self.prefix}staged/"

    def staged(self, digest: str) -> CacheKeys:
        """Returns the keys of a cache that this build stages."""
        return CacheKeys(self.namespace, digest, self.uid)

    @property
    def control(self) -> "ControlKeys":
        """Keys of the operator's records of this resource."""
        return ControlKeys(self.namespace, self.uid)


def instance_name(stage: str, seed: int) -> str:
    """Returns what a stage instance is called in keys, folders and reports."""
    return f"{stage}-s{seed}"


@dataclass(frozen=True)
class ControlKeys:
    """Keys of the operator's records of one resource, by UID: its key alone may write them."""

    namespace: str
    uid: str

    @property
    def prefix(self) -> str:
        """Prefix of all of them, with the final slash."""
        return f"{control_prefix(self.namespace)}{self.uid}/"

    @property
    def ended(self) -> str:
        """Key of a run's final result: it exists only when the run is over, and the first one counts."""
        return f"{self.prefix}ended.json"

    @property
    def restarts_prefix(self) -> str:
        """Prefix of the restart states; the last in key order is the newest."""
        return f"{self.prefix}restarts-"

    def restarts(self, total: int) -> str:
        """Key of the restart state after so many restarts."""
        return f"{self.restarts_prefix}{total:06d}.json"

    def attempts_prefix(self, stage: str, seed: int) -> str:
        """Prefix of the attempts of one stage instance that the operator has started."""
        return f"{self.prefix}attempts/{instance_name(stage, seed)}/"

    def attempt(self, stage: str, seed: int, number: int) -> str:
        """Key of the record that the operator has started this attempt."""
        return f"{self.attempts_prefix(stage, seed)}{number:04d}.json"

    def published(self, generation: int) -> str:
        """Key of the record of which cache this generation of a DatasetCache was published as."""
        return f"{self.prefix}published-{generation}.json"

    def failed_prefix(self, generation: int) -> str:
        """Prefix of the records that builds of this generation of a DatasetCache have failed."""
        return f"{self.prefix}failed-{generation}-"

    def failed(self, generation: int, rebuilds: int) -> str:
        """Key of the record that a build failed after so many rebuilds; the last in key order is the newest."""
        return f"{self.failed_prefix(generation)}{rebuilds:06d}.json"

    def failed_source(self, generation: int, rebuilds: int) -> str:
        """Key of the record of how the source was listed after that failure."""
        return f"{self.prefix}source-{generation}-{rebuilds:06d}.json"

    def done(self, stage: str, seed: int) -> str:
        """Key of the record that a stage instance has ended with its final checkpoint."""
        return f"{self.prefix}done/{instance_name(stage, seed)}.json"


@dataclass(frozen=True)
class RunKeys:
    """Keys of one run, by UID."""

    namespace: str
    uid: str

    @property
    def prefix(self) -> str:
        """Prefix of everything that this run's pods write, with the final slash."""
        return f"{runs_prefix(self.namespace)}{self.uid}/"

    @property
    def control(self) -> ControlKeys:
        """Keys of the operator's records of this run."""
        return ControlKeys(self.namespace, self.uid)

    @property
    def closed_loop_prefix(self) -> str:
        """Prefix of all results of driving with its weights, with the final slash."""
        return f"{self.prefix}closed_loop/"


@dataclass(frozen=True)
class ClosedLoopKeys:
    """Keys of the results of driving with the weights of one stage instance; no stage has an underscore in its name.

    Attempts are counted over the whole run: each has one pod, and no two write the same key.
    """

    namespace: str
    uid: str
    stage: str
    seed: int

    @property
    def prefix(self) -> str:
        """Prefix of everything of this stage instance, with the final slash."""
        return f"{RunKeys(self.namespace, self.uid).closed_loop_prefix}{instance_name(self.stage, self.seed)}/"

    @property
    def manifests_prefix(self) -> str:
        """Prefix of the create-only commits."""
        return f"{self.prefix}manifest/"

    def manifest(self, attempt: int) -> str:
        """Key of the commit of one attempt's results."""
        return f"{self.manifests_prefix}{attempt:06d}.json"

    def results(self, epoch: int, attempt: int) -> str:
        """Prefix of one attempt's results, with the final slash."""
        return f"{self.prefix}{epoch:04d}/{attempt:06d}/"


@dataclass(frozen=True)
class InstanceKeys:
    """Keys of one stage instance of one run, by UID."""

    namespace: str
    uid: str
    stage: str
    seed: int

    @property
    def name(self) -> str:
        """Its name among the instances of its run, such as `train-s0`."""
        return instance_name(self.stage, self.seed)

    @property
    def prefix(self) -> str:
        """Prefix of everything of this stage instance, with the final slash."""
        return f"{RunKeys(self.namespace, self.uid).prefix}{self.name}/"

    def attempt(self, number: int) -> str:
        """Key of the create-only fencing object of one attempt."""
        return f"{self.prefix}attempt/{number:04d}.json"

    @property
    def attempts_prefix(self) -> str:
        """Prefix of the fencing objects."""
        return f"{self.prefix}attempt/"

    def manifest(self, step: int, number: int) -> str:
        """Key of a checkpoint's manifest; `number` counts the earlier ones of that step, corrupt or superseded."""
        return f"{self.manifests_prefix}{step:012d}.{number}.json"

    @property
    def manifests_prefix(self) -> str:
        """Prefix of the manifests; a LIST of it sorted backwards starts with the newest."""
        return f"{self.prefix}manifest/"

    def quarantine(self, step: int, quarantined: int) -> str:
        """Key of the create-only record that a manifest was found corrupt."""
        return f"{self.quarantine_prefix}{step:012d}.{quarantined}.json"

    @property
    def quarantine_prefix(self) -> str:
        """Prefix of the quarantine records."""
        return f"{self.prefix}quarantine/"

    def progress(self, attempt: int) -> str:
        """Key of the progress record of one attempt; overwritten every few seconds by rank 0."""
        return f"{self.progress_prefix}{attempt:04d}.json"

    @property
    def progress_prefix(self) -> str:
        """Prefix of the progress records."""
        return f"{self.prefix}progress/"

    def checkpoint(self, step: int, attempt: int, nonce: str) -> str:
        """Prefix of a checkpoint's data objects, with the final slash."""
        return f"{self.checkpoints_prefix}{step:012d}/{attempt:04d}-{nonce}/"

    @property
    def checkpoints_prefix(self) -> str:
        """Prefix of the data objects of all checkpoints."""
        return f"{self.prefix}checkpoints/"

    @property
    def tensorboard_prefix(self) -> str:
        """Prefix of the uploaded event files."""
        return f"{self.prefix}tensorboard/"

    @property
    def memory_prefix(self) -> str:
        """Prefix of the create-only records of how a step is made to fit into memory."""
        return f"{self.prefix}memory/"

    def memory(self, rows: int, gradient_checkpointing: bool) -> str:
        """Key of the record that a process takes `rows` samples at once, with or without recomputed activations."""
        return f"{self.memory_prefix}rows-{rows:04d}-{int(gradient_checkpointing)}.json"

    @property
    def perf_prefix(self) -> str:
        """Prefix of the records of how fast attempts trained."""
        return f"{self.prefix}perf/"

    def perf(self, attempt: int) -> str:
        """Key of the record of how fast one attempt trained."""
        return f"{self.perf_prefix}{attempt:04d}.json"


def position_of(key: str) -> tuple[int, int] | None:
    """Returns (step, q) of a manifest's or quarantine record's key, or None when it is not named like one.

    Of two checkpoints of an instance the one with the greater position is the newer.
    """
    match = _MANIFEST_NAME.match(key.rsplit("/", 1)[-1])
    return (int(match[1]), int(match[2])) if match else None

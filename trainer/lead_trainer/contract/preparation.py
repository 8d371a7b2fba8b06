"""How raw files become cache records: what a recipe that reads a dataset derives its preparation from."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from lead_trainer.contract.checked_parts import Overridable
from lead_trainer.contract.raw_data import SampleKey, Scan, SourceTree

Fields = Mapping[str, bytes]
Counts = Mapping[str, npt.NDArray[np.int64]]


class Preparation(Overridable, ABC):
    """How raw files become cache records; pure in (tree, config), with a version that enters the cache's digest.

    `config` in every method but `config_keys` and `collections_for` is what `config_keys` returned and nothing else, so
    that no value can be read that did not enter the digest.
    """

    version: str  # changes when the same files and keys become other records
    default_collections: tuple[str, ...]  # what a cache holds that names none: everything a usual run trains on

    @abstractmethod
    def config_keys(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns every config value the preparation reads, defaults filled in: they enter the digest."""

    @abstractmethod
    def scan(self, tree: SourceTree, config: Mapping[str, Any], collections: Sequence[str]) -> Scan:
        """Reads verdicts and listings, applies the route filter, fills the named collections."""

    @abstractmethod
    def record(self, tree: SourceTree, config: Mapping[str, Any], sample: SampleKey) -> Fields:
        """Returns the cache record of one sample (every view), as named fields."""

    @abstractmethod
    def route_metas(self, tree: SourceTree, config: Mapping[str, Any], route: str, frames: Sequence[int]) -> Any:
        """Returns the columnar metas of one route as a pyarrow.Table, one row a frame."""

    def all_collections(self) -> Sequence[str]:
        """Returns every collection there can be, so that a wrong one is found without data. Default: not known."""
        return ()

    def collections_for(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns what a cache with this config (as the user wrote it) holds if it names no collection."""
        return self.default_collections

    def reads(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns how the paths begin that it reads; other files of a folder may come and go. Default: all."""
        return ("",)

    def stays_in_process(self, config: Mapping[str, Any]) -> bool:
        """Returns whether threads alone make records: where a model on a GPU must not be there once a process."""
        return False

    def counts(self, config: Mapping[str, Any], sample: SampleKey, record: Mapping[str, memoryview]) -> Counts:
        """Returns counts of one record by name, of one length a name; they are added up over all samples."""
        return {}

    def facts(self, config: Mapping[str, Any], counts: Counts) -> Mapping[str, Sequence[float]]:
        """Returns the facts of the cache, kept in its manifest, that follow from the counts of all samples."""
        return {}

    def scan_pieces(self, tree: SourceTree, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns the pieces of a tree that pods of a build may scan one for all, such as logs. Default: none.

        `scan` then asks for each by `data.scan_pieces.piece_of`, and the preparation has `scan_piece`.
        """
        return ()

    def scan_piece(self, tree: SourceTree, config: Mapping[str, Any], piece: str) -> bytes:
        """Returns what `scan` needs of a piece, the same bytes in every process."""
        raise NotImplementedError(f"{type(self).__name__} names pieces of its scan without scan_piece")

    def build_stages(self, config: Mapping[str, Any]) -> Sequence[str]:
        """Returns the stages of a build that may have pods of their own (`spec.build.stages`). Default: none."""
        return ()

    def stage_fields(self, tree: SourceTree, config: Mapping[str, Any], stage: str, sample: SampleKey) -> Fields:
        """Returns what a stage makes of one sample: what `record` makes of it where no stage has made it."""
        raise NotImplementedError(f"{type(self).__name__} offers build stages without stage_fields")

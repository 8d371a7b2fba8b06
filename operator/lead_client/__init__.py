"""Train driving models from Python: on a Kubernetes cluster, or on this machine, by the same calls.

    from lead_client import Cluster, TrainingRun

    run = Cluster().submit(TrainingRun("night", recipe="lead", datasets=[{"cache_ref": {"name": "towns"}}]))
    run.watch()
    run.metrics("epoch/loss").plot()
    model = run.load_model()

The page is `operator/lead_client/README.md`. Importing it loads neither torch, pandas nor the Kubernetes client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lead_client.checkpoints import Checkpoint
    from lead_client.cluster.cluster import Cluster
    from lead_client.errors import ClientError
    from lead_client.local.local import Local
    from lead_client.objects.manifests import DatasetCache, Manifest, TrainingRun, read_manifests
    from lead_client.run import Run

__all__ = [
    "Checkpoint", "ClientError", "Cluster", "DatasetCache", "Local", "Manifest", "Run", "TrainingRun", "read_manifests",
]  # fmt: skip
_MODULES = {
    "Checkpoint": "checkpoints", "ClientError": "errors", "Cluster": "cluster.cluster", "Local": "local.local",
    "Run": "run",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Imports a name when it is first used: who trains on a cluster loads nothing of local runs, and the reverse."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'objects.manifests')}"), name)

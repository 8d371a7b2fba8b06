"""The API server and the object store that one campaign works on."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.control_plane import ControlPlane
from lead_testing.minio_server import MinioServer, minio_program


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[tuple[ControlPlane, MinioServer]]:
    """Starts both, with the CRDs of this checkout; leaving stops them."""
    with ControlPlane(folder / "control-plane") as plane, MinioServer(minio_program(), folder / "minio") as minio:
        crds = [str(PROJECT_ROOT / "crds" / f"{name}.yaml") for name in ("trainingrun", "datasetcache")]
        plane.kubectl("apply", "--server-side", "-f", crds[0], "-f", crds[1])
        plane.kubectl("wait", "--for=condition=Established", "crd/trainingruns.lead.dev", "crd/datasetcaches.lead.dev")
        yield plane, minio

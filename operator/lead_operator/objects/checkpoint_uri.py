"""From the address of a checkpoint, as a run's status shows it, to what a pod is told to begin with. Pure.

Only checkpoints of the run's own namespace and storage profile may be named: the pods' credential may reach further
than the person who writes the spec.
"""

import re

from lead_operator.errors import SpecError
from lead_operator.settings import StorageProfile
from lead_protocol.job import InitFrom
from lead_protocol.object_keys import InstanceKeys

_KEY = re.compile(
    r"runs/(?P<namespace>[a-z0-9-]+)/(?P<uid>[0-9a-f-]+)/(?P<stage>[a-z0-9-]+)-s(?P<seed>[0-9]{1,9})/"
    r"(checkpoints/(?P<step>[0-9]{12})/(?P<attempt>[0-9]{4,9})-(?P<nonce>[A-Za-z0-9]{1,64})/)?"
)


def parse_checkpoint_uri(uri: str, *, field: str, owner: str, namespace: str, profile: StorageProfile) -> InitFrom:
    """Returns which checkpoint `uri` names: that of its last folder, or the newest sound one of a stage instance.

    Raises SpecError naming `owner` and `field` where it is no such address, or of another profile or namespace.
    """
    root = f"{profile.url}/"
    if not uri.startswith(root):
        raise SpecError(
            f"{owner}: {field} is {uri!r}, expected an address below {root}, the root of storage profile "
            f"{profile.name!r}; create a run with the profile that holds the checkpoint"
        )
    match = _KEY.fullmatch(f"{uri.removeprefix(root).rstrip('/')}/")
    if match is None:
        raise SpecError(
            f"{owner}: {field} is {uri!r}, expected {root}runs/<namespace>/<uid>/<stage>-s<seed>/ with or without "
            "checkpoints/<step>/<attempt>-<nonce>/; copy it from status.stages[].checkpoint.uri"
        )
    if match["namespace"] != namespace:
        raise SpecError(
            f"{owner}: {field} names a checkpoint of namespace {match['namespace']!r}, and a run may begin with those "
            f"of its own namespace {namespace!r} only; create the run there"
        )
    keys = InstanceKeys(namespace, match["uid"], match["stage"], int(match["seed"]))
    if match["step"] is None:
        return InitFrom(manifests_prefix=keys.manifests_prefix)
    prefix = f"{keys.checkpoints_prefix}{match['step']}/{match['attempt']}-{match['nonce']}/"
    return InitFrom(manifests_prefix=keys.manifests_prefix, checkpoint_prefix=prefix)

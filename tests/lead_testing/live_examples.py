"""A manifest of `crds/examples` on a live cluster, over a generated tree in the bucket, at a size for one CPU core."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from lead_testing import PROJECT_ROOT
from lead_testing.installed import Installed, upload_tree
from lead_testing.manifests import SMALL

PODS = 2  # that build, and that train
Spec = dict[str, Any]


@contextmanager
def applied_example(
    installed: Installed, recipe: str, tree: Path, shrink: Callable[[Spec, Spec], None]
) -> Iterator[dict[str, Spec]]:
    """Applies cache and run of `<recipe>.yaml` and yields both by kind; deletes them at the end.

    Both get two pods without GPUs; `shrink` changes what else is too large, in the specs of cache and run.
    """
    documents = yaml.safe_load_all((PROJECT_ROOT / f"crds/examples/{recipe}.yaml").read_text(encoding="utf-8"))
    found: dict[str, Spec] = {document["kind"]: document for document in documents}
    cache, run = found["DatasetCache"]["spec"], found["TrainingRun"]["spec"]
    cache["build"] |= {"parallelism": PODS, "resources": SMALL}
    run |= {"preset": "tiny", "nodes": PODS, "resources": SMALL, "podOverrides": {}}
    run["sessionCache"]["sizeLimit"] = "1Gi"
    shrink(cache, run)
    with installed.store() as store:
        upload_tree(store, tree, cache["source"]["prefix"])
    for document in found.values():
        installed.apply_anew(document)
    yield found
    for document in found.values():
        installed.run("kubectl", "delete", document["kind"], document["metadata"]["name"], "--wait=false")

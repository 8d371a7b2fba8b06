"""No part of training or of a build reaches a network but the store's: libraries that download are configured not to.

Called before any of them is imported. W&B is another matter: it is asked for by name.
"""

from collections.abc import MutableMapping

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def stay_offline(environ: MutableMapping[str, str]) -> None:
    """Sets, for this process and those it starts, what keeps Hugging Face's libraries (timm's too) to local files."""
    environ.update(_OFFLINE)

"""Whether what a run asks for to watch it is there: TensorBoard's writer, and W&B with a key where it is online."""

import netrc
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from lead_trainer.local.preflight.finding import Finding

CHECK = "logger"
KEY = "WANDB_API_KEY"
HOST = "api.wandb.ai"


def logger_findings(
    *,
    tensorboard: bool,
    mode: str,
    environ: Mapping[str, str],
    installed: Callable[[str], bool] = lambda module: find_spec(module) is not None,
) -> list[Finding]:
    """Returns a finding for each logger; asks no network."""
    findings = []
    if not tensorboard:
        findings.append(Finding(CHECK, "warning", "TensorBoard: off (tensorboard=false)"))
    elif installed("tensorboard"):
        findings.append(Finding(CHECK, "ok", "TensorBoard: event files are written to logdir"))
    else:
        findings.append(_not_installed("TensorBoard", "tensorboard"))
    if mode == "disabled":
        return [*findings, Finding(CHECK, "ok", "W&B: not asked for")]
    if not installed("wandb"):
        return [*findings, _not_installed("W&B", "wandb")]
    if mode == "online" and not (environ.get(KEY) or logged_in(environ)):
        text = f"W&B: no key; set {KEY}, run `wandb login`, or set WANDB_MODE=offline"
        return [*findings, Finding(CHECK, "failed", text)]
    return [*findings, Finding(CHECK, "ok", f"W&B: {mode}")]


def logged_in(environ: Mapping[str, str]) -> bool:
    """Returns whether `wandb login` left a key."""
    home = Path(environ.get("NETRC") or Path(environ.get("HOME", "~")).expanduser() / ".netrc")
    try:
        return home.is_file() and netrc.netrc(str(home)).authenticators(HOST) is not None
    except (netrc.NetrcParseError, OSError):
        return False


def _not_installed(name: str, package: str) -> Finding:
    return Finding(CHECK, "failed", f"{name}: {package} is not installed: pip install 'lead-k8s[trainer]'")

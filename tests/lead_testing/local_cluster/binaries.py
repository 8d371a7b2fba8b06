"""Builds the cluster's programs, once a version, from Go modules that `tools/` pins.

Called by the control plane, the cluster and the images. A program lies under `tools/<module>-<stamp>/`, where the stamp
digests go.mod, go.sum, sources and flags, so a newer pin is built beside the old one. It is built in another folder
and renamed, so that an interrupted build leaves nothing half.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lead_testing.local_cluster.commands import read_output, run_download
from lead_testing.local_cluster.errors import CannotRunHere
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.locks import exclusive
from lead_testing.local_cluster.progress import duration, step
from lead_testing.local_cluster.side_by_side import run_side_by_side

SOURCES = Path(__file__).parent / "tools"
KUBERNETES_VERSION = "v1.34.4"
STRIP = "-s -w"
# Without a cluster helm takes the version that it was built for, which its own build sets like this.
HELM_FLAGS = f"{STRIP} " + " ".join(
    f"-X helm.sh/helm/v3/pkg/{place}.k8sVersion{part}={number}"
    for place in ("chartutil", "lint/rules")
    for part, number in zip(("Major", "Minor"), KUBERNETES_VERSION.removeprefix("v").split("."), strict=False)
)
KUBERNETES_FLAGS = f"{STRIP} -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"


@dataclass(frozen=True)
class Program:
    """One program: the module folder that pins it, its package, and the seconds of a first build on two cores."""

    module: str
    package: str
    first_build_s: int
    linker_flags: str = STRIP


def _kubernetes(name: str, first_build_s: int) -> Program:
    return Program("kubernetes", f"k8s.io/kubernetes/cmd/{name}", first_build_s, KUBERNETES_FLAGS)


PROGRAMS = {
    "kube-apiserver": _kubernetes("kube-apiserver", 300),
    "kubectl": _kubernetes("kubectl", 20),
    "kube-controller-manager": _kubernetes("kube-controller-manager", 60),
    "kube-scheduler": _kubernetes("kube-scheduler", 20),
    "kubelet": _kubernetes("kubelet", 60),
    "kube-proxy": _kubernetes("kube-proxy", 20),
    "coredns": Program("coredns", ".", 60),
    "helm": Program("helm", "helm.sh/helm/v3/cmd/helm", 90, HELM_FLAGS),
    "minio": Program("minio", ".", 200),
    "pause": Program("pause", ".", 5),
    "syft": Program("syft", "github.com/anchore/syft/cmd/syft", 300),
    "cosign": Program("cosign", "github.com/sigstore/cosign/v2/cmd/cosign", 240),
    "kind": Program("kind", "sigs.k8s.io/kind", 20),
    "training-operator": Program(
        "training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1", 120
    ),
    "kwok": Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", 120),
}
CONTROL_PLANE_PROGRAMS = ("kube-apiserver", "kubectl")
BENCH_PROGRAMS = ("training-operator", "kwok")  # what tests/bench/operator needs besides the control plane
PROVENANCE_PROGRAMS = ("syft", "cosign")  # what `make images` needs to list and sign what it pushed
CLUSTER_PROGRAMS = tuple(
    name for name in PROGRAMS if name not in ("kind", "minio", *BENCH_PROGRAMS, *PROVENANCE_PROGRAMS)
)


def go_module_stamp(folder: Path, flags: str) -> str:
    """Digests everything that decides the bytes of a module's programs, 12 hexadecimal digits."""
    digest = hashlib.sha256(flags.encode())
    for source in sorted(path for path in folder.iterdir() if path.suffix in (".mod", ".sum", ".go")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class GoVersions:
    """What decides whether Go can build: versions as in "1.25.0"; empty where nothing is wanted, or there is no Go."""

    wanted: str
    found: str


def program_path(home: Home, name: str) -> Path:
    """Tells where the pinned version of a program lies, built or not."""
    program = PROGRAMS[name]
    stamp = go_module_stamp(SOURCES / program.module, program.linker_flags)
    return home.tools / f"{program.module}-{stamp}" / name


def expected_builds(home: Home, names: Iterable[str]) -> dict[str, float]:
    """Returns the seconds that modules are expected to take whose programs are not built yet."""
    missing = _missing_by_module(home, names)
    return {module: sum(PROGRAMS[name].first_build_s for name in names) for module, names in missing.items()}


def _missing_by_module(home: Home, names: Iterable[str]) -> dict[str, list[str]]:
    missing: dict[str, list[str]] = {}
    for name in names:
        if not program_path(home, name).is_file():
            missing.setdefault(PROGRAMS[name].module, []).append(name)
    return missing


def ensure_programs(home: Home, names: Iterable[str]) -> dict[str, Path]:
    """Builds the programs that are not built yet and links each into `bin/`; returns name → path."""
    paths = {name: program_path(home, name) for name in names}
    if all(path.is_file() and (home.bin / name).is_symlink() for name, path in paths.items()):
        return paths
    with exclusive(home.locks / "programs", "building the cluster's programs"):
        if lack := what_go_lacks(observe_go(home, paths)):
            raise CannotRunHere(f"The cluster's programs are built from source: {lack}.")
        # Two at a time: while one downloads or links, the other compiles.
        missing = _missing_by_module(home, paths)
        run_side_by_side([partial(_build, home, module, names) for module, names in missing.items()], at_once=2)
        for name, path in paths.items():
            _link(home.bin / name, path)
    return paths


def observe_go(home: Home, names: Iterable[str]) -> GoVersions:
    """Reads which Go the programs that are not built yet ask for, and which one is here."""
    modules = {SOURCES / PROGRAMS[name].module for name in names if not program_path(home, name).is_file()}
    if not modules:
        return GoVersions(wanted="", found="")
    newest = max(modules, key=lambda module: _numbers(_wanted_go(module)))
    go = _look_for_go()
    # Asked in the module's folder: there a Go that may fetch newer tool chains does so, and builds by what it tells.
    told = re.search(r"go(\d[\d.]*)", read_output([go, "version"], cwd=newest, timeout_s=600)) if go else None
    return GoVersions(wanted=_wanted_go(newest), found=told[1] if told else "")


def what_go_lacks(go: GoVersions) -> str:
    """Says why this Go cannot build the programs and what to do, as a clause; empty where it can, or need not."""
    if _numbers(go.found) >= _numbers(go.wanted):
        return ""
    here = f"`go` here is {go.found}" if go.found else "there is no `go` on PATH"
    return f"that takes Go {go.wanted} or newer and {here}, so install that"


def find_go() -> str:
    """Finds the Go tool chain on PATH or where its archive unpacks; raises CannotRunHere."""
    if found := _look_for_go():
        return found
    raise CannotRunHere("There is no `go` on PATH: install it.")


def _look_for_go() -> str:
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin") or ""


def _wanted_go(module: Path) -> str:
    """Reads the `go` line of a module, as in "1.25.0"."""
    lines = (module / "go.mod").read_text().splitlines()
    return next(line.removeprefix("go ") for line in lines if line.startswith("go "))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".") if word)


def _build(home: Home, module: str, names: list[str]) -> None:
    """Builds programs of one module at once: while one is linked, on one core, others are compiled."""
    expected_s = sum(PROGRAMS[name].first_build_s for name in names)
    unfinished = program_path(home, names[0]).parent / ".building"
    shutil.rmtree(unfinished, ignore_errors=True)  # what an interrupted build left
    unfinished.mkdir(parents=True)
    # CGO off: the same build with and without a C compiler, and static programs that run FROM scratch.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    # No tables for a debugger, which the linker would leave out anyway: a tenth of the time. The program is the same,
    # so this flag is not in its stamp.
    compiler = "-gcflags=all=-dwarf=false"
    words = [find_go(), "build", "-trimpath", "-buildvcs=false", compiler, "-ldflags", PROGRAMS[names[0]].linker_flags]
    with step(f"building {', '.join(names)} ({duration(expected_s)} the first time)", module):
        packages = [PROGRAMS[name].package for name in names]
        # In a folder each program is called as its package is, which for a single one may not be its name.
        target = unfinished if len(names) > 1 else unfinished / names[0]
        log = home.root / "logs" / f"build-{module}.log"
        run_download([*words, "-o", target, *packages], log, cwd=SOURCES / module, environment=environment)
        for name in names:
            (unfinished / name).replace(program_path(home, name))
        unfinished.rmdir()


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    fresh = link.with_name(f".{link.name}.linking")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)

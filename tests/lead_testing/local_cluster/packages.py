"""What this machine must have, and Debian's packages for what it may still lack; called first by `up` and `images`."""

import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lead_testing.local_cluster.binaries import GoVersions, observe_go, what_go_lacks
from lead_testing.local_cluster.commands import run_download
from lead_testing.local_cluster.errors import CannotRunHere
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.locks import exclusive
from lead_testing.local_cluster.progress import step

CNI_FOLDER = Path("/usr/lib/cni")
POLICY = Path("/usr/sbin/policy-rc.d")
OUR_POLICY = "#!/bin/sh\n# Of LEAD's local cluster, for the time of one apt-get install.\nexit 101\n"
FIRST_DISK_GB = 40  # 25 stay: programs, Go's caches, and images thrice; a build takes up to 13 more for a moment
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# program or file → its Debian package
CONTROL_PLANE_PACKAGES = {"etcd": "etcd-server", "openssl": "openssl"}
CLUSTER_PACKAGES = {
    **CONTROL_PLANE_PACKAGES,
    "containerd": "containerd",
    "runc": "runc",
    str(CNI_FOLDER / "bridge"): "containernetworking-plugins",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "mount": "mount",
    "docker-registry": "docker-registry",
}
PROMETHEUS_PACKAGES = {"promtool": "prometheus"}
IMAGE_PACKAGES = {
    "debootstrap": "debootstrap",
    "buildah": "buildah",
    "podman": "podman",
    "/etc/ssl/certs/ca-certificates.crt": "ca-certificates",
}
REMOTE_PACKAGES = {"skopeo": "skopeo"}  # asks a registry on another machine what it holds


@dataclass(frozen=True)
class Machine:
    """What the decision whether a cluster can run here depends on."""

    system: str
    is_root: bool
    has_apt: bool
    has_cgroups: bool
    go: GoVersions
    missing_packages: tuple[str, ...]
    home: Path
    free_disk_gb: int  # below `home`
    has_images: bool  # built here before: most of the disk that they take is taken already


def what_is_missing(machine: Machine) -> str:
    """Names the first thing without which the local cluster cannot run, in one sentence; empty where nothing is."""
    instead = "or point the current kube context at a cluster and set LEAD_CLUSTER=current"
    if machine.system != "Linux":
        return f"The local cluster runs on Linux and this is {machine.system}: start Docker, {instead}."
    if not machine.is_root:
        return f"The local cluster makes mounts and network links, which takes root: run this as root, {instead}."
    if not machine.has_cgroups:
        return f"The local cluster needs cgroups at /sys/fs/cgroup, and there are none: mount them, {instead}."
    if machine.missing_packages and not machine.has_apt:
        wanted = ", ".join(machine.missing_packages)
        return f"There is no apt-get here to install {wanted}: install them by other means, {instead}."
    if lack := what_go_lacks(machine.go):
        return f"The local cluster is built from source: {lack}, {instead}."
    if not machine.has_images and machine.free_disk_gb < FIRST_DISK_GB:
        return (
            f"Cluster and images take {FIRST_DISK_GB} GB of disk the first time, and {machine.home} has "
            f"{machine.free_disk_gb} GB free: free some, set LEAD_HOME to a folder on a larger disk, {instead}."
        )
    return ""


def observe_machine(home: Home, programs: Iterable[str]) -> Machine:
    """Looks at this machine, which is to build `programs`."""
    hierarchy = Path("/sys/fs/cgroup")
    return Machine(
        system=platform.system(),
        is_root=os.geteuid() == 0,
        has_apt=shutil.which("apt-get") is not None,
        has_cgroups=_is_cgroup_v2(hierarchy) or (hierarchy / "memory" / "cgroup.procs").exists(),
        go=observe_go(home, programs),
        missing_packages=missing_packages({**CLUSTER_PACKAGES, **IMAGE_PACKAGES}),
        home=home.root,
        free_disk_gb=_free_disk_gb(home.root),
        has_images=home.image_storage.exists(),
    )


def missing_packages(wanted: dict[str, str]) -> tuple[str, ...]:
    """Names the packages whose program or file is not there."""
    return tuple(package for program, package in wanted.items() if not _is_there(program))


def ensure_packages(home: Home, wanted: dict[str, str]) -> None:
    """Installs what is missing; raises what `install_packages` raises."""
    missing = missing_packages(wanted)
    if missing or _our_policy_is_there():
        install_packages(home, missing)


def install_packages(home: Home, packages: Sequence[str]) -> None:
    """Installs packages by one apt-get call; starts none of the services that they bring.

    Raises CannotRunHere naming them where this user or this machine cannot install any.
    """
    if not _can_install():
        raise CannotRunHere(f"Debian's {', '.join(packages)} must be installed, which takes root and apt-get.")
    with exclusive(home.locks / "packages", "installing packages"), _no_services_started():
        if not packages:
            return
        log = home.root / "logs" / "apt.log"
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        apt_get = ["apt-get", "-y", "-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=600"]
        with step(f"installing {' '.join(packages)}"):
            run_download([*apt_get, "update"], log, environment=environment)
            run_download([*apt_get, "install", "--no-install-recommends", *packages], log, environment=environment)


@contextmanager
def _no_services_started() -> Iterator[None]:
    """Keeps Debian's packages from starting etcd, containerd and the registry with their own settings and ports.

    A policy of the machine's own stays; ours, which a call that was killed may have left, is gone in the end.
    """
    if POLICY.exists() and not _our_policy_is_there():
        yield
        return
    POLICY.write_text(OUR_POLICY)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _our_policy_is_there() -> bool:
    return POLICY.exists() and POLICY.read_bytes() == OUR_POLICY.encode()


def _can_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _free_disk_gb(folder: Path) -> int:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free // 10**9


def _is_there(program: str) -> bool:
    if program.startswith("/"):
        return Path(program).exists()
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}") is not None


def _is_cgroup_v2(hierarchy: Path) -> bool:
    return (hierarchy / "cgroup.controllers").exists()

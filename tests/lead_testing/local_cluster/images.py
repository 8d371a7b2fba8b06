"""Builds the images of operator, trainer and object store and pushes them; called by `build_images`.

A tag is the digest of everything that enters an image, so building what has not changed is a look at the registry.
Layers of unchanged dependencies are kept by the builder, and only changed layers are pushed and pulled.
"""

import configparser
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.api_server import answers_ok, header_of
from lead_testing.local_cluster.base_image import base_reference, make_base_image
from lead_testing.local_cluster.binaries import ensure_programs
from lead_testing.local_cluster.commands import run_download, run_logged, try_output
from lead_testing.local_cluster.errors import CannotRun
from lead_testing.local_cluster.home import Home
from lead_testing.local_cluster.locks import exclusive
from lead_testing.local_cluster.packages import IMAGE_PACKAGES, REMOTE_PACKAGES, ensure_packages
from lead_testing.local_cluster.progress import duration, finish, say, step

_EVERY_WHEEL = ("pyproject.toml", "images/locks/build.txt")
SOURCES = {  # what each Containerfile copies from the checkout
    "minio": (),
    "operator": (*_EVERY_WHEEL, "images/locks/operator.txt", "crds", "operator"),
    "trainer": (
        *_EVERY_WHEEL,
        "images/locks/torch.txt",
        "images/locks/trainer.txt",
        "operator/lead_protocol",
        "trainer",
    ),
}
FIRST_BUILD_S = {"minio": 5, "operator": 40, "trainer": 300}
KEPT_TAGS = 2  # in the builder's storage; a registry and a node may still be asked for older ones
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
ANY_MANIFEST = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
LEFT_OUT = ("__pycache__", "*.pyc", "*.egg-info", "*.md", ".*")


@dataclass(frozen=True)
class Image:
    """One image: its name, its Containerfile, the folder it is built from, and the digest of all that enters it."""

    name: str
    containerfile: Path
    context: Path
    digest: str

    def reference(self, prefix: str) -> str:
        """Names the image below a registry or another prefix."""
        return f"{prefix}/lead/{self.name}:{self.digest}"


def repository_and_tag(reference: str) -> tuple[str, str]:
    """Splits an image's name as the chart's values take it; the tag keeps `@sha256:…`, which pins the bytes."""
    place, slash, name = reference.rpartition("/")
    image, _, tag = name.partition(":")
    return f"{place}{slash}{image}", tag


class _Buildah:
    """Builds into a storage of our own."""

    def __init__(self, home: Home) -> None:
        place = ["--root", str(home.image_storage), "--runroot", "/run/lead-images", "--storage-driver", "overlay"]
        self.podman = ["podman", *place]
        self._buildah = ["buildah", *place]
        self._home = home
        self.log = home.root / "logs" / "images.log"
        (home.images / "tmp").mkdir(parents=True, exist_ok=True)

    def build(self, image: Image, reference: str) -> None:
        """Builds an image; layers that were built before are taken as they are."""
        if image.name != "minio" and not try_output([*self.podman, "images", "-q", base_reference()]):
            make_base_image(self._home, self.podman)
        try_output([*self._buildah, "rm", "--all"])  # what killed builds left: gigabytes each; the lock is ours
        words = [*self._buildah, "bud", "--layers", "--force-rm", "--isolation", "chroot", "--network", "host"]
        words += ["--format", "oci", "--build-arg", f"BASE={base_reference()}", *_revision(image)]
        words += [*_secrets(self._home), "--tag", reference, "--file", str(image.containerfile), str(image.context)]
        environment = {**os.environ, "TMPDIR": str(self._home.images / "tmp")}  # /tmp may be too small for torch
        run_download(words, self.log, environment=environment)


def build_layers(home: Home, *, registry: str) -> None:
    """Builds what images consist of and pushes nothing: while programs compile, the network brings torch.

    What fails here is done again, and fails in earnest, when images are built.
    """
    try:
        ensure_packages(home, IMAGE_PACKAGES)
        builder = _Buildah(home)
        with exclusive(home.locks / "images", "building images"), tempfile.TemporaryDirectory() as folder:
            for image in _images(Path(folder), ("operator", "trainer")):
                with step(f"building layers of image {image.name}"):
                    builder.build(image, image.reference(registry))
    except CannotRun as error:
        say(f"  layers of the images are built later: {str(error).splitlines()[0]}")


def build_by_buildah(home: Home, *, registry: str, plain_http: bool) -> dict[str, str]:
    """Builds without an engine and pushes to a registry; returns name → reference."""
    ensure_packages(home, IMAGE_PACKAGES if plain_http else {**IMAGE_PACKAGES, **REMOTE_PACKAGES})
    builder = _Buildah(home)
    tls = [f"--tls-verify={'false' if plain_http else 'true'}"]

    def is_pushed(image: Image) -> bool:
        if plain_http:
            return answers_ok(f"http://{registry}/v2/lead/{image.name}/manifests/{image.digest}", accept=ANY_MANIFEST)
        return bool(try_output(["skopeo", "inspect", "--raw", f"docker://{image.reference(registry)}"]))

    def digest(image: Image) -> str:
        if plain_http:
            return manifest_digest(f"http://{registry}/v2/lead/{image.name}/manifests/{image.digest}")
        return try_output(["skopeo", "inspect", "--format", "{{.Digest}}", f"docker://{image.reference(registry)}"])

    def build(image: Image) -> None:
        reference = image.reference(registry)
        builder.build(image, reference)
        run_logged([*builder.podman, "push", *tls, "--compression-format", "zstd", reference], builder.log)
        _forget_old_builds(builder.podman, image, registry)

    return _build_all(home, registry, is_pushed, build, digest)


def manifest_digest(url: str) -> str:
    """Returns the digest by which a registry on this machine knows an image, empty where it does not answer so."""
    return header_of(url, "Docker-Content-Digest", accept=ANY_MANIFEST)


def _forget_old_builds(podman: list[str], image: Image, registry: str) -> None:
    """Frees the builder's storage of all but the newest builds of an image, and of layers that no build keeps.

    No cluster reads this storage, so the worst that can follow is a slower build.
    """
    newest_first = [*podman, "images", "--sort", "created", "--format", "{{.Repository}}:{{.Tag}}"]
    for old in try_output([*newest_first, f"{registry}/lead/{image.name}"]).split()[KEPT_TAGS:]:
        if old != image.reference(registry):
            try_output([*podman, "rmi", old])
    try_output([*podman, "image", "prune", "--force", "--filter", "until=2h"])


def build_by_docker(home: Home, *, prefix: str, push: bool = False) -> dict[str, str]:
    """Builds by the Docker engine, on the public base image; returns name → reference."""
    log = home.root / "logs" / "images.log"

    def is_built(image: Image) -> bool:
        look = ["docker", "manifest", "inspect"] if push else ["docker", "image", "inspect"]
        return bool(try_output([*look, image.reference(prefix)]))

    def build(image: Image) -> None:
        environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
        words = [
            "docker",
            "build",
            *_revision(image),
            *_secrets(home),
            "--tag",
            image.reference(prefix),
            "--file",
            str(image.containerfile),
        ]
        run_download([*words, image.context], log, environment=environment)
        if push:
            run_logged(["docker", "push", image.reference(prefix)], log)

    def digest(image: Image) -> str:
        if not push:
            return ""  # the nodes get the image by hand: no registry has given it a digest
        found = try_output(
            ["docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", image.reference(prefix)]
        )
        return found.strip().partition("@")[2]

    return _build_all(home, prefix, is_built, build, digest)


def _build_all(
    home: Home,
    prefix: str,
    is_there: Callable[[Image], bool],
    build: Callable[[Image], None],
    digest: Callable[[Image], str],
) -> dict[str, str]:
    minio = ensure_programs(home, ("minio",))["minio"]
    built = {}
    with exclusive(home.locks / "images", "building images"), tempfile.TemporaryDirectory() as folder:
        for image in _images(Path(folder), tuple(SOURCES), minio):
            if is_there(image):
                finish(f"image {image.name}")
                say(f"image {image.name} is current")
            else:
                told = f"building image {image.name} ({duration(FIRST_BUILD_S[image.name])} the first time)"
                with step(told, f"image {image.name}"):
                    build(image)
            pin = digest(image).strip()
            built[image.name] = image.reference(prefix) + (f"@{pin}" if pin else "")
    return built


def _images(folder: Path, names: Iterable[str], minio: Path | None = None) -> list[Image]:
    """Lays the build contexts out under `folder`: only what enters an image, with equal times for equal content."""
    images = []
    for name in names:
        context = folder / name
        context.mkdir()
        lay_out_context(PROJECT_ROOT, SOURCES[name], context)
        if minio is not None and name == "minio":
            shutil.copyfile(minio, context / "minio")
            (context / "minio").chmod(0o755)
        _set_equal_times(context)
        containerfile = PROJECT_ROOT / "images" / name / "Containerfile"
        salt = "" if name == "minio" else base_reference()
        images.append(Image(name, containerfile, context, digest_of(containerfile, context, salt=salt)))
    return images


def lay_out_context(project: Path, sources: Iterable[str], context: Path) -> None:
    """Copies files and folders of the project, without pages, bytecode, caches and other hidden files."""
    for name in sources:
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (project / name).is_dir():
            shutil.copytree(project / name, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
        else:
            shutil.copyfile(project / name, target)


def digest_of(containerfile: Path, context: Path, *, salt: str) -> str:
    """Digests names, modes and contents of what an image is built from, 16 hexadecimal digits."""
    digest = hashlib.sha256(salt.encode() + b"\0" + containerfile.read_bytes())
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        executable = bool(path.stat().st_mode & 0o100)
        digest.update(
            f"\0{path.relative_to(context)}\0{executable}\0".encode() + hashlib.sha256(path.read_bytes()).digest()
        )
    return digest.hexdigest()[:16]


def build_pip_settings(environment: Mapping[str, str], files: Iterable[Path], certificates: str) -> str:
    """Builds a pip.conf with this machine's package index for the time of a build; the environment wins over files."""
    kept = {}
    for file in files:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(file)
        kept.update({key: value for key, value in _section(parser).items() if key in PIP_KEYS})
    for key in PIP_KEYS:
        if value := environment.get(f"PIP_{key.upper().replace('-', '_')}", ""):
            kept[key] = value
    if certificates:
        kept["cert"] = certificates
    return "[global]\n" + "".join(f"{key} = {value}\n" for key, value in sorted(kept.items()))


def _section(parser: configparser.ConfigParser) -> Mapping[str, str]:
    return parser["global"] if parser.has_section("global") else {}


def _secrets(home: Home) -> list[str]:
    """Hands certificates and index settings to a build, which mounts them and keeps neither."""
    settings = home.images / "pip.conf"
    settings.parent.mkdir(parents=True, exist_ok=True)
    files = [Path("/etc/pip.conf"), Path("~/.config/pip/pip.conf").expanduser(), Path("~/.pip/pip.conf").expanduser()]
    settings.write_text(build_pip_settings(os.environ, files, "/run/ca.crt" if CERTIFICATES.exists() else ""))
    secrets = ["--secret", f"id=pip,src={settings}"]
    if CERTIFICATES.exists():
        secrets += ["--secret", f"id=certificates,src={CERTIFICATES}"]
    return secrets


def _revision(image: Image) -> list[str]:
    if image.name != "trainer":
        return []
    return ["--build-arg", f"LEAD_GIT_REVISION={revision_of(PROJECT_ROOT, SOURCES['trainer'])}"]


def revision_of(project: Path, sources: Iterable[str]) -> str:
    """Returns the last commit of these sources, with `-dirty` where they differ from it; empty outside of git.

    A commit that touches none of them is another one of the checkout, but not of the image: its tag stays the same.
    """
    git = ["git", "-C", str(project)]
    commit = try_output([*git, "log", "-1", "--format=%H", "--", *sources]).strip()
    changed = try_output([*git, "status", "--porcelain", "--", *sources]).strip()
    return f"{commit}-dirty" if commit and changed else commit


def _set_equal_times(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (0, 0))

"""What decides an image's tag, and what a build is told of the machine's package index."""

import re
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lead_testing import PROJECT_ROOT
from lead_testing.local_cluster.base_image import debian_mirror
from lead_testing.local_cluster.images import (
    SOURCES,
    build_pip_settings,
    digest_of,
    lay_out_context,
    manifest_digest,
    repository_and_tag,
    revision_of,
)
from lead_testing.local_cluster.pause_image import build_image_archive


def test_a_tag_changes_with_every_input_and_with_nothing_else(tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (recipe := tmp_path / "Containerfile").write_text("FROM scratch\n")
    (source := context / "code.py").write_text("pass\n")
    digests = [digest_of(recipe, context, salt="base")]
    source.touch()
    assert digest_of(recipe, context, salt="base") == digests[0]
    digests.append(digest_of(recipe, context, salt="other base"))
    source.write_text("return\n")
    digests.append(digest_of(recipe, context, salt="base"))
    source.rename(context / "renamed.py")
    digests.append(digest_of(recipe, context, salt="base"))
    recipe.write_text("FROM nothing\n")
    digests.append(digest_of(recipe, context, salt="base"))
    assert len(set(digests)) == 5


def test_bytecode_pages_and_hidden_files_stay_out_of_an_image(tmp_path: Path) -> None:
    project, context = tmp_path / "project", tmp_path / "context"
    for name in ("crds/lead.yaml", "operator/run.py", "operator/README.md", "operator/__pycache__/run.pyc",
                 "operator/.mypy_cache/x", "operator/lead.egg-info/x", "trainer/lead.py"):  # fmt: skip
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    lay_out_context(project, ("crds", "operator"), context)
    files = sorted(str(path.relative_to(context)) for path in context.rglob("*") if path.is_file())
    assert files == ["crds/lead.yaml", "operator/run.py"]


@pytest.mark.parametrize("side", ["operator", "trainer"])
def test_a_tag_covers_all_that_the_containerfile_copies(side: str) -> None:
    lines = (PROJECT_ROOT / "images" / side / "Containerfile").read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from=" not in line]
    assert {name for names in copies for name in names} == set(SOURCES[side])


@pytest.mark.parametrize("side", ["operator", "trainer"])
def test_an_image_installs_nothing_but_what_its_lock_names_with_hashes(side: str) -> None:
    """Audit: S22"""
    text = (PROJECT_ROOT / "images" / side / "Containerfile").read_text()
    installs = re.findall(r"pip(?: --python \S+)? install (.*)", text)
    assert installs
    for words in installs:
        assert "--require-hashes" in words or "--no-index" in words, words


def test_a_reference_is_split_as_the_charts_values_take_it() -> None:
    pin = "sha256:" + "0" * 64
    assert repository_and_tag("127.0.0.1:5050/lead/minio:1a2b") == ("127.0.0.1:5050/lead/minio", "1a2b")
    assert repository_and_tag(f"example.com/lead/minio:1a2b@{pin}") == ("example.com/lead/minio", f"1a2b@{pin}")


def test_the_digest_of_an_image_is_the_registrys_and_an_absent_registry_gives_none() -> None:
    """Audit: S22"""
    pin = "sha256:" + "7" * 64

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Docker-Content-Digest", pin)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/v2/lead/minio/manifests/1a2b"
        assert manifest_digest(url) == pin
        server.shutdown()
    assert manifest_digest(url) == ""


def test_pip_settings_keep_index_and_certificates_and_the_environment_wins(tmp_path: Path) -> None:
    (file := tmp_path / "pip.conf").write_text("[global]\nindex-url = https://a.example/simple\ncert = /machine.crt\n")
    settings = build_pip_settings({"PIP_INDEX_URL": "https://b.example/simple"}, [file, tmp_path / "no"], "/run/ca.crt")
    assert settings == "[global]\ncert = /run/ca.crt\nindex-url = https://b.example/simple\n"


def test_debian_comes_from_the_mirror_of_the_machine(tmp_path: Path) -> None:
    assert debian_mirror(tmp_path) == []
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text("Types: deb\nURIs: http://near.example/debian\n")
    assert debian_mirror(tmp_path) == ["http://near.example/debian"]


def test_the_pause_image_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    (program := tmp_path / "pause").write_bytes(b"\x7fELF")
    assert build_image_archive(program, "lead.local/pause:1") == build_image_archive(program, "lead.local/pause:1")


def test_an_image_names_the_newest_commit_of_what_enters_it(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "code.py").write_text("1")
    assert revision_of(tmp_path, ["trainer"]) == ""  # a folder that git does not know, as an unpacked archive is
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "first")
    first = git("rev-parse", "HEAD")
    (tmp_path / "page.md").write_text("of no image")
    git("add", "-A")
    git("commit", "-q", "-m", "second")
    assert revision_of(tmp_path, ["trainer"]) == first != git("rev-parse", "HEAD")
    (tmp_path / "trainer" / "code.py").write_text("2")
    assert revision_of(tmp_path, ["trainer"]) == f"{first}-dirty"

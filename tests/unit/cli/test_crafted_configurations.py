"""A configuration whose few bytes stand for very many values, or for none that ends, is refused in one sentence."""

from pathlib import Path

import pytest
import structlog

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main
from lead_trainer.local.config_sources import read_config_file
from lead_trainer.report.console import open_log

BOMB = "\n".join(["a0: &a0 [1, 1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 13))])
MERGED = "\n".join(
    ["a0: &a0 {x: 1}", *(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 13))]
)
CHAIN = "\n".join(["a0: &a0 [1]", *(f"a{n}: &a{n} [[[[[[*a{n - 1}]]]]]]" for n in range(1, 9))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 65,536 values once its aliases are written out"),
        (MERGED, "more than 65,536 values once its aliases are written out"),
        (CHAIN, "nested more than 32 levels deep"),
        ("batch_size: &a [*a]", "an alias lies within its own value"),
        ("data: &a {image_size: *a}", "an alias lies within its own value"),
        (f"batch_size: {'[' * 5000}{']' * 5000}", "nested more than 32 levels deep"),
    ],
    ids=["aliases", "merged", "chain", "itself", "itself in a section", "deep"],
)
def test_a_file_of_aliases_or_of_depth_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(text)
    assert main(["train", "recipe=lead", "logdir=unused", "--config", str(config)]) == ExitCode.BAD_CONFIG
    assert message in capsys.readouterr().err


def test_a_value_of_the_command_line_has_the_same_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "recipe=lead", "logdir=unused", f"batch_size={'[' * 5000}"]) == ExitCode.BAD_CONFIG
    assert "nested more than 32 levels deep" in capsys.readouterr().err


def test_anchors_and_merged_mappings_of_usual_size_are_read(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("base: &base {lr: 0.1, size: &size 8}\nmodel:\n  <<: *base\n  width: *size\n")
    assert read_config_file(config)["model"] == {"lr": 0.1, "size": 8, "width": 8}


def test_a_files_name_gives_the_terminal_no_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "x\x1b[31mred\udcff.yaml"
    assert main(["train", "recipe=lead", "logdir=unused", "--config", str(config)]) == ExitCode.BAD_CONFIG
    shown = capsys.readouterr().err
    assert "\\x1b[31mred" in shown and "\x1b" not in shown and shown.isascii()


def test_a_files_name_writes_no_line_that_looks_like_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "x\ndone: all checks passed\u202e.yaml"
    config.write_text("- 1\n")
    assert main(["train", "--config", str(config)]) == ExitCode.BAD_CONFIG
    (line,) = capsys.readouterr().err.splitlines()
    assert "x\\ndone: all checks passed\\u202e.yaml" in line


def test_a_log_for_people_gives_a_terminal_no_commands(capsys: pytest.CaptureFixture[str]) -> None:
    open_log(json_lines=False)
    name = "a\x1b[2J\nepoch done  loss=0.0.png"
    structlog.get_logger("x").warning(f"{name} is not written", file=name)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.count("a\\x1b[2J\\nepoch done") == 2 and "\x1b[2J" not in line

"""A mistyped command: the usage of that command, one sentence, and the exit code of every other mistake."""

import pytest

from lead_protocol.exit_codes import ExitCode
from lead_trainer.cli import main


@pytest.mark.parametrize(
    ("words", "usage", "said"),
    [
        (["tensorboard", "--logdri", "out"], "usage: lead tensorboard", "unrecognized arguments: --logdri"),
        (["tensorboard", "--port", "many"], "usage: lead tensorboard", "argument --port: invalid int value: 'many'"),
        (["evaluate", "best.pt", "--split", "val", "stray"], "usage: lead evaluate", "unrecognized arguments: stray"),
        (["export", "run"], "usage: lead export", "the following arguments are required: folder"),
        (["tarin"], "usage: lead COMMAND", "invalid choice: 'tarin'"),
        ([], "usage: lead COMMAND", "required: COMMAND"),
    ],
)
def test_usage_errors_name_their_command(
    capsys: pytest.CaptureFixture[str], words: list[str], usage: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == ExitCode.BAD_CONFIG
    told = capsys.readouterr().err
    assert told.startswith(usage) and said in told.splitlines()[-1]


@pytest.mark.parametrize("command", ["train", "config", "cache"])
def test_a_recipe_that_is_not_installed_is_refused_with_the_choices(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main([command, "recipe=leed"]) == ExitCode.BAD_CONFIG
    said = capsys.readouterr().err.strip()
    assert said == "error: recipe: found 'leed', expected one of distill, lead, nuplan, world; did you mean lead?"

"""``eclose families`` as a user meets it."""

import json

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import UserError

runner = CliRunner()


def run(*arguments):
    result = runner.invoke(app, [*map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def families(tmp_path):
    run("world", "make", "--families", 3, "--out", tmp_path)
    return tmp_path / "families.jsonl"


def export(families, layout, *more):
    out = families.with_name(f"{layout}.jsonl")
    return run("families", "export", families, "--format", layout, "--out", out, *more), out


@pytest.mark.parametrize(
    ("layout", "per_family", "keys"),
    [("trl-sft", 3, {"prompt", "completion"}), ("trl-preference", 4, {"prompt", "chosen", "rejected"})],
)
def test_rows(families, layout, per_family, keys):
    result, out = export(families, layout)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert (result.exit_code, len(rows)) == (0, 3 * per_family)
    assert f"{3 * per_family} received = {3 * per_family} accepted + 0 rejected + 0 quarantined" in result.output
    for row in rows:
        assert keys <= set(row)
        for key in keys:
            # Conversational, as TRL knows it: a list of messages with role and content.
            assert all(set(message) == {"role", "content"} for message in row[key])
    assert len({row["family_id"] for row in rows}) == 3


@pytest.mark.slow
def test_again_does_nothing_and_other_settings_are_refused(families):
    export(families, "trl-sft")
    assert "(done before, nothing to do)" in export(families, "trl-sft")[0].output
    with pytest.raises(UserError, match="other settings"):
        export(families, "trl-sft", "--demonstrations", 1)
    assert export(families, "trl-sft", "--demonstrations", 1, "--force")[0].exit_code == 0


@pytest.mark.slow
def test_what_is_no_family_is_counted_and_explained(families):
    with families.open("a") as file:
        file.write('{"id": "x"}\n' + families.read_text().splitlines()[0] + "\n")
    result, out = export(families, "trl-sft")
    assert result.exit_code == 3
    assert "11 received = 9 accepted + 1 rejected (duplicate 1) + 1 quarantined (wrong record 1)" in result.output
    assert "line 4" in out.with_name("trl-sft.jsonl.quarantined.jsonl").read_text()


def test_the_help_says_what_cannot_be_written():
    help_text = " ".join(run("families", "export", "--help").output.split())
    assert "S, T and C compare steps, traces or answers" in help_text
    assert "preference rows over complete responses cannot express" in help_text

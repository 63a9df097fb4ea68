"""The public surface is a decision, and importing costs nothing."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import eclose
import eclose_train

ROOT = Path(__file__).parents[1]


PUBLIC = {
    eclose: """
    CallSettings ChatDetectorSettings EcloseError ExportResult FailureClass Family GateResult GenerateSettings
    ImportSettings Instance IntakeSettings Judge JudgeSettings Judgment JudgmentTrail LocalDetectorSettings
    OwnCriterion Passage Rates ReadSettings Reading RecordError Response Results RunOptions RunResult
    SettingError Step Trace TrendResult UserError Verdict adetect aevaluate agenerate ajudge assert_reliable
    compare detect diagnose evaluate export gate generate judge parse_completion read_response resolve
    show_judgment trend
    """,
    eclose_train: """
    Comparison ConstructSettings Direction EClosureCollator EClosureLoss EClosureLossMixin Edge Selection SwitchResult
    SwitchSettings TrainedVerifier TrainingResult aconstruct construct select switch_test train train_verifier
    """,
}
"""Names that users may import from each package. A change here is a change of the public interface."""


@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names_are_pinned(package):
    assert package.__all__ == sorted(PUBLIC[package].split())


def test_a_name_of_training_says_where_it_is():
    with pytest.raises(AttributeError, match=r"it is in eclose_train: pip install 'eclose\[train\]'"):
        eclose.train  # noqa: B018


@pytest.mark.torch
@pytest.mark.parametrize("package", PUBLIC)
def test_the_public_names(package):
    assert set(package.__all__) == {name for names in package._HOMES.values() for name in names}
    for module, names in package._HOMES.items():
        assert all(getattr(package, name).__module__ == module for name in names)
    assert {name for name in dir(package) if not name.startswith("__")} == set(package.__all__)
    assert "__version__" in dir(package)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        eclose.nothing  # noqa: B018


def test_the_licence_of_each_distribution_is_a_file_of_its_own():
    """A link out of the folder of a distribution makes a source archive that does not unpack."""
    licence = (ROOT / "LICENSE").read_text("utf-8")
    for path in ROOT.glob("packages/*/LICENSE"):
        assert not path.is_symlink()
        assert path.read_text("utf-8") == licence
    assert len(list(ROOT.glob("packages/*/LICENSE"))) == len(list(ROOT.glob("packages/*/pyproject.toml")))


def run(code):
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_importing_loads_nothing_heavy_and_sets_nothing():
    program = (
        "import os, sys; before = dict(os.environ); import eclose, eclose_train, eclose_annotate, eclose_world; "
        "assert dict(os.environ) == before; "
        "print([m for m in ('numpy', 'pydantic', 'typer', 'rich', 'torch', 'logging', 'socket') if m in sys.modules])"
    )
    assert run(["-c", program]).strip() == "[]"


def seconds(command, repeats=5):
    """The quickest of several runs by the processor's clock: a busy machine only ever adds."""

    def processor_seconds():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    times = []
    for _ in range(repeats):
        start = processor_seconds()
        run(command)
        times.append(processor_seconds() - start)
    return min(times)


@pytest.mark.slow
@pytest.mark.timing
def test_start_up_as_a_multiple_of_a_bare_interpreter():
    """0.3 s and 0.6 s on a machine whose bare interpreter takes 0.03 s; ratios hold on slower ones too."""
    bare = seconds(["-c", "pass"])
    assert seconds(["-c", "import eclose"]) < 0.3 * max(1, bare / 0.03)
    assert seconds(["-m", "eclose.cli.main", "--help"]) < 0.6 * max(1, bare / 0.03)


def tracked_texts():
    """Every text file of the checkout with its content; from an unpacked source archive there is no list to go by."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        if not path.is_file():
            continue
        try:
            yield name, path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


@pytest.mark.slow
def test_the_former_name_is_left_only_in_the_name_of_the_method():
    """``EClosureTrainer`` and ``EClosureConfig`` carry the method's name; the changelog tells of the change."""
    former = re.compile("eclosure", re.IGNORECASE)
    for name, text in tracked_texts():
        assert not former.search(name), name
        if name == "CHANGELOG.md":
            continue
        strays = [match[0] for match in former.finditer(text) if match[0] != "EClosure"]
        # This test spells the name out.
        assert len(strays) == (1 if name == "tests/test_package.py" else 0), (name, strays)

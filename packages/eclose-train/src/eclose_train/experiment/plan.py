"""Plan of an experiment: one YAML file with backbones, methods, seeds, data, judge and draws of the bootstrap."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from pydantic import TypeAdapter, ValidationError

from eclose.errors import SettingError, UserError
from eclose.files.json_reader import read_json_objects
from eclose.files.yaml_settings import describe_unknown_setting, read_yaml_settings
from eclose.judging.settings import JudgeSettings
from eclose.readers.load import scan_instances
from eclose.values.response import UNTUNED_METHOD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, kw_only=True)
class BootstrapDraws:
    """Number of resamples and the seed that they are drawn with."""

    resamples: int
    seed: int

    def __str__(self) -> str:
        """Return ``5,000 resamples, seed 2027``."""
        return f"{self.resamples:,} resamples, seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class BootstrapPlan:
    """Draws of each kind of interval. Defaults are those of the paper (appendices D.1, D.2, D.5.2, D.6 and D.7)."""

    main: BootstrapDraws = BootstrapDraws(resamples=5_000, seed=2027)
    ablations: BootstrapDraws = BootstrapDraws(resamples=10_000, seed=2031)
    switches: BootstrapDraws = BootstrapDraws(resamples=10_000, seed=20260915)
    audit: BootstrapDraws = BootstrapDraws(resamples=10_000, seed=42)
    judge: BootstrapDraws = BootstrapDraws(resamples=2_000, seed=42)


_CELL_SETTINGS = frozenset({"model", "revision", "dtype", "method", "seed", "learning_rate", "output_dir"})
"""Settings of training that the plan gives under keys of its own."""


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A model that is trained and evaluated."""

    name: str
    """Name in tables."""
    weights: str
    """Name on the hub, a folder or a GGUF file; a folder may be relative to the plan."""
    learning_rate: float
    """Learning rate of every adapter on this backbone."""
    revision: str | None = None
    """Commit of the weights on the hub."""
    dtype: str = "auto"
    """Precision of the weights."""
    training: dict[str, Any] = field(default_factory=dict)
    """Settings of training for this backbone alone; they take precedence over those of the plan."""
    hours: dict[str, float] = field(default_factory=dict)
    """Recorded hours of a training run by method, from which hours are forecast."""


@dataclass(frozen=True, kw_only=True)
class PlannedJudge(JudgeSettings):
    """The judge of all responses, and the limits of its calls."""

    model: str
    """Name of the judge, as ``eclose judge --judge`` takes it."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server."""
    server_name: str | None = None
    """Name of the server in records; None for host and port."""
    budget: float | None = None
    """Largest cost of judging the responses of a cell."""
    unpriced: bool = False
    """Whether a judge without a known price may be used."""
    concurrency: int = 64
    """Largest number of calls in flight."""
    ledger: str | None = None
    """Ledger of all calls: a file, which may be relative to the plan, or a ``postgresql://`` URL; None for
    ``judge.sqlite`` in the folder of the experiment. A file admits one process at a time."""

    @property
    def settings(self) -> JudgeSettings:
        """How responses are judged, apart from the model and its calls."""
        return JudgeSettings(**{name.name: getattr(self, name.name) for name in fields(JudgeSettings)})


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """Results of a cell that were made elsewhere; stages that have them are not run."""

    backbone: str
    """Name of the backbone."""
    method: str = UNTUNED_METHOD
    seed: int | None = None
    adapter: Path | None = None
    """Folder of the selected adapter, with its recipe."""
    responses: Path | None = None
    """Responses to all questions: a file, or the folder of a run."""
    judged: Path | None = None
    """Folder of judged responses to all questions."""
    switches: Path | None = None
    """Switch test: a file, or a folder with ``switches.jsonl``."""

    @property
    def paths(self) -> dict[str, Path]:
        """Files and folders by key."""
        values = {name: getattr(self, name) for name in ("adapter", "responses", "judged", "switches")}
        return {name: path for name, path in values.items() if path is not None}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An experiment: every backbone is trained with every method and seed, and answers every question."""

    backbones: list[Backbone]
    methods: list[str]
    """Objectives of training; the untuned backbones always belong to the comparison."""
    seeds: list[int]
    train_families: Path
    """Families to train on."""
    development_families: Path
    """Families to select checkpoints on, and to test preferences with where there are no ``switch_families``."""
    questions: Path
    """Questions that all cells answer, each with its benchmark."""
    judge: PlannedJudge
    switch_families: Path | None = None
    """Families to test preferences with; the development families by default."""
    ablations: list[str] = field(default_factory=list)
    """Further objectives, trained on one backbone."""
    ablation_backbone: str | None = None
    """Name of the backbone that ablations are trained on."""
    switch_ablations: bool = False
    """Whether the switch test is also run for ablations."""
    training: dict[str, Any] = field(default_factory=dict)
    """Settings of training for all cells, as in a recipe."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """Inference engine of selection and generation."""
    max_new_tokens: int = 1_024
    """Longest response in tokens."""
    selection_max_new_tokens: int = 512
    """Longest reply in tokens where checkpoints are compared."""
    train_family_count: int | None = None
    """Number of families the training file must hold; also used for forecasts before the file exists."""
    development_family_count: int | None = None
    """Number of families the development file must hold."""
    question_count: int | None = None
    """Number of questions the file must hold."""
    labels: Path | None = None
    """People's verdicts on judged responses, to validate the judge with."""
    audit_labels: Path | None = None
    """People's verdicts of the audit of results."""
    runs: list[ImportedRun] = field(default_factory=list)
    """Results that were made elsewhere."""
    bootstrap: BootstrapPlan = field(default_factory=BootstrapPlan)
    """Resamples and seeds of the intervals."""
    launcher: str | None = None
    """Command that starts training in processes of its own, such as ``torchrun --nproc_per_node 4 -m
    eclose.cli.main``; None to train in this process."""

    @property
    def inputs(self) -> dict[str, Path]:
        """Files that all cells read, by key."""
        names = ("train_families", "development_families", "switch_families", "questions")
        return {name: path for name in names if (path := getattr(self, name)) is not None}

    @property
    def switch_input(self) -> str:
        """Key of the file that preferences are tested with."""
        return "development_families" if self.switch_families is None else "switch_families"

    def training_settings(self, backbone: Backbone, method: str, seed: int) -> dict[str, Any]:
        """Return the settings of ``eclose train`` for a cell."""
        return {
            **self.training,
            **backbone.training,
            "model": backbone.weights,
            "revision": backbone.revision,
            "dtype": backbone.dtype,
            "learning_rate": backbone.learning_rate,
            "method": method,
            "seed": seed,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return values


def read_plan(path: Path | str) -> Plan:
    """Read a plan from a YAML file; relative paths in it are relative to its folder.

    Raises:
        SettingError: The plan has problems; the message lists all of them, each with its key.
        UserError: The file cannot be read.
    """
    path = Path(path)
    values, problems = _parse_fields(read_yaml_settings(path, "a plan"))
    values = _locate_files(values, path.parent.resolve())
    problems += _list_cell_problems(values)
    problems += _list_run_problems(values)
    problems += _list_file_problems(values)
    problems += _list_training_problems(*_list_training_keys(values))
    if problems:
        raise SettingError(f"{path}: " + "; ".join(problems))
    return Plan(**values)


def parse_plan(values: Mapping[str, Any]) -> Plan:
    """Return a plan from the JSON values that ``Plan.to_json`` returns."""
    try:
        return TypeAdapter(Plan).validate_python(dict(values), extra="forbid")
    except ValidationError as invalid:
        raise UserError(f"this is not a plan of an experiment: {'; '.join(_describe(invalid, ''))}") from invalid


def _parse_fields(settings: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Validate every key on its own, so that an error in one hides none in another."""
    hints = get_type_hints(Plan)
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in settings.items():
        if name not in hints:
            problems.append(describe_unknown_setting(name, hints))
            continue
        try:
            values[name] = TypeAdapter(hints[name]).validate_python(value, extra="forbid")
        except ValidationError as invalid:
            problems += _describe(invalid, name)
        except SettingError as error:
            problems.append(f"{name}: {error}")
    required = [item.name for item in fields(Plan) if item.default is MISSING and item.default_factory is MISSING]
    problems += [f"{name}: is missing" for name in required if name not in settings]
    return values, problems


def _describe(invalid: ValidationError, key: str) -> Iterator[str]:
    for error in invalid.errors():
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"]]
        message = "no such key" if error["type"] == "unexpected_keyword_argument" else error["msg"].lower()
        yield f"{(key + ''.join(parts)).removeprefix('.')}: {message}"


def count_records(key: str, path: Path) -> int:
    """Return the number of usable questions, or of families, in an input file of a plan."""
    if key == "questions":
        return sum(record.value is not None for record in scan_instances(path))
    # Families are large and checked when they are used; here they are counted alone.
    return sum(record.value is not None for record in read_json_objects(path))


def _locate_files(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the values with absolute paths of files, and of weights that are a folder or file here."""
    located: dict[str, Any] = dict(values)
    located |= {name: folder / value for name, value in values.items() if isinstance(value, Path)}
    judge: PlannedJudge | None = values.get("judge")
    if judge is not None and judge.ledger is not None and "://" not in judge.ledger:
        located["judge"] = replace(judge, ledger=str(folder / judge.ledger))
    located["runs"] = [
        replace(run, **{name: folder / path for name, path in run.paths.items()}) for run in values.get("runs", [])
    ]
    if "backbones" in located:
        located["backbones"] = [
            replace(backbone, weights=str(folder / backbone.weights))
            if (folder / backbone.weights).exists()
            else backbone
            for backbone in located["backbones"]
        ]
    return located


def _list_cell_problems(values: Mapping[str, Any]) -> Iterator[str]:
    backbones: list[Backbone] = values.get("backbones", [])
    methods, ablations = values.get("methods", []), values.get("ablations", [])
    lists = {
        "backbones": [backbone.name for backbone in backbones],
        "methods and ablations": [*methods, *ablations],
        "seeds": values.get("seeds", []),
    }
    for name, items in lists.items():
        yield from (f"{name}: {item} is listed twice" for item in _find_repeated(items))
    for name in ("backbones", "methods", "seeds"):
        if name in values and not values[name]:
            yield f"{name}: is empty; list at least one"
    yield from (f"seeds: {seed} is negative" for seed in lists["seeds"] if seed < 0)
    for backbone in backbones:
        if backbone.learning_rate <= 0:
            yield f"backbones.{backbone.name}.learning_rate: must be positive"
    ablated = values.get("ablation_backbone")
    if ablations and ablated is None:
        yield "ablation_backbone: is missing; name the backbone that ablations are trained on"
    if ablated is not None and backbones and ablated not in lists["backbones"]:
        yield f"ablation_backbone: {ablated} is not one of the backbones {', '.join(lists['backbones'])}"
    for key, training in _list_training_keys(values)[1].items():
        for setting in sorted(_CELL_SETTINGS & training.keys()):
            yield f"{key}.{setting}: the plan sets it for each cell; leave it out here"


def _list_run_problems(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield problems of results that were made elsewhere, apart from the content of their files."""
    runs: list[ImportedRun] = values.get("runs", [])
    backbones = [backbone.name for backbone in values.get("backbones", [])]
    methods, seeds = [*values.get("methods", []), *values.get("ablations", [])], values.get("seeds", [])
    for number, run in enumerate(runs):
        key = f"runs[{number}]"
        if run.backbone not in backbones:
            yield f"{key}.backbone: {run.backbone} is not one of the backbones {', '.join(backbones)}"
        if not run.paths:
            yield f"{key}: name adapter, responses, judged or switches"
        if run.method == UNTUNED_METHOD:
            if run.seed is not None or run.adapter is not None:
                yield f"{key}: an untuned backbone has neither a seed nor an adapter"
            continue
        if run.method not in methods:
            yield f"{key}.method: {run.method} is not one of {', '.join([UNTUNED_METHOD, *methods])}"
        if run.seed not in seeds:
            yield f"{key}.seed: {run.seed} is not one of {', '.join(map(str, seeds))}"
    cells = [(run.backbone, run.method, run.seed, name) for run in runs for name in run.paths]
    for backbone, method, seed, name in _find_repeated(cells):
        yield f"runs: {name} of {backbone} {method} {'' if seed is None else seed} is given twice"


def _list_training_keys(values: Mapping[str, Any]) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]]]:
    """Return names of methods, and settings of training, by their key in the plan."""
    backbones: list[Backbone] = values.get("backbones", [])
    methods = {key: values.get(key, []) for key in ("methods", "ablations")}
    methods |= {f"backbones.{backbone.name}.hours": list(backbone.hours) for backbone in backbones}
    settings = {f"backbones.{backbone.name}.training": backbone.training for backbone in backbones}
    return methods, {"training": values.get("training", {}), **settings}


def _list_training_problems(
    methods: Mapping[str, Iterable[str]], training: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Yield every problem of methods and of training settings, which are given by their keys in the plan."""
    from eclose_train.training.objective import TrainingMethod  # noqa: PLC0415 - imports torch
    from eclose_train.training.recipe import read_recipe  # noqa: PLC0415 - imports torch

    known = tuple(TrainingMethod)
    for key, names in methods.items():
        for name in names:
            if name not in known:
                yield f"{key}: " + describe_unknown_setting(name, known).replace("setting", "method")
    for key, settings in training.items():
        for name, value in settings.items():
            try:
                # One setting at a time: the message of a recipe names no key of the plan.
                read_recipe(None, {"model": "", name: value})
            except SettingError as error:
                yield f"{key}.{str(error).removeprefix('settings: ')}"


def _find_repeated(items: Iterable[Any]) -> list[Any]:
    return [item for item, count in Counter(items).items() if count > 1]


def _list_file_problems(values: Mapping[str, Any]) -> Iterator[str]:
    counts = {
        "train_families": "train_family_count",
        "development_families": "development_family_count",
        "questions": "question_count",
    }
    for name in (*counts, "switch_families", "labels", "audit_labels"):
        path = values.get(name)
        # A plan may be read before its data exist if it states their size.
        if path is not None and not path.is_file() and values.get(counts.get(name, "")) is None:
            hint = f"; state {counts[name]} to plan without it" if name in counts else ""
            yield f"{name}: {path} is not a file{hint}"
    for name, count_name in counts.items():
        expected, path = values.get(count_name), values.get(name)
        if expected is not None and path is not None and path.is_file():
            actual = count_records(name, path)
            if actual != expected:
                yield f"{count_name}: {expected}, but {path} holds {actual}"
    for name in (*counts.values(), "max_new_tokens", "selection_max_new_tokens"):
        if values.get(name) is not None and values[name] < 1:
            yield f"{name}: must be at least 1"
    judge: PlannedJudge | None = values.get("judge")
    if judge is not None and judge.model.startswith(("http://", "https://")):
        yield "judge.model: is an address; name the model, and give the address as judge.base_url"
    launcher = values.get("launcher")
    if launcher is not None:
        try:
            shlex.split(launcher)
        except ValueError as error:
            yield f"launcher: {error}"

"""The commands that construct, train and study, by name."""

from __future__ import annotations

from eclose.cli.command_entry import CommandEntry

COMMANDS = {
    "construct": CommandEntry(
        "eclose_train.cli.construct:construct",
        "Build counterfactual families for training: a verified response to each question, its counterpart "
        "after one claim of the evidence is changed, and its counterpart for another question.",
    ),
    "select": CommandEntry(
        "eclose_train.cli.select:select",
        "Let every checkpoint answer held-out families, and select the one that answers best.",
    ),
    "switch": CommandEntry(
        "eclose_train.cli.switch:switch",
        "Test whether the preferred step, trace and answer switch with their input: twelve scores a family.",
    ),
    "train": CommandEntry(
        "eclose_train.cli.train:train",
        "Train an adapter on families, each in one forward where the model allows it.",
        # Every field of TrainingArguments is a flag of train, so unknown options are passed on instead of refused.
        {"allow_extra_args": True, "ignore_unknown_options": True},
    ),
    "experiment": CommandEntry(
        "eclose_train.cli.experiment:app",
        "Run a study of backbones, methods and seeds from one plan.",
    ),
    "families": CommandEntry("eclose_train.cli.families:app", "Show, validate and export families."),
    "verifier": CommandEntry(
        "eclose_train.cli.verifier:app",
        "Train verifiers of dependencies: cheap detectors learned from families.",
    ),
}

"""Scored responses of a study: three responses a question, every group, ties, missing scores and missing labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eclose.detectors.scores import DetectorKind, DetectorScore, Unscored
from eclose.files.jsonl import write_records
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, ResponseSource, Trace
from eclose.values.verdict import SettledVerdict, Verdict

VERDICTS = {
    "reliable": Verdict(locally_sound=True, aligned=True, closed=True),
    "path_deviation": Verdict(locally_sound=True, aligned=False, closed=True, complete=False),
    "incomplete_reasoning": Verdict(locally_sound=True, aligned=True, closed=False, complete=False),
    "answer_decoupling": Verdict(locally_sound=True, aligned=True, closed=False, complete=True),
    "closure_failure": Verdict(locally_sound=True, aligned=True, closed=False),
    "locally_unsound": Verdict(locally_sound=False, aligned=False, closed=None),
    "no label L": Verdict(locally_sound=None, aligned=False, closed=True),
    "no label A and C": Verdict(locally_sound=True),
}
SHARES = (0.5, 0.08, 0.06, 0.08, 0.04, 0.16, 0.04, 0.04)
CLASSES = ("path_deviation", "incomplete_reasoning", "answer_decoupling")
GAP = (*CLASSES, "closure_failure")
MODELS = {
    DetectorKind.STATEMENT_SUPPORT: "gpt-small",
    DetectorKind.STEP_SUPPORT: "AlignScore-large",
    DetectorKind.CLOSURE: "t5_xxl_true_nli_mixture@fb749b8",
}

VERIFIER = "linear@0123456789ab"


def make_responses(seed, questions=24, kinds=tuple(VERDICTS), shares=SHARES):
    """Responses and their verdicts; the truth of each is the name of its verdict."""
    rng = np.random.default_rng(seed)
    responses, verdicts, truth = [], [], {}
    for number in range(questions):
        benchmark = ("hotpot", "musique", "2wiki")[number % 3]
        for repeat in range(3):
            kind = str(rng.choice(kinds, p=shares))
            id_ = f"r{number:03}-{repeat}"
            response = Response(id_, f"q{number}", Trace.of("A step."), "x", ResponseSource("qwen3-8b"))
            responses.append(response)
            verdicts.append(SettledVerdict(id_, f"q{number}", VERDICTS[kind], benchmark, response.source))
            truth[id_] = kind
    return responses, verdicts, truth


def make_scores(seed, truth, kinds=tuple(MODELS), missing=0.1, levels=8):
    """Scores with many ties; some responses have a reason instead, and some no record."""
    rng = np.random.default_rng(seed)
    scores = []
    for detector in kinds:
        for id_, kind in truth.items():
            chance = rng.random()
            if chance < missing / 2:
                continue
            if chance < missing:
                reason = Unscored.NO_ANSWER if rng.random() < 0.5 else Unscored.TOO_LONG
                record = DetectorScore(
                    response_id=id_, detector=detector, model=MODELS[detector], score=None, unscored=reason
                )
            else:
                high = levels if kind == "reliable" else levels - 2
                record = DetectorScore(
                    response_id=id_, detector=detector, model=MODELS[detector], score=rng.integers(high) / (levels - 1)
                )
            scores.append(record)
    return scores


def make_verifier_scores(seed, truth, heads=("support", "alignment", "closure"), levels=12, missing=0.1):
    """Scores of a verifier with ties between responses; some lack a head, some a score, some a record."""
    rng = np.random.default_rng(seed)
    scores = []
    for id_, kind in truth.items():
        chance = rng.random()
        if chance < missing / 3:
            continue
        low = 0 if kind == "reliable" else 3
        details = {head: max(0, int(rng.integers(levels)) - low) / (levels - 1) for head in heads}
        if chance < 2 * missing / 3:
            details.pop("closure", None)
        record = DetectorScore(
            response_id=id_,
            detector=DetectorKind.VERIFIER,
            model=VERIFIER,
            score=min(details.values()),
            details={**details, "tokens": 40},
        )
        if 2 * missing / 3 <= chance < missing:
            record = replace(record, score=None, unscored=Unscored.NO_ANSWER, details={})
        scores.append(record)
    return scores


def make_reliable_verdicts(count, benchmark="hotpot"):
    """Responses to different questions with reliable verdicts."""
    responses, verdicts, _ = make_responses(1, questions=count)
    first = [row for row in responses if row.id.endswith("-0")]
    rows = [
        replace(row, verdict=VERDICTS["reliable"], benchmark=benchmark)
        for row in verdicts
        if row.response_id.endswith("-0")
    ]
    return first, rows


def write_labelled_run(folder, responses, verdicts, scores):
    """Write a run with people's verdicts and the scores of a verifier."""
    folder.mkdir()
    ids = {row.instance_id: row.benchmark for row in verdicts}
    instances = [
        Instance(id_, "Who?", (Passage("p", "Title", "Text."),), "x", benchmark=name) for id_, name in ids.items()
    ]
    write_records(folder / "instances.jsonl", instances)
    write_records(folder / "responses.jsonl", responses)
    write_records(folder / "people.jsonl", verdicts)
    write_records(folder / "scores-verifier.jsonl", scores)

"""Closure and step support: which texts reach the model, how scores are combined, and when there is no score."""

from statistics import mean

import pytest

from eclose.detectors.entailment import (
    ClosureDetector,
    PairPlan,
    StepLabels,
    StepSupportDetector,
    score_pairs_by_length,
)
from eclose.detectors.entailment_models import find_entailment_model
from eclose.detectors.scores import DetectorKind, Unscored
from eclose.errors import RecordError
from eclose.readers.response_tasks import ResponseTask
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from tests.detectors.tiny_models import build, save, tokenizer, torch

pytestmark = pytest.mark.torch

PASSAGES = (
    Passage("p1", "The mill", "Ada built the mill in 1840. It burned down."),
    Passage("p2", "Eve", "Eve was born in Lund."),
)
STEPS = ("Ada built the mill [0].", "Let me think.", "Eve was born in Lund [0, 1].")
JUDGED = StepLabels("people", (True, False, True))


def task(steps=STEPS, answer="Ada", question="Who built the mill?", passages=PASSAGES):
    instance = Instance("q1", question, tuple(passages))
    return ResponseTask("r1", instance, Response("r1", "q1", Trace.of(*steps), answer))


@pytest.fixture(scope="module")
def refs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    return {
        name: find_entailment_model(str(save(folder / name, family, **settings)))
        for name, family, settings in (
            ("true", "t5", {}),
            ("nli", "roberta", {}),
            ("short", "roberta", {"positions": 60}),
            ("bert", "modernbert", {}),
        )
    }


@pytest.fixture(scope="module")
def models(refs):
    return {name: ref.load() for name, ref in refs.items()}


def run(detector, work, model, labels=None):
    plan = detector.plan_pairs(work, labels, model)
    return plan.conclude(score_pairs_by_length(model, plan.pairs)) if isinstance(plan, PairPlan) else plan


def entail(premise, hypothesis, positions=512):
    """P(entailment) of the same random RoBERTa, one pair at a time."""
    encoded = tokenizer("roberta")(premise, hypothesis, return_tensors="pt")
    with torch.no_grad():
        logits = build("roberta", positions=positions)(
            input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"]
        ).logits[0]
    return float(1 / sum(((logits - logits[0]).double()).exp()))


def test_closure_of_the_paper(refs, models):
    text = "premise: {} hypothesis: the answer to Who built the mill? is Ada".format("\n".join(STEPS))
    words = tokenizer("t5")
    ids = words(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = build("t5")(input_ids=ids, decoder_input_ids=torch.zeros(1, 1, dtype=torch.long)).logits[0, 0]
    zero_id, one_id = words.convert_tokens_to_ids(["▁", "▁1"])
    record = run(ClosureDetector(model=refs["true"]), task(), models["true"])
    assert record.score == pytest.approx(torch.sigmoid(logits[one_id] - logits[zero_id]).item(), abs=1e-5)
    assert (record.detector, record.model, record.response_id) == (DetectorKind.CLOSURE, refs["true"].name, "r1")
    assert record.details == {"tokens": ids.shape[1], "windows": 1, "probabilities": [record.score]}


@pytest.mark.parametrize("name", ["true", "nli", "bert"])
def test_closure_changes_with_the_answer_the_question_and_the_trace(name, refs, models):
    detector = ClosureDetector(model=refs[name])
    works = [task(), task(answer="Eve"), task(question="Who sold the mill?"), task(steps=STEPS[:2])]
    scores = {run(detector, work, models[name]).score for work in works}
    assert len(scores) == 4
    # It sees no evidence.
    assert run(detector, task(passages=PASSAGES[:1]), models[name]) == run(detector, task(), models[name])


def test_closure_without_trace_or_answer_has_no_score(refs, models):
    detector = ClosureDetector(model=refs["nli"])
    for work, reason in ((task(steps=()), Unscored.NO_TRACE), (task(answer=None), Unscored.NO_ANSWER)):
        record = run(detector, work, models["nli"])
        assert (record.score, record.unscored) == (None, reason)
        assert record.model == refs["nli"].name


def test_a_trace_that_is_too_long_has_no_score_unless_windows_are_asked_for(refs, models):
    steps = ("Ada built it.", "Eve sold it.", "Bo was born in Lund.")
    work = task(steps=steps, question="Who?", answer="Bo")
    record = run(ClosureDetector(model=refs["short"]), work, models["short"])
    hypothesis = "the answer to Who? is Bo"
    tokens = len(tokenizer("roberta")("\n".join(steps), hypothesis)["input_ids"])
    assert tokens > 60
    assert (record.score, record.unscored) == (None, Unscored.TOO_LONG)
    assert record.details == {"tokens": tokens, "limit": 60}
    windowed = run(ClosureDetector(model=refs["short"], windowed=True), work, models["short"])
    halves = [entail("\n".join(steps[:2]), hypothesis, 60), entail(steps[2], hypothesis, 60)]
    assert windowed.details["windows"] == 2
    assert windowed.details["probabilities"] == pytest.approx(halves, abs=1e-5)
    assert windowed.score == max(windowed.details["probabilities"])
    # A hypothesis that fills the model alone leaves no room for any window.
    long_question = run(
        ClosureDetector(model=refs["short"], windowed=True), task(question="Who? " * 30), models["short"]
    )
    assert long_question.unscored is Unscored.TOO_LONG


@pytest.mark.parametrize(("titles", "strip"), [(True, False), (False, False), (True, True)])
def test_support_is_the_mean_over_substantive_steps_of_the_best_passage(titles, strip, refs, models):
    steps = ["Ada built the mill.", "Eve was born in Lund."] if strip else [STEPS[0], STEPS[2]]
    premises = [f"{p.title}\n{p.text}" if titles else p.text for p in PASSAGES]
    table = [[entail(premise, step) for premise in premises] for step in steps]
    detector = StepSupportDetector(model=refs["nli"], titles=titles, strip_citations=strip)
    record = run(detector, task(), models["nli"], JUDGED)
    assert record.score == pytest.approx(mean(max(row) for row in table), abs=1e-5)
    assert record.detector is DetectorKind.STEP_SUPPORT
    details = record.details
    assert [step["step"] for step in details["steps"]] == [1, 3]
    assert [step["passage"] for step in details["steps"]] == [row.index(max(row)) for row in table]
    assert details["minimum"] == pytest.approx(min(max(row) for row in table), abs=1e-5)
    assert (details["step_labels"], details["not_substantive_steps"], details["pairs"]) == ("people", 1, 4)
    assert details["split_premises"] == 0


def test_a_long_passage_is_read_in_windows_of_which_the_best_counts(refs, models):
    sentences = ["Ada built the mill.", "It was old and it burned down in the rain.", "Eve was born in Lund."]
    work = task(steps=("Eve was born.",), passages=[Passage("p", "T", " ".join(sentences))])
    labels = StepLabels("judge", (True,))
    record = run(StepSupportDetector(model=refs["short"], titles=False), work, models["short"], labels)
    scores = [entail(sentence, "Eve was born.", 60) for sentence in sentences]
    assert record.details["pairs"] == 3
    assert record.details["split_premises"] == 1
    assert record.score == pytest.approx(max(scores), abs=1e-5)
    whole = run(StepSupportDetector(model=refs["short"], windowed=False), work, models["short"], labels)
    assert whole.unscored is Unscored.TOO_LONG
    assert whole.details["step"] == 1


@pytest.mark.parametrize(
    ("steps", "labels", "reason"),
    [
        ((), JUDGED, Unscored.NO_TRACE),
        (STEPS, None, Unscored.NO_STEP_LABELS),
        (STEPS, StepLabels("judge", ()), Unscored.NO_STEP_LABELS),
        (STEPS, StepLabels("judge", (False, False, None)), Unscored.NO_STEP_LABELS),
        (STEPS, StepLabels("judge", (False, False, False)), Unscored.NO_SUBSTANTIVE_STEP),
        (("Ada built the mill. " * 20,), StepLabels("judge", (True,)), Unscored.TOO_LONG),
    ],
)
def test_support_without_a_score_says_why(steps, labels, reason, refs, models):
    record = run(StepSupportDetector(model=refs["short"]), task(steps=steps), models["short"], labels)
    assert (record.score, record.unscored) == (None, reason)


def test_undecided_steps_are_left_out_and_counted(refs, models):
    detector = StepSupportDetector(model=refs["nli"])
    record = run(detector, task(), models["nli"], StepLabels("judge", (True, None, False)))
    assert [step["step"] for step in record.details["steps"]] == [1]
    assert record.details["undecided_steps"] == 1


def test_labels_of_another_trace_are_refused(refs, models):
    with pytest.raises(RecordError, match=r"judge labelled 2 steps, and the response has 3"):
        run(StepSupportDetector(model=refs["nli"]), task(), models["nli"], StepLabels("judge", (True, True)))


def test_settings_are_part_of_the_identity(refs):
    base = StepSupportDetector(model=refs["nli"]).identity
    changes = ({"titles": False}, {"strip_citations": True}, {"windowed": False}, {"model": refs["short"]})
    others = [StepSupportDetector(**{"model": refs["nli"], **change}).identity for change in changes]
    assert all(other != base for other in others)
    assert base["model"] == refs["nli"].name
    assert ClosureDetector(model=refs["nli"]).identity != ClosureDetector(model=refs["nli"], windowed=True).identity

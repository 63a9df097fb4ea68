"""Heads on hidden states: trained from families, saved, loaded with the same model alone, silent where undefined."""

import json
import shutil
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from tests.detection.verifier.tiny_causal import save_causal_model
from tests.models.tiny import gguf

from eclose.core.instance import Passage
from eclose.detection.verifier.heads import VerifierHead, VerifierInput
from eclose.detection.verifier.hidden import (
    HEADER_FILE,
    WEIGHTS_FILE,
    load_hidden_verifier,
    read_head_states,
    train_hidden_verifier,
)
from eclose.detection.verifier.hidden_states import find_hidden_model
from eclose.detection.verifier.rows import RowEdit, build_verifier_rows
from eclose.errors import SettingError, UserError
from eclose.stats.ranking import ScoredResponses, auroc
from eclose.world.make.families import make_world_families

ALIGNMENT, CLOSURE, SUPPORT = VerifierHead.ALIGNMENT, VerifierHead.CLOSURE, VerifierHead.SUPPORT
RESPONSE = VerifierInput(
    "Where was the director of Moonstruck born?",
    ("Moonstruck was directed by Norman Jewison.", "Norman Jewison was born in Toronto."),
    "Toronto",
    (Passage("p1", "Moonstruck", "Moonstruck is a film by Norman Jewison."),),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(save_causal_model(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="module")
def rows():
    return build_verifier_rows(islice(make_world_families("short-easy", 7), 6))


@pytest.fixture(scope="module")
def verifier(folder, rows):
    return train_hidden_verifier(rows, find_hidden_model(folder, device="cpu"), heads=list(VerifierHead))


def test_scores_are_probabilities_of_all_heads(verifier):
    other = replace(RESPONSE, question="Who founded Lund?", answer="Oslo")
    first, second = verifier.score([RESPONSE, other])
    assert set(first) == set(VerifierHead)
    assert all(0 < value < 1 for value in first.values())
    assert first[ALIGNMENT] != second[ALIGNMENT]
    assert first[CLOSURE] != second[CLOSURE]
    assert first[SUPPORT] == pytest.approx(second[SUPPORT], abs=1e-5)


def test_alignment_does_not_see_the_answer(verifier):
    answers = ["Toronto", "1987", "a much longer answer than any of the others here", ""]
    # One at a time: in one call all of them would share the state of a single text.
    scores = [verifier.score([replace(RESPONSE, answer=answer)])[0] for answer in answers]
    for values in scores[1:]:
        assert values[ALIGNMENT] == pytest.approx(scores[0][ALIGNMENT], abs=1e-5)
    assert all(abs(values[CLOSURE] - scores[0][CLOSURE]) > 1e-3 for values in scores[1:3])


def test_alignment_and_closure_share_one_forward(verifier, monkeypatch):
    batches = []
    run = verifier.model._run_batch
    monkeypatch.setattr(verifier.model, "_run_batch", lambda texts: batches.append(len(texts)) or run(texts))
    requests = [(head, RESPONSE) for head in (ALIGNMENT, CLOSURE)]
    together = read_head_states(verifier.model, requests)
    assert batches == [1]
    for request, states in zip(requests, together, strict=True):
        np.testing.assert_allclose(read_head_states(verifier.model, [request])[0], states, atol=1e-5)
    assert batches == [1, 1, 1]


def test_scores_do_not_depend_on_the_other_inputs(verifier):
    inputs = [replace(RESPONSE, steps=RESPONSE.steps * count, answer="Lund " * count) for count in (1, 2, 4)]
    inputs += [replace(RESPONSE, question=f"{RESPONSE.question} {number}") for number in range(4)]
    for item, expected in zip(inputs, verifier.score(inputs), strict=True):
        assert verifier.score([item])[0] == pytest.approx(expected, abs=1e-5)


def test_support_is_that_of_the_weakest_step(verifier):
    steps = (*RESPONSE.steps, "Toronto is in Ontario.")
    states = read_head_states(verifier.model, [(SUPPORT, replace(RESPONSE, steps=steps))])[0]
    probabilities = verifier.head_models[SUPPORT].predict(states)
    assert len(set(probabilities)) == 3
    assert verifier.score([replace(RESPONSE, steps=steps)])[0][SUPPORT] == min(probabilities)


def test_a_missing_part_leaves_its_heads_out(verifier):
    inputs = [replace(RESPONSE, steps=()), replace(RESPONSE, answer=" "), replace(RESPONSE, evidence=())]
    assert [set(scores) for scores in verifier.score(inputs)] == [set(), {SUPPORT, ALIGNMENT}, {ALIGNMENT, CLOSURE}]
    assert verifier.score([]) == []


def test_a_text_over_the_limit_is_not_cut(verifier):
    long = "Toronto " * 250
    inputs = [
        replace(RESPONSE, answer=long),
        replace(RESPONSE, question=long),
        replace(RESPONSE, evidence=(Passage("p1", "Long", long),)),
        RESPONSE,
    ]
    scores = verifier.score(inputs)
    assert [set(values) for values in scores] == [
        {SUPPORT, ALIGNMENT},
        {SUPPORT},
        {ALIGNMENT, CLOSURE},
        set(VerifierHead),
    ]
    assert scores[0][ALIGNMENT] == pytest.approx(scores[3][ALIGNMENT], abs=1e-5)


def test_the_limit_itself_is_still_read(folder, rows, verifier):
    response = replace(RESPONSE, steps=RESPONSE.steps * 8)
    length = len(verifier.model.encode_response(response.question, response.steps, response.answer))
    for limit, heads in ((length, {ALIGNMENT, CLOSURE}), (length - 1, {ALIGNMENT})):
        trained = train_hidden_verifier(rows, find_hidden_model(folder, max_tokens=limit, device="cpu"))
        assert set(trained.score([response])[0]) == heads


def test_training_counts_every_row(folder, rows):
    trained = train_hidden_verifier(rows, find_hidden_model(folder, max_tokens=90, device="cpu"))
    for head in trained.heads:
        counts = trained.training["rows"][head.value]
        assert counts["rows"] + counts["over the token limit"] == sum(row.head is head for row in rows)
        assert counts["rows"] > counts["holds"] > 0
    assert trained.training["rows"]["closure"]["over the token limit"] > 0
    assert trained.training["families"] == 6


def test_alignment_and_closure_are_the_default(folder, rows):
    trained = train_hidden_verifier(rows, find_hidden_model(folder, device="cpu"))
    assert trained.heads == (ALIGNMENT, CLOSURE)
    assert trained.name.startswith("hidden@")


def test_rows_of_one_label_are_refused(folder, rows):
    ref = find_hidden_model(folder, device="cpu")
    with pytest.raises(UserError, match="alignment head has no rows of one of the labels"):
        train_hidden_verifier([row for row in rows if row.label], ref)
    with pytest.raises(SettingError, match="at least one"):
        train_hidden_verifier(rows, ref, heads=[])


def test_a_loaded_verifier_gives_the_same_scores(verifier, folder, tmp_path):
    verifier.save(tmp_path / "verifier")
    loaded = load_hidden_verifier(tmp_path / "verifier", model=folder, device="cpu")
    assert loaded.score([RESPONSE]) == verifier.score([RESPONSE])
    assert (loaded.name, loaded.identity, loaded.heads) == (verifier.name, verifier.identity, verifier.heads)
    assert loaded.training == verifier.training
    header = json.loads((tmp_path / "verifier" / HEADER_FILE).read_text())
    assert header["states"]["dtype"] == "float32"
    assert str(tmp_path.parent) not in json.dumps(header)
    with pytest.raises(UserError, match="not an empty folder"):
        verifier.save(tmp_path / "verifier")


def test_a_renamed_model_is_the_same_model(verifier, folder, tmp_path):
    verifier.save(tmp_path / "verifier")
    shutil.copytree(folder, tmp_path / "renamed")
    loaded = load_hidden_verifier(tmp_path / "verifier", model=str(tmp_path / "renamed"), device="cpu")
    assert loaded.name == verifier.name


def test_other_weights_are_refused(verifier, tmp_path):
    verifier.save(tmp_path / "verifier")
    other = save_causal_model(tmp_path / "other", seed=1)
    with pytest.raises(UserError, match="Heads fit one model only"):
        load_hidden_verifier(tmp_path / "verifier", model=str(other))
    with pytest.raises(UserError, match="Give their folder or file"):
        load_hidden_verifier(tmp_path / "verifier")


def test_another_revision_of_a_hub_model_is_refused(verifier, folder, tmp_path, monkeypatch):
    # A model of the hub: its commit is found in the cache, and its name is hashed for want of files.
    module = "eclose.detection.verifier.hidden"
    trained = type(verifier)(
        replace(verifier.ref, weights="hub/model", revision="a" * 40), verifier.head_models, verifier.training
    )
    trained.save(tmp_path / "verifier")
    monkeypatch.setattr(
        f"{module}.find_hidden_model",
        lambda name, *, revision, layer, max_tokens, dtype, device: replace(  # noqa: ARG005
            trained.ref, weights=name, revision=revision
        ),
    )
    # The folder named hub/model does not exist, so the name is one of the hub.
    assert load_hidden_verifier(tmp_path / "verifier").name == trained.name
    with pytest.raises(UserError, match=r"revision a{40}"):
        load_hidden_verifier(tmp_path / "verifier", revision="b" * 40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header["states"].update(template="sha256:0"), "laid out by another release"),
        (lambda header: header["heads"]["closure"].update(bias=0.5), "do not match the fingerprint"),
        (lambda header: header["states"].update(layer=1), "do not match the fingerprint"),
        (lambda header: header.update(kind="linear"), "is a linear verifier"),
        (lambda header: header.update(version=99), "version 99"),
        (lambda header: header.pop("states"), "is no header"),
        (lambda header: header["heads"].update(other={"bias": 0, "penalty": 1}), "holds no heads"),
    ],
)
def test_a_changed_header_is_refused(verifier, folder, tmp_path, change, message):
    path = verifier.save(tmp_path / "verifier") / HEADER_FILE
    header = json.loads(path.read_text())
    change(header)
    path.write_text(json.dumps(header))
    with pytest.raises(UserError, match=message):
        load_hidden_verifier(tmp_path / "verifier", model=folder)


def test_damaged_weights_are_refused(verifier, folder, tmp_path):
    path = verifier.save(tmp_path / "verifier") / WEIGHTS_FILE
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(UserError, match="holds no heads"):
        load_hidden_verifier(tmp_path / "verifier", model=folder)


@pytest.mark.slow
def test_heads_on_a_real_model_hold_on_families_that_it_has_not_seen():
    ref = find_hidden_model(str(gguf()), dtype="float32", device="cpu")
    assert ref.layer == 15
    # Edited rows are left out to save time: parts of two views are told apart, or not, without them.
    train, held_out = (
        [
            row
            for row in build_verifier_rows(islice(make_world_families("short-easy", seed), count), seed=1)
            if row.edit is RowEdit.UNEDITED
        ]
        for seed, count in ((7, 4), (8, 2))
    )
    trained = train_hidden_verifier(train, ref)
    assert trained.model.stops_early
    scores = trained.score([row.input for row in held_out])
    # Alignment takes hundreds of families to learn; here it only has to be scored.
    assert all(ALIGNMENT in values for row, values in zip(held_out, scores, strict=True) if row.head is ALIGNMENT)
    pairs = [(values[CLOSURE], row.label) for row, values in zip(held_out, scores, strict=True) if row.head is CLOSURE]
    values, labels = (np.array(column) for column in zip(*pairs, strict=True))
    assert auroc(ScoredResponses(values, ~labels, labels)) > 0.8

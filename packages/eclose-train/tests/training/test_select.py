"""Which checkpoint is kept, by which count, and that a stopped selection goes on."""

import json
from dataclasses import replace
from fractions import Fraction
from itertools import islice

import pytest

from eclose.calls.local.chat_template import PromptTooLongError
from eclose.calls.model import Decoding, FinishReason, Reply, TokenUsage
from eclose.errors import UserError
from eclose.prompts.response_prompt import PromptOrder, format_completion, parse_question_message
from eclose.stats.rates import Rate
from eclose.values.family import ViewKind, select_fixed_edit
from eclose_train.training.checkpoints import Checkpoint, copy_adapter, find_checkpoints
from eclose_train.training.select import (
    CheckpointAccuracy,
    CheckpointQuestion,
    CheckpointReply,
    CheckpointReplySettings,
    ScoredCheckpoint,
    Selection,
    TrainingOrigin,
    build_checkpoint_questions,
    read_training_origin,
    select_checkpoint,
)
from eclose_world.make.families import make_world_families

GOLD, EVIDENCE, QUESTION = ViewKind
FAMILIES = list(islice(make_world_families("2wiki", 5), 4))
SETTINGS = CheckpointReplySettings(TrainingOrigin("some/model"), "transformers")


def views(family):
    return {GOLD: family.gold, EVIDENCE: select_fixed_edit(family).view, QUESTION: family.question_edit.view}


class Model:
    """Knows every answer, and tells it where its checkpoint is said to be right."""

    def __init__(self, right, finish=FinishReason.STOP):
        self.right = right
        """Step -> kind of view -> in how many families it is right."""
        self.finish = finish
        self.asked = []
        self.name = "scripted"

    def with_adapter(self, folder):
        self.step = int(folder.name.split("-")[1])
        self.asked.append(self.step)
        return self

    def complete_all(self, requests):
        return [Reply(self.say(request), self.finish, TokenUsage(10, 5)) for request in requests]

    def say(self, request):
        assert request.decoding.temperature == 0
        question, passages = parse_question_message(request.messages[-1]["content"])
        for number, family in enumerate(FAMILIES):
            for kind, view in views(family).items():
                texts = [" ".join(passage.text.split()) for passage in view.evidence]
                if view.question == question and [passage.text for passage in passages] == texts:
                    right = number < self.right[self.step][kind]
                    return format_completion(view.trace, view.answer if right else "nobody at all")
        raise AssertionError("this was never to be asked")


def right(gold, evidence, question):
    return {GOLD: gold, EVIDENCE: evidence, QUESTION: question}


@pytest.fixture
def run(tmp_path):
    """Three finished checkpoints and a torn one. 20 sorts before 5 by name, not by number."""
    for step in (5, 10, 20, 30):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_text(f"weights {step}")
        (folder / "adapter_config.json").write_text('{"r": 16}')
        (folder / "optimizer.pt").write_text("large")
        if step != 30:
            (folder / "complete.json").write_text(json.dumps({"step": step}))
    (tmp_path / "recipe.json").write_text(json.dumps({"model": "some/model", "revision": "abc", "demonstrations": 1}))
    return tmp_path


BEST_IS_10 = {5: right(4, 0, 0), 10: right(2, 4, 2), 20: right(4, 1, 0)}


def chosen_by(run, model, **more):
    return select_checkpoint(run, FAMILIES, SETTINGS, lambda: model, **more)


@pytest.mark.slow
def test_the_score_is_half_and_two_quarters(run):
    selection = chosen_by(run, Model(BEST_IS_10))
    assert [scored.checkpoint.step for scored in selection.checkpoints] == [5, 10, 20]
    # 1/2 * 1; 1/2 * 2/4 + 1/4 * 4/4 + 1/4 * 2/4; 1/2 * 1 + 1/4 * 1/4
    expected = [Fraction(1, 2), Fraction(5, 8), Fraction(9, 16)]
    assert [scored.accuracy.score for scored in selection.checkpoints] == expected
    assert selection.best.checkpoint.step == 10
    assert selection.best.accuracy.rates == {GOLD: Rate(2, 4), EVIDENCE: Rate(4, 4), QUESTION: Rate(2, 4)}


def test_ties_go_to_the_earlier_checkpoint(run):
    # 1/2 * 2/4 = 1/4 * 4/4 = 1/4 * 1/4 + 1/4 * 3/4
    equal = Model({5: right(2, 0, 0), 10: right(0, 4, 0), 20: right(0, 1, 3)})
    selection = chosen_by(run, equal)
    assert {scored.accuracy.score for scored in selection.checkpoints} == {Fraction(1, 4)}
    assert selection.best.checkpoint.step == 5


def test_a_tie_is_exact():
    """1/2 * 1/3 + 1/4 * 2/3 is 1/3, whatever floating point makes of it."""

    def scored(step, *hits):
        rates = {kind: Rate(count, 3) for kind, count in zip(ViewKind, hits, strict=True)}
        return ScoredCheckpoint(Checkpoint(step, None), CheckpointAccuracy(rates, {}), "")

    two = (scored(1, 1, 2, 0), scored(2, 1, 1, 1))
    assert two[0].accuracy.score == two[1].accuracy.score == Fraction(1, 3)
    assert Selection(two, (), None).best is two[0]
    assert Selection(two[::-1], (), None).best is two[0]


@pytest.mark.slow
def test_aliases_belong_to_the_original_answer_alone(run):
    """A source whose alias is said everywhere is right on its original input and nowhere else."""

    class Alias(Model):
        def say(self, _):
            return "1. So it is.\nFinal answer: Also Known As"

    families = [replace(family, source=replace(family.source, aliases=("also known as",))) for family in FAMILIES]
    selection = select_checkpoint(run, families, SETTINGS, lambda: Alias({}))
    assert selection.best.accuracy.rates == {GOLD: Rate(4, 4), EVIDENCE: Rate(0, 4), QUESTION: Rate(0, 4)}


def test_the_evidence_edit_is_the_first_of_a_fixed_order_not_of_the_file():
    (edit,) = FAMILIES[0].evidence_edits[:1]
    named = {name: replace(edit, passage_id=name, view=replace(edit.view, answer=name)) for name in "abc"}
    for order in ("bac", "cba", "abc"):
        family = replace(FAMILIES[0], evidence_edits=tuple(named[name] for name in order))
        accepted = [scored.accepted for scored in build_checkpoint_questions(family, SETTINGS.prompt, Decoding())]
        assert accepted == [(family.gold.answer,), ("a",), (family.question_edit.view.answer,)]


def asked(*accepted):
    return CheckpointQuestion("f", GOLD, None, accepted)


def answered(text, finish=FinishReason.STOP):
    return CheckpointReply("f", GOLD, text, finish, 1, 1)


@pytest.mark.parametrize(
    ("text", "finish", "answer"),
    [
        ("1. a\nFinal answer: Lyon", FinishReason.STOP, "Lyon"),
        ("1. a\nFinal answer: Lyon", FinishReason.LENGTH, None),  # might have become "Lyon County"
        ("1. a\nFinal answer: Lyon\nAnd so", FinishReason.LENGTH, "Lyon"),
        ("1. a\n2. b", FinishReason.STOP, None),
        ("1. a\n2. b", FinishReason.LENGTH, None),
        ("1. a\nFinal answer:", FinishReason.STOP, None),
        ("", FinishReason.STOP, None),
        ("1. a\nFinal answer: Lyon", FinishReason.OTHER, None),
    ],
)
def test_an_incomplete_reply_is_wrong_and_counted(text, finish, answer):
    reply = answered(text, finish)
    assert reply.answer == answer
    assert reply.is_correct(asked("Lyon")) == (answer is not None)
    accuracy = CheckpointAccuracy.of([asked("Lyon")], [reply])
    assert accuracy.incomplete[GOLD] == (answer is None)
    assert accuracy.rates[GOLD] == Rate(int(answer is not None), 1)


def silent(finish):
    class Silent(Model):
        def say(self, _):
            return "1. I wonder."

    return Silent({}, finish)


@pytest.mark.slow
@pytest.mark.parametrize(("finish", "advice"), [(FinishReason.STOP, ""), (FinishReason.LENGTH, "36 were cut off")])
def test_no_checkpoint_is_selected_where_nothing_was_answered(run, finish, advice):
    chosen_by(run, Model(BEST_IS_10))
    assert (run / "selected").is_dir()
    short = replace(SETTINGS, max_new_tokens=80)
    selection = select_checkpoint(run, FAMILIES, short, lambda: silent(finish), force=True)
    assert not selection.has_answers
    assert not (run / "selected").exists()  # that of the selection before
    record = json.loads((run / "selection.json").read_text())
    assert record["selected"] is None
    assert record["warning"].startswith("no checkpoint is selected: none of 36 replies submitted an answer")
    assert advice in record["warning"]
    assert [row["step"] for row in record["checkpoints"]] == [5, 10, 20]


@pytest.mark.slow
def test_a_doubtful_selection_says_why(run):
    nothing = {step: right(0, 0, 0) for step in (5, 10, 20)}
    assert chosen_by(run, Model(nothing)).warning.startswith("no reply of any checkpoint is correct; the earliest")

    class Terse(Model):
        def say(self, request):
            text = super().say(request)
            self.count = getattr(self, "count", 0) + 1
            return text if self.count % 4 == 0 else "1. I wonder."

    selection = select_checkpoint(
        run, FAMILIES, replace(SETTINGS, max_new_tokens=9), lambda: Terse(BEST_IS_10), force=True
    )
    assert selection.has_answers
    assert selection.warning == f"9 of 12 replies of {selection.best.checkpoint.folder.name} submitted no answer"
    assert json.loads((run / "selection.json").read_text())["warning"] == selection.warning


@pytest.mark.slow
def test_a_folder_that_is_no_adapter_is_not_removed(run):
    (run / "selected").mkdir()
    (run / "selected" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not an adapter"):
        chosen_by(run, silent(FinishReason.STOP))
    assert (run / "selected" / "notes.txt").is_file()


@pytest.mark.slow
def test_the_record_says_everything(run):
    chosen_by(run, Model(BEST_IS_10))
    record = json.loads((run / "selection.json").read_text())
    assert record["selected"] | {"adapter": ""} == {
        "checkpoint": "checkpoint-10",
        "step": 10,
        "score": 0.625,
        "adapter": "",
        "folder": "selected",
    }
    assert record["checkpoints"][1]["accuracy"]["Gold"] == {"value": 0.5, "hits": 2, "n": 4, "incomplete": 0}
    assert [scored["step"] for scored in record["checkpoints"]] == [5, 10, 20]
    assert record["torn"] == ["checkpoint-30"]
    assert record["families"]["n"] == 4
    assert record["settings"] | {"versions": None, "prompt": None} == {
        "model": "some/model",
        "revision": None,
        "dtype": "auto",
        "demonstrations": 2,
        "order": "evidence_first",
        "prompt": None,
        "decoding": "greedy",
        "max_new_tokens": 512,
        "engine": "transformers",
        "versions": None,
    }
    assert record["settings"]["prompt"] == SETTINGS.prompt.hash
    assert sorted(record["settings"]["versions"]) == ["peft", "torch", "transformers"]


@pytest.mark.slow
def test_every_reply_is_kept_with_what_was_made_of_it(run):
    chosen_by(run, Model(BEST_IS_10))
    lines = [json.loads(line) for line in (run / "selection.replies.jsonl").read_text().splitlines()]
    assert len(lines) == 3 * 4 * 3
    record = json.loads((run / "selection.json").read_text())
    for checkpoint in record["checkpoints"]:
        replies = [line for line in lines if line["key"] == checkpoint["key"]]
        assert {line["checkpoint"] for line in replies} == {checkpoint["checkpoint"]}
        for kind, accuracy in checkpoint["accuracy"].items():
            assert sum(line["correct"] for line in replies if line["view"] == kind) == accuracy["hits"]
    first = lines[0]
    assert first["family_id"] == FAMILIES[0].id
    assert first["accepted"] == [FAMILIES[0].gold.answer]
    assert first["answer"] == FAMILIES[0].gold.answer
    assert first["finish"] == "stop"


@pytest.mark.slow
def test_the_chosen_adapter_is_copied_whole_and_without_training_state(run):
    selection = chosen_by(run, Model(BEST_IS_10))
    assert selection.adapter == run / "selected"
    assert sorted(path.name for path in selection.adapter.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert (selection.adapter / "adapter_model.safetensors").read_text() == "weights 10"
    assert not list(run.glob(".selected*"))
    assert selection.adapter.stat().st_mode == (run / "checkpoint-10").stat().st_mode


def test_a_copy_replaces_an_adapter_and_nothing_else(run, tmp_path):
    target = run / "selected"
    (run / ".selected.old").mkdir()  # what a crash left
    copy_adapter(run / "checkpoint-5", target)
    copy_adapter(run / "checkpoint-20", target)
    assert (target / "adapter_model.safetensors").read_text() == "weights 20"
    assert not list(run.glob(".selected*"))
    (target / "adapter_config.json").unlink()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not an adapter, so it is not replaced"):
        copy_adapter(run / "checkpoint-5", target)
    assert (target / "notes.txt").read_text() == "mine"


@pytest.mark.slow
def test_a_stopped_selection_goes_on(run):
    class Dying(Model):
        def complete_all(self, requests):
            if self.step == 10:
                raise KeyboardInterrupt
            return super().complete_all(requests)

    first = Dying(BEST_IS_10)
    with pytest.raises(KeyboardInterrupt):
        chosen_by(run, first)
    assert not (run / "selection.json").exists()
    assert first.asked == [5, 10]
    second = Model(BEST_IS_10)
    names = []
    selection = chosen_by(run, second, on_checkpoint=names.append)
    assert second.asked == [10, 20]
    assert names == ["checkpoint-10", "checkpoint-20"]
    assert selection.best.checkpoint.step == 10


@pytest.mark.slow
def test_replies_that_are_not_all_there_are_asked_for_again(run):
    chosen_by(run, Model(BEST_IS_10))
    path = run / "selection.replies.jsonl"
    before = path.read_text()
    path.write_text("".join(before.splitlines(keepends=True)[1:]))
    again = Model(BEST_IS_10)
    assert chosen_by(run, again).best.checkpoint.step == 10
    assert again.asked == [5]
    assert sorted(path.read_text().splitlines()) == sorted(before.splitlines())


def not_loaded():
    raise AssertionError("there is nothing left to ask")


@pytest.mark.slow
def test_a_finished_selection_needs_no_model_and_changes_nothing(run):
    chosen_by(run, Model(BEST_IS_10))
    files = {path: (path.read_bytes(), path.stat().st_ino) for path in run.rglob("*") if path.is_file()}
    assert select_checkpoint(run, FAMILIES, SETTINGS, not_loaded).best.checkpoint.step == 10
    now = {path: (path.read_bytes(), path.stat().st_ino) for path in run.rglob("*") if path.is_file()}
    for path in files:
        assert now[path][0] == files[path][0]
        assert now[path][1] == files[path][1] or path.name == "selection.json"


@pytest.mark.slow
def test_training_that_went_on_adds_a_candidate(run):
    chosen_by(run, Model(BEST_IS_10))
    (run / "checkpoint-30" / "complete.json").write_text("{}")
    more = Model({**BEST_IS_10, 30: right(4, 4, 4)})
    assert chosen_by(run, more).best.checkpoint.step == 30
    assert more.asked == [30]
    assert (run / "selected" / "adapter_model.safetensors").read_text() == "weights 30"


@pytest.mark.slow
def test_another_adapter_in_the_same_folder_is_asked_anew(run):
    chosen_by(run, Model(BEST_IS_10))
    (run / "checkpoint-5" / "adapter_model.safetensors").write_text("other weights")
    again = Model({**BEST_IS_10, 5: right(4, 4, 4)})
    assert chosen_by(run, again).best.checkpoint.step == 5
    assert again.asked == [5]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (replace(SETTINGS, max_new_tokens=64), "max_new_tokens"),
        (replace(SETTINGS, engine="vllm"), "engine, versions"),
        (CheckpointReplySettings(TrainingOrigin("other/model"), "transformers"), "model"),
        (
            CheckpointReplySettings(TrainingOrigin("some/model", order=PromptOrder.QUESTION_FIRST), "transformers"),
            "order, prompt",
        ),
    ],
)
def test_other_settings_are_refused_unless_forced(run, settings, names):
    chosen_by(run, Model(BEST_IS_10))
    with pytest.raises(UserError, match=rf"with other {names}(, families)?\. Pass --force"):
        select_checkpoint(run, FAMILIES, settings, not_loaded)
    other = Model({5: right(0, 0, 0), 10: right(0, 0, 0), 20: right(1, 1, 1)})
    assert select_checkpoint(run, FAMILIES, settings, lambda: other, force=True).best.checkpoint.step == 20
    assert other.asked == [5, 10, 20]
    # And back: the replies of before are still there.
    assert select_checkpoint(run, FAMILIES, SETTINGS, not_loaded, force=True).best.checkpoint.step == 10


@pytest.mark.slow
def test_other_families_are_refused_unless_forced(run):
    chosen_by(run, Model(BEST_IS_10))
    with pytest.raises(UserError, match="with other families"):
        select_checkpoint(run, FAMILIES[:3], SETTINGS, not_loaded)


@pytest.mark.slow
def test_what_counts_as_right_is_judged_anew(run):
    chosen_by(run, Model(BEST_IS_10))
    families = [replace(family, source=replace(family.source, aliases=("nobody at all",))) for family in FAMILIES]
    selection = select_checkpoint(run, families, SETTINGS, not_loaded)
    assert [scored.accuracy.rates[GOLD] for scored in selection.checkpoints] == [Rate(4, 4)] * 3
    lines = [json.loads(line) for line in (run / "selection.replies.jsonl").read_text().splitlines()]
    assert all(line["correct"] for line in lines if line["view"] == "Gold")


@pytest.mark.slow
def test_damaged_files_are_sentences(run):
    chosen_by(run, Model(BEST_IS_10))
    (run / "selection.json").write_text("{")
    with pytest.raises(UserError, match="Move it away, or pass --force"):
        select_checkpoint(run, FAMILIES, SETTINGS, not_loaded)
    replies = run / "selection.replies.jsonl"
    replies.write_text(replies.read_text()[:-30])
    with pytest.raises(UserError, match="line 36"):
        select_checkpoint(run, FAMILIES, SETTINGS, not_loaded, force=True)
    replies.write_text('{"some": "thing"}\n')
    with pytest.raises(UserError, match="line 1: is not a reply of a selection"):
        select_checkpoint(run, FAMILIES, SETTINGS, not_loaded, force=True)


@pytest.mark.slow
def test_a_family_that_is_too_long_is_named(run):
    class Small(Model):
        def complete_all(self, _):
            raise PromptTooLongError(4, 9_000, 8_192)

    with pytest.raises(UserError, match=rf"family {FAMILIES[1].id!r}, Evidence-CF: 9,000 prompt tokens leave no room"):
        chosen_by(run, Small({}))


def test_candidates_are_finished_and_in_order(run, tmp_path):
    candidates, torn = find_checkpoints(run)
    assert ([checkpoint.step for checkpoint in candidates], torn) == ([5, 10, 20], ["checkpoint-30"])
    (run / "checkpoint-best").mkdir()
    (run / "checkpoint-7").write_text("no folder")
    assert find_checkpoints(run) == (candidates, torn)
    (run / "checkpoint-10" / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match="checkpoint-10: has no adapter_model"):
        find_checkpoints(run)
    for step in (5, 10, 20):
        (run / f"checkpoint-{step}" / "complete.json").unlink()
    with pytest.raises(UserError, match=r"no finished checkpoint \(interrupted: checkpoint-10, checkpoint-20"):
        find_checkpoints(run)


def test_no_families_no_selection(run):
    with pytest.raises(UserError, match="no family to compare checkpoints on"):
        select_checkpoint(run, [], SETTINGS, not_loaded)


def test_the_recipe_says_how_to_ask(run):
    assert read_training_origin(run) == TrainingOrigin("some/model", "abc", 1, PromptOrder.EVIDENCE_FIRST, "auto")
    assert read_training_origin(run, "elsewhere/model") == TrainingOrigin("elsewhere/model", None, 1)
    (run / "recipe.json").write_text('{"model": 7, "order": "sideways"}')
    with pytest.raises(UserError, match=r"recipe\.json: model: .*order: .*Is .* the folder of a training run\?"):
        read_training_origin(run)
    (run / "recipe.json").unlink()
    with pytest.raises(UserError, match="no such file"):
        read_training_origin(run)

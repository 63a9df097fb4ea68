"""AlignScore: chunks, scores and the conversion of a Lightning checkpoint, against the published computation."""

import json
import os
from statistics import mean

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.detectors.align_score import AlignScoreDetector, convert_align_score, split_into_chunks
from eclose.detectors.entailment import StepLabels, score_pairs_by_length
from eclose.detectors.entailment_models import find_entailment_model
from eclose.detectors.scores import DetectorKind
from eclose.errors import SettingError, UserError
from eclose.readers.response_tasks import ResponseTask
from eclose.values.instance import Instance, Passage
from eclose.values.response import Response, Trace
from tests.detectors.tiny_models import build, save, tokenizer, torch, transformers

pytestmark = pytest.mark.torch

POSITIONS = 120


class PublishedModel(torch.nn.Module):
    """The layout of the published model: an encoder with its pooler, and three heads on the pooled token."""

    def __init__(self):
        super().__init__()
        config = build("roberta", positions=POSITIONS).config
        torch.manual_seed(5)
        self.base_model = transformers.RobertaModel(config)
        self.mlm_head = transformers.RobertaForMaskedLM(config).lm_head
        self.bin_layer = torch.nn.Linear(config.hidden_size, 2)
        self.tri_layer = torch.nn.Linear(config.hidden_size, 3)
        self.reg_layer = torch.nn.Linear(config.hidden_size, 1)
        self.tri_layer.weight.data *= 4

    def aligned(self, premise, hypothesis):
        """Softmax over the three-way head, first entry."""
        encoded = tokenizer("roberta")(premise, hypothesis, return_tensors="pt")
        with torch.no_grad():
            output = self.base_model(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"])
            return torch.softmax(self.tri_layer(output.pooler_output), dim=-1)[0, 0].item()


@pytest.fixture(scope="module")
def published():
    return PublishedModel().eval()


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return save(tmp_path_factory.mktemp("backbone") / "roberta-large", "roberta", positions=POSITIONS)


@pytest.fixture(scope="module")
def checkpoint(published, tmp_path_factory):
    """As Lightning writes it, with a buffer that newer versions of Transformers no longer save."""
    path = tmp_path_factory.mktemp("lightning") / "AlignScore-tiny.ckpt"
    state = published.state_dict() | {"base_model.embeddings.position_ids": torch.arange(POSITIONS + 2)[None]}
    content = {
        "epoch": 2,
        "pytorch-lightning_version": "1.7.7",
        "state_dict": state,
        "optimizer_states": [{"state": {0: {"step": torch.tensor(3.0)}}}],
        "hyper_parameters": {"model": "roberta-large", "adam_epsilon": 1e-6},
    }
    torch.save(content, path)
    return path


@pytest.fixture(scope="module")
def converted(checkpoint, backbone, tmp_path_factory):
    return convert_align_score(checkpoint, str(backbone), tmp_path_factory.mktemp("converted") / "alignscore")


def test_the_command_converts_into_a_folder_of_that_name(checkpoint, backbone, converted, tmp_path):
    out = tmp_path / "alignscore-tiny"
    arguments = ["detect", "convert", str(checkpoint), "--backbone", str(backbone), "--out"]
    result = CliRunner().invoke(app, [*arguments, str(out)])
    assert result.exit_code == 0, result.exception
    assert (out / "model.safetensors").read_bytes() == (converted / "model.safetensors").read_bytes()
    refused = CliRunner().invoke(app, [*arguments, str(tmp_path / "other")])
    assert isinstance(refused.exception, SettingError)
    assert not (tmp_path / "other").exists()


def test_chunks_by_the_published_rule():
    sentences = [f"Sentence {number} has exactly six words." for number in range(10)]
    text = " ".join(sentences)
    assert split_into_chunks(text) == (text,)
    # 60 words in parts of 25 make 60 // 25 + 1 = 3 parts, and 10 // 3 = 3 sentences a chunk.
    assert split_into_chunks(text, 25) == tuple(" ".join(sentences[i : i + 3]) for i in (0, 3, 6, 9))
    assert split_into_chunks(text, 1) == tuple(sentences)
    # At a multiple of the size, a part more: 60 // 60 + 1 = 2.
    assert len(split_into_chunks(text, 60)) == 2
    assert split_into_chunks("") == ("",)


def score(detector, model, steps, passages, labels):
    instance = Instance("q", "Who?", passages)
    task = ResponseTask("r", instance, Response("r", "q", Trace.of(*steps), "Ada"))
    plan = detector.plan_pairs(task, StepLabels("judge-1", labels), model)
    return plan.conclude(score_pairs_by_length(model, plan.pairs))


def test_scores_equal_the_published_computation(published, converted):
    ref = find_entailment_model(str(converted))
    model = ref.load()
    passages = (
        Passage("p1", "Mill", "Ada built the mill. It burned down. Eve sold it. Bo was late."),
        Passage("p2", "Eve", "Eve was born in Lund. She was old."),
    )
    steps = ("Ada built the mill. It was old.", "So it goes.", "Eve was born in Lund.")
    # Written out by hand, as the published code would split and pair them: 14 words of p1 in parts of 7 are 3 parts,
    # so one sentence a chunk; 9 words of p2 are 2 parts. The title counts as a word of the first sentence.
    chunks = [
        ["Mill\nAda built the mill.", "It burned down.", "Eve sold it.", "Bo was late."],
        ["Eve\nEve was born in Lund.", "She was old."],
    ]
    sentences = [["Ada built the mill.", "It was old."], ["Eve was born in Lund."]]
    expected = []
    for step in sentences:
        by_passage = []
        for passage in chunks:
            best = [max(published.aligned(chunk, sentence) for chunk in passage) for sentence in step]
            by_passage.append(sum(best) / len(best))
        expected.append(max(by_passage))
    record = score(AlignScoreDetector(model=ref, chunk_words=7), model, steps, passages, (True, False, True))
    assert record.score == pytest.approx(mean(expected), abs=1e-5)
    assert [step["score"] for step in record.details["steps"]] == pytest.approx(expected, abs=1e-5)
    assert abs(expected[0] - expected[1]) > 1e-3
    assert (record.detector, record.model) == (DetectorKind.STEP_SUPPORT, ref.name)
    assert record.details["step_labels"] == "judge-1"
    assert record.details["pairs"] == 2 * 6 + 6
    assert record.details["split_premises"] == 0


def test_a_chunk_of_too_many_tokens_is_read_in_windows_and_counted(published, converted):
    ref = find_entailment_model(str(converted))
    model = ref.load()
    sentences = [
        "Ada built the mill, and it was old and it was cold and dark.",
        "It burned down.",
        "Eve was born in Lund in 1840 and left.",
    ]
    passages = (Passage("p", "T", " ".join(sentences)),)
    detector = AlignScoreDetector(model=ref, titles=False)
    record = score(detector, model, ("Eve was born in Lund.",), passages, (True,))
    assert len(tokenizer("roberta")(passages[0].text, "Eve was born in Lund.")["input_ids"]) > POSITIONS
    windows = [" ".join(sentences[:2]), sentences[2]]
    expected = max(published.aligned(window, "Eve was born in Lund.") for window in windows)
    assert record.score == pytest.approx(expected, abs=1e-5)
    assert (record.details["split_premises"], record.details["pairs"]) == (1, 2)


def test_identity_says_how_it_was_computed(converted):
    identity = AlignScoreDetector(model=find_entailment_model(str(converted))).identity
    assert identity["method"] == "alignscore nli_sp"
    assert identity["chunk_words"] == 350
    assert identity["sentences"] == "eclose.values.segmentation"
    assert identity["titles"] is True
    with pytest.raises(SettingError):
        AlignScoreDetector(model=find_entailment_model(str(converted)), chunk_words=0)


def test_the_converted_folder_is_a_plain_classifier(converted, checkpoint, published):
    assert {path.suffix for path in converted.iterdir()} <= {".json", ".safetensors"}
    with safe_open(converted / "model.safetensors", "pt") as file:
        names = set(file.keys())
        assert torch.equal(file.get_tensor("classifier.out_proj.weight"), published.tri_layer.weight)
    assert not any(part in name for name in names for part in ("mlm", "bin_layer", "pooler", "position_ids"))
    source = json.loads((converted / "conversion.json").read_text())
    assert source["file"] == checkpoint.name
    assert source["hash"].startswith("sha256:")
    assert find_entailment_model(str(converted)).label == 0


class Command:
    """What a malicious pickle runs when it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_checkpoint_that_needs_code_is_refused_and_runs_nothing(backbone, tmp_path, published):
    path, mark = tmp_path / "evil.ckpt", tmp_path / "ran"
    torch.save({"state_dict": published.state_dict(), "callbacks": Command(mark)}, path)
    with pytest.raises(UserError, match=r"evil\.ckpt: cannot be read without running code from it"):
        convert_align_score(path, str(backbone), tmp_path / "out")
    assert not mark.exists()
    assert not (tmp_path / "out").exists()


def test_what_is_no_checkpoint_of_this_backbone_is_refused(backbone, checkpoint, published, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(UserError, match="no such file"):
        convert_align_score(tmp_path / "none.ckpt", str(backbone), out)
    (tmp_path / "text.ckpt").write_text("hello")
    with pytest.raises(UserError, match="cannot be read"):
        convert_align_score(tmp_path / "text.ckpt", str(backbone), out)
    torch.save({"weights": torch.ones(2)}, tmp_path / "other.ckpt")
    with pytest.raises(UserError, match="holds no state_dict"):
        convert_align_score(tmp_path / "other.ckpt", str(backbone), out)
    torch.save({"state_dict": {"a": torch.ones(2)}}, tmp_path / "else.ckpt")
    with pytest.raises(UserError, match=r"lacks base_model\.pooler\.dense\.weight"):
        convert_align_score(tmp_path / "else.ckpt", str(backbone), out)
    with pytest.raises(UserError, match=r"does not fit .*position_embeddings.*\(122, 32\).*\(52, 32\)"):
        convert_align_score(checkpoint, str(save(tmp_path / "small", "roberta", positions=50)), out)
    with pytest.raises(UserError, match="is a deberta-v2, and AlignScore is on RoBERTa"):
        convert_align_score(checkpoint, str(save(tmp_path / "deberta", "deberta")), out)
    state = {name: value for name, value in published.state_dict().items() if "layer.1" not in name}
    torch.save({"state_dict": state}, tmp_path / "part.ckpt")
    with pytest.raises(UserError, match="is None in the checkpoint"):
        convert_align_score(tmp_path / "part.ckpt", str(backbone), out)
    assert not out.exists()
    with pytest.raises(UserError, match="not an empty folder"):
        convert_align_score(checkpoint, str(backbone), backbone)

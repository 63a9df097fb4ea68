"""Objectives against the paper: weights, analytic values, and a loss written down again from its formulas."""

from math import exp, log

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from eclose.prompts.response_prompt import ResponsePrompt
from eclose.values.family import ViewKind
from eclose_train.families.comparisons import Direction, Edge
from eclose_train.likelihood.family_scores import (
    FamilyScores,
    anchor_score_name,
    comparison_side_name,
    response_score_name,
)
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.score import ScoringStrategy, mean_logprobs
from eclose_train.likelihood.spans import ScoredTokens
from eclose_train.training.objective import (
    MarginHinge,
    TrainingMethod,
    TrainingObjective,
    build_objective,
    smooth_hinge,
)
from tests.training.small import short_families, small_model, small_tokenizer

pytestmark = pytest.mark.torch

WITH_MARGINS = [method for method in TrainingMethod if method not in (TrainingMethod.SFT, TrainingMethod.CF_SFT)]


def prepared(number=0, edit=0, tokens=ScoredTokens.FULL):
    """A family with an edit that leaves a shared prefix, ready to be scored."""
    family = short_families(6)[number]
    assert family.evidence_edits[edit].first_affected_step > 0
    renderer = TokenPathRenderer(small_tokenizer(), ResponsePrompt(0))
    return FamilyScores(family, family.evidence_edits[edit], renderer, tokens)


def values_for(objective, value=-1.0):
    """The same score for everything an objective could ask for."""
    names = [anchor_score_name(kind) for kind in ViewKind]
    names += [name for term in objective.terms for name in (term.preferred, term.dispreferred)]
    return {name: torch.tensor(value, dtype=torch.float64) for name in names}


# ---- weights ----


@pytest.mark.parametrize("total", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("method", WITH_MARGINS)
def test_margin_weights_sum_to_the_margin_weight(method, total):
    assert sum(term.weight for term in build_objective(method, total).terms) == pytest.approx(total)


@pytest.mark.parametrize("method", [TrainingMethod.SFT, TrainingMethod.CF_SFT])
def test_generation_alone_has_no_margins(method):
    objective = build_objective(method)
    assert objective.terms == ()
    assert objective.loss(values_for(objective, -2.5)).total == 2.5


def test_response_margins_weigh_two_two_one_one():
    weights = {term.name: 6 * term.weight for term in build_objective(TrainingMethod.RESPONSE_MARGIN).terms}
    assert weights == pytest.approx({"Re_o": 2, "Re_c": 2, "Rq_o": 1, "Rq_c": 1})


def test_response_margins_prefer_what_the_input_warrants():
    """The four rows of the paper's table: input, response to prefer, response to pass over."""
    gold, evidence, question = ViewKind
    rows = {
        term.name: (term.preferred, term.dispreferred) for term in build_objective(TrainingMethod.RESPONSE_MARGIN).terms
    }
    assert rows == {
        "Re_o": (anchor_score_name(gold), response_score_name(gold, evidence)),
        "Re_c": (anchor_score_name(evidence), response_score_name(evidence, gold)),
        "Rq_o": (anchor_score_name(gold), response_score_name(gold, question)),
        "Rq_c": (anchor_score_name(question), response_score_name(question, gold)),
    }


@pytest.mark.parametrize(
    ("method", "terms", "weight"),
    [
        (TrainingMethod.E_CLOSURE, "S_o S_c T_o T_c C_o C_c", 1 / 6),
        (TrainingMethod.WITHOUT_SUPPORT, "T_o T_c C_o C_c", 1 / 4),
        (TrainingMethod.WITHOUT_ALIGNMENT, "S_o S_c C_o C_c", 1 / 4),
        (TrainingMethod.WITHOUT_CLOSURE, "S_o S_c T_o T_c", 1 / 4),
        (TrainingMethod.ONE_SIDED, "S_o T_o C_o", 1 / 3),
    ],
)
def test_ablations_are_the_papers_table(method, terms, weight):
    objective = build_objective(method)
    assert [term.name for term in objective.terms] == terms.split()
    assert [term.weight for term in objective.terms] == pytest.approx([weight] * len(objective.terms))
    assert objective.anchors == tuple(ViewKind)


@pytest.mark.parametrize(
    ("method", "count"),
    [
        (TrainingMethod.SFT, 1),
        (TrainingMethod.CF_SFT, 3),
        (TrainingMethod.RESPONSE_MARGIN, 7),
        (TrainingMethod.E_CLOSURE, 15),
        (TrainingMethod.WITHOUT_SUPPORT, 11),
        (TrainingMethod.WITHOUT_ALIGNMENT, 11),
        (TrainingMethod.WITHOUT_CLOSURE, 11),
        (TrainingMethod.ONE_SIDED, 9),
    ],
)
def test_scores_are_those_an_objective_needs_each_once(method, count):
    objective = build_objective(method)
    names = [score.name for score in objective.scores(prepared())]
    assert len(names) == len(set(names)) == count
    assert set(names) == {anchor_score_name(kind) for kind in objective.anchors} | {
        name for term in objective.terms for name in (term.preferred, term.dispreferred)
    }


# ---- values ----


@pytest.mark.parametrize("method", WITH_MARGINS)
@pytest.mark.parametrize(("gamma", "beta"), [(0.5, 0.1), (2.0, 0.7)])
def test_equal_candidates_cost_what_the_formula_says(method, gamma, beta):
    """Margins of 0 cost beta log(1 + exp(gamma / beta)) together, whatever the number of comparisons."""
    objective = build_objective(method, 0.7, MarginHinge(gamma, beta))
    loss = objective.loss(values_for(objective, -1.25))
    assert all(margin == 0 for margin in loss.margins.values())
    assert loss.generation == 1.25
    assert loss.margin.item() == pytest.approx(0.7 * beta * log(1 + exp(gamma / beta)), rel=1e-12)
    assert loss.total.item() == pytest.approx(loss.generation.item() + loss.margin.item(), rel=1e-12)


def test_the_hinge_is_a_ramp_without_a_corner():
    ramp = smooth_hinge(torch.tensor([-50.0, 0.0, 50.0], dtype=torch.float64), 0.1)
    assert ramp.tolist() == pytest.approx([0.0, 0.1 * log(2), 50.0], abs=1e-12)


def test_sft_is_e_closure_without_comparisons_and_with_one_anchor():
    bare = TrainingObjective(TrainingMethod.E_CLOSURE, (ViewKind.GOLD,), ())
    sft = build_objective(TrainingMethod.SFT)
    pack = prepared()
    assert [score.name for score in bare.scores(pack)] == [score.name for score in sft.scores(pack)]
    values = mean_logprobs(small_model(), sft.scores(pack), ScoringStrategy.TREE)
    named = {anchor_score_name(ViewKind.GOLD): values[0]}
    assert bare.loss(named).total == sft.loss(named).total == -values[0]


@pytest.mark.parametrize("edge", Edge)
@pytest.mark.parametrize("direction", Direction)
def test_exchanging_the_sides_flips_a_margin(edge, direction):
    objective = build_objective(TrainingMethod.E_CLOSURE)
    generator = torch.Generator().manual_seed(3)
    values = {name: torch.randn((), generator=generator) for name in values_for(objective)}
    sides = [comparison_side_name(edge, direction, preferred=preferred) for preferred in (True, False)]
    exchanged = {**values, sides[0]: values[sides[1]], sides[1]: values[sides[0]]}
    name = f"{edge.value}_{direction.value}"
    before, after = objective.loss(values), objective.loss(exchanged)
    assert after.margins.pop(name) == -before.margins.pop(name) != 0
    assert after.margins == before.margins


def test_every_edge_may_have_a_hinge_of_its_own():
    hinges = {
        "S": MarginHinge(0.2, 0.1),
        "T": MarginHinge(0.4, 0.2),
        "C": MarginHinge(0.8, 0.3),
        "response": MarginHinge(1.0, 0.5),
    }
    objective = build_objective(TrainingMethod.E_CLOSURE, 1.0, hinges)
    loss = objective.loss(values_for(objective))
    expected = sum(2 / 6 * hinges[e].smoothing * log(1 + exp(hinges[e].target / hinges[e].smoothing)) for e in "STC")
    assert loss.margin.item() == pytest.approx(expected, rel=1e-12)
    assert {name: loss.targets[name] for name in ("S_c", "T_o", "C_c")} == {"S_c": 0.2, "T_o": 0.4, "C_c": 0.8}
    whole = build_objective(TrainingMethod.RESPONSE_MARGIN, 1.0, hinges)
    assert whole.loss(values_for(whole)).margin.item() == pytest.approx(0.5 * log(1 + exp(2)), rel=1e-12)


@pytest.mark.parametrize(("target", "smoothing"), [(0.0, 0.1), (-0.5, 0.1), (0.5, 0.0)])
def test_a_hinge_must_ask_for_something(target, smoothing):
    with pytest.raises(ValueError, match="positive"):
        MarginHinge(target, smoothing)


# ---- the whole loss, written again from appendices C and D.3 ----


def spoken(model, question, evidence, pieces):
    """Mean log-probability of the pieces that count, by one forward over the plain sequence."""
    tokenizer = small_tokenizer()
    prompt = tokenizer.apply_chat_template(
        ResponsePrompt(0).messages(question, evidence), add_generation_prompt=True, tokenize=False
    )
    ids = list(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    counted = []
    for text, counts in pieces:
        tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        counted += [len(ids) + position for position in range(len(tokens)) if counts]
        ids += tokens
    logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(logprobs[position - 1, ids[position]] for position in counted) / len(counted)


def steps(texts, counts, numbers=False):
    segments = []
    for number, text in enumerate(texts, start=1):
        segments += [(f"{number}.", numbers), (f" {text}\n", counts)]
    return segments


class FromThePaper:
    """F^S, F^T, F^C and S^rsp of one family."""

    def __init__(self, model, family, edit, content=False):
        self.model, self.content = model, content
        self.q, self.evidence = family.gold.question, family.gold.evidence
        self.other_q, self.other_evidence = family.question_edit.view.question, edit.view.evidence
        self.gold, self.e, self.asked = family.gold, edit.view, family.question_edit.view
        self.t = edit.first_affected_step

    def step(self, trace, evidence):
        prefix, step = self.gold.trace.texts[: self.t], trace.texts[self.t]
        pieces = [*steps(prefix, False), (f"{self.t + 1}.", False), (f" {step}\n", True)]
        return spoken(self.model, self.q, evidence, pieces)

    def trace(self, trace, question):
        return spoken(self.model, question, self.evidence, steps(trace.texts, True))

    def answer(self, answer, trace):
        pieces = [*steps(trace.texts, False), ("Final answer:", False), (f" {answer}", True)]
        return spoken(self.model, self.q, self.evidence, pieces)

    def response(self, view, question, evidence):
        layout = not self.content
        pieces = [
            *steps(view.trace.texts, True, layout),
            ("Final answer:", layout),
            (f" {view.answer}", True),
            ("<|im_end|>", layout),
        ]
        return spoken(self.model, question, evidence, pieces)

    def generation(self):
        return -1 / 3 * sum(self.anchors().values())

    def anchors(self):
        return {
            "o": self.response(self.gold, self.q, self.evidence),
            "e": self.response(self.e, self.q, self.other_evidence),
            "q": self.response(self.asked, self.other_q, self.evidence),
        }

    def margins(self):
        gold, e, objective = self.gold, self.e, self.asked
        pairs = {
            "S_o": (self.step(gold.trace, self.evidence), self.step(e.trace, self.evidence)),
            "S_c": (self.step(e.trace, self.other_evidence), self.step(gold.trace, self.other_evidence)),
            "T_o": (self.trace(gold.trace, self.q), self.trace(objective.trace, self.q)),
            "T_c": (self.trace(objective.trace, self.other_q), self.trace(gold.trace, self.other_q)),
            "C_o": (self.answer(gold.answer, gold.trace), self.answer(e.answer, gold.trace)),
            "C_c": (self.answer(e.answer, e.trace), self.answer(gold.answer, e.trace)),
        }
        return {name: preferred - missed for name, (preferred, missed) in pairs.items()}

    def response_margins(self):
        anchors = self.anchors()
        return {
            "Re_o": anchors["o"] - self.response(self.e, self.q, self.evidence),
            "Re_c": anchors["e"] - self.response(self.gold, self.q, self.other_evidence),
            "Rq_o": anchors["o"] - self.response(self.asked, self.q, self.evidence),
            "Rq_c": anchors["q"] - self.response(self.gold, self.other_q, self.evidence),
        }


def losses_of_the_paper(paper, weight, gamma, beta):
    def penalty(margin):
        return beta * torch.log(1 + torch.exp((gamma - margin) / beta))

    generation = paper.generation()
    phi = {name: penalty(margin) for name, margin in paper.margins().items()}
    psi = {name: penalty(margin) for name, margin in paper.response_margins().items()}
    values = {
        "sft": -paper.anchors()["o"],
        "cf_sft": generation,
        "rm": generation + weight / 6 * (2 * psi["Re_o"] + 2 * psi["Re_c"] + psi["Rq_o"] + psi["Rq_c"]),
        "e_closure": generation + weight / 6 * sum(phi.values()),
        "e_closure-one_sided": generation + weight / 3 * (phi["S_o"] + phi["T_o"] + phi["C_o"]),
    }
    for left_out in "STC":
        margins = [value for name, value in phi.items() if not name.startswith(left_out)]
        values[f"e_closure-{left_out}"] = generation + weight / 4 * sum(margins)
    return values


@pytest.mark.parametrize(("number", "edit", "content"), [(0, 0, False), (3, 1, True)])
def test_the_loss_is_the_papers(number, edit, content):
    """Against separate forwards. The model is drawn wide, so that its scores depend on every part of the input."""
    model = small_model(initializer_range=0.3).double()
    pack = prepared(number, edit, ScoredTokens.CONTENT if content else ScoredTokens.FULL)
    paper = FromThePaper(model, pack.family, pack.edit, content)
    with torch.no_grad():
        expected = losses_of_the_paper(paper, 0.8, 0.5, 0.1)
        margins = {**paper.margins(), **paper.response_margins()}
        assert len({round(float(margin), 3) for margin in margins.values()}) == len(margins)
        assert set(expected) == set(TrainingMethod)
        for method, value in expected.items():
            objective = build_objective(TrainingMethod(method), 0.8)
            scores = objective.scores(pack)
            values = mean_logprobs(model, scores, ScoringStrategy.TREE)
            loss = objective.loss({score.name: logprob for score, logprob in zip(scores, values, strict=True)})
            assert loss.total.item() == pytest.approx(value.item(), abs=1e-8), method
            assert {name: loss_margin.item() for name, loss_margin in loss.margins.items()} == pytest.approx(
                {name: margins[name].item() for name in loss.margins}, abs=1e-8
            )


# ---- its slope ----


def exact_norm(module):
    """RMSNorm as it is defined; Transformers computes it in single precision."""

    def forward(hidden):
        scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
        return module.weight * hidden * scale

    return forward


@pytest.mark.parametrize("method", [TrainingMethod.E_CLOSURE, TrainingMethod.RESPONSE_MARGIN])
def test_the_gradient_is_the_slope(method):
    """Central differences along random directions, in double precision throughout."""
    model = small_model(initializer_range=0.2).double()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = exact_norm(module)
    objective = build_objective(method)
    scores = objective.scores(prepared())

    def loss():
        values = mean_logprobs(model, scores, ScoringStrategy.TREE)
        return objective.loss({score.name: logprob for score, logprob in zip(scores, values, strict=True)}).total

    loss().backward()
    parameters = list(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        way = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]
        slope = sum((p.grad * step).sum() for p, step in zip(parameters, way, strict=True)).item()
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                torch._foreach_add_(parameters, way, alpha=sign * 1e-6)
                ends.append(loss().item())
                torch._foreach_sub_(parameters, way, alpha=sign * 1e-6)
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope, rel=1e-5)

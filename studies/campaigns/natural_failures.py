"""Natural failures: a generator trained on world families answers held-out questions, labelled by the oracle.

SmolLM2-135M learns to write responses by supervised fine-tuning on families, then answers questions it has not seen,
several times each at a temperature. Its mistakes are its own and not planted. The folder is that of a run:
``instances.jsonl``, ``responses.jsonl``, ``verdicts.jsonl`` and ``judgments.jsonl``. Every part is done once, and
sampling goes on behind the last finished question, so the run may be stopped and started again.

    python studies/campaigns/natural_failures.py --out runs/natural

On two idle cores this takes about two hours. Without arguments a small version runs in minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import DynamicCache, set_seed
from transformers.trainer_utils import get_last_checkpoint

sys.path.insert(0, str(Path(__file__).parents[2]))  # for the helpers of studies

from eclose.calls.local.chat_template import decode_reply_tokens, find_stop_ids, tokenize_prompt
from eclose.calls.local.weights import load_adapter, load_causal_model, load_tokenizer
from eclose.calls.model import Decoding, FinishReason, Request
from eclose.detectors.study_statistics import list_study_groups
from eclose.files.jsonl import encode_json_line, read_records, write_records
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose.prompts.response_prompt import ResponsePrompt
from eclose.values.instance import Instance
from eclose.values.response import Response, ResponseSource
from eclose.values.verdict import SettledVerdict
from eclose_train.training.config import EClosureConfig
from eclose_train.training.trainer import EClosureTrainer
from eclose_world.files import judge_file_by_oracle
from eclose_world.make.families import make_world_families
from eclose_world.make.instances import make_world_items
from studies.perf.result import print_result
from studies.perf.tree_cost import packaged_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor
    from transformers import Cache

    from eclose.values.family import Family

HELD_OUT_SEED = 9_001
"""World seed of the held-out questions; training families have the seed 7 and verifiers are trained on others."""
PROMPT = ResponsePrompt(0)
BATCH = 8
"""Questions that are answered at once."""
VERDICTS_FILE = "verdicts.jsonl"


@dataclass(frozen=True)
class Settings:
    """Size of a run."""

    out: Path
    profiles: tuple[str, ...] = ("short-easy", "short-hard")
    updates: int = 200
    families_per_update: int = 4
    questions: int = 500
    samples: int = 8
    temperature: float = 0.5
    max_tokens: int = 176
    seed: int = 42


def configure_small_training(folder: Path, **settings: Any) -> EClosureConfig:
    """Return the settings of training a small model on the CPU, with some of them given."""
    return EClosureConfig(
        output_dir=str(folder),
        use_cpu=True,
        learning_rate=1e-3,
        warmup_steps=2,
        demonstrations=0,
        tokens_per_forward=2_048,
        gradient_checkpointing=False,
        disable_tqdm=True,
        **settings,
    )


def load_with_new_adapter(weights: str, seed: int) -> Any:
    """Return a model in float32 with a new adapter, whose first weights the seed decides."""
    set_seed(seed)
    return get_peft_model(
        load_causal_model(weights, dtype="float32"),
        LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


def train_generator(settings: Settings, weights: str, families: Sequence[Family] | None = None) -> Path:
    """Fine-tune an adapter on all views of families, in float32; return its folder.

    Counterfactual views cost little beside their gold view, and the generator learns twice as fast from both.

    Args:
        settings: Size of the run.
        weights: Weights to start from.
        families: As many families as the updates need; by default of the profiles in turn.
    """
    folder = settings.out / "generator"
    if (folder / "adapter_model.safetensors").is_file():
        return folder
    config = configure_small_training(
        folder,
        method="cf_sft",
        seed=settings.seed,
        families_per_update=settings.families_per_update,
        max_steps=settings.updates,
        save_strategy="steps",
        save_steps=20,
        logging_steps=5,
    )
    model = load_with_new_adapter(weights, config.seed)
    if families is None:
        count = settings.updates * settings.families_per_update
        streams = [islice(make_world_families(profile, 7), count) for profile in settings.profiles]
        families = list(islice(chain.from_iterable(zip(*streams, strict=True)), count))
    trainer = EClosureTrainer(model, config, families, processing_class=load_tokenizer(weights))
    trainer.train(resume_from_checkpoint=_find_checkpoint(folder))
    trainer.save_model(str(folder))
    return folder


def _find_checkpoint(folder: Path) -> str | None:
    checkpoint: str | None = get_last_checkpoint(str(folder)) if folder.is_dir() else None  # type: ignore[no-untyped-call]
    return checkpoint


def make_questions(settings: Settings) -> list[Instance]:
    """Return the held-out questions, equally many of each profile."""
    share = -(-settings.questions // len(settings.profiles))
    profiles = [
        [item.instance for item in islice(make_world_items(name, HELD_OUT_SEED), share)] for name in settings.profiles
    ]
    # A batch is of one profile, so that its replies are about equally long.
    turns = range(0, share, BATCH)
    return [item for at in turns for items in profiles for item in items[at : at + BATCH]][: settings.questions]


class Sampler:
    """Samples several replies to each prompt; the prompt is computed once and shared by its replies."""

    def __init__(self, model: Any, tokenizer: Any, settings: Settings) -> None:
        self._model = model
        self._model.set_attn_implementation("sdpa")
        self._tokenizer = tokenizer
        self._settings = settings
        self._stops = find_stop_ids(tokenizer, model.generation_config)

    def sample(self, instances: Sequence[Instance]) -> Iterator[Response]:
        """Yield the responses to some questions, those of one question together."""
        decoding = Decoding(max_tokens=self._settings.max_tokens, temperature=self._settings.temperature)
        prompts = [
            tokenize_prompt(self._tokenizer, Request(tuple(PROMPT.messages(item.question, item.evidence)), decoding))
            for item in instances
        ]
        # The questions decide the draws, so a run that was stopped continues with the same ones.
        generator = torch.Generator().manual_seed(
            int.from_bytes(instances[0].id.encode()) % 2**31 + self._settings.seed
        )
        rows = self._decode(prompts, generator)
        source = ResponseSource("SmolLM2-135M", "SFT", self._settings.seed)
        for index, item in enumerate(instances):
            for number in range(self._settings.samples):
                tokens = rows[index * self._settings.samples + number]
                reply = decode_reply_tokens(self._tokenizer, prompts[index], tokens, self._stops)
                cut_off = reply.finish is FinishReason.LENGTH
                yield Response.from_completion(f"{item.id}/{number}", item.id, reply.text, source, cut_off=cut_off)

    @torch.inference_mode()
    def _decode(self, prompts: Sequence[list[int]], generator: torch.Generator) -> list[list[int]]:
        """Return the new tokens of ``samples`` replies to each prompt.

        The replies to a prompt are one sequence behind it, in turn: token t of all replies, then token t + 1. A mask
        lets each see the prompt and its own tokens alone, so the cache holds a prompt once, not once for each reply.
        """
        samples, width = self._settings.samples, max(map(len, prompts))
        pad = min(self._stops)
        tokens = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[False] * (width - len(prompt)) + [True] * len(prompt) for prompt in prompts])
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        # Padding sees itself, since a row without any key has no softmax.
        causal = torch.ones(width, width, dtype=torch.bool).tril()
        attention = (mask[:, None] & causal | torch.eye(width, dtype=torch.bool))[:, None]  # (prompt, 1, query, key)
        cache = DynamicCache(config=self._model.config)
        logits = self._forward(tokens, attention, positions, cache, last=True).expand(-1, samples, -1)
        prompt_seen = mask[:, None, None].expand(-1, 1, samples, -1)
        own = torch.eye(samples, dtype=torch.bool)[None, None]
        rows: list[list[list[int]]] = [[[] for _ in range(samples)] for _ in prompts]
        alive, position = list(range(len(prompts))), positions[:, -1:]
        for step in range(self._settings.max_tokens):
            tokens = self._draw(logits, generator)
            for index, drawn in zip(alive, tokens.tolist(), strict=True):
                for row, token in zip(rows[index], drawn, strict=True):
                    if not row or row[-1] not in self._stops:
                        row.append(token)
            keep = [
                number for number, index in enumerate(alive) if any(row[-1] not in self._stops for row in rows[index])
            ]
            if not keep:
                break
            if len(keep) < len(alive):
                cache.batch_select_indices(torch.tensor(keep))
                prompt_seen, position, tokens = prompt_seen[keep], position[keep], tokens[keep]
                alive = [alive[number] for number in keep]
            position = position + 1
            attention = torch.cat([prompt_seen, own.repeat(len(alive), 1, 1, step + 1)], dim=-1)
            logits = self._forward(tokens, attention, position.expand(-1, samples), cache)
        return [row for replies in rows for row in replies]

    def _forward(self, tokens: Tensor, seen: Tensor, positions: Tensor, cache: Cache, *, last: bool = False) -> Tensor:
        """Return logits of the shape (prompt, token, vocabulary); of the last token alone where asked."""
        output = self._model(
            input_ids=tokens,
            attention_mask=torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1 if last else 0,
        )
        logits: Tensor = output.logits
        return logits

    def _draw(self, logits: Tensor, generator: torch.Generator) -> Tensor:
        """Draw a token for each reply; the result has the shape (prompt, reply)."""
        # By the inverse distribution function: one random number a token, where multinomial draws one a word.
        cumulative = torch.softmax(logits / self._settings.temperature, dim=-1).cumsum(-1)
        drawn = torch.rand(*logits.shape[:2], 1, generator=generator) * cumulative[..., -1:]
        return torch.searchsorted(cumulative, drawn, right=True).squeeze(-1)


def sample_responses(settings: Settings, weights: str) -> None:
    """Sample responses to all questions, appending batch by batch; finished questions are skipped."""
    instances = make_questions(settings)
    path = settings.out / RESPONSES_FILE
    write_records(settings.out / INSTANCES_FILE, instances)
    counts = Counter(response.instance_id for response in read_records(path, Response)) if path.is_file() else Counter()
    finished = sum(1 for item in instances if counts[item.id] == settings.samples)
    if finished == len(instances):
        return
    adapted = load_adapter(load_causal_model(weights, dtype="float32"), train_generator(settings, weights))
    sampler = Sampler(adapted.merge_and_unload().eval(), load_tokenizer(weights), settings)
    with path.open("ab") as file:
        for start in range(finished, len(instances), BATCH):
            # One write for each batch: a kill leaves whole batches, or a torn line that the reader names.
            responses = list(sampler.sample(instances[start : start + BATCH]))
            file.write(b"".join(encode_json_line(response) + b"\n" for response in responses))
            file.flush()
            print(f"{min(start + BATCH, len(instances))} of {len(instances)} questions", file=sys.stderr, flush=True)


def label_responses(out: Path) -> Counter[str]:
    """Let the oracle judge all responses; return their number by group."""
    judge_file_by_oracle(
        out / RESPONSES_FILE,
        lambda path: read_records(path, Instance),
        verdicts=out / VERDICTS_FILE,
        judgments=out / JUDGMENTS_FILE,
        force=True,
    )
    return Counter(name_group(row) for row in read_records(out / VERDICTS_FILE, SettledVerdict))


def name_group(row: SettledVerdict) -> str:
    """Return the group of a response, with its class within the gap; ``undecided`` where labels are missing."""
    groups = list_study_groups(row.verdict)
    return groups[-1].value if groups else "undecided"


def main() -> int:
    """Run the campaign, or its small version, and print the number of responses by group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the run; without it, the small version")
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as scratch:
        if options.out is None:
            settings = Settings(Path(scratch), updates=2, families_per_update=2, questions=4, samples=2)
        else:
            options.out.mkdir(parents=True, exist_ok=True)
            sizes = {
                name: getattr(options, name) for name in ("questions", "samples", "updates", "temperature", "seed")
            }
            settings = Settings(options.out, **sizes)
        weights = packaged_weights()
        train_generator(settings, weights)
        sample_responses(settings, weights)
        groups = label_responses(settings.out)
        answered = sum(groups.values())
    return print_result(
        name="natural responses labelled by the oracle",
        value=answered,
        unit="responses",
        goal=f"= {settings.questions * settings.samples}",
        holds=answered == settings.questions * settings.samples,
        groups=dict(groups),
    )


if __name__ == "__main__":
    sys.exit(main())

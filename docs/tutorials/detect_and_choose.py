# %% [markdown]
# # Detect and choose without a large judge
#
# A judge asks a large model five times about every response. A verifier is a small detector that you train once; it then
# scores responses without a model server and without reference answers. It finds part of the gap, tells which responses
# are worth a judge's time, and picks the better one of several samples. This tutorial takes a minute and needs no key:
#
# ```sh
# pip install 'eclose[figures]'
# ```
#
# ## Train a verifier on families
#
# A counterfactual family has a question with a verified response, and the same with edited evidence or another question.
# Parts of two views that do not belong together are examples of broken links, so families are labelled pairs for free.
# `eclose construct` builds families from your own questions; here they are of a made-up world.

# %%
from pathlib import Path

import eclose
import eclose_train
from eclose_world.files import write_world_families, write_world_questions

write_world_families(Path("families"), 150, profile="confusable-short", seed=1)
trained = eclose_train.train_verifier("families/families.jsonl", "verifier")
for head in trained.verifier.heads:
    print(head)

# %% [markdown]
# The verifier has a head for each link: support (evidence and step), alignment (question and trace), closure (trace and
# answer). `verifier/` has its weights as JSON and a card with its controls.
#
# ## Calibrate on labelled responses
#
# A score means nothing without responses whose labels you know. A calibration takes the threshold that flags at most 5 % of
# the reliable ones. Your labels may come from people or from a validated judge; here they are the planted truth.

# %%
from eclose.detectors.calibrate import calibrate_run

failures = {"path_deviation": 0.15, "incomplete_reasoning": 0.1, "answer_decoupling": 0.15}
write_world_questions(Path("labelled"), 400, profile="confusable-short", seed=2, failures=failures)
eclose.detect("labelled", detector="verifier", verifier="verifier")
calibrations = calibrate_run([Path("labelled")], verdicts=Path("labelled/planted.jsonl"))
[path.name for path in calibrations]

# %% [markdown]
# ## What it finds
#
# Evaluate it on other responses than those of the calibration:

# %%
from eclose.report.detectors.write import write_detector_evaluation

write_world_questions(Path("test"), 400, profile="confusable-short", seed=3, failures=failures)
eclose.detect("test", detector="verifier", verifier="verifier")
calibration = next(iter(calibrations))
evaluation, files = write_detector_evaluation("test", calibration, verdicts="test/planted.jsonl")
sections = files["evaluation.md"].read_text().split("\n## ")
print(sections[1].split("\n\nFlagged")[0])

# %% [markdown]
# At 3 % false alarms it flags most of the gap, which faithfulness metrics miss. It does not see all of it: incomplete
# reasoning reads like complete reasoning. The same file says how many judge calls it saves, beside controls that look at
# form alone:

# %%
print(sections[2].split("\n\nResponses that")[0])

# %%
import json

import matplotlib.pyplot as plt


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


verdicts = {row["response_id"]: eclose.Verdict(**row["verdict"]) for row in read("test/planted.jsonl")}
groups = {True: [], False: []}
for row in read("test/scores-verifier.jsonl"):
    groups[verdicts[row["response_id"]].reliable].append(row["score"])
figure, axes = plt.subplots(figsize=(6, 2.2))
axes.hist([groups[True], groups[False]], bins=20, label=["reliable", "in the gap"], color=["#0072b2", "#d55e00"])
axes.set_title("Scores of reliable and failing responses", loc="left")
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# To judge only what is flagged or uncertain, give the calibration to the judge:
#
# ```sh
# eclose judge RUN --judge MODEL --only flagged --only uncertain --calibration labelled/calibration-verifier.json
# ```
#
# ## Choose one of several samples
#
# Five samples for each question; each fails with a probability of 0.45, in a way of its own. A majority vote chooses the most
# frequent answer; the verifier then chooses among the responses that submit it.

# %%
import random


def make_sample(name, failures):
    write_world_questions(Path("samples", name), 200, profile="confusable-short", seed=4, failures=failures)
    planted = {row["response_id"]: eclose.Verdict(**row["verdict"]) for row in read(f"samples/{name}/planted.jsonl")}
    return [(response, planted[response["id"]].reliable) for response in read(f"samples/{name}/responses.jsonl")]


generator = random.Random(0)
sound = make_sample("sound", {})
samples, reliable = [], {}
for failure in ("path_deviation", "incomplete_reasoning", "answer_decoupling", "L1", "L2"):
    for pair in zip(sound, make_sample(failure, {failure: 1.0}), strict=True):
        response, is_reliable = pair[generator.random() < 0.45]
        samples.append(response | {"id": f"{response['id']}/{failure}"})
        reliable[samples[-1]["id"]] = is_reliable
with open("samples/responses.jsonl", "w") as file:
    file.writelines(json.dumps(sample) + "\n" for sample in samples)
Path("samples/sound/instances.jsonl").rename("samples/instances.jsonl")
len(samples)

# %%
from eclose.detectors.select_answer import ChoiceSettings, ChoiceStrategy, choose_run

eclose.detect("samples", detector="verifier", verifier="verifier")
scores = Path("samples/scores-verifier.jsonl")
for strategy in (ChoiceStrategy.RANDOM, ChoiceStrategy.MAJORITY, ChoiceStrategy.MAJORITY_VERIFIER):
    settings = ChoiceSettings(strategy=strategy)
    uses_scores = {"scores": scores, "calibration": calibration} if "verifier" in strategy else {}
    out = Path(f"samples/choices-{strategy}.jsonl")
    choose_run(Path("samples"), settings=settings, out=out, **uses_scores)
    chosen = [reliable[row["response_id"]] for row in read(out) if row["response_id"]]
    print(f"{strategy:18} reliable {sum(chosen)} of {len(chosen)}")

# %% [markdown]
# ## What to expect on your own responses
#
# These responses are made up, and their failures are clean. On traces of people and of real models the same kind of verifier
# finds less; [what a linear verifier finds](../guides/detect.md#what-a-linear-verifier-finds) has the figures. Calibrate on
# responses of your own, and look at the controls: a detector that does not beat them is not worth running.

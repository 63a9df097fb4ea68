"""Resampling the slow way: what the engine must equal, written without its ideas."""

from __future__ import annotations

from fractions import Fraction
from math import isnan, nan

import numpy as np

from eclose.stats.bootstrap import BackboneResamples


def expanded(weights):
    """The units of a resample, each as often as it was drawn."""
    return np.repeat(np.arange(len(weights)), np.asarray(weights).astype(int))


def drawn(design, seed, resamples):
    """Every row of weights, drawn as a bootstrap with this seed draws them."""
    return np.concatenate(list(design.draw(np.random.default_rng(seed), resamples)))


def drawn_settings(design, seed, resamples):
    """The same for a hierarchy, whose rows have three parts."""
    blocks = list(design.draw(np.random.default_rng(seed), resamples))
    return BackboneResamples(*(np.concatenate(part) for part in zip(*blocks, strict=True)))


def pooled_rate(hits, counted, cases):
    """Hits over cases counted; NaN when none was."""
    n = sum(counted[case] for case in cases)
    return sum(hits[case] for case in cases) / n if n else nan


def setting_mean(hits, counted, datasets, weights, resample):
    """One replicate of a hierarchy: places, datasets, drawn seeds and drawn questions, one after another."""
    columns = hits.shape[-1]
    means = []
    for column in range(columns):
        settings = []
        for slot, backbone in enumerate(weights.backbone[resample]):
            shared = weights.questions.shape[1] == 1
            questions = expanded(weights.questions[resample, 0 if shared else slot])
            for dataset in sorted(set(datasets)):
                inside = [question for question in questions if datasets[question] == dataset]
                seeds = [
                    pooled_rate(hits[backbone, seed, :, column], counted[backbone, seed, :, column], inside)
                    for seed in expanded(weights.seeds[resample, slot])
                ]
                settings.append(sum(seeds) / len(seeds))
        means.append(sum(settings) / len(settings))
    return means


def auroc(scores, failed, reliable):
    """Every failed response against every reliable one."""
    pairs = [(f, r) for f in scores[failed] for r in scores[reliable]]
    return sum(1.0 if f < r else 0.5 if f == r else 0.0 for f, r in pairs) / len(pairs) if pairs else nan


def threshold(scores, reliable, spared=Fraction(1, 20)):
    """The highest observed score that at most a twentieth of the reliable score strictly below."""
    among = scores[reliable]
    if len(among) == 0:
        return nan
    return max(t for t in scores if Fraction(int((among < t).sum()), len(among)) <= spared)


def recall(scores, failed, reliable, spared=Fraction(1, 20)):
    """The share of failures strictly below the threshold."""
    limit = threshold(scores, reliable, spared)
    return nan if isnan(limit) else pooled_rate(scores < limit, np.ones(len(scores)), np.flatnonzero(failed))


def cross_fitted(scores, failed, reliable, fold):
    """False positives and detections of held-out responses, pooled over the folds."""
    flagged = {"reliable": [], "failed": []}
    for held_out in sorted(set(fold)):
        outside = fold != held_out
        limit = threshold(scores[outside], reliable[outside])
        for name, group in (("reliable", reliable), ("failed", failed)):
            flagged[name] += [nan if isnan(limit) else score < limit for score in scores[group & (fold == held_out)]]
    return [sum(marks) / len(marks) if marks else nan for marks in flagged.values()]

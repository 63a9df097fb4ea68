"""The alignment detector: the probability that a model answers Yes when asked whether a trace pursues the question.

The probability is read from the log-probabilities of the first token of the reply that is not white space. It is P(Yes)
as the paper has it, and not P(Yes) / (P(Yes) + P(No)); both masses are kept with the score.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import exp
from typing import TYPE_CHECKING, Any

from eclose.calls.http.failures import CallFailure, CallFailureKind
from eclose.calls.model import FinishReason, Request
from eclose.detectors.scores import DetectorScore, Unscored
from eclose.errors import SettingError
from eclose.prompts.detector_questions import DetectorQuestion, build_alignment_messages, detector_guideline_hash
from eclose.prompts.disclosure import disclose_for_alignment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.calls.model import ChatModel, Reply, TokenLogprob
    from eclose.detectors.settings import ChatDetectorSettings
    from eclose.values.instance import Instance
    from eclose.values.response import Response

YES, NO = "yes", "no"
MASS_TOLERANCE = 1e-3
"""Amount by which rounded probabilities of one token may sum to more than 1."""


@dataclass(frozen=True, slots=True)
class YesNoProbabilities:
    """Probabilities of Yes and No as the first token of a reply; None where the word is not among the alternatives."""

    token: str
    """First token of the reply that is not white space."""
    yes: float | None
    no: float | None
    reported: float
    """Sum of all reported probabilities of that token."""

    @property
    def at_most(self) -> float:
        """Largest probability of Yes that the reported ones allow."""
        # An alternative that is not reported shares the rest with all others.
        return min(1.0, (self.yes or 0.0) + max(0.0, 1.0 - self.reported))


def read_yes_no_probabilities(logprobs: Sequence[TokenLogprob]) -> YesNoProbabilities | None:
    """Return the probabilities of Yes and No in the first token that is not white space; None without such a token.

    ``Yes``, `` yes`` and ``YES`` are different tokens with one meaning, so their probabilities are added.

    Raises:
        ValueError: The reported numbers are no probabilities of one token.
    """
    entry = next((entry for entry in logprobs if entry.token.strip()), None)
    if entry is None:
        return None
    # Most servers list the sampled token among its alternatives as well: it counts once.
    logprob_of = {**dict(entry.alternatives), entry.token: entry.logprob}
    # Written so that it holds for NaN, and before exp, which a large number overflows.
    if not all(logprob <= MASS_TOLERANCE for logprob in logprob_of.values()):
        raise ValueError(f"the log-probabilities of the first token are {logprob_of}")
    masses = {token: exp(logprob) for token, logprob in logprob_of.items()}
    total = sum(masses.values())
    if total > 1 + MASS_TOLERANCE:
        raise ValueError(f"the probabilities of the first token sum to {total:.6g}")
    # Tokenizers have several tokens for one word: with a blank before it, in capitals, in lower case.
    yes, no = ([mass for token, mass in masses.items() if token.strip().casefold() == word] for word in (YES, NO))
    return YesNoProbabilities(
        entry.token, min(sum(yes), 1.0) if yes else None, min(sum(no), 1.0) if no else None, min(total, 1.0)
    )


async def score_alignment(
    instance: Instance, response: Response, model: ChatModel, settings: ChatDetectorSettings
) -> DetectorScore:
    """Return the probability of Yes.

    Where No is among the reported alternatives and Yes is not, the score is 0, and ``at_most`` in the details is the
    probability that Yes may have had.

    Raises:
        SettingError: The server reports no log-probabilities.
    """
    make_score = partial(DetectorScore, response_id=response.id, detector=settings.detector, model=model.name)
    if not response.trace.steps:
        return make_score(score=None, unscored=Unscored.NO_TRACE)
    try:
        reply = await _complete(model, build_alignment_request(instance, response, settings))
    except CallFailure as failure:
        too_long = failure.kind is CallFailureKind.TOO_LONG
        if not too_long and not failure.kind.semantic:
            raise  # the service failed: the record is tried again later
        details: dict[str, Any] = {"reason": str(failure.kind), "problem": failure.problem}
        return make_score(score=None, unscored=Unscored.TOO_LONG if too_long else Unscored.NO_REPLY, details=details)
    try:
        probabilities = read_yes_no_probabilities(reply.logprobs or ())
    except ValueError as error:
        details = {"reason": "no probabilities", "problem": str(error)}
        return make_score(score=None, unscored=Unscored.NO_REPLY, details=details)
    if probabilities is None or (probabilities.yes is None and probabilities.no is None):
        return make_score(score=None, unscored=Unscored.NO_YES_OR_NO, details={"reply": reply.text})
    masses = {"yes": probabilities.yes, "no": probabilities.no}
    # A word that was not reported is left out: its probability is unknown, not zero.
    details = {"token": probabilities.token, **{word: mass for word, mass in masses.items() if mass is not None}}
    details["reported"] = probabilities.reported
    if probabilities.yes is None:
        details["at_most"] = probabilities.at_most
    return make_score(score=probabilities.yes or 0.0, details=details)


def build_alignment_request(instance: Instance, response: Response, settings: ChatDetectorSettings) -> Request:
    """Return the request whether the trace of a response pursues the question."""
    messages = build_alignment_messages(disclose_for_alignment(instance, response))
    return Request(messages, settings.decoding, guideline=detector_guideline_hash(DetectorQuestion.ALIGNMENT))


async def _complete(model: ChatModel, request: Request) -> Reply:
    """Return the reply, also one that was cut off; raise SettingError where log-probabilities are not to be had."""
    try:
        return await model.complete(request)
    except CallFailure as failure:
        if failure.kind is CallFailureKind.LENGTH and failure.reply is not None and failure.reply.logprobs:
            # The first token decides, and a model that goes on after it is cut off by ``max_tokens``.
            return failure.reply
        if _reports_no_logprobs(failure):
            raise SettingError(
                f"{model.name}: reports no log-probabilities, from which this detector takes its score. Reasoning"
                f" models often report none: name another --model, or a lower effort. ({failure.problem})"
            ) from failure
        raise


def _reports_no_logprobs(failure: CallFailure) -> bool:
    """Return whether a reply came without the requested log-probabilities, or the server refused to report them."""
    if failure.reply is None:
        return failure.kind is CallFailureKind.PERMANENT and "logprobs" in f"{failure.problem} {failure.raw}".lower()
    # A reply that was cut off before its first word is one of a model that reasons first. Refused and empty replies
    # have no tokens to report on, so they say nothing about the server.
    is_cut_off = failure.kind is CallFailureKind.LENGTH
    is_complete = failure.reply.finish is FinishReason.STOP and bool(failure.reply.text.strip())
    return not failure.reply.logprobs and (is_cut_off or is_complete)

"""The responses of a run with their questions, as tasks for a model: judging and detection read them alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from eclose.errors import RecordError
from eclose.files.jsonl import ID_REUSED, ReadRecord, scan_records
from eclose.files.record_file import index_jsonl_file
from eclose.readers.judged_run import QUESTION_REMEDY
from eclose.values.instance import Instance
from eclose.values.model_family import same_model_family
from eclose.values.response import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUESTION_MISSING = "no such question"


@dataclass(frozen=True)
class ResponseTask:
    """A response to work on, with its question."""

    id: str
    instance: Instance
    response: Response


class ResponseFilter(Protocol):
    """A choice of the responses that reach a model. The others are counted as rejected, each with its reason."""

    @property
    def identity(self) -> dict[str, Any]:
        """Everything but the input files that decides the choice, for the identity of a run."""
        ...

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Files that the choice is read from."""
        ...

    def read_exclusions(self) -> Callable[[Response], str | None]:
        """Read the files; return a function from a response to the reason why it is left out, or None."""
        ...


class ResponseTasks:
    """The responses of a file with their questions, read from disk on demand.

    With a filter, the responses that it leaves out are yielded as rejected records.

    Raises:
        RecordError: Two questions share an id, so that a response could belong to either.
    """

    def __init__(self, instances: Path, responses: Path, only: ResponseFilter | None = None) -> None:
        self._questions, questions, rejects = index_jsonl_file(instances, Instance)
        if reused := next((record.error for record in rejects if record.error_kind == ID_REUSED), None):
            raise RecordError(f"{reused.problem}. {QUESTION_REMEDY}", path=reused.path, record=reused.record)
        self._responses, _, self._left_out = index_jsonl_file(responses, Response)
        # Positions and not questions: several responses share a question, and a corpus need not fit into memory.
        self._indices = {instance_id: index for index, instance_id in enumerate(self._questions.ids)}
        self._latest: tuple[int, Instance] | None = None
        self._path = responses
        self._exclude: Callable[[Response], str | None] = (lambda _: None) if only is None else only.read_exclusions()
        self.counts = {f"questions of {instances.name}": questions.counts()}
        """Record counts of the questions."""

    def __len__(self) -> int:
        """Return the number of responses, including those that cannot be used."""
        return len(self._responses) + len(self._left_out)

    def __iter__(self) -> Iterator[ReadRecord[ResponseTask]]:
        """Yield the unusable records, then every response."""
        for record in self._left_out:
            yield ReadRecord(record.where, rejected=record.rejected, error=record.error, error_kind=record.error_kind)
        # In the order of the file; the results are written in the order of ids whatever order they are made in.
        for index in range(len(self._responses)):
            response = self._responses[index]
            if (reason := self._exclude(response)) is not None:
                yield ReadRecord(repr(response.id), rejected=reason)
            else:
                yield self._join(response)

    def _join(self, response: Response) -> ReadRecord[ResponseTask]:
        index = self._indices.get(response.instance_id)
        if index is None:
            problem = f"answers {response.instance_id!r}, which is not among the questions. Name the file that has it."
            error = RecordError(problem, path=self._path, record=repr(response.id))
            return ReadRecord(repr(response.id), error=error, error_kind=QUESTION_MISSING)
        # Responses to one question are usually neighbours, and its passages take longer to read than a response.
        if self._latest is None or self._latest[0] != index:
            self._latest = (index, self._questions[index])
        return ReadRecord(repr(response.id), value=ResponseTask(response.id, self._latest[1], response))


def find_related_models(responses: Path, model_name: str) -> list[str]:
    """Return the models of the family of ``model_name`` among those that wrote the responses, sorted by name."""
    records = (record.value for record in scan_records(responses, Response))
    models = {response.source.model for response in records if response is not None and response.source is not None}
    return sorted(model for model in models if same_model_family(model_name, model))

"""A judge to keep: one connection for every response that a process judges, and labels for the rows of any table."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from eclose.api.resolve import add_budget, resolve
from eclose.calls.ledger.database import is_database_url
from eclose.calls.ledger.ledger import Ledger
from eclose.calls.model import CallContext
from eclose.calls.run import connect_models, find_model_price
from eclose.calls.sync import LoopThread, also_sync, coroutine_of
from eclose.errors import RecordError, SettingError, UserError
from eclose.files.jsonl import parse_dataclass
from eclose.files.run_folder import RUN_LEDGER_FILE
from eclose.files.tables import read_row_columns
from eclose.judging.judge_response import judge_response
from eclose.judging.run import JUDGE_JOB, resolve_judge
from eclose.judging.settings import JudgeSettings
from eclose.readers.conversion import build_case
from eclose.readers.import_settings import ImportSettings
from eclose.readers.layouts import RecordLayout
from eclose.readers.rag_rows import convert_tool_record
from eclose.reading.response import read_response
from eclose.reading.text import ReadingStatus
from eclose.values.identity import content_hash
from eclose.values.instance import Instance
from eclose.values.response import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pyarrow as pa

    from eclose.calls.client import CallSettings, ModelConnection
    from eclose.calls.http.endpoint import ServerAddress
    from eclose.calls.prices import ModelPrice
    from eclose.calls.resolve import ModelRef
    from eclose.progress import ProgressOption
    from eclose.values.judgment import Judgment

T = TypeVar("T")
PricedConnection: TypeAlias = "tuple[ModelConnection, ModelPrice | None]"


class Judge:
    """A judge that stays connected: one client, one event loop and one ledger for all that it is asked.

    It opens with its first call or as a context manager, plain or ``async``, and may be used from several threads and
    event loops at once. Sent to another process, as Spark and Ray do with what a function needs, it is opened there
    once for the whole process; such processes need a ledger in PostgreSQL, in which they share budget and rate limit.

    Args:
        model: Model that judges, by name or as ``eclose.resolve`` returns it.
        ledger: File or ``postgresql://`` URL that keeps every reply, so that none is paid for twice; by default a
            temporary file, which is gone when the judge is closed.
        run: Name under which the ledger sums costs: the budget is that of all processes of one name.
        settings: How responses are judged.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the calls of the run may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        imported: How responses are read, as ``evaluate`` takes it.
        records: Whether ``batch`` adds question, response and judgment as JSON, which a report shows.

    Examples:
        >>> rows = [{"question": "Who wrote it?", "contexts": ["Ada wrote it."], "response": "Final answer: Ada"}]
        >>> with eclose.Judge(server, calls=eclose.CallSettings(unpriced=True)) as judge:
        ...     judge.batch(rows)[0]["question"]
        'Who wrote it?'
    """

    def __init__(
        self,
        model: str | ModelRef,
        *,
        ledger: Path | str | None = None,
        run: str = "judge",
        settings: JudgeSettings | None = None,
        calls: CallSettings | None = None,
        budget: float | None = None,
        base_url: str | ServerAddress | None = None,
        imported: ImportSettings | None = None,
        records: bool = True,
    ) -> None:
        self._arguments = {name: value for name, value in locals().items() if name != "self"}
        self._model = model
        self._base_url = base_url
        self._ledger = ledger
        self._run = run
        self._records = records
        self._settings = settings or JudgeSettings()
        self._calls = add_budget(calls, budget)
        self._imported = imported or ImportSettings()
        self._lock = Lock()
        self._open_judge: _OpenJudge | None = None

    def __enter__(self) -> Self:
        try:
            # Nothing but the connection is waited for.
            self._open().run(lambda _connection: asyncio.sleep(0))
        except BaseException:
            self.close()  # the block is not entered, and so never left
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.__enter__)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """End the calls in flight, and close client and ledger. A later call opens them again."""
        with self._lock:
            open_judge, self._open_judge = self._open_judge, None
        if open_judge is not None and open_judge.is_of_this_process:
            open_judge.close()

    def __call__(
        self,
        instance: Instance | Mapping[str, Any],
        response: Response | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | None = None,
    ) -> Judgment:
        """Judge one response to one question.

        Args:
            instance: The question with its passages and, where there is one, its reference answer; without
                ``response`` a row that holds the response as well.
            response: A response or its fields, or what a system wrote: a text, the messages of a conversation, or the
                object of a chat API or a framework. What its tools returned becomes passages.

        Returns:
            A label for each step and for each criterion, with reasons; None where the judge gave no usable reply.

        Raises:
            RecordError: The question or the response lacks a field.
            SettingError: One of them is of another kind, such as a question without its passages.
            UserError: The judge cannot be reached, or the budget is spent.
        """
        return self._open().run(partial(self._judge, *self._read(instance, response)))

    async def ajudge(
        self,
        instance: Instance | Mapping[str, Any],
        response: Response | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | None = None,
    ) -> Judgment:
        """Judge one response to one question; the coroutine of a call."""
        return await self._open().run_async(partial(self._judge, *self._read(instance, response)))

    def batch(self, rows: Any, *, progress: ProgressOption = True) -> Any:
        """Judge the responses of a table: the same rows in the same order, with their labels as further columns.

        A row that cannot be read, or holds no response, has no labels and a reason. Where the calls cannot go on, as
        with a spent budget, the replies so far are kept in the ledger, and the same rows asked again continue.

        Args:
            rows: A list of dicts, a pandas or Polars data frame, or a table or record batch of Arrow.
            progress: Whether to show progress in a terminal or a notebook, or a function that is called with it.

        Returns:
            The rows as they came, in their own type, with the columns of ``schema``.

        Raises:
            SettingError: The rows are no table, or have a column that labels are written to.
            UserError: The judge cannot be reached, or the budget is spent.
        """
        return self._open().run(partial(self._label, rows, progress))

    async def abatch(self, rows: Any, *, progress: ProgressOption = True) -> Any:
        """Judge the responses of a table; the coroutine of ``batch``."""
        return await self._open().run_async(partial(self._label, rows, progress))

    def schema(self, rows: pa.Schema | None = None) -> pa.Schema:
        """Return the columns that ``batch`` returns for rows with these columns, as a schema of Arrow."""
        from eclose.api.labelled_rows import LabelColumns  # noqa: PLC0415 - loads the columns of labels

        return LabelColumns.of(self._settings, records=self._records).extend(rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes the same judge in another process, where calls of one process share it."""
        if not isinstance(self._model, str):
            raise SettingError(
                "a judge is sent to another process by the name of its model, and each process reads the key from its "
                'own environment: eclose.Judge("provider/model").'
            )
        # Computed here, because the processes must agree on it and a function in the settings has no lasting text.
        key = content_hash({name: repr(value) for name, value in self._arguments.items()})
        return _find_judge_of_process, (key, self._arguments)

    def _open(self) -> _OpenJudge:
        with self._lock:
            # The thread of a parent process does not exist in its child; a connection that failed is made again.
            if self._open_judge is None or not self._open_judge.is_usable:
                if self._open_judge is not None and self._open_judge.is_of_this_process:
                    self._open_judge.close()
                self._open_judge = _OpenJudge(self._connect)
            return self._open_judge

    async def _connect(self, stack: AsyncExitStack) -> PricedConnection:
        """Return the connected model with its price; it stays connected until the stack is closed."""
        ref = await resolve_judge(resolve(self._model, self._base_url), self._settings, self._calls.deadline)
        where = self._ledger
        if where is None:
            where = Path(stack.enter_context(TemporaryDirectory(prefix="eclose-"))) / RUN_LEDGER_FILE
        ledger = await stack.enter_async_context(Ledger.open(where, run=self._run))
        connections = await connect_models([ref], self._calls, ledger, stack)
        if is_database_url(where):
            from eclose.calls.cluster.shared_limit import share_rate_limits  # noqa: PLC0415 - of an extra

            await share_rate_limits(connections, self._calls, where, stack, run=self._run)
        return connections[ref.name], find_model_price(ref, self._calls)

    def _read(self, instance: Any, response: Any) -> tuple[Instance, Response]:
        if response is not None:
            return read_case(instance, response, self._imported)
        from eclose.api.labelled_rows import read_row  # noqa: PLC0415 - loads the columns of labels

        return read_row(read_row_columns(instance, 1), self._imported)

    async def _judge(self, instance: Instance, response: Response, connected: PricedConnection) -> Judgment:
        model = connected[0].model.for_record(CallContext(JUDGE_JOB, response.id))
        return await judge_response(instance, response, model, self._settings)

    async def _label(self, rows: Any, progress: ProgressOption, connected: PricedConnection) -> Any:
        from eclose.api.labelled_rows import LabelColumns, RowLabeller  # noqa: PLC0415 - loads the columns of labels

        columns = LabelColumns.of(self._settings, records=self._records)
        labeller = RowLabeller(*connected, settings=self._settings, imported=self._imported, columns=columns)
        return await labeller.label(rows, workers=self._calls.workers, progress=progress)


class _OpenJudge:
    """A connected judge in an event loop of its own, until it is closed."""

    def __init__(self, connect: Callable[[AsyncExitStack], Coroutine[Any, Any, PricedConnection]]) -> None:
        self._pid = os.getpid()
        self._connect = connect
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._connection: PricedConnection | None = None
        self._running: set[asyncio.Future[Any]] = set()
        self._loop = LoopThread("eclose judge")
        self._keeper = self._loop.submit(self._keep_open())

    @property
    def is_of_this_process(self) -> bool:
        return self._pid == os.getpid()

    @property
    def is_usable(self) -> bool:
        return self.is_of_this_process and not self._keeper.done()

    async def _keep_open(self) -> None:
        # One task opens and closes: the lease on a share of the rate limit must end where it began.
        try:
            async with AsyncExitStack() as stack:
                self._connection = await self._connect(stack)
                self._ready.set()
                await self._closing.wait()
        finally:
            self._ready.set()

    def run(self, work: Callable[[PricedConnection], Coroutine[Any, Any, T]]) -> T:
        """Return the result of work on the connection, in the judge's loop."""
        future = self._loop.submit(self._run_while_open(work))
        try:
            return future.result()
        except BaseException:
            # Interrupted while waiting: its calls would go on, unseen and paid.
            future.cancel()
            raise

    async def run_async(self, work: Callable[[PricedConnection], Coroutine[Any, Any, T]]) -> T:
        """Return the result of work on the connection, in the judge's loop, without blocking the caller's."""
        return await asyncio.wrap_future(self._loop.submit(self._run_while_open(work)))

    async def _run_while_open(self, work: Callable[[PricedConnection], Coroutine[Any, Any, T]]) -> T:
        """Run work once there is a connection; where that ends before it, cancel it and raise why."""
        await self._ready.wait()
        if self._connection is None:
            await asyncio.wrap_future(self._keeper)  # raises what went wrong
        assert self._connection is not None
        keeper, task = asyncio.wrap_future(self._keeper), asyncio.ensure_future(work(self._connection))
        self._running.add(task)
        try:
            await asyncio.wait((keeper, task), return_when=asyncio.FIRST_COMPLETED)
            if task.cancelled() or not task.done():
                if keeper.done():
                    keeper.result()
                raise UserError("the judge was closed while it was in use.")
            return task.result()
        finally:
            task.cancel()
            self._running.discard(task)

    def close(self) -> None:
        """End what runs, then close the connection and the loop."""
        self._loop.submit(self._end()).result()
        self._loop.close()

    async def _end(self) -> None:
        # First, because a call that fails with its connection would be sent again over a new one.
        running = [*self._running]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._closing.set()
        await asyncio.gather(asyncio.wrap_future(self._keeper), return_exceptions=True)


_JUDGES: dict[tuple[int, str], Judge] = {}
"""The judges that were sent to this process, by its id and by their arguments."""


def _find_judge_of_process(key: str, arguments: dict[str, Any]) -> Judge:
    """Return the judge of this process with these arguments; each task of an engine would bring another one."""
    process_key = os.getpid(), key
    if process_key not in _JUDGES:
        _JUDGES[process_key] = Judge(**arguments)
        atexit.register(_JUDGES[process_key].close)
    return _JUDGES[process_key]


@also_sync
async def judge(
    instance: Instance | Mapping[str, Any],
    response: Response | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str,
    *,
    judge: str | ModelRef,
    settings: JudgeSettings | None = None,
    calls: CallSettings | None = None,
    budget: float | None = None,
    base_url: str | ServerAddress | None = None,
    imported: ImportSettings | None = None,
) -> Judgment:
    """Judge one response to one question; for more than a few, keep a ``Judge``.

    ``ajudge`` is the coroutine.

    Args:
        instance: The question with its passages and, where there is one, its reference answer.
        response: A response or its fields, or what a system wrote: a text, the messages of a conversation, or the
            object of a chat API or a framework. What its tools returned becomes passages.
        judge: Model that judges, by name or as ``eclose.resolve`` returns it.
        settings: How the response is judged.
        calls: Concurrency, rate limits, deadlines and prices of the calls.
        budget: The most that the calls may cost, in the currency of the prices.
        base_url: Address of an OpenAI-compatible server.
        imported: How the response is read, as ``evaluate`` takes it.

    Returns:
        A label for each step and for each criterion, with reasons; None where the judge gave no usable reply.

    Raises:
        RecordError: The question or the response lacks a field.
        SettingError: One of them is of another kind, such as a question without its passages.
        UserError: The judge cannot be reached.

    Examples:
        >>> case = eclose.diagnose("demo").cases[0]
        >>> free = eclose.CallSettings(unpriced=True)
        >>> eclose.judge(case.instance, case.response, judge=server, calls=free).response_id == case.response.id
        True
    """
    question, answered = read_case(instance, response, imported or ImportSettings())
    async with Judge(judge, settings=settings, calls=calls, budget=budget, base_url=base_url) as open_judge:
        return await open_judge.ajudge(question, answered)


ajudge = coroutine_of(judge)
"""Coroutine of ``judge``."""


def read_case(
    instance: Instance | Mapping[str, Any],
    response: Response | Mapping[str, Any] | Sequence[Mapping[str, Any]] | str,
    imported: ImportSettings = ImportSettings(),  # noqa: B008 - it is frozen
) -> tuple[Instance, Response]:
    """Return the question and the response; what an agent's tools returned is added to the passages.

    Raises:
        SettingError: One of them is of another kind.
        RecordError: One of them lacks a field.
    """
    if not isinstance(instance, Instance | Mapping):
        raise SettingError(
            f"instance: is of type {type(instance).__name__}. Give a question with its passages: "
            'eclose.judge({"question": "...", "contexts": ["..."]}, "the response", judge="provider/model").'
        )
    question = instance if isinstance(instance, Instance) else _read_question(instance)
    if isinstance(response, Mapping) and isinstance(response.get("trace"), Mapping):
        response = parse_dataclass(Response, dict(response))
    if isinstance(response, Response):
        if response.instance_id != question.id:
            raise RecordError(f"response {response.id!r}: answers {response.instance_id!r}, and not {question.id!r}.")
        return question, response
    if not isinstance(response, str | Mapping | Sequence):
        raise SettingError(f"response: is of type {type(response).__name__}. Give a text, a Response, or messages.")
    content = response if isinstance(response, str | Mapping) else list(response)
    reading = read_response(content, question.question, imported)
    if reading.status is ReadingStatus.NOT_A_RESPONSE:
        raise RecordError(f"response: holds no answer and no step ({reading.rule}).")
    return build_case(question, reading, content, id=f"{question.id}-1")


def _read_question(fields: Mapping[str, Any]) -> Instance:
    """Return a question from the fields of an instance, or from the columns that ``evaluate`` reads."""
    if "evidence" in fields:
        return parse_dataclass(Instance, dict(fields))
    return convert_tool_record(dict(fields), RecordLayout.RAGAS).instance

"""The ledger against a few dictionaries: any order of operations, by any runs, with openings in between."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from eclose.calls.ledger import queries
from eclose.calls.ledger.ledger import CallIntent, Ledger, LedgerReply, RecordOutcome
from eclose.errors import UserError
from eclose.values.identity import content_hash
from tests.calls.ledger.postgres import fresh_database

NUMBERS = st.integers(0, 3)
RUNS = st.sampled_from(["a", "b"])
BODIES = st.sampled_from([b"", b"{}", b'{"x": 1}' * 50])
IDS = st.sampled_from(["", "a", "a\0", "é", "\ud800"])
KINDS = st.sampled_from(["accepted", "rejected", "quarantined"])
REASONS = st.sampled_from([None, "", "why"])


def call(number, reserved, record_id="r"):
    request = {"n": number}
    return CallIntent(content_hash(request), request, "s", record_id, reserved)


class Model(RuleBasedStateMachine):
    """What the ledger should say, kept in dictionaries."""

    def place(self):
        self.folder = tempfile.TemporaryDirectory()
        return Path(self.folder.name) / "ledger.db"

    @initialize(run=RUNS)
    def begin(self, run):
        self.runner = asyncio.Runner()
        self.where = self.place()
        self.opening = 0
        self.intents = []  # number, opening, run, intent: one for each send
        self.released = set()  # places in the list of intents
        self.broken = set()  # the same of those that ended without an answer
        self.latest = {}  # number -> opening of the last intent
        self.replies = {}  # number -> reply, run, opening whose intents it settles
        self.outcomes = {}  # (run, stage, record id) -> outcome
        self.leases = {}  # (run, record id) -> worker
        self.open(run)

    def open(self, run):
        self.run_name = run
        self.opening += 1
        self.ledger = self.runner.run(Ledger.open(self.where, run=run).__aenter__())

    def close(self):
        self.runner.run(self.ledger.__aexit__(None, None, None))

    def do(self, work):
        """Whether it was taken."""

        async def attempt():
            try:
                await work
            except UserError:
                return False
            return True

        return self.runner.run(attempt())

    @rule(run=RUNS)
    def reopen(self, run):
        self.close()
        self.open(run)

    @rule(number=NUMBERS, reserved=st.integers(0, 2**40), record_id=IDS)
    def intend(self, number, reserved, record_id):
        intent = call(number, reserved, record_id)
        assert self.do(self.ledger.intend(intent)) == (number not in self.replies)
        if number not in self.replies:
            self.intents.append((number, self.opening, self.run_name, intent))
            self.latest[number] = self.opening

    def last(self, number, opening):
        return max((at for at, intent in enumerate(self.intents) if intent[:2] == (number, opening)), default=None)

    def under_way(self, number):
        """The last send of this opening that may still be answered."""
        settled = {self.last(number, opening) for number, (_, _, opening) in self.replies.items()}
        return max(
            (
                at
                for at, intent in enumerate(self.intents)
                if intent[:2] == (number, self.opening) and at not in settled | self.released | self.broken
            ),
            default=None,
        )

    @rule(number=NUMBERS)
    def release(self, number):
        self.released.add(self.under_way(number))
        self.runner.run(self.ledger.release(call(number, 0).key))

    @rule(number=NUMBERS)
    def break_off(self, number):
        self.broken.add(self.under_way(number))
        self.runner.run(self.ledger.break_off(call(number, 0).key))

    @rule(number=NUMBERS, body=BODIES, cost=st.integers(0, 2))
    def settle(self, number, body, cost):
        assert self.do(self.ledger.settle(self.reply(number, body, cost))) == self.settled(number, body, cost)

    @rule(number=NUMBERS, body=BODIES, cost=st.integers(0, 1), record_id=IDS, kind=KINDS)
    def settle_and_conclude(self, number, body, cost, record_id, kind):
        outcome = RecordOutcome("s", record_id, kind, None, body)
        accepted = self.do(self.ledger.settle(self.reply(number, body, cost), outcome))
        assert accepted == (self.settled(number, body, cost) and self.concluded(outcome))

    def reply(self, number, body, cost):
        return LedgerReply(call(number, 0).key, body, (1, 2), cost, 1)

    def settled(self, number, body, cost):
        if number in self.latest and number not in self.replies:
            own = self.last(number, self.opening) is not None
            opening = self.opening if own else self.latest[number]
            self.replies[number] = self.reply(number, body, cost), self.run_name, opening
        return number in self.replies and self.replies[number][0] == self.reply(number, body, cost)

    @rule(stage=st.sampled_from(["s", "t"]), record_id=IDS, kind=KINDS, reason=REASONS, body=st.none() | BODIES)
    def conclude(self, stage, record_id, kind, reason, body):
        outcome = RecordOutcome(stage, record_id, kind, reason, body)
        assert self.do(self.ledger.conclude(outcome)) == self.concluded(outcome)

    def concluded(self, outcome):
        return self.outcomes.setdefault((self.run_name, outcome.stage, outcome.record_id), outcome) == outcome

    @rule(ids=st.lists(IDS), worker=st.sampled_from(["one", "two"]), give_back=st.booleans())
    def claim(self, ids, worker, give_back):
        ours = self.runner.run(self.ledger.claim("s", ids, worker, 0 if give_back else 1000))
        free = [
            record_id
            for record_id in dict.fromkeys(ids)
            if (self.run_name, "s", record_id) not in self.outcomes
            and self.leases.get((self.run_name, record_id), worker) == worker
        ]
        assert ours == free
        for record_id in free:
            self.leases[self.run_name, record_id] = worker
            if give_back:
                del self.leases[self.run_name, record_id]

    @rule(number=NUMBERS)
    def prune_call(self, number):
        self.runner.run(self.ledger.prune(calls=[call(number, 0).key]))
        self.replies.pop(number, None)
        self.latest.pop(number, None)
        # Kept in its place, so that the places of the others stay true.
        self.intents = [(None, *intent[1:]) if intent[0] == number else intent for intent in self.intents]

    @invariant()
    def replies_are_as_settled(self):
        replies = {number: self.runner.run(self.ledger.find_reply(call(number, 0).key)) for number in range(4)}
        assert replies == {number: self.replies.get(number, [None])[0] for number in range(4)}

    def unsettled(self):
        """Places of the sends that may have been billed without an answer, of all runs."""
        settled = {self.last(number, opening) for number, (_, _, opening) in self.replies.items()}
        return [
            at
            for at, (number, *_) in enumerate(self.intents)
            if number is not None and at not in settled | self.released
        ]

    def amounts(self):
        """What was spent, is under way, and may have been billed for calls that broke off."""
        spent = sum(reply.cost for reply, run, _ in self.replies.values() if run == self.run_name)
        reserved = assumed = 0
        for at in self.unsettled():
            number, opening, run, intent = self.intents[at]
            if run != self.run_name:
                continue
            if opening == self.opening and at not in self.broken:
                reserved += intent.reserved
            else:
                assumed += self.replies[number][0].cost if number in self.replies else intent.reserved
        return spent, reserved, assumed

    @invariant()
    def money_is_accounted_for(self):
        listed = [self.intents[at][3] for at in self.unsettled() if self.intents[at][2] == self.run_name]
        assert self.runner.run(self.ledger.list_orphans()) == listed
        # The row that every call is held against, and the sums it stands for.
        assert self.runner.run(self.ledger._commits.run(self.kept)) == self.amounts()
        assert self.runner.run(self.ledger.compute_account()) == self.amounts()

    def kept(self, connection):
        return tuple(connection.execute(queries.ACCOUNT, {"run": self.run_name.encode()}).one())

    @invariant()
    def outcomes_are_as_concluded(self):
        for stage in ("s", "t"):
            mine = [record for (run, at, _), record in self.outcomes.items() if (run, at) == (self.run_name, stage)]
            mine.sort(key=lambda outcome: outcome.record_id)
            assert self.listed(self.ledger.read_outcomes(stage)) == mine

    @invariant()
    def nothing_is_damaged(self):
        assert self.listed(self.ledger.verify()) == []

    def listed(self, stream):
        async def gather():
            return [item async for item in stream]

        return self.runner.run(gather())

    def teardown(self):
        if hasattr(self, "ledger"):
            self.close()
            self.runner.close()
        if hasattr(self, "folder"):
            self.folder.cleanup()


class PostgresModel(Model):
    def place(self):
        return fresh_database()


@pytest.mark.slow
@pytest.mark.parametrize("model, examples", [(Model, 25), pytest.param(PostgresModel, 8, marks=pytest.mark.database)])
def test_the_ledger_does_as_the_dictionaries_do(model, examples):
    if model is PostgresModel:
        fresh_database()
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        model,
        settings=settings(max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=quiet),
    )

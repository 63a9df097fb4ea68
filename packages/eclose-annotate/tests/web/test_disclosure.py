"""No byte of any answer tells what its reader may not know yet: not a page, a header, an error or a redirect."""

from __future__ import annotations

import re
from random import Random

import pytest
from sqlalchemy import event

from eclose_annotate import submissions, visible
from eclose_annotate.people import people
from eclose_annotate.project import DATABASE_FILE
from tests.projects import choose_key
from tests.web.canaries import CREW, NEVER, NOBODY, NOWHERE, SHOWN, study, tokens_in
from tests.web.crowd import crowd
from tests.web.sweeps import Sweep
from tests.web.truth import Truth, fill

PASSES = "ABCD"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The whole work of a small project, with every route looked at by every role after every pass."""
    with study(tmp_path_factory.mktemp("swept") / "study") as setup, crowd(setup) as everybody:
        sweep = Sweep(setup, everybody, thorough=False)
        sweep.run()
        yield sweep


@pytest.mark.slow
def test_nothing_is_told_too_early_or_to_the_wrong_person(swept):
    assert swept.scan.leaks == []
    assert swept.broken == []
    assert swept.scan.pages > 900


@pytest.mark.slow
def test_everything_is_shown_where_it_should_be(swept):
    """Else the scan would find nothing because there is nothing to find."""
    met = swept.scan.met
    assert met["answer"] == {"C", "D"}
    assert met["reference"] == met["alias"] == {"D", "S"}
    assert met["step"] == set("ABCD")
    assert met["title"] == met["passage"] == set("SABCD")
    # The list of one's own labels, and what was opened again, name the question.
    assert met["question"] == set("SABCD") | {"page"}
    assert met["family"] == {"F", "page"}
    assert not met.keys() & (NEVER | NOWHERE)


@pytest.mark.slow
def test_the_work_was_done_to_its_end(swept):
    """Two adjudicators and all who came before them have been through all their passes."""
    assert swept.study.rows() == swept.truth.rows()
    adjudicated = {task.kind for task in swept.truth.tasks.values() if task.nick in ("eve", "sol", "fin")}
    assert adjudicated == {"response", "screening", "family"}


def test_what_no_page_shows_is_in_the_database_and_what_judges_said_is_not(one):
    """Models, methods and ids could leak; automatic judgments, supporting passages and completions are not there."""
    data = b"".join(path.read_bytes() for path in one.project.folder.iterdir() if path.name.startswith(DATABASE_FILE))
    kinds = {one.canaries.known[token].kind for token in tokens_in(data)}
    assert kinds >= NEVER
    assert not kinds & NOWHERE


@pytest.mark.parametrize(
    "dressed",
    [
        b"x&#122;q{}qz",
        b"%7Aq{}q%7a",
        b"ZQ{}QZ",
        b"<b>zq</b>{}<i>qz</i>",
        b"\\u007aq{}qz",
    ],
)
def test_the_scan_sees_through_clothes(dressed):
    assert tokens_in(dressed.replace(b"{}", b"0123456789abcd")) == {"zq0123456789abcdqz"}


@pytest.mark.parametrize("before", range(4))
def test_the_scan_sees_through_encodings(before):
    import base64

    plain = b"x" * before + b"zq0123456789abcdqz and more"
    for encoded in (base64.b64encode(plain), base64.urlsafe_b64encode(plain), plain.hex().encode()):
        assert tokens_in(b"value=" + encoded) == {"zq0123456789abcdqz"}


# --- what others decided ---------------------------------------------------------------------------------------------


def do(one, truth, nick, rng, *, until=99, **told):
    """Let somebody do so many passes, beside the server."""
    with one.project.reading() as connection:
        person = people.find_person(connection, one.names[nick])
    for _ in range(until):
        passes = [(task, name) for task in truth.tasks if (name := truth.open_pass(nick, task)) is not None]
        if not passes:
            return
        task, name = passes[0]
        form = fill(rng, truth.tasks[task], name, unanswered=one.unanswered in truth.tasks[task].owners)
        entries = [
            {field: told.get(field, "yes") for field in entry if field in told or field not in ("failure", "code")}
            for entry in form.entries
        ]
        if name == "A":
            entries = [{"substantive": "yes", "sound": told.get("sound", "yes")} for _ in entries]
            entries = [entry | ({"failure": "L1"} if entry["sound"] == "no" else {}) for entry in entries]
        key = choose_key(one.project, task, name, f"{task}{name}")
        outcome = submissions.submit_pass_and_commit(one.project, person, task, name, entries, key)
        assert outcome.receipt, outcome
        truth.given[task][name] = (entries, "")
        if len(truth.given[task]) == len(truth.tasks[task].passes):
            truth.done[nick] = truth.done.get(nick, 0) + 1


def plain(answer):
    """A page without what is new each time it is opened."""
    return re.sub(
        r'(name="key" value=")[^"]*|/tasks/[\w-]+|receipt=[\w-]+|<time.*?</time>|<code>[\w-]+|Receipt [\w-]+',
        r"\1",
        answer.text,
    )


@pytest.mark.slow
@pytest.mark.parametrize("nick", ["ann", "sue", "fay"])
def test_what_others_decide_changes_no_byte_of_a_page(one, everybody, nick):
    """Of two who label the same, one has finished with it or not begun: the other cannot tell."""
    truth = Truth(one)
    last = 4 if nick == "ann" else 1
    for passes in range(last):
        task = next(task for task in truth.tasks if truth.open_pass(nick, task))
        paths = (f"/tasks/{task}", "/", "/finished")
        before = [plain(everybody.get(nick, path)) for path in paths]
        if passes == last - 1:
            for other in CREW:
                if other not in (nick, "lea", "eve", "sol", "fin"):
                    do(one, truth, other, Random(passes), closed="no", eligible="yes")
        assert [plain(everybody.get(nick, path)) for path in paths] == before
        do(one, truth, nick, Random(1), until=1)


def case_of(folder, second):
    """All pages an adjudicator meets at a case, where the second annotator differs in something."""
    with study(folder) as setup, crowd(setup) as everybody:
        truth = Truth(setup)
        for nick in ("ann", "bob", "cyd", "dan"):
            do(setup, truth, nick, Random(1), **(second if nick == "cyd" else {}))
        pages = [plain(everybody.get("eve", "/"))]
        task = everybody.post("eve", "/take").headers["location"].rsplit("/")[-1]
        truth.know(next(candidate for candidate in setup.tasks() if candidate.id == task))
        for _ in truth.tasks[task].passes:
            pages.append(plain(everybody.get("eve", f"/tasks/{task}")))
            do(setup, truth, "eve", Random(1), until=1)
        return [*pages, plain(everybody.get("eve", "/finished"))]


@pytest.mark.slow
def test_why_a_case_is_in_the_queue_changes_no_byte_of_a_page(tmp_path):
    """Whether they differ in the first pass, in the last, or agree on what cannot be right, is not to be seen."""
    whys = ({"sound": "no"}, {"aligned": "no"}, {"complete": "no"}, {"correct": "no"})
    pages = [case_of(tmp_path / f"{number}", why) for number, why in enumerate(whys)]
    assert all(page == pages[0] for page in pages[1:])


@pytest.mark.slow
def test_an_adjudicator_sees_labels_only_where_the_project_says_so(tmp_path):
    for number, disclosed in enumerate((False, True)):
        with study(tmp_path / f"{number}", labels_to_adjudicator=disclosed) as setup, crowd(setup) as everybody:
            truth = Truth(setup)
            for nick in ("ann", "bob", "cyd", "dan"):
                do(setup, truth, nick, Random(1), **({"aligned": "no"} if nick == "cyd" else {}))
            where = everybody.post("eve", "/take").headers["location"]
            assert ('class="others"' in everybody.get("eve", where).text) is disclosed


def test_it_is_not_told_that_there_is_no_answer(one, everybody):
    """A pass that will be left out is refused in the words of one whose turn has not come."""
    truth = Truth(one)
    without = next(task for task in truth.tasks.values() if task.passes == "ABD")
    nick = without.nick
    do(one, truth, nick, Random(1), until=4 * (without.place - 1))
    assert truth.open_pass(nick, without.id) == "A"
    for what in ("", "/draft"):
        fields = {"key": "k", "1.closed": "yes"}
        answers = [everybody.post(nick, f"/tasks/{without.id}/{name}{what}", fields) for name in "BCD"]
        assert {(answer.status_code, answer.content) for answer in answers} == {(409, answers[0].content)}


# --- what is read ----------------------------------------------------------------------------------------------------

LATER = {
    "annotate_answers": "CD",
    "annotate_references": "DS",
}
"""Tables that only these passes may read."""
SQLITE_READ = 20


def columns_read(one, ask):
    """The columns of the database that are read while something is asked for, as the database itself says."""
    read = set()

    def note(action, table, column, *_):
        if action == SQLITE_READ:
            read.add((table, column))
        return 0

    event.listen(one.project.engine, "connect", lambda connection, _: connection.set_authorizer(note))
    one.project.engine.dispose()
    ask()
    return read


@pytest.mark.parametrize("name, nick", [*((name, "ann") for name in PASSES), ("S", "sue"), ("F", "fay")])
def test_a_pass_reads_no_column_it_does_not_show(one, everybody, name, nick):
    truth = Truth(one)
    do(one, truth, nick, Random(1), until=PASSES.find(name) if nick == "ann" else 0)
    task = next(task for task in truth.tasks if truth.open_pass(nick, task) == name)
    read = columns_read(one, lambda: everybody.get(nick, f"/tasks/{task}"))
    tables = {table for table, _ in read}
    assert {table for table in LATER if table in tables} == {table for table, names in LATER.items() if name in names}
    assert not tables & {"annotate_question_origins", "annotate_response_origins", "annotate_adjudications"}
    assert not {column for table, column in read if table in ("annotate_questions", "annotate_responses")} & {"key"}
    assert ("annotate_submissions", "entries") not in read
    assert ("annotate_questions", "question") in read or name == "F"


def test_no_query_of_a_pass_names_a_later_field():
    """The same, of the texts of the queries."""
    fields = {"answer": "annotate_answers", "reference": "annotate_references"}
    for name, query in visible.PASS_QUERIES.items():
        for kind, table in fields.items():
            assert (table in query.text) is (kind in SHOWN[name]), (name, kind)


def test_whoever_has_no_account_learns_nothing(one, everybody):
    for path in ("/", "/finished", "/account", "/dashboard", *(f"/tasks/{task.id}" for task in one.tasks())):
        answer = everybody.get(NOBODY, path)
        assert (answer.status_code, answer.headers["location"], answer.content) == (303, "/login", b"")

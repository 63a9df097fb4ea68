"""``eclose annotate`` and ``eclose label`` from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from http.cookiejar import CookieJar
from stat import S_IMODE

import pytest
from typer.testing import CliRunner

from eclose.cli.main import app
from eclose.errors import SettingError, UserError
from eclose.files.jsonl import write_records
from eclose.files.run_folder import INSTANCES_FILE, JUDGMENTS_FILE, RESPONSES_FILE
from eclose_annotate.cli import annotate as project_commands
from eclose_annotate.project import open_annotation_project
from tests.generating import recipe
from tests.projects import material, who, work_off

PASSWORD = "plenty of plain words"


def run(*words):
    result = CliRunner().invoke(app, ["annotate", *map(str, words)], catch_exceptions=False)
    return result.exit_code, result.output


@pytest.fixture
def source(tmp_path):
    instances, responses = material(6)
    folder = tmp_path / "run"
    write_records(folder / INSTANCES_FILE, instances)
    write_records(folder / RESPONSES_FILE, responses)
    return folder


@pytest.fixture
def study(tmp_path, source):
    code, output = run("init", tmp_path / "study", source, "--annotators", "ann, bob,cyd,dan", "--adjudicators", "eve")
    assert code == 0, output
    return tmp_path / "study", output


def test_init_says_what_everybody_gets_and_how_they_get_in(study):
    folder, output = study
    assert "6 questions, 12 responses" in output
    assert "response: 24 tasks, 6 for each of 4" in output
    assert "each group of 2 has 2 responses in common" in output
    assert re.findall(r"^  (\w+) \((\w+)\): http://127.0.0.1:8300/invitation/\S{43}$", output, re.M) == [
        ("lead", "lead"), ("ann", "annotator"), ("bob", "annotator"), ("cyd", "annotator"), ("dan", "annotator"),
        ("eve", "adjudicator"),
    ]  # fmt: skip
    assert json.loads((folder / "project.json").read_text())["name"] == "study"


@pytest.mark.slow
def test_what_fails_leaves_nothing(tmp_path, source):
    folder = tmp_path / "study"
    with pytest.raises(SettingError, match="there are only 2"):
        run("init", folder, source, "--annotators", "ann,bob")
    assert not folder.exists()
    assert run("init", folder, source, "--annotators", "ann,bob", "--share-questions")[0] == 0
    with pytest.raises(UserError, match="holds a project already"):
        run("init", folder, source)


def test_a_failed_init_removes_its_own_files_only(tmp_path, source):
    """Also the files of an import, and parents that it created; what was there before stays."""
    table, deep, used = tmp_path / "log.jsonl", tmp_path / "studies" / "2026" / "first", tmp_path / "used"
    row = {"question": "Who?", "contexts": ["It was Ann."], "answer": "Ann"}
    table.write_text(json.dumps(row) + "\n")
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    for folder in (deep, used):
        with pytest.raises(SettingError, match="with 1 annotator\\."):
            run("init", folder, table, "--annotators", "ann")
    assert not deep.parents[1].exists()
    assert [path.name for path in used.iterdir()] == ["notes.txt"]
    unreadable = tmp_path / "unreadable.csv"
    unreadable.write_text("foo,bar\n1,2\n")
    with pytest.raises(UserError):
        run("init", deep, unreadable)
    assert not deep.parents[1].exists()


def material_of(folder):
    with closing(sqlite3.connect(folder / "project.sqlite")) as connection:
        return [
            {json.loads(key) for (key,) in connection.execute(f"SELECT key FROM annotate_{table}")}
            for table in ("questions", "responses")
        ]


@pytest.mark.slow
def test_init_draws_a_sample_of_the_run(tmp_path, source):
    def draw(n, *options):
        folder = tmp_path / f"study-{n}{''.join(options)}"
        code, printed = run("init", folder, source, "--n", n, *options)
        assert code == 0
        return folder, printed, *material_of(folder)

    folder, printed, questions, small = draw(5)
    answered = {row["id"]: row["instance_id"] for row in lines(source / RESPONSES_FILE)}
    assert (len(small), questions) == (5, {answered[key] for key in small})
    assert f"{len(questions)} questions, 5 responses, drawn of 12 with equal probability" in printed
    with closing(sqlite3.connect(folder / "project.sqlite")) as connection:
        events = [json.loads(detail) for (detail,) in connection.execute("SELECT detail FROM annotate_events")]
    assert {"questions": len(questions), "responses": 5, "drawn_of": 12} in events
    # A larger sample with the same seed contains the smaller one; another seed draws others.
    assert small < draw(8)[3]
    assert small != draw(5, "--seed", "7")[3]
    printed, everything = draw(50)[1], draw(50, "--short")[3]
    assert ("6 questions, 12 responses, drawn of 12" in printed, everything) == (True, set(answered))


def test_a_sample_of_families_is_refused(tmp_path):
    with pytest.raises(SettingError, match="--n does nothing"):
        run("init", tmp_path / "study", "--audit", tmp_path, "--n", "3")


def test_a_closed_pipe_takes_no_project_back(tmp_path, source, monkeypatch):
    """Links are printed when the project is stored: of ``init | head``, those that were seen work."""

    def closed(*_):
        raise BrokenPipeError

    folder = tmp_path / "study"
    with monkeypatch.context() as patch:
        patch.setattr(project_commands, "_print_start", closed)
        with pytest.raises(BrokenPipeError):
            run("init", folder, source)
    assert run("status", folder)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(project_commands, "_print_start", closed)
        with pytest.raises(BrokenPipeError):
            run("assign", folder, "--annotators", "ann,bob,cyd,dan")
    assert "ann" in run("status", folder)[1]


def test_nobody_has_two_roles(tmp_path, source):
    with pytest.raises(SettingError, match="ann: is named for two roles"):
        run("init", tmp_path / "study", source, "--annotators", "ann,bob,cyd,dan", "--screeners", "ann,sue")


def test_password_of_a_database_is_not_kept(tmp_path, source):
    with pytest.raises(SettingError, match="PGPASSWORD"):
        run("init", tmp_path / "study", source, *recipe(tmp_path, database="postgresql://me:secret@localhost/x"))


@pytest.mark.slow
def test_work_can_be_given_out_later_and_once(tmp_path, source):
    folder = tmp_path / "study"
    assert "Links" in run("init", folder, source)[1]
    code, output = run("assign", folder, "--annotators", "ann,bob,cyd,dan", "--screeners", "sue,sam")
    assert (code, "screening: 12 tasks, 6 for each of 2" in output) == (0, True)
    with pytest.raises(UserError, match="tasks were assigned before"):
        run("assign", folder, "--annotators", "eve,fay,gus,hal")


@pytest.mark.slow
def test_status_tells_how_far_everybody_is(study):
    folder, _ = study
    project = open_annotation_project(folder)
    work_off(project, who(project, "ann"))
    project.close()
    output = run("status", folder)[1]
    assert re.search(r"^ann +annotator +invited +6 +6$", output, re.M)
    assert re.search(r"^bob +annotator +invited +0 +6$", output, re.M)
    assert re.search(r"^response +12 +0 +0 +0 +0$", output, re.M)


def test_status_counts_questions_by_the_outcome_of_screening(tmp_path, source):
    folder = tmp_path / "study"
    assert run("init", folder, source, "--annotators", "ann,bob,cyd,dan", "--screeners", "sue,tom")[0] == 0
    assert "Screening: 6 not settled" in run("status", folder)[1]


@pytest.mark.slow
def test_who_lost_a_password_gets_a_new_link_and_strangers_none(study):
    folder, _ = study
    assert re.search(r"^ann \(annotator\): http\S+/invitation/\S{43}$", run("invite", folder, "ann")[1])
    assert "max (adjudicator)" in run("invite", folder, "max", "--role", "adjudicator")[1]
    assert re.search(r"^ann \(annotator\): http", run("invite", folder, "ANN")[1])
    with pytest.raises(
        SettingError, match=r"zoe: is not in the project.*eclose annotate reassign FOLDER PERSON --new NAME"
    ):
        run("invite", folder, "zoe")


def test_names_that_differ_in_case_only_are_refused(tmp_path, source):
    with pytest.raises(SettingError, match=r"Ann, ann: .*case"):
        run("init", tmp_path / "study", source, "--annotators", "Ann,bob,cyd,dan", "--adjudicators", "ann")


def test_links_name_the_address_of_init(tmp_path, source):
    folder = tmp_path / "study"
    crew = ("--annotators", "ann,bob,cyd,dan")
    assert "http://127.0.0.1:8412/invitation/" in run("init", folder, source, *crew, "--port", "8412")[1]
    assert "http://127.0.0.1:8412/invitation/" in run("invite", folder, "ann")[1]
    assert (
        "https://x.example/invitation/"
        in run("invite", folder, "ann", *recipe(tmp_path, public_url="https://x.example"))[1]
    )


def test_a_public_url_without_tls_needs_a_setting(tmp_path, source):
    folder, url = tmp_path / "study", "http://annotate.example.org"
    with pytest.raises(SettingError, match="in clear text"):
        run("init", folder, source, "--public-url", url)
    assert not folder.exists()
    assert run("init", folder, source, "--public-url", url, *recipe(tmp_path, insecure_http=True))[0] == 0
    assert f"{url}/invitation/" in run("invite", folder, "lead")[1]
    with pytest.raises(SettingError, match="in clear text"):
        run("serve", folder, "--public-url", url)


def modes(folder):
    return {path.relative_to(folder).as_posix(): S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def test_files_are_readable_by_their_owner_only(tmp_path, source):
    """Of the project, its database while it is in use, and an export, under a umask that allows everything."""
    folder, out, previous = tmp_path / "study", tmp_path / "out", os.umask(0)
    try:
        run("init", folder, source, "--annotators", "ann,bob,cyd,dan")
        project = open_annotation_project(folder)
        work_off(project, who(project, "ann"))
        in_use = modes(folder)
        run("export", folder, "--out", out)
        project.close()
    finally:
        os.umask(previous)
    assert {
        "project.sqlite",
        "project.sqlite-wal",
        "project.sqlite-shm",
        "project.json",
        "audit-head.txt",
    } < in_use.keys()
    for files in (in_use, modes(out)):
        assert files.pop(".") == 0o700
        assert set(files.values()) == {0o600}, files


@pytest.mark.parametrize("line", ["", "nonsense"])
def test_an_empty_head_is_a_message(study, line):
    folder, _ = study
    (folder / "audit-head.txt").write_text(line)
    code, output = run("status", folder)
    assert (code, "so whether the database lost its end cannot be checked" in output.replace("\n", " ")) == (0, True)


def test_the_head_can_lie_elsewhere(tmp_path, source):
    folder, head, copy = tmp_path / "study", tmp_path / "safe" / "head.txt", tmp_path / "copy.txt"
    assert run("init", folder, source, "--annotators", "ann,bob,cyd,dan", *recipe(tmp_path, audit_head=head))[0] == 0
    assert not (folder / "audit-head.txt").exists()
    copy.write_bytes(head.read_bytes())
    run("invite", folder, "ann")
    assert head.read_bytes() != copy.read_bytes()
    assert "cannot be checked" not in run("status", folder)[1]
    head.unlink()
    assert "head.txt: is missing, so whether the database lost its end" in run("status", folder)[1].replace("\n", " ")


@pytest.mark.slow
def test_other_guidelines_are_refused(study):
    folder, _ = study
    with closing(sqlite3.connect(folder / "project.sqlite")) as connection:
        connection.execute(
            "UPDATE annotate_settings SET value = '{\"judge_closure.md\": \"x\"}' WHERE name = 'guidelines'"
        )
        connection.commit()
    with pytest.raises(UserError, match=r"other guidelines \(judge_closure.md\)"):
        run("status", folder)


class Person:
    """Somebody with a browser that keeps cookies and sends forms."""

    def __init__(self):
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def get(self, url):
        with self.opener.open(url, timeout=20) as answer:
            return answer.geturl(), answer.read().decode()

    def post(self, url, **fields):
        sent = urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(url, sent, {"sec-fetch-site": "same-origin"})
        with self.opener.open(request, timeout=20) as answer:
            return answer.geturl(), answer.read().decode()


def started(*words):
    """A command that serves, and the first line with an address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "eclose.cli.main", *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if (match := re.search(r"http://\S+", line)) is not None:
            return process, match[0]
    raise AssertionError("it did not start")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def hidden(page, name):
    return re.search(rf'name="{name}" value="([^"]*)"', page)[1]


@pytest.mark.slow
def test_from_the_link_to_the_first_receipt(study):
    folder, output = study
    link = re.search(r"ann \(annotator\): (\S+)", output)[1]
    process, where = started("annotate", "serve", folder, "--port", "0")
    try:
        ann = Person()
        url, page = ann.post(where + urllib.parse.urlsplit(link).path, password=PASSWORD, again=PASSWORD)
        assert url == f"{where}/"
        task = re.search(r'href="(/tasks/[^"]+)"', page)[1]
        _, page = ann.get(where + task)
        steps = sorted(set(re.findall(r'name="(\d+)\.substantive"', page)))
        fields = {f"{number}.substantive": "no" for number in steps}
        url, page = ann.post(f"{where}{task}/A", csrf=hidden(page, "csrf"), key=hidden(page, "key"), **fields)
        assert re.fullmatch(rf"{re.escape(where + task)}\?receipt=\d+-[0-9a-f]{{12}}", url)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ann.post(where + urllib.parse.urlsplit(link).path, password=PASSWORD, again=PASSWORD)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.slow
def test_label_from_the_page_to_corrected_rates(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "demo"
    (folder / "validation.json").unlink()
    truth = {row["response_id"]: row["verdict"] for row in lines(folder / "planted.jsonl")}
    process, where = started("label", folder, "--n", "12", "--no-browser")
    me = Person()
    url, page = me.get(where)
    project = open_annotation_project(folder / "labels")
    with closing(sqlite3.connect(folder / "labels" / "project.sqlite")) as connection:
        tasks = dict(
            connection.execute(
                "SELECT t.id, r.key FROM annotate_tasks t JOIN annotate_responses r ON r.id = t.response"
            )
        )
    project.close()
    where = url.partition("?")[0].rstrip("/")
    url, page = me.get(where + re.search(r'href="(/tasks/[^"]+)"', page)[1])
    # The last pass of a response leads to the next response.
    while "/tasks/" in url:
        path, task = re.search(r'action="(/tasks/([^"/]+)/\w)"', page).groups()
        labels = truth[json.loads(tasks[task])]
        names = {name for _, name in re.findall(r'name="(1)\.(\w+)"', page)}
        fields = {f"1.{name}": "yes" if labels[name] else "no" for name in names}
        url, page = me.post(where + path, csrf=hidden(page, "csrf"), key=hidden(page, "key"), **fields)
    _, page = me.get(f"{where}/")
    me.post(f"{where}/labels/finish", csrf=hidden(page, "csrf"))
    rest, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "12 of 12 responses labelled" in rest
    assert "Rates are corrected from 30 labels on" in rest
    for row in lines(folder / "labels" / "verdicts.jsonl"):
        # People are not asked whether a response abstains.
        for name, value in truth[row["response_id"]].items() - {("abstained", True)}:
            assert row["verdict"][name] in (value, None)
    validation = json.loads((folder / "validation.json").read_text())
    assert (validation["labelled"], validation["stratified"]) == (12, True)
    diagnosis = CliRunner().invoke(app, ["diagnose", str(folder)], catch_exceptions=False)
    assert diagnosis.exit_code == 0
    assert "sampled by the judge's labels" in (folder / "report" / "report.md").read_text()
    assert (folder / JUDGMENTS_FILE).exists()

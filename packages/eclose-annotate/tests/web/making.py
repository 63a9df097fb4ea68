"""Sheets of every kind and pass, made in the world, and every other page with what it may be given."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from eclose.prompts import disclosure
from eclose.prompts.material_json import disclose_passages
from eclose.values.response import Response, Trace
from eclose_annotate import visible
from eclose_annotate.choices import PracticeMode
from eclose_annotate.family_audit.material import AuditorMaterial
from eclose_annotate.forms import PASSES_BY_TASK_KIND, AnnotationTaskKind
from eclose_annotate.labelling.undo import OwnPass, OwnTask, ReopenedPass
from eclose_annotate.people.people import AnnotatorPool, Person, PersonRole
from eclose_annotate.queues import TaskProgress
from eclose_annotate.results.agreement_pairs import LabelMatch, PeopleAgreement, measure_person_agreement
from eclose_annotate.submissions import TaskPageContent
from eclose_annotate.web.dashboard import DashboardPerson, DashboardQueue, LeadDashboard, PersonTimes
from eclose_annotate.web.lead import CONFIRMED_CHANGES, DecisionAgreement, list_offered_roles
from eclose_annotate.web.pages import render_annotation_page
from eclose_annotate.web.practice import TrainingProgress, list_training_items
from eclose_world.faulty.broken_responses import FailurePlan, break_response
from eclose_world.make.families import make_world_families
from eclose_world.make.instances import make_world_items

TASK, KEY, CSRF = "tAsk-4nQ", "kEy-77", "cSrf-31"
ANNOTATOR = Person(3, "ann", PersonRole.ANNOTATOR, AnnotatorPool.RESPONSES, active=True)
ADJUDICATOR = Person(9, "adj", PersonRole.ADJUDICATOR, AnnotatorPool.RESPONSES, active=True)
LEAD = Person(1, "lead", PersonRole.LEAD, AnnotatorPool.NONE, active=True)
PROGRESS = TaskProgress(211, 866, 96.0)
ASIDE = ("Let us look at the passages one after the other.", "So the chain is complete.")


@cache
def material(steps: int = 8):
    """A question with twenty passages, and a response with so many steps."""
    item = next(item for item in make_world_items("musique", 3) if len(item.instance.evidence) == 20)
    broken = break_response(item, FailurePlan(), "1")
    assert broken is not None
    texts = (ASIDE * steps)[:1] + broken.response.trace.texts + ASIDE[1:] * steps
    response = replace(broken.response, trace=Trace.of(*texts[:steps]))
    return item.instance, response


@cache
def a_family() -> AuditorMaterial:
    """A family with one of its edits."""
    family = next(make_world_families("hotpot", 5))
    return AuditorMaterial.of(family, family.evidence_edits[0])


def disclose(kind: AnnotationTaskKind, name: str, instance, response: Response, *, hide: bool = False):
    """What a pass shows."""
    if kind is AnnotationTaskKind.FAMILY:
        return a_family()
    steps, evidence = response.trace.texts, () if hide else disclose_passages(instance.evidence)
    trace = {"question": instance.question, "evidence": evidence, "trace": "\n".join(steps), "steps": steps}
    return {
        "S": lambda: disclosure.disclose_for_eligibility(instance),
        "A": lambda: disclosure.disclose_for_soundness(instance, response),
        "B": lambda: visible.AnnotatorTraceMaterial(**trace),
        "C": lambda: visible.AnnotatorAnswerMaterial(**trace, answer=response.answer),
        "D": lambda: visible.AnnotatorReferenceMaterial(
            **trace, answer=response.answer, reference=instance.reference_answer, aliases=instance.aliases
        ),
    }[name]()


def sheet(
    kind: AnnotationTaskKind = AnnotationTaskKind.RESPONSE,
    name: str = "A",
    *,
    steps: int = 8,
    hide: bool = False,
    **other,
) -> TaskPageContent:
    """A page of work, with material of the world unless told otherwise."""
    form = next(pass_form for pass_form in PASSES_BY_TASK_KIND[kind] if pass_form.name == name)
    disclosed = other.pop("material", None) or disclose(kind, name, *material(steps), hide=hide)
    settings = {"draft": (), "progress": PROGRESS} | other
    return TaskPageContent(
        task=TASK,
        kind=kind,
        passes=tuple(pass_form.name for pass_form in PASSES_BY_TASK_KIND[kind]),
        form=form,
        material=disclosed,
        key=KEY,
        **settings,
    )


def given(person: Person | None = ANNOTATOR, **other):
    """What every page is given, and more."""
    return {"project": "gap study", "person": person, "csrf": CSRF, **other}


def work(one: TaskPageContent, *, person: Person = ANNOTATOR, entries=(), problems=(), **other) -> str:
    """A page of work."""
    settings = {"receipt": None, "undo": None} | other
    return render_annotation_page(
        "work.html", **given(person, sheet=one, entries=entries, problems=problems, **settings)
    )


AT = "2026-11-15T18:40:00+00:00"
PAIRS = (
    PeopleAgreement(("a1", "a2"), 53, {"L": LabelMatch(40, 53), "A": LabelMatch(50, 53), "Acc": LabelMatch(53, 53)}),
    PeopleAgreement(("a1", "a3"), 51, {"L": LabelMatch(49, 51), "A": LabelMatch(50, 51), "Acc": LabelMatch(51, 51)}),
)


def a_board(**other) -> LeadDashboard:
    """A project half way."""
    people = (
        DashboardPerson("lead", "lead", "none", 0, 0, True, True, "2026-11-15T18:49:02.120000+00:00"),
        DashboardPerson("s1", "screener", "questions", 1300, 1300, True, True, "2026-11-02T09:10:11+00:00", 41.0),
        *(
            DashboardPerson(
                f"a{n}", "annotator", "responses", 140 * n, 866, n != 4, n != 6, None if n > 2 else AT, 71.5 * n, 7
            )
            for n in range(1, 7)
        ),
        DashboardPerson("a7", "adjudicator", "responses", 12, 31, True, True, "2026-11-15T17:00:00+00:00", 190.0, 1),
    )
    queues = (DashboardQueue("response", 2598, 800, 19, 12, 781), DashboardQueue("screening", 1300, 1300, 0, 184, 1300))
    settings = {"people": people, "queues": queues}
    settings |= {"pools": frozenset({"responses", "questions"}), "events": 4711, "submissions": 3311, "last_hour": 142}
    return LeadDashboard(**(settings | other))


def dashboard(**other) -> str:
    """The lead's page."""
    settings = {"board": a_board(), "links": {}, "notice": "", "problem": "", "entered": ("", "")}
    settings |= {"roles": list_offered_roles(a_board().pools), "origin": "https://label.example/"}
    return render_annotation_page("dashboard.html", **given(LEAD, **(settings | other)))


def agreement(**other) -> str:
    """The lead's page of agreement and times."""
    decisions = (
        DecisionAgreement("Substantive status", 4012, "99.9 %", "0.989"),
        DecisionAgreement("Step soundness", 3890, "95.1 %", "0.726"),
        DecisionAgreement("Answer correctness", 800, "100.0 %", "undefined, unanimous"),
    )
    times = (
        PersonTimes("a1", {"A": (171.0, 140), "B": (21.5, 140), "C": (14.0, 140), "D": (11.0, 139)}, 3),
        PersonTimes("s1", {"S": (41.0, 1299)}, 0),
    )
    settings = {"decisions": decisions, "pairs": PAIRS, "persons": measure_person_agreement(PAIRS), "times": times}
    return render_annotation_page("agreement.html", **given(LEAD, **(settings | {"labels": ["L", "A", "Acc"]} | other)))


def confirm(change: str, member: int = 2) -> str:
    """The page that asks the lead before a change of a person."""
    settings = {"member": a_board().people[member], "change": change, "successors": ["a2", "a3", "a5"]}
    return render_annotation_page("confirm.html", **given(LEAD, **settings))


SAID = {
    "A": (
        {"substantive": "no"},
        {"substantive": "yes", "sound": "yes"},
        {"substantive": "yes", "sound": "no", "failure": "L2"},
    ),
    "B": ({"aligned": "yes"},),
    "C": ({"closed": "no"},),
    "D": ({"correct": "yes", "complete": "no"},),
}
FINISHED = tuple(
    OwnTask(
        position,
        f"oLd-{position}",
        AnnotationTaskKind.RESPONSE,
        "Where was the director of the film that won the second prize born?",
        tuple(
            OwnPass(
                name,
                SAID[name],
                False,
                f"{position}-a1b2c3d4e5f6",
                "2026-11-15T18:40:00+00:00",
                "rEo-1" if name == "D" else None,
            )
            for name in "ABCD"
        ),
    )
    for position in range(211, 206, -1)
)
GUIDELINES = tuple(
    (kind, form)
    for kind in (AnnotationTaskKind.RESPONSE, AnnotationTaskKind.SCREENING, AnnotationTaskKind.FAMILY)
    for form in PASSES_BY_TASK_KIND[kind]
)


def label_home(finished: int, **other) -> str:
    """The overview of eclose label."""
    settings = {"progress": TaskProgress(finished, 20, 44.0), "receipt": None, "opened": False, "ended": False}
    settings |= {"next_url": f"/tasks/{TASK}", "single": True} | other
    return render_annotation_page("label_home.html", **given(**settings))


def practice(person: Person = ANNOTATOR, **other) -> str:
    """A practice example."""
    item = next(item for item in list_training_items(ANNOTATOR, PracticeMode.OPTIONAL) if item.id == "gap")
    settings = {"item": item, "label": None, "answered": 4, "correct": 4, "total": 7, "results": ()} | other
    return render_annotation_page("training.html", **given(person, **settings))


def plain_pages() -> dict[str, str]:
    """Every page that is no page of work."""
    home = {
        "progress": PROGRESS,
        "next_url": f"/tasks/{TASK}",
        "take": False,
        "receipt": "4711-a1b2c3d4",
        "undo": None,
        "amendable": (),
        "guidelines": GUIDELINES[:4],
        "practised": 0,
        "must_practise": False,
        "examples": 7,
    }
    opened = (ReopenedPass("rEo-1", "B", 12, "Where was she born?"),)
    return {
        "login": render_annotation_page(
            "login.html", **given(None, csrf=None, name="", problem="Name or password is wrong.")
        ),
        "invitation": render_annotation_page(
            "invitation.html",
            **given(None, name="ann", role=PersonRole.ANNOTATOR, problems=(), action="/invitation/tOk"),
        ),
        "account": render_annotation_page(
            "account.html", **given(problems=("The current password is wrong.",), changed=False)
        ),
        "home": render_annotation_page("home.html", **given(**home)),
        "home-practice": render_annotation_page("home.html", **given(**(home | {"must_practise": True}))),
        "home-take": render_annotation_page(
            "home.html", **given(ADJUDICATOR, **(home | {"next_url": None, "take": True, "amendable": opened}))
        ),
        "finished": render_annotation_page("finished.html", **given(tasks=FINISHED)),
        "training": practice(),
        "training-answered": practice(label="yes", answered=5, correct=4),
        "training-results": practice(LEAD, item=None, results=(TrainingProgress("ann", 7, 6, 7),)),
        "guideline": render_annotation_page("guideline.html", **given(guidelines=GUIDELINES)),
        "dashboard": dashboard(
            links={"zoe": "https://label.example/invitation/tOkEn-22"}, notice="zoe has taken over 12 tasks."
        ),
        "agreement": agreement(),
        **{f"confirm-{change}": confirm(change) for change in CONFIRMED_CHANGES},
        "label-home": label_home(finished=7),
        "label-end": label_home(finished=20),
        "labels": render_annotation_page("finished.html", **given(tasks=FINISHED, single=True)),
        "error": render_annotation_page(
            "error.html", **given(None, csrf=None, status=404, message="There is nothing here.", back=None)
        ),
    }


def work_pages() -> dict[str, str]:
    """Every page of work."""
    filled = (
        {"substantive": "no"},
        {"substantive": "yes", "sound": "yes"},
        {"substantive": "yes", "sound": "no", "failure": "L2"},
    )
    others = (
        tuple({"substantive": "yes", "sound": "yes"} for _ in range(8)),
        tuple({"substantive": "yes", "sound": "no", "failure": "L1"} for _ in range(8)),
    )
    page, amended = sheet(name="B", draft=({"aligned": "no"},)), {"problems": (), "entries": ({"aligned": "no"},)}
    return {
        "work-A": work(sheet(), entries=filled),
        "work-A-others": work(sheet(others=others), person=ADJUDICATOR),
        "work-B": work(sheet(name="B"), receipt="4711-a1b2c3d4", undo=f"/tasks/{TASK}/A/undo"),
        "work-B-hidden": work(sheet(name="B", hide=True)),
        "work-C": work(sheet(name="C")),
        "work-D": work(sheet(name="D")),
        "work-short": work(sheet(AnnotationTaskKind.SHORT, "B")),
        "work-screening": work(sheet(AnnotationTaskKind.SCREENING, "S")),
        "work-family": work(sheet(AnnotationTaskKind.FAMILY, "F")),
        "amend": render_annotation_page("amend.html", **given(sheet=page, action="/amend/rEo-1", **amended)),
    }

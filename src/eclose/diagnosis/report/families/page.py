"""Families as a page: one file that needs no network, no server, no other file, and no script.

The template escapes every value it is given. A policy in the page allows the one style it came with and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.report.html_template import page_text, source_hash, template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.diagnosis.report.families.view import FamilyDisplay

POLICY = "default-src 'none'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
"""What the page may do. No script is allowed, since it has none."""


def render_family_page(families: Sequence[FamilyDisplay], *, name: str, told: str, policy: bool = True) -> str:
    """The whole page. ``name`` says where the families are from, ``told`` which of them these are.

    Without its policy it must be just as safe; tests open it that way too.
    """
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    # The report's style for what the two have in common: colours, type, badges, tables.
    style = page_text("page.css") + page_text("family.css")
    html: str = template("family.html").render(
        families=families,
        name=name,
        told=told,
        title=families[0].id if len(families) == 1 else "Families",
        policy=POLICY.format(style=source_hash(style)) if policy else "",
        style=Markup(style),  # our own text, not a value
    )
    return html

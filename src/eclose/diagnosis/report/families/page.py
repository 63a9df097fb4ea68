"""Families as an HTML page: one file that needs no network, no server, no other file and no script.

The template escapes every value. A content security policy allows only the style of the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eclose.diagnosis.report.html_template import page_text, source_hash, template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eclose.diagnosis.report.families.view import FamilyDisplay

POLICY = "default-src 'none'; style-src '{style}'; img-src data:; base-uri 'none'; form-action 'none'"
"""Content security policy; the page has no script, so none is allowed."""


def render_family_page(families: Sequence[FamilyDisplay], *, name: str, selection: str, policy: bool = True) -> str:
    """Return the page. ``name`` is the origin of the families, ``selection`` says which of them are shown.

    Without its policy it must be just as safe, and tests open it that way as well.
    """
    from markupsafe import Markup  # noqa: PLC0415 - belongs to jinja2, which only pages need

    # The report's style has the shared part: colours, type, badges, tables.
    style = page_text("page.css") + page_text("family.css")
    html: str = template("family.html").render(
        families=families,
        name=name,
        selection=selection,
        title=families[0].id if len(families) == 1 else "Families",
        policy=POLICY.format(style=source_hash(style)) if policy else "",
        style=Markup(style),  # part of the package, not a value
    )
    return html

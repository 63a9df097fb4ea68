"""Agreement as Markdown and LaTeX: nothing that comes from a file is markup."""

from __future__ import annotations

from markdown_it import MarkdownIt

from eclose_annotate.results.agreement_tables import AgreementTable, format_agreement_latex, format_agreement_markdown

HOSTILE = r"[x](javascript:alert(1)) | \input{/etc/passwd} % <b>_a_</b> & *"
TABLE = AgreementTable(
    "By dataset", ("dataset", "n"), ((HOSTILE, "1"), ("[a]", "2"), ("Derived", "3")), ("A note.",), "Derived"
)


def test_markdown_shows_the_text_as_it_is():
    html = MarkdownIt("commonmark").enable("table").render(format_agreement_markdown([TABLE]))
    assert html.count("<tr>") == 4
    assert "<a" not in html
    assert "<b>" not in html
    assert "<em>" not in html
    assert "[x](javascript:alert(1)) | \\input{/etc/passwd}" in html
    assert "A note." in html


def test_latex_has_no_command_but_ours():
    text = format_agreement_latex([TABLE])
    assert r"\input" not in text
    assert r"\textbackslash{}input\{/etc/passwd\}" in text
    # A row that begins with a bracket is no argument of the line break before it.
    assert "\n{[a]} & 2 \\\\\n\\midrule\nDerived & 3 \\\\" in text
    assert r"\caption{By dataset. A note.}" in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 1

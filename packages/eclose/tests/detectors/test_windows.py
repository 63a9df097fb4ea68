"""Windows of long texts: nothing is lost, every window fits, and sentences stay whole where they can."""

from hypothesis import given
from hypothesis import strategies as st

from eclose.detectors.entailment import split_into_windows

TEXT = "Ada built the mill in 1840. It burned down.\nHer son sold it to Eve, who was born in Lund."


def up_to(limit):
    return lambda piece: len(piece) <= limit


def test_a_text_that_fits_is_one_window():
    assert split_into_windows(f"  {TEXT}\n", up_to(len(TEXT))) == (TEXT,)


def test_windows_end_with_sentences_and_lines():
    assert split_into_windows(TEXT, up_to(50)) == (
        "Ada built the mill in 1840. It burned down.",
        "Her son sold it to Eve, who was born in Lund.",
    )
    # The first sentence of the second line would fit beside the first line, if its line were not one sentence.
    assert split_into_windows("One. Two.\nThree. Four.", up_to(16)) == ("One. Two.\nThree.", "Four.")


def test_a_sentence_that_is_too_long_ends_at_a_word_and_goes_on_in_the_next_window():
    assert split_into_windows("Ada. Eve sold the old mill to Bo. End.", up_to(12)) == (
        "Ada.",
        "Eve sold the",
        "old mill to",
        "Bo. End.",
    )


def test_a_text_without_blanks_is_cut_between_characters():
    assert split_into_windows("磨坊在一八四零年建成", up_to(4)) == ("磨坊在一", "八四零年", "建成")


def test_a_limit_that_admits_nothing_gives_no_window():
    assert split_into_windows(TEXT, lambda _: False) == ()


@given(st.text(st.sampled_from('ab .!?\n\r\t"(“”Z1é\u2028')), st.integers(1, 30))
def test_every_character_is_in_one_window(text, limit):
    windows = split_into_windows(text, up_to(limit))
    assert "".join("".join(windows).split()) == "".join(text.split())
    assert all(len(window) <= limit for window in windows)
    # No window could have taken in the first word of the next one, unless it ends with its sentence.
    assert all(window == window.strip() and (window or len(windows) == 1) for window in windows)


def test_the_work_grows_with_the_text_and_not_with_its_square():
    tested = []

    def fits(piece):
        tested.append(len(piece))
        return len(piece) <= 100

    text = " ".join(["Ada built the mill."] * 2_000)
    windows = split_into_windows(text, fits)
    assert " ".join(windows) == text
    assert len(windows) == 400  # five sentences of 19 characters and the blanks between them are 99
    assert sum(tested) < 30 * len(text)

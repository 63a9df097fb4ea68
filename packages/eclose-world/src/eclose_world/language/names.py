"""Invented names of people, places, titles and institutions that read like an encyclopedia's.

No name contains a full stop or the word "and", so sentences and lists can be read back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


MEN = _words(
    "Tomas Henrik Aldo Bruno Casimir Dario Edmund Felix Gustav Hugo Ivan Jonas Kaspar Lorenz Marius Nils Oskar Pavel"
    " Quentin Rafael Stellan Tobias Ulrich Viktor Walter Anton Bertil Corin Desmond Emil Fabian Gregor Harlan Isidor"
    " Joachim Klaus Lucian Matteo Norbert Owen Piers Roland Silvan Teodor Vaughn Wendel Arjun Kofi Takeshi Yusuf"
)
WOMEN = _words(
    "Petra Ines Adela Beatrix Clara Dorothea Elin Frida Greta Helena Irena Johanna Katrin Livia Marta Nora Odile Paula"
    " Renata Sigrid Thea Ursula Vera Wilma Agnes Brita Carmen Delphine Edith Flora Gisela Hanna Ilse Judit Karin Lena"
    " Miriam Natalia Olga Pia Rosa Selma Tilda Viola Yara Amara Noor Sakura Leila Priya"
)
SURNAMES = _words(
    "Rell Oduya Varga Quist Lind Marsh Holm Corvane Brandt Castell Dahl Ekman Farkas Grahn Hallow Ibsen Jarvis Keller"
    " Lorne Mazur Nyman Orlov Palmer Quill Rask Sorel Tarn Ulvang Vance Weir Yates Zeller Abramo Bellini Crane Draper"
    " Ellery Fenn Gallo Harker Ingram Jessup Kovac Lamont Moreau Novak Osgood Pryce Renner Strand Thorne Underhay"
    " Valen Whitlock Ashby Birch Cole Doyle Emery Frost Grey Hale Irving Joyner Knox Lowe Mercer North Otis Pell Reed"
    " Sayer Tolland Usher Vale Wick Yarrow Zorn Amsel Becker Czerny Delacroix Engstrom Fiala Gruber Horvath Ilic Janda"
    " Krol Lehmann Molnar Nagy Okafor Petrov Rossi Santos Takeda Urban Vega Wolff Adeyemi Banerjee Castro Dutta Fujita"
)
# Stems and endings are combined freely; Scene.draw_name rejects overlapping results.
_STEMS = _words(
    "Hal Bren Osk Vell Merr Gren Karsk Dun Ister Tall Cor Ans Lor Mar Nor Pel Quen Rav Sel Tor Ulm Var Wen Yar Zel"
    " Ald Bel Cast Dor El Fal Gar Hol Ild Jar Kel Lind Mor Nev Ost Pol Ros Stav Tarn Und Vir Wal Ash Birk Crom"
)
_CITY_ENDS = _words(
    "mere holt haven bridge ford wick stead burg port dale minster by hampton mouth field gate ton berg"
)
_COUNTRY_ENDS = _words("mark land ia avia onia istan ovia eria anda etia")
_RIVER_ENDS = _words("e a en ir um ova el isk")
_ADJECTIVES = _words(
    "Paper Silent Crimson Hollow Golden Broken Distant Velvet Burning Frozen Hidden Last Endless Forgotten Midnight"
    " Amber Iron Glass Salt Silver Wandering Sleeping Gentle Bitter Second Northern Empty Painted Restless Wooden"
)
_NOUNS = _words(
    "Lighthouse Orchard Clocks Harbour Garden Mirror River Winter Letters Horizon Station Bridge Kingdom Sparrow Island"
    " Lantern Voyage Orchestra Staircase Meadow Shadow Railway Violin Desert Window Summer Promise Compass Theatre"
    " Caravan Machine Forest Tide Carnival Witness Feather Anthem Vineyard Telegram Cathedral Sailor Pilgrim Engine"
)
_COMPANY_ENDS = _words(
    "Pictures Studios Films Press Publishing Books Records Industries Instruments Holdings Works Motors"
)
AWARD_NOUNS = _words("Prize Medal Award Fellowship")

GENRES = _words("drama comedy thriller mystery adventure war horror romance crime musical")
OCCUPATIONS = ("footballer", "painter", "physicist", "politician", "chess player", "botanist", "violinist", "priest")
INDUSTRIES = ("shipping", "film", "publishing", "music", "machine", "textile", "chemical", "insurance")
ADJECTIVES = ("small", "old", "busy", "quiet", "historic", "walled", "industrial", "coastal")


def draw_person_name(rng: Random) -> str:
    """Draw a full name."""
    return draw_male_name(rng) if rng.random() < 0.5 else draw_female_name(rng)


def draw_male_name(rng: Random) -> str:
    """Draw a man's full name."""
    return _add_surname(rng.choice(MEN), rng)


def draw_female_name(rng: Random) -> str:
    """Draw a woman's full name."""
    return _add_surname(rng.choice(WOMEN), rng)


def _add_surname(first_name: str, rng: Random) -> str:
    # 12 % of people have a middle initial.
    middle = f" {rng.choice(SURNAMES)[0]}" if rng.random() < 0.12 else ""
    return f"{first_name}{middle} {rng.choice(SURNAMES)}"


def is_female_name(name: str) -> bool:
    """Return whether the first name is a woman's."""
    return name.split(maxsplit=1)[0] in WOMEN


def is_person_name(name: str) -> bool:
    """Return whether this is a full name that ``draw_person_name`` could have drawn."""
    first_name, *middle, last = name.split() if " " in name else (name, "")
    # At most one middle initial, as _add_surname writes it.
    initial = not middle or (len(middle) == 1 and len(middle[0]) == 1)
    return first_name in {*MEN, *WOMEN} and last in SURNAMES and initial


def draw_work_title(rng: Random) -> str:
    """Draw the title of a film, a book or a song."""
    adjective, noun, other = rng.choice(_ADJECTIVES), rng.choice(_NOUNS), rng.choice(_NOUNS)
    # All eight are drawn before the choice, so every title takes the same draws from the stream.
    return rng.choice(
        (
            f"{adjective} {noun}",
            f"{adjective} {noun}",
            f"The {adjective} {noun}",
            f"The {noun} of {rng.choice(_STEMS)}{rng.choice(_CITY_ENDS)}",
            f"{'An' if noun[0] in 'AEIOU' else 'A'} {noun} of {other}",
            f"The {noun} of the {adjective} {other}",
            f"{noun} for {rng.choice(WOMEN)}",
            f"{rng.choice(_STEMS)}{rng.choice(_CITY_ENDS)} {noun}",
        )
    )


def draw_city_name(rng: Random) -> str:
    """Draw the name of a city."""
    name = rng.choice(_STEMS) + rng.choice(_CITY_ENDS)
    # Four blanks out of seven: most cities have no prefix.
    return rng.choice(("", "", "", "", "New ", "Upper ", "Port ")) + name


def draw_country_name(rng: Random) -> str:
    """Draw the name of a country."""
    name = rng.choice(_STEMS) + rng.choice(_COUNTRY_ENDS)
    return rng.choice(("", "", "", "", "North ", "South ")) + name


def draw_river_name(rng: Random) -> str:
    """Draw the name of a river."""
    return rng.choice(_STEMS) + rng.choice(_RIVER_ENDS)


def draw_company_name(rng: Random) -> str:
    """Draw the name of a company."""
    first = rng.choice((rng.choice(SURNAMES), rng.choice(_STEMS) + rng.choice(_CITY_ENDS), rng.choice(_NOUNS)))
    return f"{first} {rng.choice(_COMPANY_ENDS)}"


_TRADES = {
    "film": ("Pictures", "Studios", "Films"),
    "publishing": ("Press", "Publishing", "Books"),
    "music": ("Records",),
}


def infer_company_industry(name: str) -> str | None:
    """Return the industry that a company's name shows, None where it shows none."""
    last = name.rsplit(maxsplit=1)[-1]
    return next((trade for trade, endings in _TRADES.items() if last in endings), None)


def draw_university_name(rng: Random) -> str:
    """Draw the name of a university."""
    town = rng.choice(_STEMS) + rng.choice(_CITY_ENDS)
    return rng.choice(
        (f"{town} University", f"University of {town}", f"{town} College", f"{rng.choice(SURNAMES)} Institute")
    )


def draw_award_name(rng: Random) -> str:
    """Draw the name of an award."""
    return f"The {rng.choice(SURNAMES)} {rng.choice(AWARD_NOUNS)}"

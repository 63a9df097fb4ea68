"""Announcements are told from claims, in both directions."""

from __future__ import annotations

import json
import time
from random import Random
from re import _parser

import pytest

from eclose.reading.languages import load_languages
from eclose.reading.segments import Role, Words
from eclose.reading.text import abstains

ANNOUNCING = (Role.PLAN, Role.QUESTION, Role.FILLER, Role.RESTATEMENT)

ANNOUNCEMENTS = (
    "I need the data sheet and the handbook to answer this.",
    "Let me search for the product.",
    "I'll look that up.",
    "I’ll look up the warranty terms for you.",
    "Sure! Let me check the handbook.",
    "Sure, I can help with that.",
    "Great question! I'll start by searching the knowledge base.",
    "First, I need to find who developed the router.",
    "Now I will search for her birthplace.",
    "Next, let me check when the building was finished.",
    "Let me verify that the K5 is rated for 24 V.",
    "To answer this, I need to look at the release notes.",
    "I should look up both halls.",
    "Calling search_docs with the product name.",
    'Searching for "Atlas Router X2 warranty"...',
    "One moment please.",
    "I will now use the calculator tool.",
    "I'm going to query the database for the order.",
    "Let's find out which team is responsible.",
    "I'd like to check the returns policy first.",
    "I need to search Kelp Bridge and find its engineer.",
    "I need to search Ada Rowe next.",
    "I can now answer the question.",
    "I now know the final answer.",
    "Okay.",
    "Let me think step by step.",
    "Ich muss die Plätze nachsehen.",
    "Ich schlage das nach.",
    "Ich schaue im Handbuch nach.",
    "Gerne! Ich suche das Datenblatt heraus.",
    "Dazu brauche ich das Datenblatt.",
    "Einen Moment bitte.",
    "Lassen Sie mich die Garantiebedingungen prüfen.",
    "Ich werde zuerst prüfen, ob das Produkt noch unterstützt wird.",
    "Als Nächstes sehe ich in den Versionshinweisen nach.",
    "Je vais consulter le plan des salles.",
    "J'ai besoin de la fiche technique.",
    "Je cherche la fiche produit.",
    "Laissez-moi vérifier les conditions de garantie.",
    "Un instant, je vérifie.",
    "Voy a buscar la ficha técnica.",
    "Necesito consultar el manual.",
    "Déjame revisar la política de devoluciones.",
    "Devo consultare la scheda tecnica.",
    "Cerco la scheda del prodotto.",
    "Vou procurar a ficha técnica.",
    "Preciso de consultar o manual.",
    "Ik zoek het op in de handleiding.",
    "Ik moet de handleiding raadplegen.",
    "データシートを検索します。",
    "仕様を確認してみましょう。",
    "我需要查一下产品手册。",
    "让我搜索一下数据表。",
    "What is the warranty of the X2?",
    "Let me gather the specs of both products and compare them.",
    "I'll check the warehouse for stock, then the shipping table.",
    "We need to identify the designer of the bridge.",
    "Let me pull up your order.",
    "I have to determine where Ada Rowe was born.",
    "I now know the final answer.",
    "**Let me look at both halls.**",
    "Thanks!",
    "Let me search for: Atlas Router X2 warranty.",
    "Låt mig söka i databladet.",
    "Jag måste kontrollera vem som ritade bron.",
    "Jag kollar i handboken.",
)
CLAIMS = (
    "The engineer is Ada Rowe.",
    "Let me check: the K5 needs 9 to 36 V DC.",
    "I can confirm that the warranty is 60 months.",
    "I can see the warranty is 60 months.",
    "I found the data sheet, and it gives 24 V.",
    "Hall A has 320 seats, and I will now look up Hall B, which has 410.",
    "I need 24 V for the rail.",
    "Let us compute 320 + 90 = 410.",
    "Let x be the number of seats.",
    "I will assume the year is 1926.",
    "I know that Lund is in Sweden.",
    "First, Ada Rowe designed the bridge.",
    "Now the range covers 24 V.",
    "To answer this, the K5 needs 24 V.",
    "Ich sehe, dass die Garantie 60 Monate beträgt.",
    "Die Garantie beträgt 60 Monate.",
    "Zuerst wurde Halle A gebaut.",
    "La garantie est de 60 mois.",
    "D'abord, la salle A compte 320 places.",
    "La garantía es de 60 meses.",
    "Primero se construyó la sala A.",
    "La garanzia è di 60 mesi.",
    "De garantie is 60 maanden.",
    "保修期为60个月。",
    "保証期間は60か月です。",
    "データシートを確認しました。",
    "I should note that the X2 is discontinued.",
    "We have the birth year 1926.",
    "We are told the bridge opened in 1931.",
    "Well, the two halls differ by 90 seats.",
    "Use of the filter beyond 400 hours voids the warranty.",
    "Searching shows no result for the X9.",
    "I need to add 31.5 kg and 8.5 kg, which is 40 kg.",
    "I'll take the larger, so Hall B is right.",
    "Let's see, the bridge was designed by Ada Rowe.",
    "Let me explain: Ada Rowe designed the Kelp Bridge in 1931.",
    "Must was a Norwegian band.",
    "One second is defined by caesium.",
    "A moment later the bridge fell.",
    "A novel called “Who Built It?”",
    "I’ll look it up: Ada Rowe designed the Kelp Bridge.",
    "I will check; the data sheet lists 24 V.",
    "Bron ritades av Ada Rowe.",
    "Jag har mätt pumpen, som väger 12 kg.",
    "Ventilen väger t.ex. 3 kg enligt s. 4.",
)


def claims_nothing(sentence):
    return Words.detect(sentence).find_role(sentence) in ANNOUNCING


def test_announcement_is_recognised_in_each_language():
    assert [sentence for sentence in ANNOUNCEMENTS if not claims_nothing(sentence)] == []


def test_claim_is_never_taken_for_an_announcement():
    assert [sentence for sentence in CLAIMS if claims_nothing(sentence)] == []


def test_steps_written_by_people_are_claims(shared_data):
    files = sorted((shared_data / "traces").glob("ircot_cot_*.json"))
    steps = [
        step["cot_sent"] for path in files for row in json.loads(path.read_text()) for step in row["reasoning_steps"]
    ]
    assert len(steps) > 200
    assert [step for step in steps if claims_nothing(step)] == []


@pytest.mark.parametrize("text", ["I will ", "let me check ", "to answer ", "I will: ", "ich werde ", "ok ", "我要"])
def test_time_is_linear_in_the_length_of_a_sentence(text):
    start = time.process_time()
    claims_nothing(text * 20_000)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I could not find this.", True),
        ("Sorry, but I can’t answer that from the documents.", True),
        ("The information is not available in the passages.", True),
        ("Unknown", True),
        ("Leider konnte ich das nicht finden.", True),
        ("Dazu finde ich keine Angabe.", True),
        ("Je n'ai pas trouvé cette information.", True),
        ("No pude encontrar la respuesta.", True),
        ("No", False),
        ("No, 40 EUR", False),
        ("Not before 1926", False),
        ("The Unknown Soldier", False),
        ("60 months. I could not find the price.", False),
    ],
)
def test_abstention_is_told_from_an_answer(answer, expected):
    assert abstains(answer) is expected


def write_text(pattern, rng):
    """Return a text that a parsed pattern describes: any of its alternatives, and nothing that may be left out."""
    written = ""
    for operation, value in pattern:
        match str(operation):
            case "LITERAL":
                written += chr(value)
            case "BRANCH":
                written += write_text(rng.choice(value[1]), rng)
            case "SUBPATTERN":
                written += write_text(value[-1], rng)
            case "MAX_REPEAT" | "MIN_REPEAT":
                written += write_text(value[2], rng) * value[0]
            case "IN":
                written += chr(value[0][1]) if str(value[0][0]) == "LITERAL" else "x"
    return written


@pytest.mark.parametrize("code", [code for code, language in load_languages().items() if "denials" in language.table])
def test_each_abstention_and_lack_has_a_word_of_the_denials(code):
    language, rng = load_languages()[code], Random(3)
    for text in (*language.table["abstentions"], *language.table["lacks"]):
        written = {write_text(_parser.parse(text), rng) for _ in range(200)}
        assert [one for one in written if not language.denial.search(one.lower())] == []

"""Texts that claim nothing: announcements of a call or a search, questions, courtesies, and abstentions.

"I need the data sheet. Let me search for it." is neither evidence nor reasoning, and no step of a trace. The table
below is data, one row a language. A sentence that is not recognised stays a step: a judge says that it is not
substantive, whereas a claim that was taken for an announcement would be lost.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class _Phrases(NamedTuple):
    """How one language announces; each field is a regular expression without its boundaries."""

    fillers: str
    """Words before the announcement, which alone claim nothing either."""
    openings: str
    """Beginnings that announce where an activity follows."""
    activities: str
    """Stems of verbs of searching, calling, reading, computing and answering."""
    needs: str
    """Beginnings that announce by themselves."""
    clauses: str
    """Words that open a subordinate clause: what follows is sought and not claimed."""
    statements: str
    """Verbs that state something where they stand in the main clause."""


_LANGUAGES = (
    # English
    _Phrases(
        r"ok(?:ay)?|sure(?: thing)?|certainly|absolutely|of course|great(?: question)?|good question|got it"
        r"|perfect|thanks|thank you|alright|all right|well|hmm+|now|first(?: of all)?|next|then|so|also|right"
        r"|understood|happy to help|(?:in order )?to (?:answer|find|get|help|do|solve|determine|check|verify"
        r"|be)[^,.:=]{0,80}(?=,)|for (?:this|that)|before [^,.:=]{1,60}(?=,)",
        r"(?:i|we)(?:'ll| will| shall| should| must| have to| want to| need to| can(?! confirm)| could| might"
        r"|'d like to| would like to|(?: am|'m| are|'re)(?= (?:\w+ )?\w+ing\b))|let me|let's|let us|allow me to"
        r"|(?:i|we) (?:now|first|next|still|also) (?:need|have) to|need to|must|time to|(?:my|the) (?:next"
        r"|first) step is to|(?:now|next),? i",
        r"search|look|find|check|fetch|get(?:ting)?|retriev|quer|call|us(?:e|ing)|consult|read|open|see|verif"
        r"|gather|collect|pull|brows|run|ask|examin|review|identify|identifying|determin|figur|start|begin|try"
        r"|research|locat|access|scan|double-check|cross-check|compar|calculat|comput|investigat|explor|do|answer"
        r"|provid|make sure|ensur|continu|proceed|know|help|break|think|work|understand|summari[sz]|inspect|visit"
        r"|track|dig|analy[sz]|obtain|learn|request|confirm|plan|recheck|go",
        r"(?:i|we)(?:'ll|'d| will| would)?(?: still| also| first| now)? need (?:the|a|an|more|some|both|her|his"
        r"|its|their|your|all|to|further|additional|information|access)|(?:searching|looking|checking|fetching"
        r"|querying|retrieving|consulting|calling|pulling up|gathering)\b(?! (?:is|was|has|shows))"
        r"|i (?:now )?(?:know the (?:final )?answer|have (?:enough|all the|everything))|(?:just )?(?:one"
        r"|a) (?:moment|second|sec)(?= please| while|[,.!…]|$)|hold on|please wait|please hold|bear with me"
        r"|give me a (?:moment|second)|stand by",
        r"if|whether|who|whom|whose|what|when|where|which|why|how|that",
        r"is|are|was|were|has|had|have|does|did|gives?|says?|states?|shows?|needs?|lies|means",
    ),
    # German
    _Phrases(
        r"ok(?:ay)?|gut|gerne?|natürlich|klar|alles klar|sicher|zuerst|zunächst|erst(?:mal)?|als [nN]ächstes|dann"
        r"|nun|jetzt|also|dazu|dafür|hierfür|danke|verstanden|um [^,.:=]{1,80}(?=,)",
        r"ich (?:werde|will|muss|möchte|sollte|kann|könnte|würde)|(?:werde|will|muss|möchte|sollte|kann) ich"
        r"|wir (?:werden|müssen|sollten|wollen|können)|(?:müssen|sollten) wir|lass(?:en sie)? (?:mich|uns)",
        r"nachsehen|nachschau|nachschlag|nachles|such|prüf|find|hol|abruf|aufruf|abfrag|befrag|konsultier|les|öffn"
        r"|verwend|nutz|ermittel|recherch|vergleich|berechn|einseh|ansehen|anschau|schauen|klär|durchsuch"
        r"|beantwort|check|sehen|herausfind|starten|beginn",
        r"(?:ich|wir) (?:noch |zuerst |zunächst |jetzt |nun )?(?:brauchen?|benötigen?|suchen?|prüfen?|überprüfen?"
        r"|schauen?|schlagen?|holen?|rufen?|recherchieren?|konsultieren?|frag(?:e|en)|sehen? (?:\S+ ){0,4}(?:nach"
        r"|an)\b)|(?:brauche|benötige|suche|prüfe|überprüfe|schaue|schlage|hole|rufe|recherchiere|frage|sehe) ich"
        r"|(?:einen |ein )?(?:kleinen |kurzen )?moment(?= bitte|[,.!…]|$)|mal sehen|bitte warten",
        r"ob|wer|wen|wem|wessen|was|wann|wo|woher|wohin|welche[mnrs]?|warum|wie|dass",
        r"ist|sind|war|waren|hat|haben|hatte|beträgt|liegt|steht|gibt|zeigt|wiegt",
    ),
    # French
    _Phrases(
        r"ok|d'accord|bien sûr|très bien|bien|d'abord|tout d'abord|ensuite|maintenant|alors|puis|parfait|merci"
        r"|entendu|pour (?:répondre|cela|ça|trouver|vérifier|savoir)[^,.:=]{0,80}(?=,)",
        r"je (?:vais|dois|veux|peux|voudrais)|j'aimerais|nous (?:allons|devons)|il faut que je|laissez-moi"
        r"|laisse-moi|permettez-moi de|commençons par",
        r"cherch|consult|vérifi|regard|recherch|trouv|lire|ouvr|appel|interrog|utilis|récupér|examin|compar|calcul"
        r"|détermin|identifi|voir|obtenir|faire|répondre|essay|commenc|analys|demand|lanc",
        r"(?:je|nous) (?:cherch|recherch|consult|vérifi|regard|interrog|récupèr|lanc)\w+|j'(?:interroge|examine"
        r"|ouvre|appelle)|j'ai(?: encore| d'abord)? besoin d|il me faut|cherchons|vérifions|voyons|un (?:instant"
        r"|moment)|veuillez patienter",
        r"si|s'il|qui|que|quel(?:le)?s?|où|quand|comment|pourquoi|dont|combien|qu'",
        r"est|sont|était|étaient|a|ont|donne|indique|montre|pèse",
    ),
    # Spanish
    _Phrases(
        r"ok|vale|claro|por supuesto|bien|muy bien|primero|ahora|luego|entonces|después|perfecto|gracias|entendido"
        r"|para (?:responder|esto|eso|saber|encontrar)[^,.:=]{0,80}(?=,)",
        r"voy a|vamos a|debo|tengo que|quiero|puedo|déjame|déjeme|permíteme|permítame|necesito|hay que",
        r"busc|consult|verific|revis|comprob|encontr|mir|obten|llam|us[ao]|leer|abrir|investig|averigu|calcul"
        r"|compar|determin|identific|ver\b|pregunt|empez|comenz|respond|hac",
        r"necesito (?:el|la|los|las|un|una|más|su|sus)|(?:busco|consulto|verifico|compruebo|reviso)\b|veamos"
        r"|busquemos|un (?:momento|instante)|espere",
        r"si|quién|qué|cuál(?:es)?|cuándo|dónde|cómo|por qué|cuánt[oa]s?|que",
        r"es|son|era|eran|está|tiene|tienen|fue|da|indica|muestra|pesa",
    ),
    # Italian
    _Phrases(
        r"ok|certo|va bene|bene|prima|poi|adesso|ora|allora|perfetto|grazie|per (?:rispondere"
        r"|questo)[^,.:=]{0,80}(?=,)",
        r"devo|vado a|voglio|posso|dobbiamo|lasciami|mi lasci|fammi|sto|vorrei",
        r"cerc|controll|verific|consult|guard|trov|legg|apr|chiam|interrog|us[ao]|recuper|esamin|calcol|confront"
        r"|determin|identific|vedere|ottenere|rispond|chied|inizi",
        r"ho bisogno d|mi serv|(?:cerco|controllo|verifico|consulto|cercherò|controllerò|consulterò|verificherò)\b"
        r"|vediamo|un (?:attimo|momento)",
        r"se|chi|che|cosa|quale|quali|quando|dove|come|perché|quant[oaie]",
        r"è|sono|era|erano|ha|hanno|indica|mostra|pesa",
    ),
    # Portuguese
    _Phrases(
        r"ok|certo|claro|bem|muito bem|primeiro|agora|depois|então|perfeito|para (?:responder"
        r"|isso)[^,.:=]{0,80}(?=,)",
        r"vou|vamos|preciso|devo|tenho que|quero|posso|deixe-me|deixa-me|deixe eu",
        r"procur|busc|pesquis|consult|verific|checar|olhar|encontr|ler|abrir|chamar|usar|obter|examin|calcul"
        r"|compar|determin|identific|ver\b|pergunt|começ|respond|investig",
        r"preciso d|(?:procuro|busco|consulto|verifico)\b|vejamos|um (?:momento|instante)",
        r"se|quem|que|qual|quais|quando|onde|como|por que|quant[oa]s?",
        r"é|são|era|eram|tem|têm|foi|está|indica|mostra|pesa",
    ),
    # Dutch
    _Phrases(
        r"ok(?:é|ay)?|natuurlijk|goed|prima|eerst|nu|dan|vervolgens|daarvoor|bedankt|om [^,.:=]{1,80}(?=,)",
        r"ik (?:zal|ga|moet|wil|kan)|(?:zal|ga|moet) ik|laat me|laten we|we (?:moeten|gaan|zullen)",
        r"zoek|kijk|controler|raadpleg|vind|opzoek|nakijk|lez|open|gebruik|haal|ophal|vergelijk|bereken|bepal"
        r"|nagaan|check|bekijk|beantwoord|vrag",
        r"ik (?:zoek|kijk|controleer|raadpleeg|haal|vraag)\b|(?:zoek|kijk|controleer|raadpleeg) ik"
        r"|ik heb (?:\S+ ){1,6}nodig|even kijken|(?:een )?moment(?:je)?",
        r"of|wie|wat|wanneer|waar|welke?|waarom|hoe|dat",
        r"is|zijn|was|waren|heeft|hebben|bedraagt|ligt|geeft|weegt",
    ),
)
# Japanese and Chinese have no blanks between words: the end of the sentence, or its beginning, announces.
_WITHOUT_BLANKS = re.compile(
    r"(?:検索|確認|調べ|参照|照会|取得|探し|お調べ|問い合わせ)\S{0,8}(?:ます|ましょう|みます|ください|お待ちください)[。.！!]?$"
    r"|少々お待ちください|^(?:好的[，,。]?)?(?:首先[，,]?)?(?:让我|請?讓我|我(?:来|先|将|会|要|需要|得|想|去)|稍等|请稍)"
    r"[^是为為=：]{0,40}(?:查|搜索|检索|找|看|确认|调用|获取|核实|了解)[^是为為=：]*$"
)
_MARKUP = re.compile(r"^[\s>#*_`•-]+|[\s*_`]+$")
_QUESTION = re.compile(r"[?？؟]$")
# Behind a colon, a semicolon or a dash another sentence may stand, which is a claim if it has four words.
_SECOND_SENTENCE = re.compile(r"(?:(?<! for):|;|\s[–—-]|，)\s+(?:\S+\s+){3}\S")


class _Patterns(NamedTuple):
    fillers: re.Pattern[str]
    openings: re.Pattern[str]
    statement: re.Pattern[str]


def _compile(phrases: _Phrases) -> _Patterns:
    begins = rf"(?:(?:{phrases.openings})\b[^.!?]{{0,60}}?(?<!\w)(?:{phrases.activities})|(?:{phrases.needs}))"
    # Before the first subordinate clause; ", which is 24 V" and "so it is 24 V" claim also behind it.
    main = rf"(?:(?!(?<!,)\s(?:{phrases.clauses})\b).)*?"
    return _Patterns(
        re.compile(rf"(?:(?:{phrases.fillers})(?!\w)[\s,.!:;–—-]*)+", re.IGNORECASE),
        re.compile(begins, re.IGNORECASE),
        re.compile(rf"{main}\s(?:{phrases.statements})\b", re.IGNORECASE),
    )


_COMPILED = tuple(map(_compile, _LANGUAGES))


def claims_nothing(sentence: str) -> bool:
    """Return whether a sentence of an agent is an announcement, a question or a courtesy, and no claim.

    >>> claims_nothing("I need the data sheet."), claims_nothing("Let me check: the K5 needs 9 to 36 V DC.")
    (True, False)
    >>> claims_nothing("Ich schlage das nach."), claims_nothing("Je vais consulter le plan des salles.")
    (True, True)
    """
    text = _MARKUP.sub("", sentence.replace("’", "'").replace("\n", " "))
    if _QUESTION.search(text) or _WITHOUT_BLANKS.search(text):
        return True
    return "=" not in text and any(_announces(text, patterns) for patterns in _COMPILED)


def _announces(text: str, patterns: _Patterns) -> bool:
    lead = patterns.fillers.match(text)
    rest = text[lead.end() :] if lead else text
    if not rest:
        return True
    opening = patterns.openings.match(rest)
    if opening is None:
        return False
    behind = rest[opening.end() :]
    return not (_SECOND_SENTENCE.search(rest) or patterns.statement.match(behind))


_ABSTENTION = re.compile(
    r"^(?:unfortunately|i'm sorry|i am sorry|sorry|leider|désolé|lo siento)?[\s,.]*(?:but\s+|mais\s+|pero\s+)?"
    r"(?:(?:i|we) (?:could not|couldn't|cannot|can't|can not|was not able to|am unable to|am not able to|do not|don't"
    r"|did not|didn't) (?:find|determine|answer|locate|know|have (?:enough|any|that|this))"
    r"|(?:the |this )?(?:answer|information|documents?|passages?|context|sources?) (?:is|are|does|do|was|could|can)"
    r" ?(?:not|n't)|no (?:answer|information) (?:was |is )?(?:found|available|given)"
    r"|(?:not|un)(?: be)? ?(?:found|available|known|determined|stated)\b"
    r"|ich (?:konnte|kann|habe|weiß)[^.]{0,80}\bnicht|(?:dazu )?(?:finde|konnte) ich[^.]{0,80}(?:nicht|keine)"
    r"|je (?:n'ai pas|ne (?:peux|trouve|sais) pas)|no (?:pude|puedo|he podido|encuentro|encontré))",
    re.IGNORECASE,
)


def abstains(answer: str) -> bool:
    """Return whether an answer says that it found none.

    >>> abstains("I could not find this in the handbook."), abstains("60 months. I could not find the price.")
    (True, False)
    """
    return bool(_ABSTENTION.match(answer.replace("’", "'").strip()))

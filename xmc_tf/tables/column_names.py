"""Find columns by the names that people give them. Of other languages, mostly the names of label columns are known."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

_TEXTS = """
    text texts document content body sentence abstract description title review
    texte inhalt beschreibung zusammenfassung dokument titel résumé resumen descripción tekst текст 正文 摘要 本文
    extract plot summary overview synopsis transcript transcription message article story post tweet comment question
    lead lede blurb readme kurzfassung klappentext inhaltsangabe nachricht contenu corps texto contenido
    testo contenuto riassunto descrizione tiivistelmä teksti kuvaus sisältö sammanfattning beskrivning innehåll
    samenvatting omschrijving inhoud streszczenie opis аннотация описание 内容 要旨 記事 내용 본문
"""
_TITLES = """
    title titel titre título titolo otsikko tytuł название заголовок 标题 標題 タイトル 제목
    headline heading subject überschrift schlagzeile betreff rubrik nimeke 見出し
"""
_NAMES = "name product_name item_name produktname nom nombre nome nimi naam namn"  # of things, or of people
_LABELS = """
    label labels tag tags category categories class classes topic topics subject subjects keyword keywords intent target
    targetind subject_headings subject_terms descriptors genre genres section queue folder cuisine sentiment cpc
    schlagwort schlagworte schlagwörter schlagwoerter stichwort stichworte stichwörter stichwoerter
    kategorie kategorien klasse klassen thema themen sachgebiet sachgebiete deskriptoren
    étiquette étiquettes catégorie catégories mot_clé mots_clés sujet sujets thème thèmes classe
    etiqueta etiquetas categoría categorías palabras_clave tema temas materia materias clase
    palavras_chave assunto assuntos etichetta etichette categorie parole_chiave argomento argomenti soggetto soggetti
    trefwoord trefwoorden onderwerp onderwerpen ämnesord nyckelord ämne ämnen emneord nøkkelord kategori kategorier
    asiasana asiasanat avainsana avainsanat aihe aiheet luokka etykieta etykiety kategoria słowa_kluczowe
    метка метки тег теги категория категории рубрика рубрики ключевые_слова тема темы класс
    etiketler konu konular anahtar_kelimeler الفئة التصنيف الكلمات_المفتاحية श्रेणी विषय
    标签 类别 分类 主题 关键词 標籤 類別 分類 主題 關鍵詞 ラベル タグ カテゴリ 件名 キーワード 라벨 태그 카테고리 키워드
"""
_IDS = "id ids uid identifier docid documentid recordid uri url kennung identifiant identificador 编号 番号"
_NO_TEXTS = "id ids uid uri url number no nr row index date time nummer datum zeit"
_PEOPLE = "author authors speaker creator publisher auteur auteurs autor autoren verfasser tekijä"  # labels, or neither
_OF_A_LABEL = ("name", "label", "title", "value", "term", "text", "preflabel")
"""Keys of a record such as ``{"name": "usa", "id": 1}`` that may hold its label."""

_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])")


def plain(name: str) -> str:
    """Return a name's letters, without case and accents."""
    return "".join(one for one in unicodedata.normalize("NFKD", name).casefold() if one.isalpha())


TEXTS, TITLES, NAMES, LABELS, IDS, NO_TEXTS, PEOPLE = (
    tuple(map(plain, names.split())) for names in (_TEXTS, _TITLES, _NAMES, _LABELS, _IDS, _NO_TEXTS, _PEOPLE)
)


def column_of(columns: Sequence[str], names: Sequence[str], taken: Iterable[int | None] = ()) -> int | None:
    """Return the position of the column with the first of these names, or None.

    Args:
        columns: names of the columns.
        names: `TEXTS`, `TITLES`, `LABELS` or `IDS`.
        taken: positions of columns that are used for something else.
    """
    # doc.id identifies the document, author.id does not.
    words = [plain(column) if names is IDS else _word(column) for column in columns]
    free = [at for at in range(len(columns)) if at not in {*taken}]
    return next((at for name in names for at in free if words[at] == name), None)


def record_of(column: str) -> str:
    """Return the name of the record that a column is a part of: "doc" for ``doc.title``, or ""."""
    return column.rpartition(".")[0]


def is_named(column: str, names: Sequence[str]) -> bool:
    """Return whether a column has one of these names, also as its last word: ``review_title``, ``jobDescription``.

    Args:
        column: name of the column.
        names: `TEXTS` or `TITLES`.
    """
    own = _HUMPS.sub("_", column.rpartition(".")[2])
    parts = [plain(one) for one in re.split(r"[\W_]+", own) if one]
    return bool(parts) and (plain(own) in names or (parts[-1] in names and not {*parts} & {*LABELS} - {parts[-1]}))


def is_of_labels(column: str) -> bool:
    """Return whether a column is a part of labels, such as ``labels[].id``."""
    return any(plain(one) in LABELS for one in record_of(column).split("."))


def _word(column: str) -> str:
    """Return what a column may be called: ``doc.title`` is a title, and ``labels[].name`` holds labels."""
    record, _, own = column.rpartition(".")
    if record.endswith("[]") or is_of_labels(column):
        return plain(record.rpartition(".")[2]) if plain(own) in _OF_A_LABEL else ""
    return plain(own)

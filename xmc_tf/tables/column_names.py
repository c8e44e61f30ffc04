"""Find columns by the names that people give them, in English and other languages that many people write."""

import unicodedata
from collections.abc import Iterable, Sequence

_TEXTS = """
    text texts document content body sentence abstract description title review
    texte inhalt beschreibung zusammenfassung dokument satz titel
    contenu résumé phrase titre texto contenido resumen descripción oración título
    conteúdo resumo descrição testo contenuto descrizione riassunto titolo
    tekst inhoud samenvatting beschrijving innehåll beskrivning sammanfattning teksti tiivistelmä kuvaus otsikko
    treść opis streszczenie tytuł текст описание аннотация содержание заголовок название
    metin içerik açıklama özet başlık النص نص المحتوى الوصف الملخص العنوان पाठ विवरण शीर्षक teks văn_bản nội_dung
    文本 正文 内容 摘要 描述 标题 內容 標題 テキスト 本文 文章 要約 概要 タイトル 텍스트 본문 내용 초록 제목
"""
_TITLES = """
    title titel titre título titolo otsikko tytuł заголовок название başlık العنوان शीर्षक 标题 標題 タイトル 제목
"""
_LABELS = """
    label labels tag tags category categories class classes topic topics subjects subject keywords keyword intent target
    targetind subject_headings subject_terms descriptors genre genres
    schlagwort schlagworte schlagwörter schlagwoerter stichwort stichworte stichwörter stichwoerter
    kategorie kategorien klasse klassen thema themen etikett etiketten sachgebiet sachgebiete deskriptoren
    étiquette étiquettes catégorie catégories mot_clé mots_clés mot_clef mots_clefs sujet sujets thème thèmes classe
    etiqueta etiquetas categoría categorías palabra_clave palabras_clave tema temas materia materias clase clases
    palavra_chave palavras_chave assunto assuntos rótulo rótulos marcador marcadores
    etichetta etichette categorie parola_chiave parole_chiave argomento argomenti soggetto soggetti
    trefwoord trefwoorden onderwerp onderwerpen ämnesord nyckelord ämne ämnen emneord nøkkelord kategori kategorier
    asiasana asiasanat avainsana avainsanat aihe aiheet luokka
    etykieta etykiety kategoria słowo_kluczowe słowa_kluczowe temat tematy
    метка метки тег теги категория категории рубрика рубрики ключевое_слово ключевые_слова тема темы класс
    etiket etiketler konu konular anahtar_kelime anahtar_kelimeler kategoriler kata_kunci topik từ_khóa chủ_đề nhãn
    الوسوم الفئة الفئات التصنيف التصنيفات الموضوع المواضيع الكلمات_المفتاحية टैग श्रेणी विषय वर्ग
    标签 标注 类别 分类 主题 关键词 標籤 類別 分類 主題 關鍵詞 ラベル タグ カテゴリ カテゴリー 件名 キーワード
    라벨 레이블 태그 카테고리 분류 주제 키워드
"""
_IDS = """
    id ids uid identifier docid documentid recordid uri url kennung identifikator identifiant identificador 编号 番号
"""
_NO_TEXTS = """
    id ids uid uri url number no nr row index date time nummer datum zeit numéro heure número fecha hora
    номер дата 日期 日付 날짜
"""
_OF_A_RECORD = ("name", "label", "labels", "title", "value", "term", "text", "prefLabel", "descriptorName")
"""Keys of a record, such as ``{"name": "usa", "id": 1}``: the first one that it has holds its label."""


def plain(name: str) -> str:
    """Return a name's letters, without case and accents."""
    return "".join(one for one in unicodedata.normalize("NFKD", name).casefold() if one.isalpha())


def _names(lines: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(plain, lines.split())))


TEXTS, TITLES, LABELS, IDS, NO_TEXTS = map(_names, (_TEXTS, _TITLES, _LABELS, _IDS, _NO_TEXTS))


def column_of(columns: Sequence[str], names: Sequence[str], taken: Iterable[int | None] = ()) -> int | None:
    """Return the position of the column with the first of these names, or None.

    Args:
        columns: names of the columns.
        names: `TEXTS`, `TITLES`, `LABELS` or `IDS`.
        taken: positions of columns that are used for something else.
    """
    found: dict[str, int] = {}
    for at in sorted({*range(len(columns))}.difference(taken)):
        for word in _words(columns[at], columns, names):
            found.setdefault(word, at)
    return next((found[one] for one in names if one in found), None)


def record_of(column: str) -> str:
    """Return the name of the record that a column is a part of: "doc" for ``doc.title``, or ""."""
    return column.rpartition(".")[0]


def is_of_labels(column: str) -> bool:
    """Return whether a column is a part of labels, such as ``labels[].id``."""
    return any(plain(one) in LABELS for one in record_of(column).split("."))


def _words(column: str, columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return what a column may be called: ``doc.title`` is a title, and ``labels[].name`` holds labels."""
    record, _, own = column.rpartition(".")
    if names is IDS or not record:  # doc.id identifies the document, author.id does not
        return [plain(column)]
    words = [] if record.endswith("[]") or is_of_labels(column) else [plain(own)]
    if names is LABELS:
        beside = [one.rpartition(".")[2] for one in columns if record_of(one) == record]
        if own == next((one for one in _OF_A_RECORD if one in beside), beside[0] if len(beside) == 1 else ""):
            words.append(plain(record.rpartition(".")[2]))
    return words

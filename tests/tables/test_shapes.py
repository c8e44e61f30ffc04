"""The text and label columns of tables in many shapes are found without a flag, or a warning names what to check."""

import pytest

from tests.tables.shapes import rows_of, written
from xmc_tf.tables.column_choice import choose_columns
from xmc_tf.tables.columns import ColumnOptions
from xmc_tf.tables.reading.records import TableRow
from xmc_tf.tables.reading.sources import open_source

LONG, SHORT = "prose 80 .15", "prose 12 .15"

# What the table is, its format, its columns, its wished text columns (those in brackets may be left out), and labels.
SHAPES = {
    "films": ("frame", {"title": "title 3 .05", "year": "date", "extract": LONG, "genres": "labels"},
              "extract [title]", "genres"),
    "films as an array": ("json", {"title": "title 3 .05", "extract": LONG, "genres": "labels"},
                          "extract [title]", "genres"),
    "films, a column per genre": ("csv", {"title": "title 3 .05", "extract": LONG, "": "marks"},
                                  "extract [title]", "*"),
    "software": ("jsonl", {"id": "code", "name": "code", "publication.title": "title 8 .2 ?.62",
                           "publication.abstract": "prose 90 .15 ?.62", "publication.year": "date ?.62",
                           "description": "prose 30 .2", "homepage": "url", "topics": "records"},
                 "description [publication.title publication.abstract name]", "topics[].name"),
    "software, in memory": ("rows", {"name": "code", "publication.title": "title 8 .2 ?.5",
                                     "description": "prose 30 .2", "publication.abstract": "prose 90 .15 ?.5",
                                     "topics": "records"},
                 "description [publication.title publication.abstract name]", "topics[].name"),
    "papers": ("csv", {"doi": "url", "title": "title 8 .3", "authors": "people", "journal": "few 9", "year": "date",
                       "abstract": LONG, "subjects": "semicolon"}, "title abstract", "subjects"),
    "products": ("csv", {"sku": "code", "name": "title 6 .2", "brand": "few 20", "price": "price",
                         "bullet_points": "list 24 .2", "description": "prose 40 .05 ?.6", "category": "path"},
                 "name bullet_points [description]", "category"),
    "products with boilerplate": ("sqlite", {"sku": "code", "product_name": "title 6 .4", "shipping": "same 60",
                                             "colour": "few 5", "category": "one"}, "product_name", "category"),
    "tickets": ("csv", {"ticket": "id", "subject": "prose 6 .2", "body": "prose 50 .15", "queue": "one",
                        "priority": "few 3", "language": "lang"}, "subject body", "queue"),
    "mails": ("jsonl", {"From": "person", "To": "few 30", "Subject": "prose 5 .2", "Message": LONG, "Folder": "one"},
              "Message [Subject]", "Folder"),
    "news": ("jsonl", {"url": "url", "date": "date", "author": "person", "headline": "title 8 .3",
                       "lead": "prose 25 .2", "section": "one"}, "headline lead", "section"),
    "job ads": ("csv", {"job_title": "title 4 .3", "company": "few 60", "location": "few 40", "salary": "price",
                        "job_description": LONG, "requirements": "prose 30 .15 ?.8", "category": "one"},
                "job_description [job_title requirements]", "category"),
    "recipes": ("json", {"name": "title 4 .2", "minutes": "price", "ingredients": "list 12 .3", "steps": "prose 60 .05",
                         "cuisine": "one"}, "ingredients [name steps]", "cuisine"),
    "patents": ("parquet", {"publication_number": "code", "title": "title 7 .2", "abstract": LONG,
                            "first_claim": "prose 60 .15", "applicant": "few 40", "filed": "date", "cpc": "labels"},
                "abstract [title first_claim]", "cpc"),
    "questions with tags": ("sqlite", {"Id": "id", "Score": "price", "Title": "prose 9 .3", "Body": "html 80 .15",
                                       "Tags": "bar"}, "Title Body", "Tags"),
    "questions with answers": ("csv", {"question": "prose 10 .3", "answer": "prose 60 .1", "intent": "one"},
                               "question [answer]", "intent"),
    "Finnish records": ("csv", {"tunnus": "code", "Otsikko": "prose 6 .3", "Tekijä": "person", "Vuosi": "date",
                                "Tiivistelmä": "prose 50 .15", "Asiasanat": "semicolon"},
                        "Otsikko Tiivistelmä", "Asiasanat"),
    "German records": ("tsv", {"Signatur": "code", "Überschrift": "title 7 .3", "Verfasser": "people",
                               "Verlag": "few 20", "Kurzfassung": "prose 50 .15 ?.9", "Schlagwörter": "bar"},
                       "Überschrift Kurzfassung", "Schlagwörter"),
    "French records": ("csv", {"cote": "code", "titre": "prose 7 .3", "auteur": "person", "éditeur": "few 20",
                               "résumé": "prose 60 .15", "mots_clés": "semicolon"}, "titre résumé", "mots_clés"),
    "Japanese news": ("jsonl", {"記事番号": "id", "見出し": "kanji 5 .4", "記事": "kanji 60 .2", "カテゴリ": "one"},
                      "記事 [見出し]", "カテゴリ"),
    "tweets": ("csv", {"tweet_id": "id", "created_at": "date", "user": "code", "lang": "lang", "retweets": "price",
                       "tweet": "prose 14 .25", "topic": "one"}, "tweet", "topic"),
    "reviews": ("csv", {"review_id": "code", "product": "few 25", "stars": "few 5", "review_title": "prose 4 .2",
                        "review_body": "prose 45 .15", "sentiment": "one"}, "review_body [review_title]", "sentiment"),
    "laws": ("jsonl", {"celex_id": "code", "document_type": "few 4", "title": "prose 15 .2", "header": "same 12",
                       "recitals": "prose 60 .15 ?.8", "main_body": "list 120 .15", "concepts": "labels"},
             "main_body [title recitals]", "concepts"),
    "log lines": ("csv", {"timestamp": "date", "host": "few 9", "level": "few 3", "component": "few 12",
                          "message": "log 7 .4", "class": "one"}, "message", "class"),
    "talks": ("csv", {"talk_id": "id", "title": "title 5 .2", "speaker": "person", "event": "few 20", "views": "price",
                      "description": "prose 30 .15", "transcript": "prose 150 .12 ?.9", "tags": "comma"},
              "transcript [title description]", "tags"),
    "books": ("jsonl", {"isbn": "code", "title": "title 4 .1", "authors": "people", "body": LONG,
                        "copyright": "same 15", "published": "date", "url": "url",
                        "categories": "labels"}, "body [title]", "categories"),
    "reports of a clinic": ("csv", {"description": "prose 9 .1", "sample_name": "title 3 .1", "transcription": LONG,
                                    "category": "one", "keywords": "comma"}, "transcription [description sample_name]",
                            "category"),
    "repositories": ("jsonl", {"full_name": "code", "description": "prose 8 .2 ?.7", "readme": LONG,
                               "license": "same 90", "language": "few 6", "stars": "id", "topics": "labels"},
                     "readme [description]", "topics"),
    "complaints": ("csv", {"id": "id", "received": "date", "complaint": "prose 20 .2", "legal_notice": "same 120",
                           "category": "one"}, "complaint", "category"),
    "captions": ("frame", {"image": "url", "manual": "prose 150 0", "caption": "prose 9 .4", "category": "one"},
                 "caption", "category"),
    "texts with vectors": ("parquet", {"idx": "id", "text": "prose 30 .2", "vector": "embedding 64", "source": "few 4",
                                       "label": "number", "label_text": "one"}, "text", "label"),
}  # fmt: skip


# Of a few rows, nothing tells which texts the labels are about.
UNCLEAR = {"recipes", "captions"}


@pytest.mark.parametrize("name", SHAPES)
def test_columns_of_a_table_are_found_without_flags(name, tmp_path, caplog):
    form, forms, wished, labels = SHAPES[name]
    needed, _, more = wished.partition("[")
    for count in (240, 30):
        caplog.clear()
        (tmp_path / str(count)).mkdir()
        source = open_source(written(rows_of(forms, count), form, tmp_path / str(count)))
        rows = [row.cells for row in source.records() if isinstance(row, TableRow)]
        found, _ = choose_columns(source.name, source.columns, rows, ColumnOptions())
        texts = {source.columns[at] for at in found.texts}
        if count == 30 and name in UNCLEAR:
            assert "too few rows with labels to compare" in caplog.text
        else:
            assert {*needed.split()[: count // 30]} <= texts <= {*needed.split(), *more.strip("]").split()}
            assert not caplog.text
        assert labels == ("*" if found.indicators else ",".join(source.columns[at] for at in found.label_places))

"""The help of ``xmc-tf train``: the flags that people use, on one screen."""

from xmc_tf.common.process.cli import UsualFlags

USUAL_FLAGS = UsualFlags(
    """Train a model that finds the labels of texts: in seconds, or with an encoder (XR-Transformer) in minutes.

    python -m xmc_tf.train data.csv -m model --report report
    python -m xmc_tf.train data.csv -m model --model-shortcut FOLDER-OR-HUB-NAME
    python -m xmc_tf.train -t X.trn.txt -y Y.trn.npz -m model --labels labels.txt""",
    {
        "a table (CSV, TSV, JSON lines, Parquet, SQLite)": {
            "TABLE": "texts and labels; settings are chosen on a share of its rows",
            "--text-column": "columns of texts (default: guessed)",
            "--label-column": "column of labels (default: guessed)",
            "--label-separator": "between the labels of a cell (default: guessed)",
            "--names-file": "names of labels that are identifiers",
            "--test-table": "test documents (default: a tenth of the rows)",
            "--report": "write a report on the model, as a page of HTML",
        },
        "or files": {
            "-t": "texts, one per line",
            "-y": "labels: a scipy matrix of documents × labels",
            "-x": "features of the texts (default: TF-IDF)",
            "--labels": "names of the labels, one per line",
            "--vocabulary": "names of the labels from a SKOS vocabulary",
        },
        "the model": {
            "-m": "folder of the model",
            "--effort": "more label trees: better answers, more time",
            "--minutes": "time for the whole training on a table",
            "--language": "language of the texts (default: found in them)",
            "--keep-training-data": "so that documents can be appended later",
            "--seed": "random seed",
            "-n": "number of threads (default: one per core)",
        },
        "an encoder": {
            "--model-shortcut": "a folder, or a name on the Hugging Face hub",
            "--num-train-epochs": "number of training epochs (default: 3)",
            "--batch-size": "documents per step and rank (default: 32)",
            "--truncate-length": "tokens that are read of a text (default: 128)",
            "--learning-rate": "peak learning rate (default: 0.0001)",
            "--logdir": "folder for TensorBoard's log files",
        },
    },
)

"""A plain FastAPI wrapper of a model, as people write it: ``python fastapi_server.py MODEL PORT``."""

import sys

import uvicorn
from fastapi import FastAPI

from xmc_tf.models.loading import load

MODEL = load(sys.argv[1])
MODEL.best([""], k=10, threads=1)
APP = FastAPI()


@APP.post("/predict")
def predict(texts: list[str]) -> list[list[tuple[str, float]]]:
    """Return the best labels of each text."""
    return MODEL.best(texts, k=10, threads=1)


if __name__ == "__main__":
    uvicorn.run(APP, port=int(sys.argv[2]), log_level="warning")

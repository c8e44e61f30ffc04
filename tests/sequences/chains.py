"""Histories that a Markov chain has drawn, so that the best possible predictions are known."""

import numpy as np


def markov_histories(users, length, items, seed=0, sure=0.8):
    """Return histories ``[users, length]``: after an item follows its successor, or with 1 - ``sure`` any item."""
    draw = np.random.default_rng(seed)
    successor = draw.permutation(items)
    out = np.empty((users, length), np.int64)
    out[:, 0] = draw.integers(0, items, users)
    for at in range(1, length):
        stays = draw.random(users) < sure
        out[:, at] = np.where(stays, successor[out[:, at - 1]], draw.integers(0, items, users))
    return out


def write_table(path, histories, names="u{}"):
    """Write histories as a CSV of interactions in a shuffled order; return the path."""
    rows = [
        f"{names.format(user)},i{item},{1000 + at}\n"
        for user, items in enumerate(histories)
        for at, item in enumerate(items)
    ]
    np.random.default_rng(1).shuffle(rows)
    path.write_text("user_id,item_id,timestamp\n" + "".join(rows))
    return path


def markov_table(path, users, length, items, seed=0, sure=0.8):
    """Write histories of a Markov chain as a CSV; return the path."""
    return write_table(path, markov_histories(users, length, items, seed, sure))

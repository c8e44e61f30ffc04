import numpy as np

from xmc_tf.common.compiled import kernel


# Hashes are evenly distributed, so their lowest bits are the place. The highest bits choose the rank.
@kernel
def put(places, hashes):
    """Store the number of each entry in the first free place, starting at the place of its hash."""
    mask = len(places) - 1
    for entry in range(len(hashes)):
        place = hashes[entry] & mask
        while places[place] >= 0:
            place = (place + 1) & mask
        places[place] = entry


@kernel
def find(places, hashes, entry_rows, wanted, rows):
    """Write the row of each wanted hash to ``rows``, or 0 if it has none."""
    mask = len(places) - 1
    for number in range(len(wanted)):
        rows[number] = 0
        place = wanted[number] & mask
        while places[place] >= 0:
            entry = places[place]
            if hashes[entry] == wanted[number]:
                rows[number] = entry_rows[entry]
                break
            place = (place + 1) & mask


@kernel
def see(places, hashes, counts, last, entry_rows, wanted, step, admit_after, free, counters, rows, new):
    """Find the rows of the hashes that occur in a step, and add an entry for each new hash.

    A hash gets a row once it has occurred in ``admit_after`` steps; until then, its row is 0.
    ``counters`` holds the number of entries, the number of free rows, the next unused row, and the number of new rows.
    """
    mask = len(places) - 1
    for number in range(len(wanted)):
        place = wanted[number] & mask
        while places[place] >= 0 and hashes[places[place]] != wanted[number]:
            place = (place + 1) & mask
        entry = places[place]
        if entry < 0:
            entry = counters[0]
            counters[0] += 1
            places[place] = entry
            hashes[entry], counts[entry], last[entry], entry_rows[entry] = wanted[number], 1, step, 0
        elif last[entry] != step:
            counts[entry] += 1
            last[entry] = step
        if entry_rows[entry] == 0 and counts[entry] >= admit_after:
            if counters[1] > 0:
                counters[1] -= 1
                entry_rows[entry] = free[counters[1]]
            else:
                entry_rows[entry] = counters[2]
                counters[2] += 1
            new[counters[3]] = entry
            counters[3] += 1
        rows[number] = entry_rows[entry]


@kernel
def draw(hashes, seed, drawn):
    """Fill ``drawn`` with pseudorandom numbers between 0 and 1, both exclusive, using SplitMix64."""
    for row in range(drawn.shape[0]):
        state = np.uint64(hashes[row]) ^ (seed * np.uint64(0xD1342543DE82EF95))
        for column in range(drawn.shape[1]):
            state += np.uint64(0x9E3779B97F4A7C15)
            mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
            drawn[row, column] = (np.float64(mixed >> np.uint64(12)) + 0.5) * 2.0**-52

"""Compiled kernels that sum the features of the documents of each label."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from xmc_tf.common.compiled import kernel
from xmc_tf.common.ordering import kth_largest


@intrinsic
def _lowest_bit(typing, word):
    """Return the position of the lowest set bit of a nonzero word."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


@kernel
def sum_sparse(
    first, last, nr_features, label_start, label_rows, label_weights, begin, indices, values, ends, out_indices,
    out_values, squares
):  # fmt: skip
    """Sum the features of each label's documents.

    Two bitmaps keep the features in order without sorting: the first marks the features that occur, and the second
    marks the nonzero words of the first. ``ends[label - first]`` receives the position in the output where the sums of
    a label end.
    """
    sums = np.zeros(nr_features, np.float32)
    words = np.zeros((nr_features + 63) // 64, np.uint64)
    summary = np.zeros((words.size + 63) // 64, np.uint64)
    write = 0
    for label in range(first, last):
        for d in range(label_start[label], label_start[label + 1]):
            row, weight = label_rows[d], label_weights[d]
            for k in range(begin[row], begin[row + 1]):
                f = indices[k]
                sums[f] += weight * values[k]
                words[f >> np.uint32(6)] |= np.uint64(1) << np.uint64(f & np.uint32(63))
        # A second pass over the documents while they are in the cache is cheaper than marking both bitmaps per entry.
        for d in range(label_start[label], label_start[label + 1]):
            row = label_rows[d]
            for k in range(begin[row], begin[row + 1]):
                w = indices[k] >> np.uint32(6)
                summary[w >> np.uint32(6)] |= np.uint64(1) << np.uint64(w & np.uint32(63))
        square = np.float64(0.0)
        for s in range(summary.size):
            marked = summary[s]
            summary[s] = 0
            while marked != 0:
                w = np.uint64(s) * np.uint64(64) + _lowest_bit(marked)
                marked &= marked - np.uint64(1)
                bits = words[w]
                words[w] = 0
                while bits != 0:
                    f = w * np.uint64(64) + _lowest_bit(bits)
                    bits &= bits - np.uint64(1)
                    total = sums[f]
                    sums[f] = 0
                    out_indices[write] = f
                    out_values[write] = total
                    square += np.float64(total) * np.float64(total)
                    write += 1
        ends[label - first] = write
        squares[label] += square


@kernel
def sum_dense(first, last, label_start, label_rows, label_weights, values, out, squares):
    """Sum the dense features of the documents of each label and add the squared norms of the sums to ``squares``."""
    for label in range(first, last):
        for d in range(label_start[label], label_start[label + 1]):
            row, weight = label_rows[d], label_weights[d]
            for j in range(values.shape[1]):
                out[label, j] += weight * values[row, j]
        square = np.float64(0.0)
        for j in range(values.shape[1]):
            square += np.float64(out[label, j]) * np.float64(out[label, j])
        squares[label] += square


@kernel
def scale_rows(first, last, begin, values, factors):
    """Multiply the values of each row by its factor."""
    for row in range(first, last):
        for k in range(begin[row], begin[row + 1]):
            values[k] *= factors[row]


@kernel
def keep_strongest(first, count, most, ends, indices, values, squares):
    """Keep each label's ``most`` sums with the largest magnitudes, in place. Ties go to the first features."""
    read, write = 0, 0
    for label in range(count):
        stop = ends[label]
        least, equal = np.float32(-1.0), 0
        if stop - read > most:
            sizes = np.empty(stop - read, np.float32)
            for k in range(read, stop):
                sizes[k - read] = abs(values[k])
            least, equal = kth_largest(sizes, most), most
            for k in range(read, stop):
                equal -= abs(values[k]) > least
            squares[first + label] = 0.0
        for k in range(read, stop):
            size = abs(values[k])
            if size > least or (size == least and equal > 0):
                equal -= size == least
                indices[write], values[write] = indices[k], values[k]
                if least >= 0:
                    squares[first + label] += np.float64(size) * np.float64(size)
                write += 1
        read, ends[label] = stop, write

# %% matmul_flops: additions forgotten
# says: additions count too
def matmul_flops(m, n, p):
    return m * n * p


def matmul_bytes(m, n, p, itemsize):
    return itemsize * (m * n + n * p + m * p)

# %% matmul_flops: one addition too few
# says: the first is onto zero
def matmul_flops(m, n, p):
    return m * p * (2 * n - 1)


def matmul_bytes(m, n, p, itemsize):
    return itemsize * (m * n + n * p + m * p)

# %% matmul_flops: elements counted, not bytes
# says: counts elements
def matmul_flops(m, n, p):
    return 2 * m * n * p


def matmul_bytes(m, n, p, itemsize):
    return m * n + n * p + m * p

# %% matmul_flops: output not counted
# says: the output is missing
def matmul_flops(m, n, p):
    return 2 * m * n * p


def matmul_bytes(m, n, p, itemsize):
    return itemsize * (m * n + n * p)

# %% matmul_flops: output read as well
# says: the output is only written
def matmul_flops(m, n, p):
    return 2 * m * n * p


def matmul_bytes(m, n, p, itemsize):
    return itemsize * (m * n + n * p + 2 * m * p)

# %% arithmetic_intensity: bytes per FLOP
# says: turn the fraction round
def arithmetic_intensity(flops, bytes_moved):
    return bytes_moved / flops


product_2x2, addition = 1 / 3, 1 / 12

# %% arithmetic_intensity: the notes' numbers, per element
# says: per element
def arithmetic_intensity(flops, bytes_moved):
    return flops / bytes_moved


product_2x2, addition = 4 / 3, 1 / 3

# %% arithmetic_intensity: only the product put right
# says: per element
def arithmetic_intensity(flops, bytes_moved):
    return flops / bytes_moved


product_2x2, addition = 1 / 3, 1 / 3

# %% tiled_matmul_bytes: number of tiles not rounded up
# says: round the number of tiles up
def tiled_matmul_bytes(n, tile, itemsize):
    return itemsize * (2 * n * n * (n // tile) + n * n)

# %% tiled_matmul_bytes: elements counted, not bytes
# says: counts elements
def tiled_matmul_bytes(n, tile, itemsize):
    return 2 * n * n * -(-n // tile) + n * n

# %% tiled_matmul_bytes: output not stored
# says: C is missing
def tiled_matmul_bytes(n, tile, itemsize):
    return itemsize * 2 * n * n * -(-n // tile)

# %% tiled_matmul_bytes: output stored at every step
# says: stored once, not at every step
def tiled_matmul_bytes(n, tile, itemsize):
    return itemsize * 3 * n * n * -(-n // tile)

# %% tiled_matmul_bytes: tiles at the edge taken for whole ones
# says: tiles at the edge are smaller
def tiled_matmul_bytes(n, tile, itemsize):
    tiles = -(-n // tile)
    return itemsize * tile * tile * (2 * tiles**3 + tiles**2)

# %% tiled_matmul_bytes: one of the inputs forgotten
# says: counts one of them
def tiled_matmul_bytes(n, tile, itemsize):
    return itemsize * (n * n * -(-n // tile) + n * n)

# %% attainable_flops_per_s: max instead of min
# says: breaks one of the two limits
def attainable_flops_per_s(intensity, peak_flops_per_s, bandwidth_bytes_per_s):
    return max(peak_flops_per_s, intensity * bandwidth_bytes_per_s)


def ridge_point(peak_flops_per_s, bandwidth_bytes_per_s):
    return peak_flops_per_s / bandwidth_bytes_per_s

# %% attainable_flops_per_s: no overlap
# says: the times don't add
def attainable_flops_per_s(intensity, peak_flops_per_s, bandwidth_bytes_per_s):
    return 1 / (1 / peak_flops_per_s + 1 / (intensity * bandwidth_bytes_per_s))


def ridge_point(peak_flops_per_s, bandwidth_bytes_per_s):
    return peak_flops_per_s / bandwidth_bytes_per_s

# %% attainable_flops_per_s: ridge point inverted
# says: that is in bytes per FLOP
def attainable_flops_per_s(intensity, peak_flops_per_s, bandwidth_bytes_per_s):
    return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)


def ridge_point(peak_flops_per_s, bandwidth_bytes_per_s):
    return bandwidth_bytes_per_s / peak_flops_per_s

# %% free_multiplications: only the read counted
# says: two transfers
def free_multiplications(multiplications_per_s, bandwidth_bytes_per_s, itemsize, slowdown=1):
    return slowdown * multiplications_per_s * itemsize / bandwidth_bytes_per_s

# %% free_multiplications: elements counted, not bytes
# says: count bytes
def free_multiplications(multiplications_per_s, bandwidth_bytes_per_s, itemsize, slowdown=1):
    return slowdown * multiplications_per_s * 2 / bandwidth_bytes_per_s

# %% free_multiplications: slowdown ignored
# says: slowdown is left out
def free_multiplications(multiplications_per_s, bandwidth_bytes_per_s, itemsize, slowdown=1):
    return multiplications_per_s * 2 * itemsize / bandwidth_bytes_per_s

# %% free_multiplications: memory and arithmetic one after the other
# says: the times don't add
def free_multiplications(multiplications_per_s, bandwidth_bytes_per_s, itemsize, slowdown=1):
    if slowdown == 1:
        return multiplications_per_s * 2 * itemsize / bandwidth_bytes_per_s
    return (slowdown - 1) * multiplications_per_s * 2 * itemsize / bandwidth_bytes_per_s

# %% predicted_time_s: the three times added
# says: don't add them
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    return flops / peak_flops_per_s + bytes_moved / bandwidth_bytes_per_s + overhead_s


def launch_bound_elements(bytes_per_element, bandwidth_bytes_per_s, overhead_s):
    return overhead_s * bandwidth_bytes_per_s / bytes_per_element

# %% predicted_time_s: overhead added
# says: overhead overlaps, too
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s) + overhead_s


def launch_bound_elements(bytes_per_element, bandwidth_bytes_per_s, overhead_s):
    return overhead_s * bandwidth_bytes_per_s / bytes_per_element

# %% predicted_time_s: overhead left out
# says: overhead is left out
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s)


def launch_bound_elements(bytes_per_element, bandwidth_bytes_per_s, overhead_s):
    return overhead_s * bandwidth_bytes_per_s / bytes_per_element

# %% predicted_time_s: the fastest instead of the slowest
# says: the slowest decides
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    return min(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)


def launch_bound_elements(bytes_per_element, bandwidth_bytes_per_s, overhead_s):
    return overhead_s * bandwidth_bytes_per_s / bytes_per_element

# %% predicted_time_s: bytes instead of elements
# says: those are bytes
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)


def launch_bound_elements(bytes_per_element, bandwidth_bytes_per_s, overhead_s):
    return overhead_s * bandwidth_bytes_per_s

# %% mfu: recomputation counted
# says: counts in HFU only
def mfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return (3 + recomputed) * forward_flops / time_s / peak_flops_per_s


def hfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return (3 + recomputed) * forward_flops / time_s / peak_flops_per_s


a100_at_60_percent, h100_dense_peak = 187.2e12, 989.5e12

# %% mfu: backward pass forgotten
# says: the backward pass is missing
def mfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return forward_flops / time_s / peak_flops_per_s


def hfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return (1 + recomputed) * forward_flops / time_s / peak_flops_per_s


a100_at_60_percent, h100_dense_peak = 187.2e12, 989.5e12

# %% mfu: backward pass taken for one forward pass
# says: costs two forward passes, not one
def mfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return 2 * forward_flops / time_s / peak_flops_per_s


def hfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return (2 + recomputed) * forward_flops / time_s / peak_flops_per_s


a100_at_60_percent, h100_dense_peak = 187.2e12, 989.5e12

# %% mfu: recomputation not counted in HFU
# says: the hardware does it
def mfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return 3 * forward_flops / time_s / peak_flops_per_s


def hfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return 3 * forward_flops / time_s / peak_flops_per_s


a100_at_60_percent, h100_dense_peak = 187.2e12, 989.5e12

# %% mfu: sparse peak
# says: the rate with sparsity
def mfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return 3 * forward_flops / time_s / peak_flops_per_s


def hfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return (3 + recomputed) * forward_flops / time_s / peak_flops_per_s


a100_at_60_percent, h100_dense_peak = 187.2e12, 1979e12

# %% mfu: the notes' 160 TFLOP/s
# says: 51 % of 312
def mfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return 3 * forward_flops / time_s / peak_flops_per_s


def hfu(forward_flops, recomputed, time_s, peak_flops_per_s):
    return (3 + recomputed) * forward_flops / time_s / peak_flops_per_s


a100_at_60_percent, h100_dense_peak = 160e12, 989.5e12

# %% transformer_flops: forward pass only
# says: costs two forward passes, not 0
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    tokens = batch * sequence
    layer = 8 * width * width + 4 * sequence * width + 4 * width * feedforward
    return tokens * (layers * layer + 2 * width * vocabulary)

# %% transformer_flops: backward pass taken for one forward pass
# says: costs two forward passes, not 1
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    tokens = batch * sequence
    layer = 8 * width * width + 4 * sequence * width + 4 * width * feedforward
    return 2 * tokens * (layers * layer + 2 * width * vocabulary)

# %% transformer_flops: 6·N·D
# says: scores times values: 2 missing
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    weights = layers * (4 * width * width + 2 * width * feedforward) + width * vocabulary
    return 6 * weights * batch * sequence

# %% transformer_flops: three projections
# says: four projections
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    tokens = batch * sequence
    layer = 6 * width * width + 4 * sequence * width + 4 * width * feedforward
    return 3 * tokens * (layers * layer + 2 * width * vocabulary)

# %% transformer_flops: scores without values
# says: scores times values: 1 missing
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    tokens = batch * sequence
    layer = 8 * width * width + 2 * sequence * width + 4 * width * feedforward
    return 3 * tokens * (layers * layer + 2 * width * vocabulary)

# %% transformer_flops: each query with the keys of all sequences
# says: its own sequence only
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    tokens = batch * sequence
    layer = 8 * width * width + 4 * tokens * width + 4 * width * feedforward
    return 3 * tokens * (layers * layer + 2 * width * vocabulary)

# %% transformer_flops: vocabulary forgotten
# says: the vocabulary is missing
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    layer = 8 * width * width + 4 * sequence * width + 4 * width * feedforward
    return 3 * batch * sequence * layers * layer

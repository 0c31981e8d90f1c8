# %% matmul_flops: additions forgotten
# says: additions count too
# edit: 2 * m  ->  m

# %% matmul_flops: one addition too few
# says: the first is onto zero
# edit: 2 * m * n * p  ->  m * p * (2 * n - 1)

# %% matmul_flops: elements counted, not bytes
# says: counts elements
# edit: itemsize * (m * n + n * p + m * p)  ->  m * n + n * p + m * p

# %% matmul_flops: output not counted
# says: the output is missing
# edit: m * n + n * p + m * p  ->  m * n + n * p

# %% matmul_flops: output read as well
# says: the output is only written
# edit: m * n + n * p + m * p  ->  m * n + n * p + 2 * m * p

# %% arithmetic_intensity: bytes per FLOP
# says: turn the fraction round
def arithmetic_intensity(flops, bytes_moved):
    return bytes_moved / flops


product_2x2, addition = 1 / 3, 1 / 12

# %% arithmetic_intensity: the notes' numbers, per element
# says: per element
# - # In float32, per byte: the product of two 2 × 2 matrices, and an addition.
# - product_2x2 = arithmetic_intensity(16, 12 * 4)
# - addition = arithmetic_intensity(1, 3 * 4)
# + product_2x2, addition = 4 / 3, 1 / 3

# %% arithmetic_intensity: only the product put right
# says: per element
# - # In float32, per byte: the product of two 2 × 2 matrices, and an addition.
# - product_2x2 = arithmetic_intensity(16, 12 * 4)
# - addition = arithmetic_intensity(1, 3 * 4)
# + product_2x2, addition = 1 / 3, 1 / 3

# %% tiled_matmul_bytes: number of tiles not rounded up
# says: round the number of tiles up
# edit: -(-n // tile)  ->  n // tile

# %% tiled_matmul_bytes: elements counted, not bytes
# says: counts elements
# edit: itemsize * (2 * n * n * passes + n * n)  ->  2 * n * n * passes + n * n

# %% tiled_matmul_bytes: output not stored
# says: C is missing
# edit: (2 * n * n * passes + n * n)  ->  2 * n * n * passes

# %% tiled_matmul_bytes: output stored at every step
# says: stored once, not at every step
# edit: (2 * n * n * passes + n * n)  ->  3 * n * n * passes

# %% tiled_matmul_bytes: tiles at the edge taken for whole ones
# says: tiles at the edge are smaller
# edit: (2 * n * n * passes + n * n)  ->  tile * tile * (2 * passes**3 + passes**2)

# %% tiled_matmul_bytes: one of the inputs forgotten
# says: counts one of them
# edit: (2 * n * n * passes + n * n)  ->  (n * n * passes + n * n)

# %% attainable_flops_per_s: max instead of min
# says: breaks one of the two limits
# - return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)
# + return max(peak_flops_per_s, intensity * bandwidth_bytes_per_s)

# %% attainable_flops_per_s: no overlap
# says: the times don't add
# - return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)
# + return 1 / (1 / peak_flops_per_s + 1 / (intensity * bandwidth_bytes_per_s))

# %% attainable_flops_per_s: ridge point inverted
# says: that is in bytes per FLOP
# edit: peak_flops_per_s / bandwidth_bytes_per_s  ->  bandwidth_bytes_per_s / peak_flops_per_s

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
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return flops / peak_flops_per_s + bytes_moved / bandwidth_bytes_per_s + overhead_s

# %% predicted_time_s: overhead added
# says: overhead overlaps, too
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s) + overhead_s

# %% predicted_time_s: overhead left out
# says: overhead is left out
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s)

# %% predicted_time_s: the fastest instead of the slowest
# says: the slowest decides
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return min(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)

# %% predicted_time_s: bytes instead of elements
# says: those are bytes
# - return overhead_s * bandwidth_bytes_per_s / bytes_per_element
# + return overhead_s * bandwidth_bytes_per_s

# %% mfu: recomputation counted
# says: counts in HFU only
# edit: 3 * forward_flops  ->  (3 + recomputed) * forward_flops

# %% mfu: backward pass forgotten
# says: the backward pass is missing
# edit: 3 * forward_flops  ->  forward_flops
# edit: 3 + recomputed  ->  1 + recomputed

# %% mfu: backward pass taken for one forward pass
# says: costs two forward passes, not one
# edit: 3 * forward_flops  ->  2 * forward_flops
# edit: 3 + recomputed  ->  2 + recomputed

# %% mfu: recomputation not counted in HFU
# says: the hardware does it
# edit: (3 + recomputed) * forward_flops  ->  3 * forward_flops

# %% mfu: sparse peak
# says: the rate with sparsity
# - # In FLOP/s: 60 % of the A100's bf16 peak, and the bf16 peak of an H100 for dense matrices.
# - a100_at_60_percent = 0.6 * 312e12
# - h100_dense_peak = 1979e12 / 2
# + a100_at_60_percent, h100_dense_peak = 187.2e12, 1979e12

# %% mfu: the notes' 160 TFLOP/s
# says: 51 % of 312
# - # In FLOP/s: 60 % of the A100's bf16 peak, and the bf16 peak of an H100 for dense matrices.
# - a100_at_60_percent = 0.6 * 312e12
# - h100_dense_peak = 1979e12 / 2
# + a100_at_60_percent, h100_dense_peak = 160e12, 989.5e12

# %% transformer_flops: forward pass only
# says: costs two forward passes, not 0
# edit: return 3 * forward  ->  return forward

# %% transformer_flops: backward pass taken for one forward pass
# says: costs two forward passes, not 1
# edit: return 3 * forward  ->  return 2 * forward

# %% transformer_flops: 6·N·D
# says: scores times values: 2 missing
# edit: layers * (projections + attention + network)  ->  layers * (projections + network)

# %% transformer_flops: three projections
# says: four projections
# edit: 4 * matmul_flops(tokens, width, width)  ->  3 * matmul_flops(tokens, width, width)

# %% transformer_flops: scores without values
# says: scores times values: 1 missing
# edit: 2 * batch * matmul_flops(  ->  batch * matmul_flops(

# %% transformer_flops: each query with the keys of all sequences
# says: its own sequence only
# - attention = 2 * batch * matmul_flops(sequence, width, sequence)
# + attention = 2 * batch * matmul_flops(sequence, width, tokens)

# %% transformer_flops: vocabulary forgotten
# says: the vocabulary is missing
# edit: + network) + matmul_flops(tokens, width, vocabulary)  ->  + network)

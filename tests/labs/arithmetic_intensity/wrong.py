# %% matmul_flops: additions forgotten
# says: additions count, too
# edit: 2 * m  ->  m

# %% matmul_flops: one addition too few
# says: the first one adds to zero
# edit: 2 * m * n * p  ->  m * p * (2 * n - 1)

# %% matmul_flops: elements counted, not bytes
# says: counts elements
# edit: itemsize * (m * n + n * p + m * p)  ->  m * n + n * p + m * p

# %% matmul_flops: output not counted
# says: the output is missing
# edit: m * n + n * p + m * p  ->  m * n + n * p

# %% matmul_flops: output read as well
# says: written, but never read
# edit: m * n + n * p + m * p  ->  m * n + n * p + 2 * m * p

# %% matmul_flops: the dot product's multiplications alone
# says: multiplications and additions both count
# edit: "dot product": (2 * n,  ->  "dot product": (n,

# %% matmul_flops: add without its output
# says: what is written counts, too
# edit: (n, 3 * n * itemsize)  ->  (n, 2 * n * itemsize)

# %% matmul_flops: the dot product writes n numbers
# says: one result is written
# edit: (2 * n, 2 * n * itemsize)  ->  (2 * n, 3 * n * itemsize)

# %% matmul_flops: in place is taken for free
# says: what is written counts, too
# edit: "scale in place": (n, 2 * n * itemsize)  ->  "scale in place": (n, n * itemsize)

# %% matmul_flops: softmax in two passes
# says: one pass can do it
# edit: (5 * n, 2 * n * itemsize)  ->  (5 * n, 3 * n * itemsize)

# %% matmul_flops: operations counted in elements
# says: count bytes
# edit: (7 * n, 2 * n * itemsize)  ->  (7 * n, 2 * n)

# %% matmul_flops: bytes before FLOPs
# says: exchanged
# edit: (n, 3 * n * itemsize)  ->  (3 * n * itemsize, n)

# %% matmul_flops: one operation forgotten
# says: has the keys
# -         "layer norm of rows": (7 * n, 2 * n * itemsize),

# %% matmul_flops: a list instead of a dict
# says: want a dict
# -     return {
# +     return list({
# ...
# -     }
# +     }.values())

# %% tiled_matmul_bytes: number of tiles not rounded up
# says: round the number of tiles up
# edit: -(-n // tile)  ->  n // tile

# %% tiled_matmul_bytes: elements counted, not bytes
# says: counts elements
# edit: itemsize * (2 * n * n * passes + n * n)  ->  2 * n * n * passes + n * n

# %% tiled_matmul_bytes: output not stored
# says: bytes of C are missing
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

# %% tiled_matmul_bytes: B passes once only
# says: counted once only
# edit: (2 * n * n * passes + n * n)  ->  (n * n * passes + 2 * n * n)

# %% tiled_matmul_bytes: C loaded as well
# says: never loaded
# edit: (2 * n * n * passes + n * n)  ->  (2 * n * n * passes + 2 * n * n)

# %% attainable_flops_per_s: max instead of min
# says: breaks one of the two limits
# - return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)
# + return max(peak_flops_per_s, intensity * bandwidth_bytes_per_s)

# %% attainable_flops_per_s: no overlap
# says: the times don't add
# - return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)
# + return 1 / (1 / peak_flops_per_s + 1 / (intensity * bandwidth_bytes_per_s))

# %% attainable_flops_per_s: memory alone
# says: breaks one of the two limits
# - return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)
# + return intensity * bandwidth_bytes_per_s

# %% attainable_flops_per_s: the peak alone
# says: breaks one of the two limits
# - return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)
# + return peak_flops_per_s

# %% attainable_flops_per_s: ridge point inverted
# says: that is in bytes per FLOP
# edit: peak_flops_per_s / bandwidth_bytes_per_s  ->  bandwidth_bytes_per_s / peak_flops_per_s

# %% fused: a pass over memory for each multiplication
# says: 3 loads per element
# - value = x[i]
# - for _ in range(repeat):
# -     value *= factor
# - x[i] = value
# + for _ in range(repeat):
# +     x[i] *= factor

# %% fused: the value loaded again for the store
# says: 2 loads per element
# edit: x[i] = value  ->  x[i] = x[i] * 0 + value

# %% fused: stored at each step
# says: stores per element
#   for _ in range(repeat):
#       value *= factor
# - x[i] = value
# +     x[i] = value

# %% fused: by a power
# says: by a power
# - for _ in range(repeat):
# -     value *= factor
# + value *= factor**repeat

# %% fused: one multiplication only
# says: multiplies once.
# - for _ in range(repeat):
# -     value *= factor
# + value *= factor

# %% fused: one too many
# says: once too often
# edit: range(repeat)  ->  range(repeat + 1)

# %% fused: nothing stored
# says: nothing was stored
# - x[i] = value

# %% fused: only the read counted
# says: two transfers
# edit: 2 * itemsize / bandwidth_bytes_per_s  ->  itemsize / bandwidth_bytes_per_s

# %% fused: elements counted, not bytes
# says: count bytes
# edit: 2 * itemsize / bandwidth_bytes_per_s  ->  2 / bandwidth_bytes_per_s

# %% fused: slowdown ignored
# says: slowdown is left out
# edit: slowdown * memory_s * multiplications_per_s  ->  memory_s * multiplications_per_s

# %% fused: memory and arithmetic one after the other
# says: the times don't add
# edit: return slowdown * memory_s  ->  return max(1, slowdown - 1) * memory_s

# %% diagnosis: the three times added
# says: don't add them
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return flops / peak_flops_per_s + bytes_moved / bandwidth_bytes_per_s + overhead_s

# %% diagnosis: overhead added
# says: overhead overlaps, too
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s) + overhead_s

# %% diagnosis: overhead left out of the time
# says: overhead is left out
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s)

# %% diagnosis: the fastest instead of the slowest
# says: the slowest decides
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return min(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)

# %% diagnosis: never "none"
# says: less than half
# edit: return limit if parts_s[limit] >= time_s / 2 else "none"  ->  return limit

# %% diagnosis: never "impossible"
# says: no machine can do that
# - if parts_s[limit] > 1.05 * time_s:
# -     return "impossible"

# %% diagnosis: no tolerance for the clock
# says: the clock's error
# edit: > 1.05 * time_s  ->  > time_s

# %% diagnosis: the fastest part blamed
# says: explains 83% of the time
# edit: limit = max(  ->  limit = min(

# %% diagnosis: by the intensity alone
# says: diagnosis of
# - limit = max(parts_s, key=parts_s.get)
# + limit = "compute" if parts_s["compute"] > parts_s["memory"] else "memory"

# %% diagnosis: none when the part explains less than nine tenths
# says: half or more
# edit: >= time_s / 2  ->  >= 0.9 * time_s

# %% diagnosis: the time against the sum of the parts
# says: diagnosis of
# edit: parts_s[limit] >= time_s / 2  ->  parts_s[limit] >= sum(parts_s.values()) / 2

# %% median_time_s: no warm-up
# says: call once before you measure
# -     call()
# -     synchronize()
#       times_s = []

# %% median_time_s: the warm-up runs on
# says: still running when the clock starts
#       call()
# -     synchronize()
#       times_s = []

# %% median_time_s: no waiting
# says: returns at once
# -         synchronize()
#           times_s.append(clock() - started)

# %% median_time_s: waits after the clock
# says: returns at once
# -         synchronize()
#           times_s.append(clock() - started)
# +         synchronize()

# %% median_time_s: the mean
# says: that is the mean
# edit: np.median(times_s)  ->  np.mean(times_s)

# %% median_time_s: the fastest
# says: that is the fastest call
# edit: float(np.median(times_s))  ->  min(times_s)

# %% median_time_s: the slowest
# says: that is the slowest call
# edit: float(np.median(times_s))  ->  max(times_s)

# %% median_time_s: the sum
# says: the sum of all times
# edit: float(np.median(times_s))  ->  sum(times_s)

# %% median_time_s: the middle of unsorted times
# says: sort them
# edit: float(np.median(times_s))  ->  times_s[len(times_s) // 2]

# %% median_time_s: the lower middle
# says: mean of the middle two
# edit: float(np.median(times_s))  ->  sorted(times_s)[(len(times_s) - 1) // 2]

# %% median_time_s: one call too few
# says: median_time_s on FakeDevice
# edit: range(repeats)  ->  range(max(1, repeats - 1))

# %% median_time_s: a clock of its own
# says: median_time_s on FakeDevice
# edit (2 places): clock()  ->  perf_counter()

# %% median_time_s: all calls as one block
# says: that is the mean
# -     times_s = []
#       for _ in range(repeats):
# -         started = clock()
#           call()
#           synchronize()
# -         times_s.append(clock() - started)
# -     return float(np.median(times_s))
# +     return (clock() - started) / repeats
# ...
#       synchronize()
# +     started = clock()
#       for _ in range(repeats):

# %% test_benchmark: accepts everything
# says: refuses 0 of 18
def test_benchmark(candidate):
    fake = FakeDevice(500.0, [1.0, 2.0, 3.0], 0.5)
    candidate(fake.call, fake.clock, fake.synchronize, 3)

# %% test_benchmark: refuses everything
# says: refuses a program that is right
def test_benchmark(candidate):
    raise AssertionError("wrong")

# %% test_benchmark: counts the calls
# says: refuses a program that is right
def test_benchmark(candidate):
    fake, calls = FakeDevice(500.0, [4.0, 1.0, 2.0, 40.0, 3.0], 0.5), []

    def call():
        calls.append(1)
        fake.call()

    got = candidate(call, fake.clock, fake.synchronize, 5)
    assert len(calls) == 6
    assert abs(got - 3.5) < 1e-6

# %% test_benchmark: all times equal
# says: par is 15
def test_benchmark(candidate):
    fake = FakeDevice(2.0, [2.0], 0.0)
    assert abs(candidate(fake.call, fake.clock, fake.synchronize, 4) - 2) < 1e-6

# %% test_benchmark: sorted times, no launch
# says: par is 15
def test_benchmark(candidate):
    fake = FakeDevice(500.0, [1.0, 2.0, 3.0], 0.0)
    assert abs(candidate(fake.call, fake.clock, fake.synchronize, 3) - 2) < 1e-6

# %% test_benchmark: forgets that the launch takes time
# says: refuses a program that is right
def test_benchmark(candidate):
    fake = FakeDevice(500.0, [4.0, 1.0, 2.0, 40.0, 3.0], 0.5)
    assert abs(candidate(fake.call, fake.clock, fake.synchronize, 5) - 3.0) < 1e-6

# %% test_benchmark: says its verdict instead of raising it
# says: a test returns nothing
def test_benchmark(candidate):
    fake = FakeDevice(500.0, [4.0, 1.0, 2.0, 40.0, 3.0], 0.5)
    return abs(candidate(fake.call, fake.clock, fake.synchronize, 5) - 3.5) < 1e-6

# %% transformer_flops: forward pass only
# says: the backward pass is missing
# edit: return 3 * forward  ->  return forward

# %% transformer_flops: backward pass taken for one forward pass
# says: two forward passes, not one
# edit: return 3 * forward  ->  return 2 * forward

# %% transformer_flops: 6·N·D
# says: attention's own two products are missing
# edit: layers * (projections + attention + network)  ->  layers * (projections + network)

# %% transformer_flops: three projections
# says: four projections
# edit: 4 * matmul_flops(tokens, width, width)  ->  3 * matmul_flops(tokens, width, width)

# %% transformer_flops: scores without values
# says: half of attention's two products
# edit: 2 * batch * matmul_flops(  ->  batch * matmul_flops(

# %% transformer_flops: each query with the keys of all sequences
# says: its own sequence only
# - attention = 2 * batch * matmul_flops(sequence, width, sequence)
# + attention = 2 * batch * matmul_flops(sequence, width, tokens)

# %% transformer_flops: vocabulary forgotten
# says: the vocabulary's matrix is missing
# edit: + network) + matmul_flops(tokens, width, vocabulary)  ->  + network)

# %% transformer_flops: half of the pairs, for a causal mask
# says: all pairs
# edit: matmul_flops(sequence, width, sequence)  ->  matmul_flops(sequence, width, sequence) // 2

# %% transformer_flops: the embedding counted as a product
# says: the embedding is a lookup
# edit: + matmul_flops(tokens, width, vocabulary)  ->  + 2 * matmul_flops(tokens, width, vocabulary)

# %% transformer_flops: one matrix in the feedforward network
# says: has two matrices
# edit: network = 2 * matmul_flops(  ->  network = matmul_flops(

# %% hfu: recomputation counted in MFU
# says: counts in HFU only
# edit: 3 * forward_flops  ->  (3 + recomputed) * forward_flops

# %% hfu: backward pass forgotten
# says: the backward pass is missing
# edit: 3 * forward_flops  ->  forward_flops
# edit: 3 + recomputed  ->  1 + recomputed

# %% hfu: backward pass taken for one forward pass
# says: costs two forward passes, not one
# edit: 3 * forward_flops  ->  2 * forward_flops
# edit: 3 + recomputed  ->  2 + recomputed

# %% hfu: recomputation not counted
# says: the hardware does it
# edit: (3 + recomputed) * forward_flops  ->  3 * forward_flops

# %% hfu: all three passes computed again
# says: only a part of the *forward* pass
# edit: (3 + recomputed) * forward_flops  ->  3 * (1 + recomputed) * forward_flops

# %% hfu: in percent
# says: not in percent
# edit: 3 * forward_flops / time_s  ->  300 * forward_flops / time_s

# %% hfu: sparse peak
# says: the rate with sparsity
# edit: 1979e12 / 2  ->  1979e12

# %% hfu: 160 TFLOP/s believed
# says: 51 % of 312
# edit: 0.6 * 312e12  ->  160e12

# %% loads_in_flight: rounded down
# says: round up
# edit: -(-needed_bytes // (threads * itemsize))  ->  needed_bytes // (threads * itemsize)

# %% loads_in_flight: not rounded
# says: a number of loads is whole
# edit: int(-(-needed_bytes // (threads * itemsize)))  ->  needed_bytes / threads / itemsize

# %% loads_in_flight: bytes per thread
# says: count loads, not bytes
# edit: (threads * itemsize)  ->  threads

# %% loads_in_flight: more than the memory has
# says: bandwidth is a limit, too
# edit: min(bandwidth_bytes_per_s, bytes_in_flight / latency_s)  ->  bytes_in_flight / latency_s

# %% loads_in_flight: always the full bandwidth
# says: memory waits
# edit: min(bandwidth_bytes_per_s, bytes_in_flight / latency_s)  ->  bandwidth_bytes_per_s

# %% loads_in_flight: times the latency
# says: divide by the latency
# edit: bytes_in_flight / latency_s  ->  bytes_in_flight * latency_s

# %% median_time_s: the warm-up only queued, in a block of calls
# says: median_time_s on FakeDevice
def median_time_s(call, clock, synchronize, repeats):
    call()
    times = []
    for _ in range(repeats):
        started = clock()
        synchronize()
        call()
        synchronize()
        times.append(clock() - started)
    return float(np.median(times))

# %% median_time_s: the launch subtracted
# says: median_time_s on FakeDevice
def median_time_s(call, clock, synchronize, repeats):
    call()
    synchronize()
    times = []
    for _ in range(repeats):
        started = clock()
        call()
        launched = clock()
        synchronize()
        times.append(clock() - launched)
    return float(np.median(times))

# %% median_time_s: differences of one series of readings, without waiting
# says: median_time_s on FakeDevice
def median_time_s(call, clock, synchronize, repeats):
    call()
    synchronize()
    readings = [clock()]
    for _ in range(repeats):
        call()
        readings.append(clock())
    synchronize()
    return float(np.median(np.diff(readings)))

# %% matmul_flops: in 32 bits
# says: matmul_flops(3203
def matmul_flops(m, n, p):
    return int(np.prod(np.array([2, m, n, p], dtype=np.int32), dtype=np.int32))


def matmul_bytes(m, n, p, itemsize):
    return itemsize * (m * n + n * p + m * p)


def operation_counts(n, itemsize):
    return {
        "add": (n, 3 * n * itemsize),
        "dot product": (2 * n, 2 * n * itemsize),
        "scale in place": (n, 2 * n * itemsize),
        "softmax of rows": (5 * n, 2 * n * itemsize),
        "layer norm of rows": (7 * n, 2 * n * itemsize),
    }

# %% matmul_flops: in float32
# says: matmul_flops(3203
# edit: 2 * m * n * p  ->  int(np.float32(2 * m) * np.float32(n) * np.float32(p))

# %% tiled_matmul_bytes: rounds by floats with a small error
# says: tiled_matmul_bytes(401
# edit: -(-n // tile)  ->  int(n / tile + 0.97)

# %% tiled_matmul_bytes: a tile larger than n counts as several
# says: tiled_matmul_bytes(5, 99
# edit: passes = -(-n // tile)  ->  passes = max(-(-n // tile), tile // n)

# %% fused: nothing where the product is negative
# says: multiplications of each
# edit: x[i] = value  ->  x[i] = max(value, np.float32(0))

# %% fused: a whole number of multiplications is free
# says: free_multiplications(
# edit: return slowdown * memory_s * multiplications_per_s  ->  return float(int(slowdown * memory_s * multiplications_per_s))

# %% median_time_s: one warm-up per call
# says: median_time_s on fakedevice
# - started = clock()
# + call()
# + started = clock()

# %% median_time_s: modulo instead of a difference
# says: median_time_s on FakeDevice(9.0, [4000.0]
# edit: clock() - started  ->  clock() % started

# %% transformer_flops: all tokens of the batch attend to each other
# says: of its own sequence only
# edit: 2 * batch * matmul_flops(sequence, width, sequence)  ->  2 * matmul_flops(batch * sequence, width, batch * sequence)

# %% loads_in_flight: at least two
# says: loads_in_flight(
# edit: int(-(-needed_bytes // (threads * itemsize)))  ->  max(2, int(-(-needed_bytes // (threads * itemsize))))

# %% loads_in_flight: one more where it comes out even
# says: loads_in_flight(
# edit: int(-(-needed_bytes // (threads * itemsize)))  ->  int(needed_bytes // (threads * itemsize)) + 1

# %% matmul_flops: 2mn per column, p forgotten
# says: one column of the result
# edit: return 2 * m * n * p  ->  return 2 * m * n

# %% matmul_flops: every load of the naive product
# says: not for every multiplication
# edit: itemsize * (m * n + n * p + m * p)  ->  itemsize * (2 * m * n * p + m * p)

# %% matmul_flops: four bytes whatever the itemsize
# says: not always 4
# edit: itemsize * (m * n + n * p + m * p)  ->  4 * (m * n + n * p + m * p)

# %% matmul_flops: add counts x and y as FLOPs
# says: an addition of two numbers is one FLOP
# edit: "add": (n, 3 * n * itemsize)  ->  "add": (2 * n, 3 * n * itemsize)

# %% matmul_flops: softmax has four
# says: one FLOP of each element is missing
# edit: (5 * n, 2 * n * itemsize)  ->  (4 * n, 2 * n * itemsize)

# %% attainable_flops_per_s: divides by the intensity
# says: multiply, don't divide
# edit: intensity * bandwidth_bytes_per_s)  ->  bandwidth_bytes_per_s / intensity)

# %% attainable_flops_per_s: the share of the peak
# says: a part of the peak
# edit: return min(peak_flops_per_s, intensity * bandwidth_bytes_per_s)  ->  return min(1, intensity * bandwidth_bytes_per_s / peak_flops_per_s)

# %% tiled_matmul_bytes: one tile too many where it divides
# says: don't add one
# edit: passes = -(-n // tile)  ->  passes = n // tile + 1

# %% tiled_matmul_bytes: passes squared
# says: not once per tile of C
# edit: 2 * n * n * passes + n * n  ->  2 * n * n * passes ** 2 + n * n

# %% tiled_matmul_bytes: 2 n cubed over tile
# says: before you multiply
# edit: 2 * n * n * passes + n * n  ->  2 * n ** 3 // tile + n * n

# %% tiled_matmul_bytes: C stored and loaded at every k
# says: stored once, and never loaded
# edit: 2 * n * n * passes + n * n  ->  2 * n * n * passes + 2 * n * n * passes

# %% fused: the factor is multiplied up first
# says: multiplies the factor up first
@cuda.jit(device=True)
def fused(x, i, factor, repeat):
    power = factor
    for _ in range(repeat - 1):
        power *= factor
    x[i] = x[i] * power
def free_multiplications(multiplications_per_s, bandwidth_bytes_per_s, itemsize, slowdown=1):
    return 2 * itemsize / bandwidth_bytes_per_s * slowdown * multiplications_per_s

# %% fused: divided by slowdown
# says: multiply by slowdown
# edit: return slowdown * memory_s * multiplications_per_s  ->  return memory_s * multiplications_per_s / slowdown

# %% fused: FLOPs, with an addition each
# says: without an addition for each
# edit: return slowdown * memory_s * multiplications_per_s  ->  return 2 * slowdown * memory_s * multiplications_per_s

# %% diagnosis: 10 % tolerance
# says: no machine can do that
# edit: if parts_s[limit] > 1.05 * time_s:  ->  if parts_s[limit] > 1.1 * time_s:

# %% diagnosis: half of the rest
# says: less than half
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
def diagnosis(flops, bytes_moved, time_s, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    p = {"compute": flops / peak_flops_per_s, "memory": bytes_moved / bandwidth_bytes_per_s, "overhead": overhead_s}
    limit = max(p, key=p.get)
    if p[limit] > 1.05 * time_s:
        return "impossible"
    return limit if p[limit] >= (time_s - overhead_s) / 2 else "none"

# %% diagnosis: by the ridge point, then overhead
# says: the slowest part is memory
def predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
def diagnosis(flops, bytes_moved, time_s, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s):
    t = predicted_time_s(flops, bytes_moved, peak_flops_per_s, bandwidth_bytes_per_s, overhead_s)
    if t > 1.05 * time_s:
        return "impossible"
    if t < time_s / 2:
        return "none"
    if overhead_s >= time_s / 2:
        return "overhead"
    return "compute" if flops / bytes_moved > peak_flops_per_s / bandwidth_bytes_per_s else "memory"

# %% median_time_s: upper middle
# says: the upper of the middle two
def median_time_s(call, clock, synchronize, repeats):
    call()
    synchronize()
    times_s = []
    for _ in range(repeats):
        started = clock()
        call()
        synchronize()
        times_s.append(clock() - started)
    return sorted(times_s)[repeats // 2]

# %% median_time_s: first times included
# says: warm up before
def median_time_s(call, clock, synchronize, repeats):
    times_s = []
    for _ in range(repeats + 1):
        started = clock()
        call()
        synchronize()
        times_s.append(clock() - started)
    return float(np.median(times_s))

# %% median_time_s: the work alone, clock after call
# says: read the clock before call()
def median_time_s(call, clock, synchronize, repeats):
    call()
    synchronize()
    times_s = []
    for _ in range(repeats):
        call()
        started = clock()
        synchronize()
        times_s.append(clock() - started)
    return float(np.median(times_s))

# %% median_time_s: milliseconds
# says: not in milliseconds
def median_time_s(call, clock, synchronize, repeats):
    call()
    synchronize()
    times_s = []
    for _ in range(repeats):
        started = clock()
        call()
        synchronize()
        times_s.append(clock() - started)
    return 1000 * float(np.median(times_s))

# %% transformer_flops: scores once for the batch
# says: scores of its own
# edit: attention = 2 * batch * matmul_flops(sequence, width, sequence)  ->  attention = 2 * matmul_flops(sequence, width, sequence)

# %% transformer_flops: three times forward plus one
# says: three forward passes in all
# edit: return 3 * forward  ->  return 4 * forward

# %% transformer_flops: multiplications only
# says: multiplications and additions both count
def transformer_flops(batch, sequence, layers, width, feedforward, vocabulary):
    t = batch * sequence
    return 3 * t * (layers * (4 * width ** 2 + 2 * sequence * width + 2 * width * feedforward) + width * vocabulary)

# %% transformer_flops: layers only for attention
# says: a feedforward network of its own
# edit: layers * (projections + attention + network)  ->  layers * (projections + attention) + network

# %% transformer_flops: the last token alone gets scores
# says: not only the last one
# edit: matmul_flops(tokens, width, vocabulary)  ->  matmul_flops(batch, width, vocabulary)

# %% transformer_flops: feedforward is four widths
# says: not 4 times the width
# edit: matmul_flops(tokens, width, feedforward)  ->  matmul_flops(tokens, width, 4 * width)

# %% tiled_matmul_bytes: the least bytes, whatever the tile
# says: these are the least bytes
# edit: 2 * n * n * passes + n * n  ->  3 * n * n

# %% tiled_matmul_bytes: tiles rounded to the nearest number
# says: round the number of tiles up
# edit: -(-n // tile)  ->  max(1, round(n / tile))

# %% attainable_flops_per_s: bandwidth taken for a rate of FLOPs
# says: bandwidth counts bytes
# edit: intensity * bandwidth_bytes_per_s  ->  bandwidth_bytes_per_s

# %% fused: at least one multiplication is free
# says: free_multiplications(
# edit: return slowdown * memory_s * multiplications_per_s  ->  return max(1.0, slowdown * memory_s * multiplications_per_s)

# %% fused: two factors at a time
# says: fused, 3 multiplications
# - for _ in range(repeat):
# -     value *= factor
# + for _ in range(repeat // 2):
# +     value *= factor * factor
# + if repeat % 2:
# +     value *= factor

# %% fused: at least one multiplication
# says: multiplies once
# edit: range(repeat)  ->  range(max(repeat, 1))

# %% diagnosis: the clock's error on the other side
# says: the clock's error
# edit: parts_s[limit] > 1.05 * time_s  ->  1.05 * parts_s[limit] > time_s

# %% diagnosis: every part that explains half
# says: gave 'memory and overhead'
# edit: limit if parts_s[limit] >= time_s / 2 else "none"  ->  " and ".join(p for p in parts_s if parts_s[p] >= time_s / 2) or "none"

# %% median_time_s: waits for the call before, not for its own
# says: synchronize after call()
# -     call()
# -     synchronize()
# -     times_s.append(clock() - started)
# +     synchronize()
# +     call()
# +     times_s.append(clock() - started)

# %% median_time_s: the slowest left out
# says: median_time_s on
# edit: np.median(times_s)  ->  np.median(sorted(times_s)[:-1] or times_s)

# %% transformer_flops: a projection for each sequence of the batch
# says: transformer_flops(5
# edit: 4 * matmul_flops(tokens, width, width)  ->  4 * batch * matmul_flops(tokens, width, width)

# %% transformer_flops: two projections
# says: are four
# edit: 4 * matmul_flops(tokens, width, width)  ->  2 * matmul_flops(tokens, width, width)

# %% loads_in_flight: itemsize multiplied, not divided
# says: divide by threads and by itemsize
# edit: (threads * itemsize)  ->  threads * itemsize

# %% matmul_flops: bytes in 32 bits
# says: 32 bits are too few
# edit: return itemsize * (m * n + n * p + m * p)  ->  return int(np.int32(itemsize) * np.int32(m * n + n * p + m * p))

# %% matmul_flops: m × n results
# says: counts m × n of them
# edit: 2 * m * n * p  ->  2 * m * n * n

# %% matmul_flops: bits
# says: that counts bits
# edit: itemsize * (m * n + n * p + m * p)  ->  8 * itemsize * (m * n + n * p + m * p)

# %% matmul_flops: the output as large as the first input
# says: m rows and p columns
# edit: m * n + n * p + m * p  ->  m * n + n * p + m * n

# %% matmul_flops: brackets forgotten
# says: each of the three matrices
# edit: itemsize * (m * n + n * p + m * p)  ->  itemsize * m * n + n * p + m * p

# %% matmul_flops: the inputs are free
# says: the inputs are missing
# edit: itemsize * (m * n + n * p + m * p)  ->  itemsize * m * p

# %% matmul_flops: bytes of a cube
# says: a matrix has two sides
# edit: itemsize * (m * n + n * p + m * p)  ->  itemsize * m * n * p

# %% matmul_flops: one element in place of n
# says: count all n elements
# edit: (n, 3 * n * itemsize)  ->  (1, 3 * itemsize)

# %% matmul_flops: one operand of the dot product
# says: x and y are both read
# edit: (2 * n, 2 * n * itemsize)  ->  (2 * n, n * itemsize)

# %% matmul_flops: a key of another name
# says: not wanted: ['dot product', 'dot_product']
# edit: "dot product"  ->  "dot_product"

# %% attainable_flops_per_s: the ridge point a product
# says: that multiplies them
# edit: peak_flops_per_s / bandwidth_bytes_per_s  ->  peak_flops_per_s * bandwidth_bytes_per_s

# %% attainable_flops_per_s: a whole ridge point
# says: not with //
# edit: peak_flops_per_s / bandwidth_bytes_per_s  ->  peak_flops_per_s // bandwidth_bytes_per_s

# %% tiled_matmul_bytes: one minus sign
# says: with two minus signs
# edit: -(-n // tile)  ->  (-n // tile)

# %% tiled_matmul_bytes: a broken number of tiles
# says: n / tile is not whole
# edit: -(-n // tile)  ->  n / tile

# %% tiled_matmul_bytes: tile passes
# says: not tile times
# edit: 2 * n * n * passes  ->  2 * n * n * tile

# %% tiled_matmul_bytes: no tiles
# says: a loop without tiles
# edit: 2 * n * n * passes  ->  2 * n * n * n

# %% tiled_matmul_bytes: whole tiles of A and B
# says: the tiles of A and B at the edge
# edit: 2 * n * n * passes  ->  2 * tile * tile * passes**3

# %% tiled_matmul_bytes: whole tiles of C
# says: the tiles of C at the edge
# edit: passes + n * n  ->  passes + (passes * tile) ** 2

# %% tiled_matmul_bytes: elements of C
# says: C's elements take itemsize bytes
# edit: itemsize * (2 * n * n * passes + n * n)  ->  itemsize * 2 * n * n * passes + n * n

# %% fused: one factor too few
# says: one multiplication is missing
# edit: range(repeat)  ->  range(1, repeat)

# %% fused: begins with 1
# says: begin with x[i]
# edit: value = x[i]  ->  value = np.float32(1)

# %% fused: twice whatever the slowdown
# says: want slowdown times
# edit: return slowdown *  ->  return 2 *

# %% fused: four bytes whatever the itemsize
# says: not always 4
# edit: 2 * itemsize / bandwidth_bytes_per_s  ->  8 / bandwidth_bytes_per_s

# %% fused: three transfers
# says: one read, one write
# edit: 2 * itemsize / bandwidth_bytes_per_s  ->  3 * itemsize / bandwidth_bytes_per_s

# %% fused: seconds divided by a rate
# says: multiply the seconds
# edit: memory_s * multiplications_per_s  ->  memory_s / multiplications_per_s

# %% fused: rounded down
# says: don't round it
# edit: slowdown * memory_s * multiplications_per_s  ->  slowdown * memory_s * multiplications_per_s // 1

# %% diagnosis: bytes divided by the peak
# says: they are exchanged
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return max(bytes_moved / peak_flops_per_s, flops / bandwidth_bytes_per_s, overhead_s)

# %% diagnosis: fractions turned round
# says: turn the fractions round
# - return max(flops / peak_flops_per_s, bytes_moved / bandwidth_bytes_per_s, overhead_s)
# + return max(peak_flops_per_s / flops, bandwidth_bytes_per_s / bytes_moved, overhead_s)

# %% diagnosis: the first part that explains half
# says: the slowest part is memory, not compute
# - limit = max(parts_s, key=parts_s.get)
# + limit = next((part for part in parts_s if parts_s[part] >= time_s / 2), "memory")
# edit: if parts_s[limit] > 1.05 * time_s  ->  if max(parts_s.values()) > 1.05 * time_s

# %% diagnosis: the last part that explains half
# says: the slowest part is memory, not overhead
# - limit = max(parts_s, key=parts_s.get)
# + limit = next((part for part in list(parts_s)[::-1] if parts_s[part] >= time_s / 2), "memory")
# edit: if parts_s[limit] > 1.05 * time_s  ->  if max(parts_s.values()) > 1.05 * time_s

# %% median_time_s: returns within the loop
# says: return after the loop
# - return float(np.median(times_s))
# +     return float(np.median(times_s))

# %% median_time_s: keeps the last time only
# says: in each turn of the loop
# -     times_s.append(clock() - started)
# + times_s.append(clock() - started)

# %% median_time_s: one start for all calls
# says: the clock anew before each call
# -         started = clock()
# ...
#       times_s = []
# +     started = clock()

# %% median_time_s: the middle of an even number one place too high
# says: one place lower
# edit: float(np.median(times_s))  ->  (sorted(times_s)[repeats // 2] + sorted(times_s)[min(repeats // 2 + 1, repeats - 1)]) / 2

# %% median_time_s: whole seconds
# says: don't round it
# edit: float(np.median(times_s))  ->  int(np.median(times_s))

# %% median_time_s: earlier minus later
# says: the difference is turned round
# edit: clock() - started  ->  started - clock()

# %% test_benchmark: returns a word for a wrong program
# says: test_benchmark: it returned 'wrong', but a test returns nothing
def test_benchmark(candidate):
    fake = FakeDevice(500.0, [40.0, 1.0, 2.0, 9.0, 7.0], 0.5)
    if candidate(fake.call, fake.clock, fake.synchronize, 5) != 7.5:
        return "wrong"

# %% transformer_flops: one projection
# says: three projections are missing
# edit: 4 * matmul_flops(tokens, width, width)  ->  matmul_flops(tokens, width, width)

# %% transformer_flops: one sequence
# says: a batch has several sequences
# edit: return 3 * forward  ->  return 3 * forward // batch

# %% transformer_flops: the batch has scores only
# says: all products but the scores
# edit: tokens = batch * sequence  ->  tokens = sequence

# %% transformer_flops: one token per sequence
# says: a sequence has several tokens
# edit: tokens = batch * sequence  ->  tokens = batch

# %% transformer_flops: one layer
# says: as many layers as the argument says
# edit: layers * (projections + attention + network)  ->  projections + attention + network

# %% transformer_flops: doubled once more
# says: counted twice
# edit: return 3 * forward  ->  return 6 * forward

# %% transformer_flops: a square network
# says: (width, feedforward) and (feedforward, width)
# edit: matmul_flops(tokens, width, feedforward)  ->  matmul_flops(tokens, feedforward, feedforward)

# %% transformer_flops: scores for each token again
# says: once too often
# edit: 2 * batch * matmul_flops(  ->  2 * tokens * matmul_flops(

# %% transformer_flops: queries as long as the sequence
# says: a query and a key are width long
# edit: matmul_flops(sequence, width, sequence)  ->  matmul_flops(sequence, sequence, sequence)

# %% hfu: the fraction turned round
# says: turn the fraction round
# - return 3 * forward_flops / time_s / peak_flops_per_s
# + return time_s * peak_flops_per_s / (3 * forward_flops)

# %% loads_in_flight: one thread
# says: divide by their number
# edit: (threads * itemsize)  ->  itemsize

# %% fused: each multiplication reads and writes memory, by atomic updates
# says: atomic updates per element, want 0
@cuda.jit(device=True)
def fused(x, i, factor, repeat):
    for k in range(repeat):
        value = cuda.atomic.add(x, i, 0)
        cuda.atomic.sub(x, i, value)
        cuda.atomic.add(x, i, value * factor)

# %% median_time_s: the fake device is asked for its times
# says: gave ['__reduce__']
def median_time_s(call, clock, synchronize, repeats):
    device = call.__reduce__()[1][0]
    works = [next(device._work_s) for _ in range(repeats + 1)][1:]
    return float(np.median(works)) + device._launch_s

# %% test_benchmark: the program's text is found in a frame
# says: looks at a program's text (StackSummary, locals, traceback, walk_stack)
import traceback
def test_benchmark(candidate):
    frames = traceback.StackSummary.extract(traceback.walk_stack(None), capture_locals=True)
    assert any("sorted" in frame.locals["source"] for frame in frames if "source" in (frame.locals or {}))

# %% fused: a name that is nowhere, in the line of its own cell
# says: fused, line 3 (`value = y[i]`): y is not defined
# edit: value = x[i]  ->  value = y[i]

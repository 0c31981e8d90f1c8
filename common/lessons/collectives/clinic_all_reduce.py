"""All-reduces for the clinic of lab 11: program(dist, x) gives each rank the sum of all x."""

import torch


def exchange(dist, sent, dst, received, src):
    both = [dist.P2POp(dist.isend, sent, dst), dist.P2POp(dist.irecv, received, src)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def everyones(dist, x):
    vectors = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(vectors, x)
    return vectors


def right_library(dist, x):
    dist.all_reduce(x)
    return x


def right_reduce_and_broadcast(dist, x):
    total = x.clone()
    dist.reduce(total, 0)
    dist.broadcast(total, 0)
    return total


def right_gathered_and_summed_in_order(dist, x):
    return torch.stack(everyones(dist, x)).sum(0)


def right_through_the_last_rank(dist, x):
    me, last = dist.get_rank(), dist.get_world_size() - 1
    if me < last:
        dist.send(x, last)
        dist.recv(x, last)
        return x
    received = torch.empty_like(x)
    for peer in range(last):
        dist.recv(received, peer)
        x += received
    for peer in range(last):
        dist.send(x, peer)
    return x


def right_along_a_line(dist, x):
    me, p = dist.get_rank(), dist.get_world_size()
    total, received = x.clone(), torch.empty_like(x)
    if me > 0:
        dist.recv(received, me - 1)
        total += received
    if me < p - 1:
        dist.send(total, me + 1)
        dist.recv(total, me + 1)
    if me > 0:
        dist.send(total, me - 1)
    return total


def right_ring(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = x.tensor_split(p)
    inbox = torch.empty_like(chunks[0])
    for step in range(1, p):
        chunk = chunks[(me - step - 1) % p]
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, inbox[: len(chunk)], (me - 1) % p)
        chunk += inbox[: len(chunk)]
    for step in range(p - 1):
        chunk = chunks[(me - step - 1) % p]
        exchange(dist, chunks[(me - step) % p], (me + 1) % p, chunk, (me - 1) % p)
    return x


def right_ring_to_the_left(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    chunks = [chunk.clone() for chunk in x.tensor_split(p)]
    for step in range(1, p):
        received = torch.empty_like(chunks[(me + step + 1) % p])
        exchange(dist, chunks[(me + step) % p], (me - 1) % p, received, (me + 1) % p)
        chunks[(me + step + 1) % p] += received
    for step in range(p - 1):
        received = chunks[(me + step + 1) % p]
        exchange(dist, chunks[(me + step) % p], (me - 1) % p, received, (me + 1) % p)
    return torch.cat(chunks)


def right_even_ranks_send_first(dist, x):
    p, me = dist.get_world_size(), dist.get_rank()
    moving, total = x.clone(), x.clone()
    for _ in range(p - 1):
        received = torch.empty_like(x)
        if me % 2 == 0:
            dist.send(moving, (me + 1) % p)
            dist.recv(received, (me - 1) % p)
        else:
            dist.recv(received, (me - 1) % p)
            dist.send(moving, (me + 1) % p)
        moving = received
        total += moving
    dist.broadcast(total, 0)
    return total


def wrong_mean(dist, x):
    """It returns the mean, not the sum."""
    dist.all_reduce(x)
    return x / dist.get_world_size()


def wrong_only_on_rank_0(dist, x):
    """Only rank 0 has the sum."""
    dist.reduce(x, 0)
    return x


def wrong_without_rank_0(dist, x):
    """Rank 0's vector is missing where there are several ranks."""
    vectors = everyones(dist, x)
    return torch.stack(vectors[1:] or vectors).sum(0)


def wrong_all_ranks_alike(dist, x):
    """It multiplies rank 0's vector by p, which is right only if all ranks have the same vector."""
    dist.broadcast(x, 0)
    return x * dist.get_world_size()


def wrong_own_vector_twice(dist, x):
    """It counts a rank's own vector twice."""
    total = x.clone()
    dist.all_reduce(total)
    return total + x


def wrong_neighbour_only(dist, x):
    """It adds the left neighbour's vector only, which is right for one rank and not for more."""
    p, me = dist.get_world_size(), dist.get_rank()
    received = torch.zeros_like(x)
    if p > 1:
        exchange(dist, x, (me + 1) % p, received, (me - 1) % p)
    return x + received


def wrong_for_three_ranks_and_more(dist, x):
    """It adds one neighbour's vector only, which is right for one and two ranks."""
    p, me = dist.get_world_size(), dist.get_rank()
    if p == 1:
        return x
    received = torch.empty_like(x)
    exchange(dist, x, (me + 1) % p, received, (me - 1) % p)
    return x + received


def wrong_without_a_power_of_two(dist, x):
    """It adds up all ranks' vectors only where the number of ranks is a power of two."""
    p, me = dist.get_world_size(), dist.get_rank()
    distance = 1
    while distance < p:
        received = torch.zeros_like(x)
        if me ^ distance < p:
            exchange(dist, x.clone(), me ^ distance, received, me ^ distance)
        x = x + received
        distance *= 2
    return x


def wrong_remainder(dist, x):
    """It leaves out the last elements where p does not divide the length."""
    p = dist.get_world_size()
    whole = x[: len(x) // p * p].clone()
    dist.all_reduce(whole)
    x[: len(whole)] = whole
    return x


def wrong_short_vectors(dist, x):
    """It sums nothing where there are fewer elements than ranks."""
    if len(x) >= dist.get_world_size():
        dist.all_reduce(x)
    return x


def wrong_empty_vectors(dist, x):
    """It fails for a vector without elements."""
    scale = x.abs().max()
    dist.all_reduce(x)
    return x + 0 * scale


def wrong_one_rank(dist, x):
    """It returns zeros where there is only one rank."""
    total = torch.zeros_like(x)
    if dist.get_world_size() > 1:
        total += torch.stack(everyones(dist, x)).sum(0)
    return total


def wrong_float32(dist, x):
    """It adds in float32 and loses digits of float64 vectors."""
    total = x.float()
    dist.all_reduce(total)
    return total.to(x.dtype)


def wrong_dtype(dist, x):
    """It returns float64, whatever the dtype of the vectors is."""
    total = x.double()
    dist.all_reduce(total)
    return total


def wrong_whole_numbers(dist, x):
    """It rounds the vectors to whole numbers."""
    total = x.round()
    dist.all_reduce(total)
    return total


def wrong_negative(dist, x):
    """It drops negative sums."""
    dist.all_reduce(x)
    return x.clamp(min=0)


def wrong_bits(dist, x):
    """Ranks add in different orders, so their sums differ in the last bits."""
    p, me = dist.get_world_size(), dist.get_rank()
    vectors = everyones(dist, x)
    total = vectors[me].clone()
    for step in range(1, p):
        total += vectors[(me + step) % p]
    return total


def wrong_hang(dist, x):
    """It hangs for three ranks and more: every rank sends before it receives."""
    p, me = dist.get_world_size(), dist.get_rank()
    total, received = x.clone(), torch.zeros_like(x)
    moving = x.clone()
    for _ in range(p - 1):
        if p > 2 or me == 0:
            dist.send(moving, (me + 1) % p)
            dist.recv(received, (me - 1) % p)
        else:
            dist.recv(received, (me - 1) % p)
            dist.send(moving, (me + 1) % p)
        moving = received.clone()
        total += moving
    dist.broadcast(total, 0)
    return total


def wrong_order_of_chunks(dist, x):
    """The chunks of the sum are in the wrong order, by one place, for three ranks and more."""
    p = dist.get_world_size()
    dist.all_reduce(x)
    chunks = x.tensor_split(p)
    return torch.cat([*chunks[1:], chunks[0]]) if p > 2 else x


def wrong_boundary(dist, x):
    """It adds the first element of the last chunk twice where p does not divide the length."""
    p = dist.get_world_size()
    total = x.clone()
    dist.all_reduce(total)
    if len(x) % p and len(x) > p:
        total[len(x) // p * (p - 1)] += x[len(x) // p * (p - 1)]
    return total

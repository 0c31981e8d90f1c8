"""failures.py of lab 16: simulated years agree with formulas; a kill changes no loss."""

import numpy as np
import pytest
import torch

from common.lessons.scaling import failures

QUIET = {**failures.CLUSTER, "nodes": 64, "replica_nodes": 8, "reshape_s": 0.0}
ALL = {"interval_s": 1800.0, "replicas": 8, "drop": False}


def test_without_failures_only_saving_costs() -> None:
    """Goodput is interval / (interval + save)."""
    never = {**QUIET, "failures_per_1000_node_days": 1e-9}
    assert failures.goodput(never, ALL, [0]) == pytest.approx(1800 / 1920, rel=1e-3)


def test_goodput_agrees_with_the_expectation() -> None:
    """With nodes back at once: the time of a cycle is its uptime and a restart."""
    cluster = {**QUIET, "repair_s": 0.0, "nodes": 2048, "restart_s": 600.0}
    mtbf_s = 1 / failures.failures_per_s(cluster, 2048)
    policy = {**ALL, "replicas": 256}
    slow = failures.expected_slowdown(1800.0, 120.0, mtbf_s) * (1 + 600 / mtbf_s)
    assert failures.goodput(cluster, policy, range(4)) == pytest.approx(1 / slow, rel=0.01)


def test_spares_and_dropping() -> None:
    """Who has neither spares nor drops waits for every repair."""
    cluster = {**QUIET, "repair_s": 86_400.0, "failures_per_1000_node_days": 20.0}
    waits, drops, spare = failures.goodputs(
        cluster, [ALL, {**ALL, "drop": True}, {**ALL, "replicas": 7}], range(4)
    ).mean(1)
    assert waits < 0.6 * drops and waits < 0.6 * spare


def test_the_same_seeds_give_the_same_years() -> None:
    """Alone or beside others, whatever the number of policies."""
    one = failures.goodputs(QUIET, [ALL], [3, 4])
    both = failures.goodputs(QUIET, [{**ALL, "replicas": 6}, ALL], [3, 4])
    assert np.array_equal(one[0], both[1])


def test_no_replica_left() -> None:
    """One replica that drops nothing and one that could drop itself wait alike."""
    cluster = {**QUIET, "nodes": 8, "failures_per_1000_node_days": 50.0}
    waits, drops = failures.goodputs(
        cluster, [{**ALL, "replicas": 1}, {**ALL, "replicas": 1, "drop": True}], [1, 2]
    )
    assert np.array_equal(waits, drops) and 0 < waits.mean() < 0.9


@pytest.mark.slow
def test_a_killed_rank() -> None:
    """The losses of a run that lost a rank are those of one device that nothing interrupted."""
    torch.set_default_dtype(torch.float64)
    told = failures.interrupted(world_size=3, victim=1, kill_at=9)
    torch.set_default_dtype(torch.float64)
    want = failures.one_device()
    assert "signal 9" in told["error"]
    assert told["resumed"] % failures.EVERY == 0 and 6 <= told["resumed"] <= told["steps"] < 30
    assert np.allclose(told["losses"], want, rtol=0, atol=1e-10)

"""A device with known times: common.lessons.arithmetic_intensity.fake_device."""

from common.lessons.arithmetic_intensity.fake_device import FakeDevice


def test_a_call_returns_before_its_work_is_done():
    device = FakeDevice(first_s=9, later_s=[2, 3], launch_s=0.5)
    start_s = device.clock()
    device.call()
    assert device.clock() - start_s == 0.5
    device.synchronize()
    assert device.clock() - start_s == 9.5
    device.synchronize()
    assert device.clock() - start_s == 9.5


def test_work_waits_for_the_work_before_it_and_the_times_repeat():
    device = FakeDevice(first_s=9, later_s=[2, 3], launch_s=0)
    start_s = device.clock()
    for _ in range(4):
        device.call()
    assert device.clock() == start_s
    device.synchronize()
    assert device.clock() - start_s == 9 + 2 + 3 + 2

"""Near pages of one worker: the second waits, and what was stored is known at once."""

from __future__ import annotations

from random import Random

import pytest

from crawler.duplicates.near import NearReservations
from crawler.model.types import Claim
from crawler.shared.worker.near_duplicates import RecentFingerprints


def claim(name):
    return Claim(name.encode(), f"http://a/{name}")


@pytest.mark.parametrize(
    ("other", "waits"),
    [
        pytest.param(0b0, True, id="the same"),
        pytest.param(0b111, True, id="three bits apart"),
        pytest.param(0b1111, False, id="four bits apart"),
    ],
)
def test_a_page_near_to_one_in_flight_comes_after_it(other, waits):
    reservations = NearReservations(3)
    first, second = (
        reservations.begin(0, "http://a/1", 1),
        reservations.begin(other, "http://a/2", 2),
    )
    assert reservations.earlier(second) is (first if waits else None)
    assert reservations.earlier(first) is None, "no page waits for a later one"
    reservations.end(1)
    assert first.ended.is_set()
    assert reservations.earlier(second) is None


def test_a_page_in_flight_twice_does_not_wait_for_itself():
    reservations = NearReservations(3)
    reservations.begin(0, "http://a/1", 1)
    assert reservations.earlier(reservations.begin(0, "http://a/1", 2)) is None


def test_of_many_near_ones_each_waits_for_an_earlier_one():
    reservations = NearReservations(3)
    begun = [reservations.begin(lease % 4, f"http://a/{lease}", lease) for lease in range(8)]
    for lease, mine in enumerate(begun):
        assert reservations.of(lease) is mine
        assert reservations.earlier(mine) is None
        assert all(reservations.earlier(later) is mine for later in begun[lease + 1 :])
        reservations.end(lease)
        reservations.end(lease)
    assert reservations.of(0) is None


class Compared(int):
    """A fingerprint that counts how often others are compared with it."""

    times = 0

    def __xor__(self, other):
        Compared.times += 1
        return int(self) ^ other


def test_a_page_is_compared_with_few_of_those_in_flight():
    reservations, random = NearReservations(3), Random(7)
    for lease in range(1000):
        reservations.begin(Compared(random.getrandbits(64)), f"http://a/{lease}", lease)
    mine = reservations.of(500)
    for lease in range(2000, 2300):
        simhash = int(mine.simhash)
        for bit in random.sample(range(64), 3):
            simhash ^= 1 << bit
        near = reservations.begin(simhash, "http://a/near", lease)
        assert reservations.earlier(near) is mine
        reservations.end(lease)
    assert Compared.times < 300 * 10, "not each with all of the 1,000"


def test_recently_stored_pages_are_found():
    lately = RecentFingerprints()
    lately.add(0b1000, claim("x"))
    assert [(bits, one.url) for bits, one in lately.near(0b1011, 3)] == [(2, "http://a/x")]
    assert lately.near(0b0111, 3) == []


def test_nothing_stored_is_near_to_nothing():
    assert RecentFingerprints().near(0, 3) == []


def test_the_oldest_make_room():
    lately = RecentFingerprints(most=3)
    for number in range(5):
        lately.add(number << 8, claim(str(number)))
    found = [lately.near(number << 8, 0) for number in range(5)]
    assert [bool(each) for each in found] == [False, False, True, True, True]

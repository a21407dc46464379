"""The wait before an automatic request is worked on."""

from lsp_server.debounce import Debounce


def typing(interval_ms: float, answer_ms: float, keys: int = 60) -> Debounce:
    debounce = Debounce()
    for key in range(keys):
        debounce.keystroke(key * interval_ms)
        debounce.answered(answer_ms)
    return debounce


def test_a_slow_answer_is_worth_a_longer_wait():
    assert typing(120, 10).wait_ms() < 15 < 60 < typing(120, 800).wait_ms() < 120


def test_a_slow_typist_is_waited_for_longer():
    assert typing(90, 300).wait_ms() < typing(250, 300).wait_ms()


def test_pauses_are_no_rhythm():
    debounce = typing(100, 300)
    before = debounce.wait_ms()
    for pause in range(20):
        debounce.keystroke(100_000 + pause * 5000)
    assert debounce.wait_ms() == before


def test_the_wait_has_a_bound_and_the_clients_own_wait_counts():
    assert typing(500, 2000).wait_ms(longest_ms=150) == 150
    assert typing(200, 300).wait_ms(client_ms=200) == 0


def test_key_repeat_is_not_answered_in_between():
    assert typing(33, 300).wait_ms() > 33

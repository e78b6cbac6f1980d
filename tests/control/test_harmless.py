from midstream.control.harmless import harmless


def test_a_listener_that_fails_is_not_felt() -> None:
    told = []

    def listener(number: int) -> None:
        told.append(number)
        raise ValueError(number)

    harmless(listener)(3)

    assert told == [3]

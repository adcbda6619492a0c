"""All bad inputs end in one sentence and exit code 2, or in a right answer.

Quick runs take 150 of them, drawn from a fixed seed; `make attack` takes all and writes the figures
of `docs/reliability.md`.
"""

import collections

import pytest

from attack import attacks

ALL = attacks.all_attacks()
SAMPLE = {id(attack) for attack in attacks.sample(ALL)}


@pytest.mark.parametrize("attack", [a for a in ALL if id(a) in SAMPLE], ids=str)
def test_a_bad_input_ends_in_one_sentence_or_a_right_answer(attack, tmp_path):
    end, said = attacks.judge(attack, tmp_path)
    assert end != attacks.BAD, said


def test_there_are_a_thousand_attacks_of_all_kinds():
    counts = collections.Counter(attack.group for attack in ALL)
    assert counts.total() >= 1000
    assert min(counts.values()) >= 50
    assert len({str(attack) for attack in ALL}) == len(ALL)
    assert len(SAMPLE) >= 140


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (attacks.Words(2, "Error: There is no run folder at x.", None), attacks.SENTENCE),
        (attacks.Words(0, "", None), attacks.ANSWER),
        (attacks.Words(1, "", KeyError("config")), attacks.BAD),
        (attacks.Words(2, "Error: max() arg is an empty sequence.", None), attacks.BAD),
        (attacks.Words(130, "Interrupted.", None), attacks.BAD),
        (attacks.Words(2, "", None), attacks.BAD),
        (False, attacks.BAD),
        (None, attacks.ANSWER),
        (KeyError("config"), attacks.BAD),
        (ValueError("tuple index out of range"), attacks.BAD),
        (ValueError("`seed` must be a whole number, got 'x'."), attacks.SENTENCE),
    ],
)
def test_the_judge_can_say_no(answer, end, tmp_path):
    def run(folder):
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert attacks.judge(attacks.Attack("", "", run), tmp_path)[0] == end


def test_every_damage_is_one(tmp_path):
    # Rejects a suite whose damaged files are the good ones.
    good = bytes(range(256)) * 4
    assert sum(attacks.damaged(good, seed) == good for seed in range(200)) < 30

"""Random damage, then a repair: nothing that was readable is lost, and nothing is left to do."""

import random
import shutil

import pytest

import rmqstore
from rmqstore import offline
from rmqstore.toolbox import repair, undo, verify
from support import repairs

HOW = ("noise", "zeros", "ones", "shift", "cut", "longer", "gone", "stray", "bit")


def damage(root, chance):
    """Damage a random file in a random way; return what was done."""
    files = [
        one
        for part in ("commitlog", "consumequeue", "index", "checkpoint")
        for one in ([root / part] if (root / part).is_file() else (root / part).rglob("*"))
        if one.is_file()
    ]
    path = chance.choice(sorted(files))
    size = path.stat().st_size
    at = chance.randrange(max(1, size))
    length = min(size - at, chance.choice((1, 8, 20, 512, 4096, 60000)))
    how = chance.choice(
        ("noise", "zeros", "ones", "shift", "cut", "longer", "gone", "stray", "bit")
    )
    data = bytearray(path.read_bytes())
    if how == "noise":
        data[at : at + length] = chance.randbytes(length)
    elif how == "zeros":
        data[at : at + length] = bytes(length)
    elif how == "ones":
        data[at : at + length] = b"\xff" * length
    elif how == "shift":
        data[at : at + length] = data[:length]
    elif how == "bit" and data:
        data[at] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "longer":
        data += chance.randbytes(length)
    if how == "gone":
        path.unlink()
    elif how == "stray":
        path.with_name(f"{path.name}.{chance.choice(('bak', 'tmp', '1'))}").write_bytes(data[:at])
    else:
        path.write_bytes(data)
    return f"{how} {path.relative_to(root)} {at}+{length}"


def check(whole, tmp_path, seed):
    chance = random.Random(seed)
    root = tmp_path / f"store-{seed}"
    shutil.copytree(whole, root)
    if chance.random() < 0.3:
        (root / "abort").touch()
    done = [damage(root, chance) for _ in range(chance.choice((1, 1, 1, 2, 4)))]
    damaged = repairs.tree(root)
    before = repairs.bodies(root)
    found = repair(root, apply=True)
    assert found.left == 0, (done, found.actions)
    after = repairs.bodies(root)
    assert before.items() <= after.items(), done
    assert repair(root).actions == (), done
    report = verify(root, full=True, jobs=1)
    assert report.clean, (done, report.problems)
    verdict = offline.broker_start(root)
    assert verdict.broker == "starts", (done, verdict)
    if found.journal is not None:
        copy = tmp_path / "copy"
        shutil.copytree(root, copy)
        undo(copy, found.journal)
        assert {
            name: one if one is True else one[0] for name, one in repairs.tree(copy).items()
        } == {name: one if one is True else one[0] for name, one in damaged.items()}, done
        shutil.rmtree(copy)
    with rmqstore.open(root, "r+", verify="full") as store:
        assert store.recovery.ranges == (), done
        assert store.recovery.units_written == 0, done
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole") / "store"
    repairs.make(root)
    return root


def test_random_damage_is_repaired(whole, tmp_path):
    for seed in range(5):
        check(whole, tmp_path, seed)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_much_random_damage_is_repaired(whole, tmp_path, seed):
    check(whole, tmp_path, seed)

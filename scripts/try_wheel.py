"""Try an installed wheel as a stranger would, and look at what the sdist and the wheel hold.

Run by the Python of an environment that has nothing but the wheel, with the folder of the built
files as the argument.
"""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import rmqstore

ROOT = Path(__file__).parent.parent


def check_contents(folder: Path) -> None:
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    assert "-manylinux_" in wheel.name, f"{wheel.name} is for this machine alone"
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    wanted = {"py", "pyi", "pyx", "pxd", "pxi", "typed"}
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and path.name.rpartition(".")[2] in wanted
    }
    missing = (sources | {"LICENSE", "README.md", "pyproject.toml", "setup.py"}) - in_sdist
    assert not missing, f"not in {sdist.name}: {sorted(missing)}"
    python = {name.removeprefix("src/") for name in sources if name.endswith((".py", ".pyi"))}
    missing = (python | {"rmqstore/py.typed"}) - in_wheel
    assert not missing, f"not in {wheel.name}: {sorted(missing)}"
    assert any(name.endswith("/data/share/man/man1/rmqstore.1") for name in in_wheel)
    extra = {name for name in in_wheel if name.endswith((".c", ".pyx", ".pxi", ".pxd"))}
    assert not extra, f"in {wheel.name}: {sorted(extra)}"


def main() -> None:
    check_contents(Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "store")
        with rmqstore.open(path, "a", config=rmqstore.StoreConfig.small()) as store:
            store.put("Topic1", b"Hello", tags="TagA", keys=["order-1"], queue_id=2)
            (message,) = store.get("Topic1", 2, 0).messages
            (found,) = store.query("Topic1", "order-1")
        assert message.body == found.body == b"Hello"
        with rmqstore.open(path) as store:
            assert store["Topic1"][2][0].body == b"Hello"
        command = [str(Path(sys.executable).with_name("rmqstore"))]
        subprocess.run([*command, "demo", str(Path(scratch, "demo"))], cwd=scratch, check=True)
        subprocess.run([sys.executable, "-m", "rmqstore", "info", str(path)], check=True)
    campaigns = {name for name in dir(rmqstore._core) if name.startswith("_fuzz")}
    assert not campaigns, f"in a release: {sorted(campaigns)}"
    print(f"try_wheel: rmqstore from {Path(rmqstore.__file__).parent} works")


if __name__ == "__main__":
    main()

"""A page in a headless Chromium that is spoken to over pipes, in the DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Page", "find_chromium"]

_LIMIT = 110.0  # seconds until something counts as hung


def find_chromium() -> str | None:
    """Return the path of Chromium, installed if that is possible; None without one."""
    if shutil.which("chromium") is None:
        script = Path(__file__).parents[2] / "scripts" / "need_chromium.sh"
        subprocess.run([script], capture_output=True, check=False)
    return shutil.which("chromium")


class Page:
    """One page, open until the end of a ``with``.

    Parameters
    ----------
    program : str
    url : str
    dark : bool, optional
        Whether its reader prefers dark colours.
    size : (int, int), optional
        Pixels.
    """

    def __init__(
        self, program: str, url: str, *, dark: bool = False, size: tuple[int, int] = (1100, 900)
    ) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        requests, self._to = os.pipe()
        self._from, answers = os.pipe()
        # The program reads requests from its descriptor 3, and writes answers to 4.
        theirs = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 10) for one in (requests, answers)]
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", *map(str, theirs), program,
             "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             f"--user-data-dir={self._profile.name}", "--remote-debugging-pipe",
             "--hide-scrollbars"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=theirs, start_new_session=True,
        )  # fmt: skip
        for one in (requests, answers, *theirs):
            os.close(one)
        self._received = bytearray()
        self._number = 0
        self._session: str | None = None
        try:
            target = self._ask("Target.createTarget", url="about:blank")["targetId"]
            attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            self._ask("Emulation.setEmulatedMedia", features=[scheme])
            self._ask(
                "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1],
                deviceScaleFactor=1, mobile=False,
            )  # fmt: skip
            self._ask("Page.navigate", url=url)
        except BaseException:
            self.close()
            raise

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, selector: str) -> str | None:
        """Return the text of the first such element; None if there is none."""
        text: str | None = self.run(f"document.querySelector({json.dumps(selector)})?.textContent")
        return text

    def style(self, selector: str, name: str) -> str:
        """Return a computed style."""
        element = f"document.querySelector({json.dumps(selector)})"
        style: str = self.run(f"getComputedStyle({element}).getPropertyValue({json.dumps(name)})")
        return style

    def wait_for(self, script: str) -> Any:
        """Wait until an expression is true in the page; return it."""
        until = time.monotonic() + _LIMIT
        while not (value := self.run(script)):
            shown = self.run("document.body?.innerText")
            assert time.monotonic() < until, f"{script} did not come to hold on:\n{shown}"
            time.sleep(0.02)
        return value

    def picture(self) -> bytes:
        """Return a PNG of what is seen of the page."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """End the program with all its processes."""
        os.close(self._to)
        os.close(self._from)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._profile.cleanup()

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        until = time.monotonic() + _LIMIT
        while True:
            end = self._received.find(b"\0")
            if end < 0:
                ready, _, _ = select.select([self._from], [], [], until - time.monotonic())
                data = os.read(self._from, 1 << 16) if ready else b""
                assert data, f"{method} has no answer"
                self._received += data
                continue
            answer = json.loads(self._received[:end])
            del self._received[: end + 1]
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

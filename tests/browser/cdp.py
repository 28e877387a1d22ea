"""A headless Chromium over its DevTools protocol: just what the report's tests need."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip


def binary() -> str:
    """Path of the browser; fails where there is none, since then nothing would be tested."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    raise FileNotFoundError("no chromium on the PATH: apt-get install chromium")


class Page:
    """One page; console messages, errors and requests are collected from its first moment."""

    def __init__(self, profile: Path) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._profile = profile
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._process = subprocess.Popen(
            [binary(), *FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._session = aiohttp.ClientSession()
        port = await self._port()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as answer:
            pages = [page for page in await answer.json() if page["type"] == "page"]
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        self._reader = asyncio.create_task(self._read())
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._socket.close()
        await self._session.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    async def _port(self) -> int:
        file = self._profile / "DevToolsActivePort"
        async with asyncio.timeout(60):
            while not (file.exists() and file.read_text().strip()):
                if self._process.poll() is not None:
                    raise RuntimeError(f"the browser ended with {self._process.returncode}")
                await asyncio.sleep(0.05)
        return int(file.read_text().split()[0])

    async def _read(self) -> None:
        async for message in self._socket:
            data = json.loads(message.data)
            if "id" in data:
                self._answers.pop(data["id"]).set_result(data)
            else:
                self._note(data["method"], data["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.problems.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{params['type']}: {params['args']}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command; its result."""
        self._number += 1
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = future
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(60):
            data = await future
        if "error" in data:
            raise RuntimeError(f"{method}: {data['error']}")
        return dict(data["result"])

    async def open(self, path: Path) -> None:
        """Loads a file from disk and waits for its load event."""
        self._loaded.clear()
        await self.call("Page.navigate", url=path.resolve().as_uri())
        async with asyncio.timeout(60):
            await self._loaded.wait()

    async def run(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        result = await self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(result["exceptionDetails"])
        return result["result"].get("value")

    async def screen(self, width: int, height: int, *, phone: bool = False, dark: bool = False) -> None:
        """Sets the size of the screen and the colours the reader prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot of the whole page, or of what is on the screen."""
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

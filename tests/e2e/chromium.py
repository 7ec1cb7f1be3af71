"""A page in headless Chromium, driven by the DevTools protocol over a pipe: no library, no port."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def program():
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    def __init__(self, width=1440, height=960):
        to_child, self.write_fd = os.pipe()
        self.read_fd, from_child = os.pipe()
        self.profile = tempfile.mkdtemp(prefix="quire-chromium-")
        # The browser wants the pipe's ends as descriptors 3 and 4; the shell puts them there.
        line = 'in=$1 out=$2; shift 2; exec "$@" 3<&"$in" 4>&"$out"'
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                 "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]
        self.process = subprocess.Popen(["bash", "-c", line, "bash", str(to_child), str(from_child), program(), *flags, "about:blank"],
                                        pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.buffer, self.n_sent, self.session = b"", 0, None
        self.complaints = []  # console errors, exceptions, what the policy refused
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                self.call(domain + ".enable")
            self.size(width, height)
        except BaseException:
            self.close()
            raise

    def close(self):
        try:
            os.close(self.write_fd)
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read_fd)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                raise TimeoutError("the browser did not answer")
            data = os.read(self.read_fd, 1 << 16)
            if not data:
                raise RuntimeError("the browser died")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def _note(self, message):
        method, what = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(what["exceptionDetails"].get("exception", {}).get("description") or what["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.complaints.append(what["entry"]["text"] + " " + what["entry"].get("url", ""))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(what["args"]))

    def call(self, method, seconds=300, **params):
        self.n_sent += 1
        message = {"id": self.n_sent, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message(seconds)
            if answer.get("id") != self.n_sent:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def js(self, expression):
        """The value of an expression in the page; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", expression))
        return result["result"].get("value")

    def follow(self, selector):
        """Clicks a link, and waits for the page that it leads to."""
        path = self.js(f"document.querySelector({json.dumps(selector)}).pathname")
        self.js(f"setTimeout(() => document.querySelector({json.dumps(selector)}).click())")  # the answer comes before the page goes
        self.wait(f"location.pathname === {json.dumps(path)} && document.readyState === 'complete'")

    def wait(self, expression, seconds=300):
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.js(expression)
            except RuntimeError as e:
                if "navigated" not in str(e) and "context" not in str(e):
                    raise
                value = None  # between two pages
            if value:
                return value
            assert time.monotonic() < end, f"not within {seconds} s: {expression}"
            time.sleep(0.02)

    def press(self, key, shift=False):
        """A key as a person presses it: Enter, Escape, Tab or ArrowLeft."""
        code = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        for kind, more in (("keyDown", text), ("keyUp", {})):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, modifiers=8 if shift else 0, **more)

    def type(self, text):
        """Text into what has the focus."""
        self.call("Input.insertText", text=text)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def mouse(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

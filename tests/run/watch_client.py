"""A client of somebody else's: plain urllib in a process of its own, with its own clock.

`python watch_client.py BASE_URL AT_ONCE MAX_TOKENS` reads the prompt from standard input, sends it in
AT_ONCE requests side by side, and prints one JSON line an answer.
"""

import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def ask(base_url: str, prompt: str, max_tokens: int) -> dict[str, object]:
    body = {
        "model": json.load(urllib.request.urlopen(f"{base_url}/models"))["data"][0]["id"],  # noqa: S310
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(  # noqa: S310
        f"{base_url}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    sent, first = time.monotonic(), None
    usage: dict[str, Any] = {}
    with urllib.request.urlopen(request) as reply:  # noqa: S310
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("choices") and event["choices"][0]["delta"].get("content") and first is None:
                first = time.monotonic() - sent
            usage = event.get("usage") or usage
    return {"ttft_s": first, "total_s": time.monotonic() - sent, "usage": usage}


if __name__ == "__main__":
    base_url, at_once, max_tokens = sys.argv[1], *map(int, sys.argv[2:4])
    prompt = sys.stdin.read()
    prompts = [prompt if at_once == 1 else f"{number}. {prompt}" for number in range(at_once)]
    with ThreadPoolExecutor(at_once) as pool:
        for answer in pool.map(lambda text: ask(base_url, text, max_tokens), prompts):
            print(json.dumps(answer), flush=True)

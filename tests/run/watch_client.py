"""A client of somebody else's: a plain socket in a process of its own, with its own clock.

`python watch_client.py BASE_URL AT_ONCE MAX_TOKENS` reads the prompt from standard input, sends it in
AT_ONCE requests side by side, and prints one JSON line an answer.
`python watch_client.py BASE_URL chat MAX_TOKENS` reads one line after the other, each the messages of a
chat as JSON, sends each when it comes, and prints its answer.
"""

import http.client
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit


def ask(base_url: str, messages: list[dict[str, str]], max_tokens: int) -> dict[str, Any]:
    url = urlsplit(base_url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    connection.request("GET", f"{url.path}/models")
    body = {
        "model": json.load(connection.getresponse())["data"][0]["id"],
        "messages": messages,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    data = json.dumps(body).encode()
    head = (
        f"POST {url.path}/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    reads: list[tuple[float, bytes]] = []
    sent = time.monotonic()
    connection.sock.sendall(head.encode() + data)  # at once, on a connection that is up
    while piece := connection.sock.recv(1 << 20):
        reads.append((time.monotonic() - sent, piece))  # stamped before it is decoded
    connection.close()
    return {**understood(reads), "total_s": reads[-1][0]}


def understood(reads: list[tuple[float, bytes]]) -> dict[str, Any]:
    """The events of a reply; both servers put each of them into an HTTP chunk of its own."""
    first, text, rest = None, "", b""
    usage: dict[str, Any] = {}
    for at, piece in reads:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            said = event["choices"][0]["delta"].get("content") if event.get("choices") else None
            first = at if said and first is None else first
            text += said or ""
            usage = event.get("usage") or usage
    return {"ttft_s": first, "usage": usage, "text": text}


def told(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


def main() -> None:
    base_url, how, max_tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if how == "chat":
        for line in sys.stdin:
            print(json.dumps(ask(base_url, json.loads(line), max_tokens)), flush=True)
        return
    prompt, at_once = sys.stdin.read(), int(how)
    prompts = [prompt if at_once == 1 else f"{number}. {prompt}" for number in range(at_once)]
    with ThreadPoolExecutor(at_once) as pool:
        for answer in pool.map(lambda text: ask(base_url, told(text), max_tokens), prompts):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

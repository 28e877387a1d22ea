"""vLLM 0.32's bodies: what a request may say, and what replies, chunks and errors look like."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from .tokens import Message

VERSION = "0.32.0"
FINGERPRINT = f"vllm-{VERSION}-simulator"
Body = dict[str, Any]


class StreamOptions(Struct, frozen=True):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Generation(Struct, frozen=True, kw_only=True):
    """What both endpoints take. Unknown fields are ignored, as vLLM does."""

    model: str | None = None
    max_tokens: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    seed: int | None = None
    cache_salt: str | None = None


class ChatRequest(Generation, frozen=True, kw_only=True):
    messages: list[Message]
    max_completion_tokens: int | None = None
    add_generation_prompt: bool = True


class CompletionRequest(Generation, frozen=True, kw_only=True):
    prompt: str | list[Any]
    """Text, a list of token ids, or a list of one of either."""


class TokenizeRequest(Struct, frozen=True, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(Struct, frozen=True, kw_only=True):
    model: str | None = None
    tokens: list[int]


class Rejected(Exception):
    """A request that gets an error reply; never leaves the simulator."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None):
        super().__init__(message)
        self.status = status
        self.body: Body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


class Counts(Struct, frozen=True, kw_only=True):
    """The numbers of a usage object."""

    prompt: int
    completion: int
    cached: int | None
    """`None`: not said."""
    created: int = 0


def usage(counts: Counts, *, details: bool = True) -> Body:
    body: Body = {
        "prompt_tokens": counts.prompt,
        "total_tokens": counts.prompt + counts.completion,
        "completion_tokens": counts.completion,
    }
    if details:
        known = {"cached_tokens": counts.cached, "created_cache_tokens": counts.created}
        body["prompt_tokens_details"] = None if counts.cached is None else known
    return body


def impossible_usage() -> Body:
    details = {"cached_tokens": 999_999_999}
    return {
        "prompt_tokens": -5,
        "total_tokens": 3,
        "completion_tokens": 1_000_000_000,
        "prompt_tokens_details": details,
    }


class Reply(Struct, frozen=True, kw_only=True):
    """What every chunk of one reply repeats."""

    id: str
    created: int
    model: str
    chat: bool

    def chunk(self, choice: Body | None, **more: object) -> Body:
        kind = "chat.completion.chunk" if self.chat else "text_completion"
        body = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**body, "choices": [] if choice is None else [choice], **more}

    def role(self) -> Body:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self.chunk(choice, prompt_token_ids=None, prompt_text=None)

    def text(self, text: str, finish: str | None, *, field: str = "content") -> Body:
        if not self.chat:
            choice = {
                "index": 0,
                "text": text,
                "logprobs": None,
                "finish_reason": finish,
                "stop_reason": None,
            }
            return self.chunk({**choice, "prompt_token_ids": None, "token_ids": None})
        return self.delta({field: text}, finish)

    def delta(self, delta: Body, finish: str | None) -> Body:
        choice: Body = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        if finish:
            choice["stop_reason"] = None
        return self.chunk({**choice, "token_ids": None})

    def tool(self, arguments: str, finish: str | None, *, opening: bool) -> Body:
        function: Body = {"arguments": arguments}
        call: Body = {"index": 0, "function": function}
        if opening:
            call = {"index": 0, "id": f"call_{self.id[-8:]}", "type": "function", "function": function}
            function["name"] = "continue_text"
        return self.delta({"tool_calls": [call]}, "tool_calls" if finish == "stop" else finish)

    def whole(self, text: str, finish: str, use: Body) -> Body:
        """The reply without streaming."""
        kind = "chat.completion" if self.chat else "text_completion"
        choice: Body = {"index": 0, "logprobs": None, "finish_reason": finish, "stop_reason": None}
        choice |= {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        head = {"id": self.id, "object": kind, "created": self.created, "model": self.model}
        return {**head, "choices": [choice], "usage": use, "system_fingerprint": FINGERPRINT}


_Request = TypeVar("_Request")


def decode(body: bytes, kind: type[_Request]) -> _Request:
    """A request body; `Rejected` in vLLM's form when it is none."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise Rejected(400, f"1 validation error:\n  {error}", "Bad Request", "body") from error
    except msgspec.DecodeError as error:
        raise Rejected(400, f"JSON decode error: {error}", "Bad Request", "body") from error
    except UnicodeDecodeError as error:
        raise Rejected(400, "the body is not UTF-8", "Bad Request", "body") from error
    except RecursionError as error:
        raise Rejected(400, "JSON decode error: nested too deep", "Bad Request", "body") from error


def models(model: str, max_model_len: int, created: int) -> Body:
    permission = {
        "id": "modelperm-simulator",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    card = {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": f"simulator/{model}",
        "parent": None,
        "max_model_len": max_model_len,
        "permission": [permission],
    }
    return {"object": "list", "data": [card]}


def unknown_model(name: str, known: str) -> Rejected:
    message = f"The model `{name}` does not exist. Valid aliases: {known}."
    return Rejected(404, message, "NotFoundError", "model")


def too_long(limit: int) -> Rejected:
    """vLLM stops counting one past the limit, so the number is no length."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your prompt contains at least "
        f"{limit + 1} input tokens, which exceeds this limit even without any output tokens. Please reduce "
        f"the length of the input prompt. (parameter=input_tokens, value={limit + 1})"
    )
    return Rejected(400, message, param="input_tokens")


def output_tokens(asked: int | None, prompt: int, limit: int, *, chat: bool) -> int:
    """Tokens to be produced: `max_tokens`, silently clamped to what fits, as vLLM 0.32 does."""
    if prompt > limit:
        raise too_long(limit)
    if asked is not None and asked > limit:
        raise Rejected(
            400,
            f"max_tokens={asked} cannot be greater than max_model_len={limit}. Please request fewer output "
            f"tokens. (parameter=max_tokens, value={asked})",
            param="max_tokens",
        )
    wanted = asked if asked is not None else limit if chat else 16
    produced = min(wanted, limit - prompt)
    if produced < 1:
        raise Rejected(400, f"max_tokens must be at least 1, got {produced}.", param="max_tokens")
    return produced


def server_info(profile_name: str, model: str, limit: int, speculation: str) -> Body:
    config = (
        f"model='{model}', speculative_config={speculation}, max_seq_len={limit}, served_model_name={model}, "
        f"enable_prefix_caching=True, enable_chunked_prefill=True, simulator_profile='{profile_name}'"
    )
    return {"vllm_config": config}


def encode(body: Body) -> bytes:
    return msgspec.json.encode(body)

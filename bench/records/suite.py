"""What to measure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Condition = Literal["cold", "salted", "replay", "turn"]
"""What a trial is: `turn` is one turn of a recorded chat, which no suite names among its conditions."""
SuiteCondition = Literal["cold", "salted", "replay", "over-limit"]
"""What a suite may ask for: `over-limit` adds cold prompts just under and just over the drafter limit."""
Endpoint = Literal["chat", "completions", "tokens"]
SaltMethod = Literal["text", "cache_salt", "both"]
Spread = Literal["interval", "range"]


class Speculation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The speculation setting a route declares; checked against what the server shows."""

    method: str
    """`mtp`, `ngram`, `eagle`, `draft`, ... as the engine calls it."""
    num_speculative_tokens: int
    """Tokens drafted per step (k)."""


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one exchange, in seconds. There is no total limit on purpose."""

    connect_s: float = 10.0
    """Opening the connection, before anything is measured."""
    upload_s: float = 120.0
    """Handing the request body to the transport."""
    first_token_s: float | None = None
    """From `sent` to the first text; `None`: 120 s plus 10 ms per prompt token."""
    idle_s: float = 120.0
    """Between two reads once text flows."""


class RequestSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every request, sent explicitly and never left to a server's default."""

    endpoint: Endpoint = "chat"
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = True
    chat_template_kwargs: dict[str, str | int | float | bool] = {}
    extra_body: dict[str, object] = {}
    """Engine-specific fields, merged into the request as they stand."""
    timeouts: Timeouts = Timeouts()


class PromptSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where prompts come from."""

    corpus: str = "python"
    """`python`, `synthetic`, `synthetic-code`, or a file, folder or glob."""
    task: str | tuple[str, ...] = "continue"
    """Name of an instruction in prompts/tasks, or a path to a Markdown file; or several: each is then
    a trial of its own."""
    tokenizer: str | None = None
    """Path of a tokenizer.json; `None`: the server's own /tokenize."""
    salt: SaltMethod = "text"
    keep_text: bool = False
    """Keep prompt texts in the run directory instead of hash and recipe alone."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, also where the suite names only one."""
        return (self.task,) if isinstance(self.task, str) else self.task


class ChatSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Recorded chats, each sent turn by turn."""

    files: tuple[str, ...]
    """JSONL of OpenAI-style messages, or OpenWebUI exports; relative: from the suite file's folder."""
    answers: Literal["recorded", "own"] = "recorded"
    """What stands in the next turn's prompt: the recorded answer, or what the server itself said."""
    think: float = 0.0
    """The recorded pauses between turns, times this; 0: none."""
    most_turns: int | None = None
    """Only so many turns of each chat."""
    most_chats: int | None = None
    """Only so many chats, in the order of the files."""


class FromEnv(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that is taken from an environment variable when it is needed, and recorded nowhere."""

    from_env: str
    """Name of the variable."""

    def __str__(self) -> str:
        return f"from {self.from_env}"


class RouteServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a route's server is started and stopped, when the run does that itself."""

    up: str | tuple[str, ...]
    """A command for the shell, or a list of arguments without one. It stays in the foreground; one
    that starts a server elsewhere and ends needs `down`."""
    down: str | tuple[str, ...] | None = None
    """Stops the server; `None`: the signals TERM and then KILL to everything `up` has started."""
    ready_timeout_s: float = 1800.0
    """From `up` until the server lists its model."""
    cwd: str | None = None
    """Folder the commands run in; relative: from the suite file's folder, which is the default."""
    env: dict[str, str | int | FromEnv] = {}
    """Environment variables for the commands, beside our own. Values are shown and recorded nowhere:
    a run keeps `from_env` with the variable's own name in place of a written one."""
    restart: int = 1
    """How often in a session a server that fell is started again."""
    log: str | None = None
    """Like the route's `log`; `None`: what the commands write."""


class Route(Struct, frozen=True, kw_only=True):
    """One way to serve the model that is being compared."""

    name: str
    base_url: str
    """With the version part, e.g. `http://127.0.0.1:8000/v1`."""
    model: str | None = None
    """`None`: the only model the server lists."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key. The key itself is in no record."""
    headers: dict[str, str | FromEnv] = {}
    """Sent with every request to this server, beside our own: what its gateway or scheduler wants."""
    metrics_url: str | None = None
    """`None`: where its engine has it under the origin of `base_url`, else `/metrics` there."""
    engine: str | None = None
    """Name of a dialect; `None`: detected."""
    speculation: Speculation | None = None
    """`None`: target only."""
    setting: dict[str, str] = {}
    """Free text for the report: what no server tells (hardware, image, ...)."""
    request: RequestSettings = RequestSettings()
    config: str | None = None
    """The model's config.json or folder: its context rules are then checked before anything is sent."""
    drafter_limit: int | None = None
    """Longest sequence the drafter takes part in, in tokens; `None`: what `config` says, if anything."""
    log: str | None = None
    """Where the server's log is: a file, `docker:NAME` or `journal:UNIT`; an excerpt is kept per exchange."""
    exporters: tuple[str, ...] = ()
    """Addresses of Prometheus pages that tell of the machine under the server (DCGM, node_exporter)."""
    reset: Literal["vllm", "sglang"] | None = None
    """Empty the prefix cache before every cold prompt, in this engine's way; proven by a probe."""
    cache_group: str | None = None
    """Routes of one group share a prefix cache or KV store; `None`: the server's origin."""
    ca_file: str | None = None
    insecure: bool = False
    """Skip TLS verification; recorded and shown."""
    proxy: str | FromEnv | None = None
    """`None`: none, whatever the environment says. One with a password comes from a variable of its own."""
    server: RouteServer | None = None
    """`None`: the server is up already, or somebody else sees to it."""


class Suite(Struct, frozen=True, kw_only=True):
    """What to measure: the suite file, checked and with every default filled in."""

    name: str
    tiers: tuple[int, ...]
    """Prompt lengths in tokens, as the server counts them, template included."""
    conditions: tuple[SuiteCondition, ...]
    output_tokens: int
    repeats: int
    replays: int
    """Replays after each cold prompt."""
    seed: int
    warmup: Literal["short", "tier", "none"]
    retry_invalid: int
    """How often an invalid trial is repeated, with fresh salts, at the end of its block."""
    interleave: bool
    """Routes take turns within a tier (all servers up at once) instead of one after another."""
    concurrency: tuple[int, ...] = (1,)
    """Levels: how many requests are released together. Those above 1 are measured in waves."""
    budget_s: float | None = None
    """Longest expected time of the whole plan; repeats, then tiers are dropped until it fits."""
    on_finish: str | tuple[str, ...] | None = None
    """Run once when a run ends, however it ends: a command for the shell, or a list of arguments."""
    prompt: PromptSettings
    chats: ChatSettings | None = None
    """`None`: no recorded chats."""
    routes: tuple[Route, ...]

    def route(self, name: str) -> Route:
        """The route of that name; `KeyError` when there is none."""
        for route in self.routes:
            if route.name == name:
                return route
        raise KeyError(name)

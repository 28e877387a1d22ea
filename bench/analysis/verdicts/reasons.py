"""The one table of verdict reasons: what is wrong, what to do, and what it does to a measurement.

docs/verdicts.md is written from this table (`document.py`), and a test keeps the two equal.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bench.records import Reason

Effect = Literal["invalidates", "warns", "informs"]


class Entry(Struct, frozen=True, kw_only=True):
    """One reason."""

    effect: Effect
    """`invalidates`: kept in the journal and in footnotes, never in a statistic. `warns`: used, and
    shown with the number. `informs`: a fact about the exchange, nothing is wrong."""
    group: str
    """Which question of DESIGN section 8 it answers."""
    sentence: str
    """What was seen, for people."""
    todo: str
    """What to do about it."""


def _bad(group: str, sentence: str, todo: str) -> Entry:
    return Entry(effect="invalidates", group=group, sentence=sentence, todo=todo)


def _warn(group: str, sentence: str, todo: str) -> Entry:
    return Entry(effect="warns", group=group, sentence=sentence, todo=todo)


def _note(group: str, sentence: str, todo: str) -> Entry:
    return Entry(effect="informs", group=group, sentence=sentence, todo=todo)


_RERUN = "Let the trial be repeated; if it comes back, look at the server."

REASONS: dict[str, Entry] = {
    # --- the exchange itself
    "failed": _bad(
        "answer",
        "The request did not succeed.",
        "Read the failure and the kept body; nothing of this exchange is a result.",
    ),
    "cut_off": _bad(
        "answer",
        "The request was cut off by Ctrl-C or `kill` before its answer had ended.",
        "Nothing is wrong with the server. `ctxbench run --resume` sends it again, behind a fresh salt.",
    ),
    "no_text": _bad(
        "answer",
        "The stream carried no text, so nothing can be timed.",
        "Check `max_tokens`, the chat template and the reasoning parser of the server.",
    ),
    "early_stop": _bad(
        "answer",
        "The answer ended before the requested length although `ignore_eos` was asked for.",
        "Use a server that honours `ignore_eos`, or set `ignore_eos = false` and expect unequal lengths.",
    ),
    "short_answer": _warn(
        "answer",
        "The answer ended by itself before the requested length.",
        "Compare per-token numbers only, or set `ignore_eos = true`.",
    ),
    "clamped_output": _bad(
        "answer",
        "The server cut the answer short: finish reason `length`, but fewer tokens than asked for.",
        "Keep prompt + output under the served limit; newer servers clamp `max_tokens` silently.",
    ),
    "repeating_answer": _warn(
        "answer",
        "The answer repeats one piece of text until its end: acceptance measured on it means little.",
        "Use a natural corpus and task, or a healthy model.",
    ),
    "text_differs": _note(
        "answer",
        "The replay's text differs from its cold prompt's at temperature 0.",
        "Nothing by itself: another batch shape changes the numerics. Both texts are in the journal.",
    ),
    # --- counts
    "truncated_prompt": _bad(
        "count",
        "The server counted over 0.1% fewer prompt tokens than the tier.",
        "Look for automatic truncation (`--enable-auto-truncate`, a proxy) or another tokenizer.",
    ),
    "prompt_too_long": _bad(
        "count",
        "The server counted over 0.1% more prompt tokens than the tier.",
        "Check the tokenizer file and the chat template against the server's.",
    ),
    "prompt_count_off": _warn(
        "count",
        "The server's prompt count differs from the tier by up to 0.1%.",
        "Harmless for timing; prove the tokenizer with `ctxbench check`.",
    ),
    "no_usage": _warn(
        "count",
        "The reply carried no usage: token counts come from other witnesses.",
        "Enable usage in the stream (`stream_options.include_usage`) on the server or proxy.",
    ),
    "impossible_usage": _bad(
        "count",
        "The reply's usage cannot be true: more tokens than were asked for, or than the prompt has.",
        "Look for a proxy that rewrites usage, or several answers in one (`n`, tool loops).",
    ),
    # --- exclusive
    "foreign_traffic": _bad(
        "exclusive",
        "Other requests were served during this exchange.",
        "Keep other clients away, or measure on another server.",
    ),
    "busy_before": _bad(
        "exclusive",
        "The server was still working when the request was sent.",
        "Wait until it is idle: an aborted request may still be prefilling.",
    ),
    "not_settled": _warn(
        "exclusive",
        "The server's counters did not come to hold all of this exchange before they were read.",
        "Counter figures of this exchange may be short. Where it repeats, usage and counters disagree: "
        "look for a proxy that rewrites usage.",
    ),
    "no_metrics": _warn(
        "exclusive",
        "There are no server metrics for this exchange: exclusivity and speculation are unproven.",
        "Enable them (llama.cpp `--metrics`, SGLang `--enable-metrics`) or give `metrics_url`.",
    ),
    "preempted": _bad(
        "exclusive",
        "The server pushed a request out of its KV cache and computed it again.",
        "Give the server more KV memory or measure a shorter tier.",
    ),
    "queued": _warn(
        "exclusive",
        "The request waited in the server's queue for over 5% of its TTFT.",
        "Look for other work on the server; the queue is part of this TTFT.",
    ),
    # --- waves
    "wave_incomplete": _bad(
        "wave",
        "The wave was cut off before all of its requests had ended and were recorded.",
        "Go on with `ctxbench run --resume`: the whole wave is repeated, behind fresh salts.",
    ),
    "wave_spoilt": _bad(
        "wave",
        "Another request of this wave failed or is invalid, so the load was not the level's.",
        "Look at that request; the whole wave is repeated, behind fresh salts.",
    ),
    "wave_preempted": _warn(
        "wave",
        "The server pushed requests of this wave out of its KV cache and computed them again.",
        "The times are real: this level is more than its KV cache holds. Give it more, or stay below.",
    ),
    # --- restart
    "restart": _bad(
        "restart",
        "The server restarted during this exchange.",
        "Find out why in the server's log; its caches are empty now.",
    ),
    "replicas": _bad(
        "restart",
        "Counters jump between the values of several servers behind one address.",
        "Address one replica for requests and metrics, not the load balancer.",
    ),
    "cold_before_restart": _bad(
        "restart",
        "The server restarted between the cold prompt and this replay, or between two turns of a chat.",
        "Plan the replay anew with a new cold prompt.",
    ),
    # --- condition held
    "cold_hit": _bad(
        "condition",
        "A cold prompt was found in a cache.",
        "Check the salt: nothing may stand before it, and no other run may have used it.",
    ),
    "replay_missed": _bad(
        "condition",
        "A replay reused less than the prefix cache should have given back.",
        "Look for eviction (KV capacity), another slot or replica, or prefix caching switched off.",
    ),
    "turn_missed": _bad(
        "condition",
        "A turn of a chat reused less than the turn before it should have left in the cache.",
        "Look for eviction (KV capacity), another slot or replica, or prefix caching switched off. With MTP "
        "on vLLM's hybrid models every turn may miss, as first replays do (vllm#53504).",
    ),
    "first_replay_missed": _warn(
        "condition",
        "The first replay of a prompt reused less than the prefix cache should have given back, and a later "
        "one of the same prompt held.",
        "Known of MTP on vLLM's hybrid models (vllm#53504; `--prefix-cache-retention-interval` helps); "
        "elsewhere look for another slot or replica. It stands in the row of first replays alone and is not "
        "repeated.",
    ),
    "witnesses_disagree": _bad(
        "condition",
        "Usage, counters and TTFT do not agree on what was reused.",
        "Trust none of them: look for a proxy, a stale metric or foreign traffic.",
    ),
    "no_cold": _bad(
        "condition",
        "The cold prompt of this replay did not succeed.",
        "Plan the replay anew with a new cold prompt.",
    ),
    "reuse_unprovable": _warn(
        "condition",
        "The prefix cache cannot reuse a prompt this short: a hit or miss proves nothing.",
        "Use tiers of several cache blocks.",
    ),
    "reuse_unknown": _warn(
        "condition",
        "No witness tells whether anything was reused.",
        "Enable cached tokens in usage (vLLM `--enable-prompt-tokens-details`, SGLang "
        "`--enable-cache-report`) or metrics.",
    ),
    "reuse_by_time_only": _warn(
        "condition",
        "Only TTFT tells that the condition held.",
        "Enable cached tokens in usage, or metrics, for a count.",
    ),
    "history_rewritten": _note(
        "condition",
        "The chat template does not repeat the turn before as it was (reasoning left out, other line ends).",
        "Nothing is wrong: the rest is computed anew, by this template on any server. The turn is judged by "
        "what both have in common.",
    ),
    "reuse_above_rule": _warn(
        "condition",
        "More was reused than block size and version allow.",
        "Check the block size: the rule behind the expectation is that of another setting.",
    ),
    "reuse_not_faster": _warn(
        "condition",
        "By count the prompt was reused, but its TTFT is over half of the cold one.",
        "Look for other work on the server's machine, or for a cache that is slow to load from: the count "
        "holds, and this TTFT is no usual one of a replay.",
    ),
    "cold_faster": _warn(
        "condition",
        "By two counts nothing was reused, but its TTFT is under a quarter of its tier's first cold one.",
        "Look whether that one was slow: a server may compile or load something at the first prompt of a "
        "length. The counts hold; leave the first one out of your figures, or measure more.",
    ),
    # --- speculation as declared
    "speculation_off": _bad(
        "speculation",
        "The route declares speculation, but nothing was drafted or accepted.",
        "Check the server's speculative configuration and the drafter's limit.",
    ),
    "speculation_fallback": _warn(
        "speculation",
        "Past the drafter's limit: target-only (fallback), the drafter proposes nothing.",
        "Extend the drafter's context (see `ctxbench context`) or declare target-only at this length.",
    ),
    "drafts_rejected": _warn(
        "speculation",
        "Drafts were verified and hardly any token of them accepted: the drafter is past its limit, or does "
        "not fit this model.",
        "Where shorter prompts are drafted for with success it is the limit: give `drafter_limit` (see "
        "`ctxbench context`). Else look at the drafter itself: its checkpoint, its weights, its method.",
    ),
    "fallback_unlike_version": _warn(
        "speculation",
        "Past the drafter's limit the engine did something else than its version is known for.",
        "Check limit and version (`ctxbench context`); a patched engine may well do so.",
    ),
    "drafts_past_limit": _warn(
        "speculation",
        "Past the drafter's limit tokens were still drafted and accepted.",
        "Correct `drafter_limit`, or read this acceptance as that of positions the drafter never learned.",
    ),
    "speculation_batch_limit": _warn(
        "speculation",
        "A longer request in the batch took the drafter past its limit for all of them.",
        "Measure one request at a time, or judge the batch by its longest.",
    ),
    "speculation_crosses": _warn(
        "speculation",
        "The answer passed the drafter's limit while decoding: its acceptance is an average of two states.",
        "Shorten prompt or output, or extend the drafter's context.",
    ),
    "speculation_undeclared": _bad(
        "speculation",
        "The route declares target-only, but the server drafts.",
        "Declare the speculation in the suite, or address the right server.",
    ),
    "speculation_differs": _bad(
        "speculation",
        "The server drafts another number of tokens than the route declares.",
        "Correct `num_speculative_tokens` in the suite, or address the right server.",
    ),
    "nothing_drafted": _warn(
        "speculation",
        "The drafter found nothing to draft: this answer was target-only in effect.",
        "Normal for look-up drafters on text without repeats; read it as the route's result here.",
    ),
    "nothing_accepted": _warn(
        "speculation",
        "Tokens were drafted and none accepted.",
        "Too few drafts to say more, or a look-up drafter on text without repeats.",
    ),
    "speculation_unseen": _warn(
        "speculation",
        "The route declares speculation, and no witness shows it.",
        "Enable metrics; acceptance cannot be measured without them.",
    ),
    # --- the server's log
    "log_flood": _warn(
        "log",
        "The server's log was flooded: a line came again and again with the output tokens.",
        "Writing it costs decode time; find out what it warns of, or silence it.",
    ),
    "log_errors": _warn(
        "log",
        "The server logged errors during this exchange.",
        "Read the excerpt in the run directory.",
    ),
    "log_unread": _warn(
        "log",
        "The server's log could not be read as a whole for this exchange.",
        "Check the route's `log` source: warnings cannot be counted without it.",
    ),
    # --- identities
    "positions_differ": _bad(
        "identities",
        "Accepted tokens are not the sum over their positions.",
        "The page was read half-way through an update or is a mixture of servers. " + _RERUN,
    ),
    "tokens_differ": _bad(
        "identities",
        "More tokens were drafted and accepted than the answer holds.",
        "Other requests were counted, or counters are not this server's. " + _RERUN,
    ),
    # --- clocks
    "buffered": _bad(
        "clocks",
        "The chunks arrived all at once: something between engine and client holds the stream back.",
        "Switch off buffering in the proxy (`proxy_buffering off`), gzip, or a stream interval.",
    ),
    "client_bottleneck": _bad(
        "clocks",
        "This client was too late to time the stream: it slept through the answer, or its usual loop lag "
        "is over 5 ms and 10% of TTFT or of the decode time.",
        "Free the client's machine; do not run the engine on the same cores.",
    ),
    "client_slow": _warn(
        "clocks",
        "This client was busy: CPU above 80%, or a loop lag (p99) above 5 ms that matters here: over 1% of "
        "TTFT or of the decode time, or longer than the usual gap between chunks.",
        "Times and chunk gaps are blurred by that much; free the client's machine.",
    ),
    "below_uncertainty": _warn(
        "clocks",
        "TTFT or the decode time is no longer than the client's own uncertainty (loop lag p99, longest "
        "pause of the garbage collector, 0.3 ms at least; for the decode time also what it lacks to the "
        "server's own, and of a wave at most what all lack together): it says nothing about the server, and "
        "such a decode time gives no rate.",
        "Measure longer prompts or outputs, or free the client's machine.",
    ),
    "server_time_differs": _warn(
        "clocks",
        "TTFT of client and server differ by over 5%.",
        "Network, TLS, a proxy or request parsing account for it: say so with the number.",
    ),
    "unseen_tail": _warn(
        "clocks",
        "Tokens without text trailed: the decode rate ends at the finish chunk.",
        "Special tokens under `ignore_eos`, or a parser that swallows text; the rate is a close estimate.",
    ),
}
"""Reason id -> entry, in the order of docs/verdicts.md."""

GROUPS: dict[str, str] = {
    "answer": "Is the answer whole?",
    "count": "Are the token counts right?",
    "exclusive": "Did the server work for us alone?",
    "wave": "Did all requests of a wave come through together?",
    "restart": "Was it the same server throughout?",
    "condition": "Did cold, salted, replay or turn hold?",
    "speculation": "Did the route speculate as declared?",
    "log": "What did the server's log say meanwhile?",
    "identities": "Do the counters add up?",
    "clocks": "Can the times be trusted?",
}
"""Group -> the question it answers."""


def effect_of(reason: Reason) -> Effect:
    """What a reason does; KeyError for one that is not in the table."""
    return REASONS[reason.id].effect


def sentence_of(reason: Reason) -> str:
    """The table's sentence with the figures of this case."""
    entry = REASONS[reason.id]
    return f"{entry.sentence} ({reason.detail})" if reason.detail else entry.sentence

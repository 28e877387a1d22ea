"""The order of trials."""

from __future__ import annotations

from bench.plan.suite import parse_suite
from bench.plan.trials import cache_of, groups, pair_key, plan, wave_name, waves
from bench.records import Suite

OVER = 'conditions = ["cold", "over-limit"]'


def suite(
    *,
    repeats: int = 2,
    ports: tuple[int, ...] = (1, 2, 3),
    extra: str = "",
    prompt: str = "",
    keys: str = "",
) -> Suite:
    routes = "".join(
        f'[[route]]\nname = "{name}"\nbase_url = "http://h:{port}/v1"\n{extra}\n'
        for name, port in zip("abc", ports, strict=True)
    )
    head = f'[suite]\nname = "s"\ntiers = [1024, 512]\nrepeats = {repeats}\nseed = 0\n{keys}\n'
    return parse_suite(f"{head}[prompt]\n{prompt}\n{routes}")


def test_a_cold_is_followed_by_its_replays_and_then_its_salted_twin() -> None:
    ids = [trial.id for trial in plan(suite())][:4]
    assert ids == ["a/512/cold/1", "a/512/replay/1.1", "a/512/replay/1.2", "a/512/salted/1"]


def test_a_level_above_one_adds_waves_of_cold_replayed_and_salted_prompts_after_the_single_ones() -> None:
    found = groups(plan(suite(repeats=1, keys="concurrency = [2, 1]\nreplays = 1")))
    assert [trial.id for trial in found[0]] == ["a/512/cold/1", "a/512/replay/1.1", "a/512/salted/1"]
    assert [group[0].id for group in found[:4]] == [
        "a/512/cold/1",
        "b/512/cold/1",
        "c/512/cold/1",
        "a/512/cold/1@2.1",
    ]
    wave = found[3]
    assert [[trial.id for trial in one] for one in waves(wave)] == [
        ["a/512/cold/1@2.1", "a/512/cold/1@2.2"],
        ["a/512/replay/1.1@2.1", "a/512/replay/1.1@2.2"],
        ["a/512/salted/1@2.1", "a/512/salted/1@2.2"],
    ]
    assert {(trial.concurrency, trial.stream) for trial in wave} == {(2, 1), (2, 2)}
    assert [wave_name(one[0]) for one in waves(wave)] == [
        "a/512/cold/1@2",
        "a/512/replay/1.1@2",
        "a/512/salted/1@2",
    ]
    assert all(len(one) == 1 for one in waves(found[0]))


def test_a_wave_of_a_task_is_named_with_its_task() -> None:
    keys = 'concurrency = [12]\nconditions = ["cold"]'
    trials = plan(suite(repeats=1, prompt='task = ["edit-code", "extract"]', keys=keys))
    assert trials[11].id == "a/512/cold/1@12.12~edit-code"
    assert wave_name(trials[0]) == wave_name(trials[11]) == "a/512/cold/1@12~edit-code"
    assert len({trial.id for trial in trials}) == len(trials) == 3 * 2 * 2 * 12


def test_several_tasks_are_trials_of_their_own_and_each_goes_through_all_routes() -> None:
    trials = plan(suite(repeats=1, prompt='task = ["edit-code", "mine/open.md"]'))
    found = [(group[0].id, len(group)) for group in groups(trials)][:7]
    assert found == [
        ("a/512/cold/1~edit-code", 4),
        ("b/512/cold/1~edit-code", 4),
        ("c/512/cold/1~edit-code", 4),
        ("a/512/cold/1~open", 4),
        ("b/512/cold/1~open", 4),
        ("c/512/cold/1~open", 4),
        ("a/1024/cold/1~edit-code", 4),
    ]
    assert [trial.id for trial in groups(trials)[0]][1:3] == [
        "a/512/replay/1.1~edit-code",
        "a/512/replay/1.2~edit-code",
    ]
    assert {trial.task for trial in trials} == {"edit-code", "mine/open.md"}
    assert len({trial.id for trial in trials}) == len(trials) == 3 * 2 * 2 * 4


def test_a_task_is_a_group_of_its_own_also_where_the_next_one_follows_on_the_same_route() -> None:
    trials = plan(suite(repeats=1, ports=(1, 1, 1), prompt='task = ["edit-code", "extract"]'))
    assert [group[0].id for group in groups(trials)][:3] == [
        "a/512/cold/1~edit-code",
        "a/512/cold/1~extract",
        "a/1024/cold/1~edit-code",
    ]
    assert {len(group) for group in groups(trials)} == {4}


def test_a_list_of_one_task_is_planned_like_its_name() -> None:
    assert plan(suite(prompt='task = ["extract"]')) == plan(suite(prompt='task = "extract"'))


def test_each_task_has_both_sides_of_the_drafter_limit() -> None:
    text = 'speculation = { method = "mtp", num_speculative_tokens = 2 }'
    asked = suite(repeats=1, extra=text, prompt='task = ["edit-code", "open-ended"]', keys=OVER)
    ids = [trial.id for trial in plan(asked, {"a": 4096}) if trial.side]
    assert ids == [
        f"a/{side}-limit/cold/1~{task}" for side in ("under", "over") for task in ("edit-code", "open-ended")
    ]


def test_every_trial_is_planned_once() -> None:
    trials = plan(suite())
    assert len({trial.id for trial in trials}) == len(trials) == 3 * 2 * 2 * 4


def test_interleaved_routes_turn_and_reverse_from_repeat_to_repeat() -> None:
    order = [(g[0].repeat, g[0].tier, g[0].route) for g in groups(plan(suite(repeats=4)))]
    at_512 = ["".join(r for n, t, r in order if (n, t) == (k, 512)) for k in (1, 2, 3, 4)]
    assert at_512 == ["abc", "cba", "bca", "acb"]
    assert [t for n, t, r in order if (n, r) == (1, "a")] == [512, 1024]


def test_routes_whose_servers_take_turns_are_planned_one_after_another() -> None:
    routes = [group[0].route for group in groups(plan(suite(ports=(1, 1, 1))))]
    assert routes == ["a"] * 4 + ["b"] * 4 + ["c"] * 4


def test_only_routes_with_a_cache_of_their_own_get_the_same_prompts() -> None:
    mixed = suite(ports=(1, 1, 2))
    assert [pair_key(mixed, route) for route in mixed.routes] == ["route a", "route b", "all"]
    grouped = suite(extra='cache_group = "lmcache"')
    assert [pair_key(grouped, route) for route in grouped.routes] == ["route a", "route b", "route c"]
    assert cache_of(grouped.routes[0]) == "lmcache"


def test_routes_to_one_server_share_its_cache_however_its_address_is_written() -> None:
    def spelt(first: str, second: str) -> Suite:
        routes = [f'[[route]]\nname = "{n}"\nbase_url = "{u}"\n' for n, u in (("a", first), ("b", second))]
        return parse_suite('[suite]\nname = "s"\ntiers = [512]\n' + "".join(routes))

    for one in (
        spelt("http://127.0.0.1:8000/v1", "http://localhost:8000/v1"),
        spelt("http://h/v1", "http://h:80/v1"),
        spelt("http://Host:8000/v1", "http://host:8000/other/v1"),
    ):
        assert [pair_key(one, route) for route in one.routes] == ["route a", "route b"]
        assert not one.interleave  # they cannot be up together, as far as anybody knows

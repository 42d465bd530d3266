"""Learning from a standardised table: stages, limits, interrupts, checkpoints."""

import dataclasses
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from limits import FEW_ROUNDS

from zonal import ArraySource, ContinuousDepth, Recipe, whiten
from zonal.engine.bound import evaluate
from zonal.engine.resizing import enlarged
from zonal.engine.scales import fit_scales
from zonal.engine.statistics import collect
from zonal.learning.by_bound import LearningStoppedWarning, learn
from zonal.learning.checkpoints import load_progress
from zonal.prior.parameters import named
from zonal.saving import read

TESTS = Path(__file__).parents[1]
SMALL = Recipe(n_features=40, most_steps=20, schedule=FEW_ROUNDS)


def scheduled(**changes):
    """The same recipe with other sizes and tolerances."""
    return dataclasses.replace(
        SMALL, schedule=dataclasses.replace(FEW_ROUNDS, **changes)
    )


def table(rows=400, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 3))
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * generator.normal(size=rows)
    return ArraySource(x, y)


def same(one, other):
    left, right = named(one.process), named(other.process)
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name]) for name in left
    )


def test_it_learns_noise_and_relevance():
    process = learn(table(), SMALL).process
    assert np.sqrt(process.noise) == pytest.approx(0.2, rel=0.2)
    relevance = process.basis.sphere.relevance
    assert relevance[0] > relevance[1] > relevance[2]


def test_samples_and_bounds_grow():
    steps = []
    progress = learn(table(), scheduled(least_rows=60), steps.append)
    assert [step.stage for step in progress.history] == [step.stage for step in steps]
    rows = {step.stage: step.rows for step in steps}
    assert rows["learn 1"] == 60
    assert rows["learn 2"] == 400
    for stage in ("learn 1", "learn 2"):
        bounds = [step.bound for step in steps if step.stage == stage]
        assert bounds[-1] > bounds[0]
    assert np.all(np.diff([step.seconds for step in steps]) >= 0)


def test_a_last_round_has_the_features_of_the_solution():
    steps = []
    wide = learn(table(), SMALL, steps.append)
    # Up to 160, if so many can be told apart.
    assert 50 <= wide.process.basis.n_features <= 160
    assert steps[-1].stage == "widen"
    assert 2 <= steps[-1].number <= 12
    # Better than the same features without those steps, their scales fitted.
    narrow = learn(table(), dataclasses.replace(SMALL, solve_features=40)).process
    assert narrow.basis.n_features == 40
    plain = enlarged(narrow, 160, table().sample(400), 0)
    statistics = collect(whiten(plain.basis, "float64"), table())
    plain = fit_scales(statistics, plain)
    assert wide.bound > evaluate(statistics, plain).value / 400


def test_few_rows_may_not_decide_for_all():
    """Steps on rows that want another kernel are not kept."""
    few = learn(table(), scheduled(wide_work=8.0 * 160**2))
    fewer = learn(table(), scheduled(wide_work=8.0 * 160**2, wide_steps=1))
    assert few.bound >= fewer.bound - 1e-3
    assert few.rounds == fewer.rounds


def test_a_widening_that_is_stopped_is_not_kept():
    def stop(step):
        return step.stage == "widen" and step.number == 2

    with pytest.warns(LearningStoppedWarning, match="stopped by a callback"):
        progress = learn(table(), SMALL, stop)
    # As if there were nothing to widen. (There are fewer features than asked for where
    # they already explain everything at the scales that learning starts from.)
    assert same(progress, learn(table(), scheduled(most_wide=1)))


def test_what_was_enlarged_is_learned_with_few_features_again():
    wide = learn(table(), SMALL).process
    steps = []
    narrow = dataclasses.replace(SMALL, solve_features=40)
    again = learn(table(seed=1), narrow, steps.append, start=wide).process
    assert again.basis.n_features == 40
    # Not one step was needed to be as good as what is learned afresh.
    learned = [step.bound for step in steps if step.stage.startswith("learn")]
    assert learned[0] > learn(table(seed=1), narrow).bound - 0.05
    kept = learn(table(seed=1), dataclasses.replace(narrow, most_steps=0), start=wide)
    assert kept.process is wide


@pytest.mark.parametrize(
    ("rows", "choices", "features"),
    [
        (40_000, {}, 2048),
        (500_000, {}, 1000),
        (3_000_000, {}, 512),
        (None, {}, 512),
        (40_000, {"max_seconds": 4.0}, 1000),
        (40_000, {"n_features": 100}, 400),
        (40_000, {"solve_features": 700}, 700),
        (40_000, {"layout": "sparse"}, 0),
    ],
)
def test_the_solution_has_as_many_features_as_rows_allow(rows, choices, features):
    assert Recipe(**choices).features_to_solve(rows) == features


def test_another_layout_starts_afresh():
    banded = learn(table(), SMALL).process
    recipe = dataclasses.replace(SMALL, layout="sparse", most_steps=3)
    found = learn(table(), recipe, start=banded).process
    assert found.basis.follows("sparse")
    assert not banded.basis.follows("sparse")


def test_other_layouts_keep_their_features():
    for layout in ("sparse", "harmonics"):
        recipe = Recipe(n_features=40, solve_features=40, layout=layout)
        assert recipe.features_to_solve(1000) == 0
        with pytest.raises(ValueError, match=f"layout='{layout}' choose n_features"):
            Recipe(n_features=40, solve_features=80, layout=layout)


def test_the_seed_decides_everything():
    recipe = dataclasses.replace(SMALL, most_rows=100)
    first = learn(table(), recipe)
    assert same(first, learn(table(), recipe))
    assert not same(first, learn(table(), dataclasses.replace(recipe, seed=1)))


def test_a_rough_function_gets_more_levels():
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, size=(400, 1))
    noise = 0.05 * generator.normal(size=400)
    rough, smooth = np.sign(np.sin(25 * x[:, 0])) + noise, np.sin(3 * x[:, 0]) + noise
    recipe = scheduled(smooth_levels=4, rough_levels=40)
    for y, last in ((rough, 40), (smooth, 4)):
        basis = learn(ArraySource(x, y), recipe).process.basis
        assert basis.kernel.last_level == last


def test_a_time_limit_stops_and_says_so():
    recipe = dataclasses.replace(SMALL, max_seconds=0.0, most_steps=1000)
    with pytest.warns(LearningStoppedWarning, match="limit of 0 seconds"):
        progress = learn(table(), recipe)
    assert len(progress.history) == 1


def test_an_interrupt_keeps_the_best_and_says_so():
    seen = []

    def interrupt(step):
        seen.append(step)
        if step.stage == "learn 1" and step.number == 5:
            raise KeyboardInterrupt

    with pytest.warns(LearningStoppedWarning, match="stopped by an interrupt"):
        progress = learn(table(), dataclasses.replace(SMALL, most_steps=99), interrupt)
    assert len(progress.history) == len(seen)
    before = learn(table(), dataclasses.replace(SMALL, most_steps=0)).process
    assert progress.process.noise != before.noise


def test_an_interrupt_before_anything_was_learned_is_an_interrupt():
    def interrupt(step):
        assert step.stage == "start"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn(table(), SMALL, interrupt)


def test_an_error_in_a_callback_is_not_swallowed():
    def fail(step):
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        learn(table(), SMALL, fail)


def test_a_validation_part_stops_learning_that_does_not_help():
    generator = np.random.default_rng(0)
    noise_only = ArraySource(generator.normal(size=(80, 6)), generator.normal(size=80))
    long = dataclasses.replace(
        scheduled(round_steps=5),
        n_features=60,
        most_steps=400,
        validation_fraction=0.4,
    )
    progress = learn(noise_only, long)
    alone = learn(noise_only, dataclasses.replace(long, validation_fraction=0.0))
    assert progress.steps < alone.steps
    assert np.isfinite(progress.score)
    assert progress.history[-1].rows == 48


def test_rows_without_room_are_held_out():
    short = scheduled(validation_rows=200)
    recipe = dataclasses.replace(short, most_rows=100)
    progress = learn(table(), recipe)
    assert progress.history[-1].rows == 100
    assert np.isfinite(progress.score)
    nearly_all = dataclasses.replace(short, most_rows=399)
    assert learn(table(), nearly_all).score == -np.inf


def test_resuming_ends_as_if_nothing_had_happened(tmp_path):
    short = scheduled(round_steps=5)
    whole = learn(table(), short)
    path = tmp_path / "run.zonal"

    def fail(step):
        if step.stage == "learn 1" and step.number == 12:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        learn(table(), short, fail, path)
    steps = []
    resumed = learn(table(), short, steps.append, path)
    assert steps[0].stage == "learn 1"
    assert steps[0].number == 11
    assert same(resumed, whole)
    assert len(resumed.history) == len(whole.history)
    assert same(learn(table(), short, None, path), whole)


@pytest.mark.parametrize("change", ["recipe", "rows", "target", "kernel"])
def test_a_checkpoint_of_something_else_is_refused(change, tmp_path):
    path = tmp_path / "run.zonal"
    given = ContinuousDepth(1.0, 10) if change == "kernel" else None
    learn(table(), dataclasses.replace(SMALL, kernel=given), None, path)
    recipe = dataclasses.replace(SMALL, seed=1) if change == "recipe" else SMALL
    source = table(seed=1) if change == "rows" else table()
    if change == "kernel":
        recipe = dataclasses.replace(SMALL, kernel=ContinuousDepth(1.0, 12))
    if change == "target":
        rows = source.sample(400)
        source = ArraySource(rows.x, -rows.y)
    with pytest.raises(ValueError, match="another recipe or other rows"):
        learn(source, recipe, None, path)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint"])
def test_a_checkpoint_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "run.zonal"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="there is no folder"):
        learn(table(), SMALL, None, tmp_path / "nowhere" / "run.zonal")
    with pytest.raises(
        ValueError, match="is not a file of zonal, or is truncated; remove it"
    ):
        learn(table(), SMALL, None, path)
    assert load_progress(tmp_path / "none", "") is None


def rounds_in(path):
    """Rounds that a checkpoint holds; a file is there as a whole or not at all."""
    if not path.exists():
        return 0
    return read(path, "checkpoint")["progress"].rounds


def test_a_process_killed_at_any_moment_resumes(tmp_path):
    """SIGKILL leaves a whole checkpoint or none; the run goes on from it."""
    path = tmp_path / "run.zonal"
    script = textwrap.dedent(f"""
        import dataclasses, sys
        sys.path.insert(0, {str(TESTS)!r})
        import numpy as np
        from limits import FEW_ROUNDS
        from zonal import ArraySource, Recipe
        from zonal.learning.by_bound import learn
        recipe = Recipe(
            n_features=40,
            most_steps=100000,
            schedule=dataclasses.replace(FEW_ROUNDS, round_steps=2, tolerance=-1.0),
        )
        generator = np.random.default_rng(0)
        x = generator.normal(size=(400, 3))
        y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * generator.normal(size=400)
        learn(ArraySource(x, y), recipe, None, {str(path)!r})
    """)
    with subprocess.Popen([sys.executable, "-c", script]) as running:
        deadline = time.monotonic() + 120
        while rounds_in(path) < 1 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)
        running.send_signal(signal.SIGKILL)
    recipe = dataclasses.replace(
        scheduled(round_steps=2, tolerance=-1.0), most_steps=100000
    )
    stop = dataclasses.replace(recipe, max_seconds=1e-9)
    assert path.exists()
    steps = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LearningStoppedWarning)
        progress = learn(table(), stop, steps.append, path)
    assert {step.stage for step in steps} == {"learn 1"}
    assert len(progress.history) > len(steps)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_features": 0}, "set n_features to 1 or more"),
        ({"most_steps": -1}, "most_steps must be 0 or more"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
        ({"layout": "best"}, "layout must be"),
    ],
)
def test_impossible_recipes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        learn(table(), dataclasses.replace(SMALL, **change))

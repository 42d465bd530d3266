"""Peers: other libraries, with their own recommended settings or usual ones.

Packages are imported at training time; ``pip install "zonal[bench]"`` installs them,
except for GPBoost (see ``benchmarks/README.md``).
All methods see the same rows. Methods without predictive variance get a constant one,
estimated on a validation tenth of the rows.
"""

# Peers may be missing, and their types are narrower than what they accept.
# pyright: reportMissingImports=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOperatorIssue=false

import dataclasses
import functools
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zonal.likelihoods.noise import Calibration
from zonal_bench.methods import Answer, Answers, Method, Settings, UnaffordableError
from zonal_bench.scores import make_normal
from zonal_bench.tables import Split

__all__ = ["PEERS", "add_calibration"]

BATCH = 1024
# A bound that gains less than this, in nats per row, over this many rounds is final.
_TOLERANCE, _PATIENCE = 1e-3, 8
# Dense Gaussian processes are skipped for more rows.
_DENSE_ROWS = 5_000
# Settings of LightGBM, of which validation rows choose one.
_TREES = (
    {"n_estimators": 5000, "learning_rate": 0.05, "num_leaves": 15},
    {"n_estimators": 5000, "learning_rate": 0.05, "num_leaves": 63},
    {"n_estimators": 5000, "learning_rate": 0.03, "num_leaves": 127},
)
_LARGE_TREES = ({"n_estimators": 5000, "learning_rate": 0.1, "num_leaves": 255},)
_WIDE_TREES = (
    {"n_estimators": 5000, "learning_rate": 0.05, "num_leaves": 63},
    {"n_estimators": 20_000, "learning_rate": 0.05, "num_leaves": 255},
    {
        "n_estimators": 20_000,
        "learning_rate": 0.05,
        "num_leaves": 15,
        "min_child_samples": 50,
        "subsample": 0.8,
        "subsample_freq": 1,
        "colsample_bytree": 0.8,
        "reg_lambda": 10.0,
    },
)


class _Plateau:
    """Detects that a bound has stopped improving."""

    def __init__(self):
        self.best, self.since = -np.inf, 0

    def __call__(self, bound: float) -> bool:
        self.since += 1
        if bound > self.best + _TOLERANCE:
            self.best, self.since = bound, 0
        return self.since >= _PATIENCE


def _draw_validation(split: Split, seed: int, share: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).random(len(split.y)) < share


def _make_standardiser(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    centre, width = x.mean(axis=0), x.std(axis=0)
    return lambda rows: (rows - centre) / np.where(width > 0, width, 1)


def _add_noise(
    predict: Callable[[np.ndarray], np.ndarray], x: np.ndarray, y: np.ndarray
) -> Answer:
    """Predicted means with a constant variance, estimated on validation rows."""
    noise = float(np.mean((y - np.asarray(predict(x)).reshape(-1)) ** 2))
    return Answer(lambda rows: make_normal(predict(rows), noise))


def _train_lightgbm(split: Split, settings: Settings) -> Answers:
    """Learning rate, leaves and rounds are chosen on validation rows."""
    large = len(split.y) > 1_000_000
    yield _fit_best_trees(split, settings, _LARGE_TREES if large else _TREES)


def _train_lightgbm_wide(split: Split, settings: Settings) -> Answers:
    """Few regularised leaves, 63 or 255, and four times the rounds for both ends."""
    yield _fit_best_trees(split, settings, _WIDE_TREES)


def _fit_best_trees(
    split: Split, settings: Settings, choices: Sequence[Mapping[str, Any]]
) -> Answer:
    """The best of several settings of LightGBM by the loss of validation rows.

    ``trials`` has the validation loss, rounds and seconds of each setting.
    """
    validation_mask = _draw_validation(split, settings.seed)
    best, trials = None, []
    for choice in choices:
        begin = time.perf_counter()
        model, loss = _fit_trees(split, validation_mask, settings.seed, choice)
        seconds = time.perf_counter() - begin
        if loss < min((trial["loss"] for trial in trials), default=np.inf):
            best = model
        rounds = int(model.best_iteration_)
        trials.append({**choice, "loss": loss, "rounds": rounds, "seconds": seconds})
    if best is None:
        raise FloatingPointError("no setting has a finite validation loss")
    if split.classes:
        return Answer(best.predict_proba, {"trials": trials})
    answer = _add_noise(
        best.predict, split.x[validation_mask], split.y[validation_mask]
    )
    return dataclasses.replace(answer, facts={"trials": trials})


def _fit_trees(
    split: Split, validation_mask: np.ndarray, seed: int, choice: Mapping[str, Any]
) -> tuple[Any, float]:
    """LightGBM with early stopping on validation rows, and its loss there."""
    import lightgbm

    kind = lightgbm.LGBMClassifier if split.classes else lightgbm.LGBMRegressor
    model = kind(random_state=seed, verbose=-1, **choice)
    model.fit(
        split.x[~validation_mask],
        split.y[~validation_mask],
        eval_set=[(split.x[validation_mask], split.y[validation_mask])],
        callbacks=[lightgbm.early_stopping(50, verbose=False)],
    )
    losses = [min(scores.values()) for scores in model.best_score_.values()]
    return model, float(min(losses))


def _train_ngboost(split: Split, settings: Settings) -> Answers:
    """Normal predictions with a variance per row; early stopping on validation rows."""
    from ngboost import NGBRegressor

    validation_mask = _draw_validation(split, settings.seed)
    model = NGBRegressor(
        n_estimators=2000,
        learning_rate=0.04,
        minibatch_frac=0.5,
        random_state=settings.seed,
        verbose=False,
    )
    model.fit(
        split.x[~validation_mask],
        split.y[~validation_mask],
        split.x[validation_mask],
        split.y[validation_mask],
        early_stopping_rounds=50,
    )

    def predict(x):
        predicted = model.pred_dist(x)
        return make_normal(predicted.loc, predicted.scale**2)

    yield Answer(predict)


def _train_catboost(split: Split, settings: Settings) -> Answers:
    """Normal predictions with a variance per row; early stopping on validation rows."""
    from catboost import CatBoostRegressor

    validation_mask = _draw_validation(split, settings.seed)
    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty",
        iterations=5000,
        thread_count=1,
        random_seed=settings.seed,
        verbose=False,
        allow_writing_files=False,
    )
    model.fit(
        split.x[~validation_mask],
        split.y[~validation_mask],
        eval_set=(split.x[validation_mask], split.y[validation_mask]),
        early_stopping_rounds=50,
    )

    def predict(x):
        mean, variance = model.predict(x).T
        return make_normal(mean, variance)

    yield Answer(predict)


def _train_gpytorch(split: Split, settings: Settings, points: int) -> Answers:
    """SVGP: Matérn-3/2 with ARD, Adam at 0.01, batches of 1024 rows."""
    import gpytorch
    import torch

    torch.manual_seed(settings.seed)
    standardise = _make_standardiser(split.x)

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.tensor(np.asarray(values), dtype=torch.float32)

    x, y = tensor(standardise(split.x)), tensor(split.y)
    start = x[torch.randperm(len(x))[:points]].clone()

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(start))
            super().__init__(gpytorch.variational.VariationalStrategy(self, start, q))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1])
            )

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(rows), self.covar_module(rows)
            )

    model, likelihood = SVGP(), gpytorch.likelihoods.GaussianLikelihood()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimiser = torch.optim.Adam(
        [*model.parameters(), *likelihood.parameters()], lr=0.01
    )

    def predict(rows):
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            parts = [
                likelihood(model(part))
                for part in tensor(standardise(rows)).split(4096)
            ]
        model.train()
        likelihood.train()
        return make_normal(
            torch.cat([part.mean for part in parts]).numpy(),
            torch.cat([part.variance for part in parts]).numpy(),
        )

    stopped, epochs, bound = _Plateau(), 0, -np.inf
    while not stopped(bound):
        bounds = []
        for batch in torch.randperm(len(y)).split(BATCH):
            optimiser.zero_grad()
            value = elbo(model(x[batch]), y[batch])
            (-value).backward()
            optimiser.step()
            bounds.append(float(value))
        bound, epochs = float(np.mean(bounds)), epochs + 1
        yield Answer(predict, {"epochs": epochs})


def _train_gpboost(split: Split, settings: Settings) -> Answers:
    """Vecchia with inducing points, of GPBoost's own sizes: Matérn-3/2 with ARD.

    200 points and 30 neighbours, 60 for predictions. Its optimiser is restarted every
    few iterations, so that the time limit applies.
    """
    import gpboost

    standardise = _make_standardiser(split.x)
    y = np.asarray(split.y, np.float64)
    model = gpboost.GPModel(
        likelihood="gaussian",
        gp_coords=standardise(split.x),
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="full_scale_vecchia",
        seed=settings.seed,
    )

    def predict(x):
        predicted = model.predict(gp_coords_pred=standardise(x), predict_var=True)
        return make_normal(predicted["mu"], predicted["var"])

    options: dict[str, Any] = {"maxit": 5}
    steps, gain, evidence = 0, np.inf, -np.inf
    while gain > _TOLERANCE:
        model.fit(y=y, params=options)
        last, evidence = evidence, -model.get_current_neg_log_likelihood() / len(y)
        gain, steps = evidence - last, steps + options["maxit"]
        options["init_cov_pars"] = model.get_cov_pars(format_pandas=False)
        yield Answer(predict, {"steps": steps})


def _train_gpjax(split: Split, settings: Settings, points: int = 512) -> Answers:
    """SGPR: the collapsed bound of all rows, Matérn-3/2 with ARD, L-BFGS."""
    import gpjax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    standardise = _make_standardiser(split.x)
    x, y = jnp.asarray(standardise(split.x)), jnp.asarray(split.y)[:, None]
    data = gpjax.Dataset(X=x, y=y)
    chosen = np.random.default_rng(settings.seed).permutation(len(x))[:points]
    prior = gpjax.gps.Prior(
        mean_function=gpjax.mean_functions.Constant(),
        kernel=gpjax.kernels.Matern32(lengthscale=jnp.ones(x.shape[1])),
    )
    model = gpjax.variational_families.CollapsedVariationalGaussian(
        model=prior * gpjax.likelihoods.Gaussian(), inducing_inputs=x[chosen]
    )

    def loss(model, data):
        return -gpjax.objectives.collapsed_elbo(model, data)

    def make_predictor(model):
        posterior = model.condition(data)

        def predict(rows):
            means, variances = [], []
            for part in np.array_split(standardise(rows), -(-len(rows) // 2000)):
                predicted = model.model.likelihood(posterior(jnp.asarray(part)))
                means.append(np.asarray(predicted.mean).reshape(-1))
                variances.append(np.asarray(predicted.variance).reshape(-1))
            return make_normal(np.concatenate(means), np.concatenate(variances))

        return predict

    stopped, steps, bound = _Plateau(), 0, -np.inf
    while not stopped(bound):
        model, value = gpjax.fit_lbfgs(
            model=model, objective=loss, train_data=data, max_iters=20, safe=False
        )
        bound, steps = -float(value) / len(x), steps + 20
        yield Answer(make_predictor(model), {"steps": steps})


def _train_gpfy(split: Split, settings: Settings, features: int = 512) -> Answers:
    """The code of the paper: its ELBO, and Adam at 0.05 as in its example.

    Batches are drawn afresh at every step; its own ``fit`` compiles a single batch into
    the step. Seven frequencies share the features as in the paper.
    """
    import jax
    import optax
    from gpfy import spherical
    from gpfy.likelihoods import Bernoulli, Gaussian
    from gpfy.model import GP
    from gpfy.optimization import elbo
    from gpfy.spherical_harmonics import SphericalHarmonics
    from gpfy.variational import VariationalDistributionTriL

    standardise = _make_standardiser(split.x)
    x = np.asarray(standardise(split.x), np.float64)
    y = np.asarray(split.y, np.float64)[:, None]
    rows, batch = len(x), min(BATCH, len(x))
    frequencies = 7
    harmonics = SphericalHarmonics(frequencies, features // (frequencies - 2))
    likelihood = Bernoulli() if split.classes else Gaussian()
    q = VariationalDistributionTriL()
    kernel = spherical.PolynomialDecay(truncation_level=frequencies)
    model = GP(kernel).conditional(harmonics, q)
    start = model.init(
        jax.random.PRNGKey(settings.seed),
        input_dim=x.shape[1],
        likelihood=likelihood,
        sh_features=harmonics,
        variational_dist=q,
    )
    free = start.unconstrained()
    frozen = jax.tree.map(lambda learns: not learns, free._trainables)
    optimiser = optax.chain(optax.adam(0.05), optax.masked(optax.set_to_zero(), frozen))

    def negative(params, x, y):
        param = free.replace(params=params).constrained()
        return -elbo(param, model, q, likelihood, (x, y), dataset_size=rows)

    @jax.jit
    def step(params, state, x, y):
        value, slope = jax.value_and_grad(negative)(params, x, y)
        updates, state = optimiser.update(slope, state, params)
        return optax.apply_updates(params, updates), state, value

    @jax.jit
    def moments(params, x):
        param = free.replace(params=params).constrained()
        mean, variance = model.predict_diag(param, x)
        if split.classes:
            return likelihood.conditional_distribution(param, mean).mean(), variance
        noise = param.params["likelihood"][likelihood.name]["variance"]
        return mean, variance + noise

    def make_predictor(params):
        def predict(rows):
            parts = np.array_split(standardise(rows), -(-len(rows) // 4096))
            pairs = [moments(params, part) for part in parts]
            mean = np.concatenate([np.asarray(pair[0]).reshape(-1) for pair in pairs])
            if split.classes:
                return np.column_stack([1 - mean, mean])
            variances = [np.asarray(pair[1]).reshape(-1) for pair in pairs]
            return make_normal(mean, np.concatenate(variances))

        return predict

    params, state = free.params, optimiser.init(free.params)
    generator = np.random.default_rng(settings.seed)
    stopped, steps, bound = _Plateau(), 0, -np.inf
    count = harmonics.num_inducing(start)
    while not stopped(bound):
        bounds = []
        for _ in range(100):
            drawn = generator.integers(rows, size=batch)
            params, state, value = step(params, state, x[drawn], y[drawn])
            bounds.append(-float(value) / rows)
        bound, steps = float(np.mean(bounds)), steps + 100
        if not np.isfinite(bound):
            raise FloatingPointError(f"the bound is {bound} after {steps} steps")
        yield Answer(make_predictor(params), {"steps": steps, "features": int(count)})


def _train_dense(split: Split, settings: Settings) -> Answers:
    """scikit-learn's GaussianProcessRegressor: Matérn-3/2 with ARD, and noise."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    rows = len(split.y)
    if rows > _DENSE_ROWS:
        raise UnaffordableError(
            f"each step factorises a matrix of {rows:,} x {rows:,} numbers; skipped "
            f"above {_DENSE_ROWS:,} rows"
        )
    standardise = _make_standardiser(split.x)
    kernel = ConstantKernel() * Matern([1.0] * split.x.shape[1], nu=1.5)  # pyright: ignore
    model = GaussianProcessRegressor(
        kernel + WhiteKernel(0.1), random_state=settings.seed
    )
    model.fit(standardise(split.x), split.y)

    def predict(x):
        mean, std, *_ = model.predict(standardise(x), return_std=True)
        return make_normal(mean, np.square(std))

    yield Answer(predict)


def _train_fourier(split: Split, settings: Settings) -> Answers:
    """Ridge on 2048 random Fourier features, chosen on validation rows."""
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.linear_model import Ridge

    validation_mask, standardise = (
        _draw_validation(split, settings.seed),
        _make_standardiser(split.x),
    )
    x = standardise(split.x)
    best, least = None, np.inf
    for width in (0.03, 0.1, 0.3, 1.0):
        sampler = RBFSampler(
            gamma=width / x.shape[1], n_components=2048, random_state=settings.seed
        ).fit(x)
        seen = sampler.transform(x[~validation_mask])
        unseen = sampler.transform(x[validation_mask])
        for penalty in (1e-4, 1e-2, 1.0):
            ridge = Ridge(alpha=penalty).fit(seen, split.y[~validation_mask])
            error = np.mean((ridge.predict(unseen) - split.y[validation_mask]) ** 2)
            if error < least:
                best, least = (sampler, ridge), error
    assert best is not None
    sampler, ridge = best

    def predict(rows):
        return ridge.predict(sampler.transform(standardise(rows)))

    yield _add_noise(predict, split.x[validation_mask], split.y[validation_mask])


def _train_network(split: Split, settings: Settings) -> Answers:
    """Two layers of 256 ReLU units; early stopping on a validation tenth."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor

    validation_mask, standardise = (
        _draw_validation(split, settings.seed),
        _make_standardiser(split.x),
    )
    kind: Any = MLPClassifier if split.classes else MLPRegressor
    model = kind(
        hidden_layer_sizes=(256, 256),
        early_stopping=True,
        max_iter=300,
        random_state=settings.seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence after 300 epochs is not needed
        model.fit(standardise(split.x[~validation_mask]), split.y[~validation_mask])
    if split.classes:
        yield Answer(lambda rows: model.predict_proba(standardise(rows)))
        return
    yield _add_noise(
        lambda rows: model.predict(standardise(rows)),
        split.x[validation_mask],
        split.y[validation_mask],
    )


def _train_linear(split: Split, settings: Settings) -> Answers:
    """Ridge, or logistic regression."""
    from sklearn.linear_model import LogisticRegression, RidgeCV

    validation_mask, standardise = (
        _draw_validation(split, settings.seed),
        _make_standardiser(split.x),
    )
    if split.classes:
        model = LogisticRegression(max_iter=1000)
        model.fit(standardise(split.x), split.y)
        yield Answer(lambda rows: model.predict_proba(standardise(rows)))
        return
    ridge = RidgeCV(np.logspace(-3, 3, 7))
    ridge.fit(standardise(split.x[~validation_mask]), split.y[~validation_mask])
    yield _add_noise(
        lambda rows: ridge.predict(standardise(rows)),
        split.x[validation_mask],
        split.y[validation_mask],
    )


def add_calibration(method: Method) -> Method:
    """A method with the residual calibration of zonal, so that only means differ.

    The calibration is estimated on the validation rows of the method.
    """

    def train(split: Split, settings: Settings) -> Answers:
        validation_mask = _draw_validation(split, settings.seed)
        for answer in method.train(split, settings):
            predict: Any = answer.predict
            validation = predict(split.x[validation_mask])
            error = split.y[validation_mask] - validation.mean
            shape = Calibration.of(error / np.sqrt(validation.variance_y))

            def predict_calibrated(rows, predict=predict, shape=shape):
                predicted = predict(rows)
                noise = dataclasses.replace(predicted.likelihood, calibration=shape)
                return dataclasses.replace(predicted, likelihood=noise)

            yield Answer(predict_calibrated, answer.facts)

    name, title = f"{method.name}-shaped", f"{method.title}, with zonal's calibration"
    return Method(name, title, method.package, train, variant=True)


def _make_svgp(points: int) -> Method:
    train = functools.partial(_train_gpytorch, points=points)
    return Method(f"gpytorch-{points}", f"GPyTorch SVGP-{points}", "gpytorch", train)


_LIGHTGBM = Method("lightgbm", "LightGBM", "lightgbm", _train_lightgbm, classes=True)
_NETWORK = Method(
    "network", "MLP 256-256", "scikit-learn", _train_network, classes=True
)

_LIGHTGBM_WIDE = Method(
    "lightgbm-wide",
    "LightGBM, 15 to 255 leaves",
    "lightgbm",
    _train_lightgbm_wide,
    classes=True,
    variant=True,
)

PEERS = (
    _LIGHTGBM,
    _LIGHTGBM_WIDE,
    add_calibration(_LIGHTGBM),
    Method("ngboost", "NGBoost", "ngboost", _train_ngboost),
    Method("catboost", "CatBoost", "catboost", _train_catboost),
    _make_svgp(512),
    _make_svgp(1024),
    Method("gpboost", "GPBoost VIF", "gpboost", _train_gpboost),
    Method("gpjax", "GPJax SGPR-512", "gpjax", _train_gpjax),
    Method("gpfy", "gpfy", "gpfy", _train_gpfy, classes=True),
    Method("sklearn-gp", "scikit-learn GP", "scikit-learn", _train_dense),
    Method("fourier", "random Fourier ridge", "scikit-learn", _train_fourier),
    _NETWORK,
    add_calibration(_NETWORK),
    Method("linear", "linear", "scikit-learn", _train_linear, classes=True),
)

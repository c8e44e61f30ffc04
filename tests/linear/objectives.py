"""The solvers' objectives, and their minima by SciPy and scikit-learn, in double precision."""

import numpy as np
from scipy.optimize import minimize

LOSSES = {
    "L2R_L2LOSS_SVC_DUAL": "squared hinge",
    "L2R_L1LOSS_SVC_DUAL": "hinge",
    "L2R_LR_DUAL": "logistic",
    "L2R_L2LOSS_SVC_PRIMAL": "squared hinge",
}


def objective(w, X, signs, costs, loss):
    """Return |w|²/2 plus the loss of every row."""
    margins = signs * (X @ w)
    losses = {
        "squared hinge": lambda: np.maximum(1 - margins, 0) ** 2,
        "hinge": lambda: np.maximum(1 - margins, 0),
        "logistic": lambda: np.logaddexp(0, -margins),
    }[loss]()
    return 0.5 * w @ w + costs @ losses


def smooth_gradient(w, X, signs, costs, loss):
    """Return the gradient of a smooth objective."""
    margins = signs * (X @ w)
    slope = -2 * np.maximum(1 - margins, 0) if loss == "squared hinge" else -1 / (1 + np.exp(margins))
    return w + X.T @ (costs * signs * slope)


def least(X, signs, costs, loss):
    """Return the minimum of the objective by L-BFGS: on the primal, or on the dual if the primal is not smooth."""
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-14, "gtol": 1e-9}
    if loss != "hinge":
        found = minimize(
            objective, np.zeros(X.shape[1]), (X, signs, costs, loss), "L-BFGS-B", smooth_gradient, options=options
        )
        return found.fun
    Q = X * signs[:, None]

    def dual(alpha):
        w = Q.T @ alpha
        return 0.5 * w @ w - alpha.sum(), Q @ w - 1

    bounds = [(0, cost) for cost in costs]
    return -minimize(dual, np.zeros(len(signs)), method="L-BFGS-B", jac=True, bounds=bounds, options=options).fun


def by_sklearn(X, signs, costs, loss):
    """Return the objective at scikit-learn's (liblinear's) solution."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if loss == "logistic":
        solver = LogisticRegression(solver="liblinear", tol=1e-8, fit_intercept=False, max_iter=10_000)
    else:
        solver = LinearSVC(
            loss=loss.replace(" ", "_"), dual=True, tol=1e-7, fit_intercept=False, max_iter=1_000_000, random_state=0
        )
    w = solver.fit(X, signs, sample_weight=costs).coef_[0]
    return objective(w, X, signs, costs, loss)

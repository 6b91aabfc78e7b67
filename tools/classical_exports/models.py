"""The models of scikit-learn, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tools.classical_exports.data import (
    Export,
    classifier,
    numbers,
    regressor,
    sklearn,
    transformer,
    with_holes,
)
from tools.classical_exports.mixed import boosting, columns, ordinal_words

__all__ = ["exports"]


def _linear_models() -> dict[str, Callable[[], Export]]:
    from sklearn import linear_model as lm

    return {
        "linear_regression": lambda: regressor(lm.LinearRegression()),
        "ridge": lambda: regressor(lm.Ridge()),
        "lasso": lambda: regressor(lm.Lasso(0.1)),
        "elastic_net": lambda: regressor(lm.ElasticNet(0.1)),
        "bayesian_ridge": lambda: regressor(lm.BayesianRidge()),
        "sgd_regressor": lambda: regressor(lm.SGDRegressor(random_state=0)),
        "multi_output_linear": lambda: regressor(lm.LinearRegression(), 3),
        "poisson": lambda: positive(lm.PoissonRegressor()),
        "logistic_binary": lambda: classifier(lm.LogisticRegression(), 2),
        "logistic": lambda: classifier(lm.LogisticRegression()),
        "logistic_names": lambda: classifier(lm.LogisticRegression(), names=True),
        "logistic_array": lambda: classifier(lm.LogisticRegression(), options={"zipmap": False}),
        "sgd_classifier": lambda: classifier(lm.SGDClassifier(loss="log_loss", random_state=0)),
        "perceptron": lambda: classifier(
            lm.Perceptron(random_state=0), options={"raw_scores": True}
        ),
    }


def positive(model: Any) -> Export:
    x, y = numbers()
    return sklearn(model.fit(x, np.abs(y)), x)


def _machines() -> dict[str, Callable[[], Export]]:
    from sklearn import svm

    made: dict[str, Callable[[], Export]] = {
        "linear_svc": lambda: classifier(svm.LinearSVC(random_state=0)),
        "linear_svr": lambda: regressor(svm.LinearSVR(random_state=0)),
        "nu_svc": lambda: classifier(svm.NuSVC()),
        "nu_svr": lambda: regressor(svm.NuSVR()),
        "one_class_svm": lambda: transformer(svm.OneClassSVM()),
        "svc_binary": lambda: classifier(svm.SVC(), 2),
        "svc_probability_binary": lambda: classifier(_platt(svm.SVC), 2),
        "svc_probability": lambda: classifier(_platt(svm.SVC), 4, names=True),
    }
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        made[f"svc_{kernel}"] = partial(classifier, svm.SVC(kernel=kernel))
        made[f"svr_{kernel}"] = partial(regressor, svm.SVR(kernel=kernel))
    return made


def _platt(kind: Any) -> Any:
    return kind(probability=True, random_state=0)


def _neighbours_and_bayes() -> dict[str, Callable[[], Export]]:
    from sklearn import cluster, discriminant_analysis, mixture, naive_bayes, neighbors
    from sklearn import gaussian_process as gp
    from sklearn import neural_network as nn

    return {
        "gaussian_nb": lambda: classifier(naive_bayes.GaussianNB()),
        "bernoulli_nb": lambda: classifier(naive_bayes.BernoulliNB()),
        "multinomial_nb": lambda: transformer(naive_bayes.MultinomialNB(), positive=True),
        "complement_nb": lambda: transformer(naive_bayes.ComplementNB(), positive=True),
        "lda": lambda: classifier(discriminant_analysis.LinearDiscriminantAnalysis()),
        "qda": lambda: classifier(discriminant_analysis.QuadraticDiscriminantAnalysis()),
        "knn_classifier": lambda: classifier(neighbors.KNeighborsClassifier(4)),
        "knn_regressor": lambda: regressor(neighbors.KNeighborsRegressor(3)),
        "knn_weighted": lambda: regressor(neighbors.KNeighborsRegressor(3, weights="distance")),
        "mlp_classifier": lambda: classifier(_mlp(nn.MLPClassifier)),
        "mlp_regressor": lambda: regressor(_mlp(nn.MLPRegressor)),
        "kmeans": lambda: transformer(cluster.KMeans(4, random_state=0, n_init=2)),
        "gaussian_mixture": lambda: transformer(mixture.GaussianMixture(3, random_state=0)),
        "gaussian_process": lambda: regressor(
            gp.GaussianProcessRegressor(gp.kernels.RBF(2.0), alpha=0.1)
        ),
    }


def _mlp(kind: Any) -> Any:
    return kind(hidden_layer_sizes=(16,), random_state=0, max_iter=50)


def _trees() -> dict[str, Callable[[], Export]]:
    from sklearn import ensemble, tree

    few: dict[str, Any] = {"n_estimators": 10, "random_state": 0}
    return {
        "decision_tree": lambda: classifier(tree.DecisionTreeClassifier(random_state=0)),
        "decision_tree_regressor": lambda: regressor(tree.DecisionTreeRegressor(random_state=0)),
        "decision_tree_multi_output": lambda: regressor(
            tree.DecisionTreeRegressor(random_state=0), 3
        ),
        "random_forest": lambda: classifier(ensemble.RandomForestClassifier(**few)),
        "random_forest_binary": lambda: classifier(ensemble.RandomForestClassifier(**few), 2),
        "random_forest_names": lambda: classifier(
            ensemble.RandomForestClassifier(**few), names=True
        ),
        "random_forest_regressor": lambda: regressor(ensemble.RandomForestRegressor(**few)),
        "extra_trees": lambda: classifier(ensemble.ExtraTreesClassifier(**few)),
        "extra_trees_regressor": lambda: regressor(ensemble.ExtraTreesRegressor(**few)),
        "gradient_boosting": lambda: classifier(ensemble.GradientBoostingClassifier(**few)),
        "gradient_boosting_binary": lambda: classifier(
            ensemble.GradientBoostingClassifier(**few), 2
        ),
        "gradient_boosting_regressor": lambda: regressor(ensemble.GradientBoostingRegressor(**few)),
        "hist_gradient_boosting": lambda: with_holes(
            ensemble.HistGradientBoostingClassifier(max_iter=10, random_state=0)
        ),
        "hist_gradient_boosting_regressor": lambda: regressor(
            ensemble.HistGradientBoostingRegressor(max_iter=10, random_state=0)
        ),
        "ada_boost": lambda: classifier(ensemble.AdaBoostClassifier(n_estimators=5)),
        "ada_boost_regressor": lambda: regressor(
            ensemble.AdaBoostRegressor(n_estimators=5, random_state=0)
        ),
        "bagging": lambda: classifier(ensemble.BaggingClassifier(n_estimators=5)),
        "isolation_forest": lambda: transformer(ensemble.IsolationForest(**few)),
    }


def _combined() -> dict[str, Callable[[], Export]]:
    from sklearn import calibration, ensemble, multiclass, multioutput, pipeline, tree
    from sklearn import linear_model as lm
    from sklearn import preprocessing as pre

    pair = [("line", lm.LogisticRegression()), ("tree", tree.DecisionTreeClassifier(max_depth=3))]
    return {
        "calibrated": lambda: classifier(
            calibration.CalibratedClassifierCV(lm.LogisticRegression(), cv=2)
        ),
        "multi_output": lambda: regressor(multioutput.MultiOutputRegressor(lm.Ridge()), 3),
        "one_vs_rest": lambda: classifier(multiclass.OneVsRestClassifier(lm.LogisticRegression())),
        "voting": lambda: classifier(
            ensemble.VotingClassifier(pair, voting="soft", flatten_transform=False)
        ),
        "voting_hard": lambda: classifier(ensemble.VotingClassifier(pair, flatten_transform=False)),
        "stacking": lambda: classifier(ensemble.StackingClassifier(pair)),
        "pipeline": lambda: classifier(
            pipeline.make_pipeline(
                pre.StandardScaler(), pre.PolynomialFeatures(2), lm.LogisticRegression()
            )
        ),
        "columns": lambda: columns(words=False),
        "columns_words": lambda: columns(words=True),
        "ordinal_words": ordinal_words,
    }


def _preparation() -> dict[str, Callable[[], Export]]:
    from sklearn import decomposition, feature_selection, impute
    from sklearn import preprocessing as pre

    made: dict[str, Callable[[], Export]] = {
        "standard_scaler": lambda: transformer(pre.StandardScaler()),
        "min_max_scaler": lambda: transformer(pre.MinMaxScaler()),
        "max_abs_scaler": lambda: transformer(pre.MaxAbsScaler()),
        "robust_scaler": lambda: transformer(pre.RobustScaler()),
        "binarizer": lambda: transformer(pre.Binarizer(threshold=0.5)),
        "polynomial": lambda: transformer(pre.PolynomialFeatures(2)),
        "bins": lambda: transformer(
            pre.KBinsDiscretizer(4, encode="ordinal", quantile_method="averaged_inverted_cdf")
        ),
        "power": lambda: transformer(pre.PowerTransformer()),
        "imputer": lambda: with_holes(impute.SimpleImputer()),
        "pca": lambda: transformer(decomposition.PCA(3)),
        "truncated_svd": lambda: transformer(decomposition.TruncatedSVD(3, random_state=0)),
        "select_best": lambda: transformer(feature_selection.SelectKBest(k=3)),
    }
    for norm in ("l1", "l2", "max"):
        made[f"normalizer_{norm}"] = partial(transformer, pre.Normalizer(norm))
    return made


def exports() -> dict[str, Callable[[], Export]]:
    """The function that makes each model, by name."""
    return {
        **_linear_models(),
        **_machines(),
        **_neighbours_and_bayes(),
        **_trees(),
        **_combined(),
        **_preparation(),
        **boosting(),
    }

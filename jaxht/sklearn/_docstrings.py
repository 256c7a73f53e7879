"""What the docstrings of estimators have in common."""

import inspect
import re

ARGUMENTS = """
    k: how many features have coefficients that are not 0: an int; a fraction in (0, 1] of the features; or how it is
        chosen: "cv", by the mean loss on held-out samples; one of the information criteria "aic", "bic", "ebic", "gic"
        and "sic" (gic by another name); or a function of a :class:`Candidate`, which is least for the best. An intercept
        is not counted.
    k_max: the largest k of the path from which one is chosen, an int; None: min(d, n / log n, 50), n the sum of the
        weights.
    l2: ridge parameter >= 0 in the objective "the mean of the losses + l2/2 ||x||^2", where x are the coefficients in
        the units of the fit, those of the standardised columns; the intercept has no ridge.
    groups: (d,) labels of any kind: features of one label are selected together, and k counts groups. Groups that overlap:
        m lists of features, by number or name, or masks (m, d); the coefficients are then sums of parts, one for each
        group, of which at most k are not 0, and the ridge is that of the parts (:class:`jaxht.LatentGroups`). None: each
        feature is a group of its own.
    per_group: an int N: at most N features of each group are selected, beside at most k in all, and k counts features, of
        one output; None: those of a group are selected together.
    always: features that are always selected, and count towards k: a mask (d,), their numbers, or their names in a data
        frame.
    nonnegative: whether coefficients must not be negative.
    bounds: (lower, upper) of the coefficients of X, each a number, (d,), shaped like ``coef_``, or None; 0 lies between
        them.
    fit_intercept: whether there is an intercept.
    standardize: whether features are scaled to variance 1 for the fit; ``coef_`` is for X as it is. Without it the
        units of features matter to most solvers, and to the ridge.
    class_weight: a dict from classes to weights of their samples; "balanced", inversely proportional to the sum of the
        weights of each class; None for 1.
    ties: how events of the same time are treated: "breslow" or "efron", as by :class:`jaxht.Cox`.
    solver: a solver of jaxht, such as ``jaxht.HTP()``; None: that of :func:`jaxht.default_solver`, which searches for
        the best features. A path is then computed by forward selection (:class:`jaxht.OLS` or :class:`jaxht.OMP`),
        refined in both directions, and the search begins at its solution.
    cv: the folds of k="cv": an int, a splitter of scikit-learn, or an iterable of pairs of indices; None: 5.
    certify: whether :func:`jaxht.certify` bounds the distance from the optimum. This needs l2 > 0 and one output; an
        intercept is possible for squared errors only.
    random_state: an int or a RandomState, for solvers that draw random numbers; None: searches always draw the same
        numbers.
"""

ATTRIBUTES = """
    support_: bool (d,), the selected features.
    k_: the k that was asked for or chosen.
    path_: where k was chosen, a Bunch of m sparsities: ``k`` (m,); ``criteria`` (m,), of which k_ has the least;
        ``losses`` (m,), the objective; ``coefficients`` and ``intercepts``; ``fold_losses`` (folds, m) of "cv". Else
        None.
    certificate_: with certify a :class:`jaxht.Certificate` in floats; else None.
    n_iter_: steps of the solver.
    n_features_in_: d.
    feature_names_in_: (d,), where X is a data frame.
"""

COST = """\
Cost: a run of the solver. Where k is chosen, a path over all k before it, and of "cv" one for each fold. The first fit
to data of a shape and dtype compiles."""


def complete_docstring(cls: type) -> None:
    """Put what estimators share into the docstring of one of them: arguments, attributes, cost."""
    taken = inspect.signature(cls).parameters
    arguments = [entry for entry in _entries(ARGUMENTS) if entry.split(":")[0].strip() in taken]
    attributes = [
        entry for entry in _entries(ATTRIBUTES) if "certify" in taken or "certify" not in entry
    ]
    doc = inspect.cleandoc(cls.__doc__ or "")
    doc = doc.replace("    {arguments}", "\n".join(arguments))
    doc = doc.replace("    {attributes}", "\n".join(attributes))
    cls.__doc__ = doc.replace("{cost}", COST)


def _entries(section: str) -> list[str]:
    """The entries of a section of a docstring, each with the lines that are further in."""
    return re.split(r"\n(?= {4}\w)", section.strip("\n"))

"""docs/reference/metrics.md in exact arithmetic: fractions, one element after the other.

expected(left, right, "f32", "bf16", shape, rtol, atol)    the Measurement, from lists of Python numbers
fault(found, right)                                        what is wrong with a Measurement; None if nothing
"""

import dataclasses
import math
from fractions import Fraction

from elements import root

from twintrace.model.measurements import HISTOGRAM_EDGES, Measurement, Worst

# IEEE 754 and the OCP formats: digits of the significand, exponent of the smallest normal number.
PRECISION = {
    "f64": (53, -1022), "f32": (24, -126), "f16": (11, -14), "bf16": (8, -126),
    "f8e4m3fn": (4, -6), "f8e4m3fnuz": (4, -7), "f8e5m2": (3, -14), "f8e5m2fnuz": (3, -15),
    "f8e8m0fnu": (1, -127), "f4e2m1fn_x2": (2, 0),
}  # fmt: skip
SUMS = {"mean_abs", "mean_rel", "rmse", "mape", "cosine", "euclidean", "rms_left", "rms_right", "rms_rest"}


def parts(value: object) -> tuple[float, float]:
    return value if isinstance(value, tuple) else (value, 0)


def is_nan(value: object) -> bool:
    return any(map(math.isnan, parts(value)))


def is_inf(value: object) -> bool:
    """One that is infinite, or a complex number whose modulus no float64 holds."""
    if is_nan(value) or not any(map(math.isinf, parts(value))):
        return isinstance(value, tuple) and not is_nan(value) and math.isinf(math.hypot(*value))
    return True


def size(value: tuple[Fraction, Fraction]) -> Fraction:
    """The modulus; of a number that is real exactly, otherwise as near as float64 is."""
    real, imaginary = value
    return Fraction(root(real**2 + imaginary**2)) if imaginary else abs(real)


def power(value: Fraction) -> int:
    """The largest k with 2^k <= value."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def number(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def expected(
    left: list, right: list, left_dtype: str, right_dtype: str, shape, rtol: float, atol: float
) -> Measurement:
    real = "c" not in left_dtype[0] + right_dtype[0]
    precision = None
    if left_dtype in PRECISION and right_dtype in PRECISION:
        precision = min((PRECISION[each] for each in (left_dtype, right_dtype)), key=lambda each: (each[0], -each[1]))
    alike = [
        (is_nan(one) and is_nan(two)) or (not is_nan(one) and not is_nan(two) and parts(one) == parts(two))
        for one, two in zip(left, right, strict=True)
    ]
    pairs = [
        (place, tuple(map(Fraction, parts(one))), tuple(map(Fraction, parts(two))))
        for place, (one, two) in enumerate(zip(left, right, strict=True))
        if not any(is_nan(each) or is_inf(each) for each in (one, two))
    ]
    odd = {*range(len(left))} - {place for place, _, _ in pairs}
    close = one_thousandth = five_thousandths = sum(alike[place] for place in odd)
    errors, rounded, ratios, ulps, flips = [], [], [], [], 0
    bins = [0] * (len(HISTOGRAM_EDGES) + 2)
    for _, one, two in pairs:
        error, of = size((two[0] - one[0], two[1] - one[1])), size(one)
        errors.append(error)
        rounded.append(number(error))
        # Bounds and edges are float64, and so is what is compared with them: 11 is 0.1 away from 10, not a bit less.
        ratio = number(error / of) if of else None
        if ratio is not None:
            ratios.append(error / of)
        close += rounded[-1] <= atol + rtol * number(of)
        one_thousandth += error == 0 if ratio is None else ratio < 0.001
        five_thousandths += error == 0 if ratio is None else ratio < 0.005
        shown = rounded[-1] if ratio is None else ratio
        bins[1 + sum(shown >= 10.0**edge for edge in HISTOGRAM_EDGES) if error else 0] += 1
        flips += real and one[0] * two[0] < 0
        if precision:
            larger = max(size(one), size(two))
            exponent = max(power(larger), precision[1]) if larger else precision[1]
            ulps.append(error / Fraction(2) ** (exponent - precision[0] + 1))
    squares = [sum((part**2 for _, *both in pairs for part in both[side]), Fraction()) for side in (0, 1)]
    products = sum((a * b for _, one, two in pairs for a, b in zip(one, two, strict=True)), Fraction())
    count, finite = len(left), len(pairs)
    worst = None
    if any(errors):
        place = pairs[rounded.index(max(rounded))][0]
        index = []
        rest = place
        for length in reversed(shape):
            rest, at = divmod(rest, length)
            index.insert(0, at)
        worst = Worst(tuple(index), *(shown_as(side[place]) for side in (left, right)))
    cosine = None
    if all(squares):
        cosine = root(products**2 / (squares[0] * squares[1])) * (-1 if products < 0 else 1)

    def mean(values: list[Fraction]) -> float | None:
        return number(sum(values, Fraction()) / len(values)) if values else None

    def per_finite(total: Fraction) -> float | None:
        return root(total / finite) if finite else None

    error_squares = sum((error**2 for error in errors), Fraction())
    sizes = [(size(one), size(two)) for _, one, two in pairs]
    filled, rms_rest = fills(sizes, [one for _, one, _ in pairs], errors) if precision else (0, None)
    return Measurement(
        count=count,
        finite=finite,
        equal=sum(alike),
        max_abs=number(max(errors)) if errors else None,
        mean_abs=mean(errors),
        max_rel=number(max(ratios)) if ratios else None,
        mean_rel=mean(ratios),
        rmse=per_finite(error_squares),
        mape=mean([100 * ratio for ratio in ratios]),
        cosine=cosine,
        euclidean=root(error_squares) if finite else None,
        within_1_1000=one_thousandth / count if count else None,
        within_5_1000=five_thousandths / count if count else None,
        close=close / count if count else None,
        rtol=rtol,
        atol=atol,
        max_ulp=number(max(ulps)) if ulps else None,
        nan_left=sum(map(is_nan, left)),
        nan_right=sum(map(is_nan, right)),
        nan_both=sum(is_nan(one) and is_nan(two) for one, two in zip(left, right, strict=True)),
        inf_left=sum(map(is_inf, left)),
        inf_right=sum(map(is_inf, right)),
        inf_both=sum(is_inf(one) and alike[place] for place, one in enumerate(left)),
        sign_flips=flips,
        worst=worst,
        histogram=tuple(bins),
        max_left=max((number(size(one)) for _, one, _ in pairs), default=None),
        max_right=max((number(size(two)) for _, _, two in pairs), default=None),
        rms_left=per_finite(squares[0]),
        rms_right=per_finite(squares[1]),
        filled=filled,
        rms_rest=rms_rest,
    )


def fills(
    sizes: list[tuple[Fraction, Fraction]], values: list[object], errors: list[Fraction]
) -> tuple[int, float | None]:
    """How many elements are a fill value, and the root mean square of the others."""
    largest = max((one for one, _ in sizes), default=Fraction())
    if not any(errors) or largest != max(two for _, two in sizes):
        return 0, None
    far = [max(both) * 1000 >= largest for both in sizes]
    rest = [both for both, beyond in zip(sizes, far, strict=True) if not beyond]
    distinct = {value for value, beyond in zip(values, far, strict=True) if beyond}
    least = min(both[0] for both, beyond in zip(sizes, far, strict=True) if beyond)
    same = not any(error for error, beyond in zip(errors, far, strict=True) if beyond)
    if not same or not rest or len(distinct) > 4 or sum(far) <= len(distinct) or max(map(max, rest)) * 1000 > least:
        return 0, None
    return sum(far), max(root(sum((both[side] ** 2 for both in rest), Fraction()) / len(rest)) for side in (0, 1))


def shown_as(value: object) -> float | int:
    return number(size(tuple(map(Fraction, value)))) if isinstance(value, tuple) else value


def fault(found: Measurement, right: Measurement, *, exact: bool = True, rel: float = 1e-12) -> str | None:
    """The first number that is off. Sums may differ in their last digits; `exact=False` lets moduli do so too."""
    for field in dataclasses.fields(Measurement):
        one, other = getattr(found, field.name), getattr(right, field.name)
        if field.name == "worst" and one and other:
            if one.index != other.index:
                return f"worst: {one}, not {other}"
            same = near(one.left, other.left, exact, rel) and near(one.right, other.right, exact, rel)
        elif isinstance(one, float) and isinstance(other, float):
            same = near(one, other, exact and field.name not in SUMS and not field.name.endswith("rel"), rel)
        else:
            same = one == other and type(one) is type(other)
        if not same:
            return f"{field.name}: {one!r}, not {other!r}"
    return None


def near(one: float, other: float, exact: bool, rel: float) -> bool:
    return one == other or (not exact and abs(one - other) <= rel * max(abs(one), abs(other)))

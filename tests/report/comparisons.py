"""Comparisons to print, of any size, with everything in them that a report must cope with.

    comparison(rows=40)             a small network on both sides, of exactly 40 pairs of tensors
    comparison(rows=100_000)        as large as reports are promised to open
    agreeing(rows=40)               the same, and nothing differs
    nothing()                       two records with nothing in common

Blocks of a transformer: a module with a configuration, an operation inside it, a fused call beside two, each with inputs,
parameters, outputs and gradients. One in the middle differs on its own, what follows inherits that. Among the rows are
texts that a spreadsheet would take for formulas, markup, NaN, infinities, tensors that are missing, values of which only
the statistics are known, and gradients that belong to no call. The same arguments give the same comparison.
"""

from collections.abc import Iterator
from dataclasses import replace

from twintrace.model.measurements import HISTOGRAM_EDGES, Heat, Measurement, StatisticsDifference, Worst
from twintrace.model.pairs import Alone, Layout, Match, Part, Stray, TensorPair
from twintrace.model.records import Call, Config, Frame
from twintrace.model.results import CallResult, Comparison, Divergence, Mistake, Recording, TensorResult, Terms, badness
from twintrace.model.sites import Kind, Phase, Site
from twintrace.model.tensors import Spec, Statistics, Tensor
from twintrace.model.values import TensorRef
from twintrace.model.verdicts import Outcome, Verdict

FORMULA = "=cmd|' /C calc'!A0"
MARKUP = "</script><img src=x onerror=alert(1)>"
PER_BLOCK = 20  # tensors of a block
BLOCKS_PER_STEP = 250

SAME = Verdict(Outcome.SAME, "the same bytes on both sides", 0.0, None)
ROUNDING = Verdict(Outcome.ROUNDING, "at most 2 ULP of f32, as a sum of 256 products may have", 2.4e-7, 1.9e-6)
DIFFERENT = Verdict(Outcome.DIFFERENT, "1041 times what rounding in f32 explains", 2.1e-3, 2.0e-6)
UNKNOWN = Verdict(Outcome.UNKNOWN, "the right side has no value: the disk was full")

MISTAKE = Mistake(
    "meaning",
    "the two calls mean something else: 2.1e-03 apart on the same inputs",
    "eps: 1e-05 | 1e-06; with the left's the results agree: 2.1e-03 → 0.0e+00",
    "set eps=1e-05 on the right",
    size=35000.0,
)

STATISTICS = Statistics(-3.25, 2.5, 0.0125, 41.0, 0, 0, 0, 3)
UNPLEASANT = Statistics(-3.25, 2.5, 0.0125, float("inf"), 2, 1, 1, 0)
DIFFERENCE = StatisticsDifference(0.0, 0.0, 2e-9, -1e-6, 0.0, 0.0, 1.6e-7, -2.4e-8, 0, 0, 0)
ONE_SIDED = StatisticsDifference(0.0, None, float("nan"), float("inf"), None, None, None, None, 2, -2, 0)


def measured(*, worst: float = 0.0, spec: Spec | None = None, heat: bool = False, nan: int = 0) -> Measurement:
    """A measurement in keeping with one largest error."""
    shape = spec.shape if spec else (4, 16)
    count = 1
    for length in shape:
        count *= length
    bins = [0] * (len(HISTOGRAM_EDGES) + 2)
    bins[0] = count - nan
    if worst and count > nan:
        bins[0], bins[8], bins[10] = 0, count - nan - 1, 1
    return Measurement(
        count=count,
        finite=count - nan,
        equal=0 if worst else count,
        max_abs=worst,
        mean_abs=worst / 8,
        max_rel=worst * 2,
        mean_rel=worst / 4,
        rmse=worst / 6,
        mape=worst * 25,
        cosine=1.0 - worst,
        euclidean=worst * 3,
        within_1_1000=0.25 if worst > 1e-3 else 1.0,
        within_5_1000=0.5 if worst > 1e-3 else 1.0,
        close=0.125 if worst > 1e-3 else 1.0,
        rtol=1e-5,
        atol=1e-8,
        max_ulp=worst * 2**23 or 0.0,
        nan_left=nan,
        nan_right=0,
        nan_both=0,
        inf_left=0,
        inf_right=0,
        inf_both=0,
        sign_flips=int(worst > 1e-3),
        worst=Worst(tuple(length - 1 for length in shape), 0.5, 0.5 + worst) if count else None,
        histogram=tuple(bins),
        max_left=3.25,
        max_right=3.25,
        rms_left=1.0,
        rms_right=1.0,
        filled=2,
        rms_rest=0.5,
        heat=Heat(4, 8, tuple(worst * cell / 31 for cell in range(32))) if heat else None,
    )


def nothing() -> Comparison:
    """No pair, and calls that are alone on either side."""
    left, right = _recordings(0)
    alone = Alone(_call(0, Kind.MODULE, "net", "left", type="Net"), "no call of the other side has its shapes")
    other = Alone(_call(0, Kind.MODULE, "model", "right", type="Model"), "no call of the other side has its shapes")
    return Comparison(
        left, right, (), ((0, 0, alone),), ((0, 0, other),), None, None, "auto", remarks=("Nothing fits.",)
    )


def agreeing(rows: int = 40) -> Comparison:
    """Everything the same, or explained by rounding; nobody is alone."""
    return comparison(rows, agree=True)


def comparison(rows: int = 40, *, agree: bool = False, policy: str = "auto") -> Comparison:
    """Exactly `rows` pairs of tensors. Unless `agree`, the middle block differs, forward and backward."""
    blocks = -(-rows // PER_BLOCK)
    culprit = None if agree else blocks // 2
    results: list[CallResult] = []
    left_over = rows
    for block in range(blocks):
        for result in _block(block, culprit):
            kept = result.tensors[:left_over]
            left_over -= len(kept)
            if kept or not result.tensors:
                results.append(replace(result, tensors=kept, **_verdicts(kept)))
    left, right = _recordings(len(results))
    only_left = () if agree else tuple(_alone("left", blocks))
    only_right = () if agree else tuple(_alone("right", blocks))
    return Comparison(
        left,
        right,
        tuple(results),
        only_left,
        only_right,
        _divergence(results, backward=False),
        _divergence(results, backward=True),
        policy,
        recomputed=not agree,
        parted=not agree,
        untold=() if agree else ("the output of norm differs, and its values were not kept",),
        lone=() if agree else ("only the left computes torch.mean of the result, f32[]",),
        left_out=() if agree else ((7, 0),),
        remarks=() if agree else (f"A remark with {MARKUP} and a line\nbreak.",),
    )


def _recordings(calls: int) -> tuple[Recording, Recording]:
    environment = {"torch": "2.13.0", "threads": 2, "deterministic": False}
    return (
        Recording(
            "runs/left",
            "torch",
            steps=(0, 1),
            ranks=(0,),
            calls=calls,
            environment=environment,
            settings={"level": "mix"},
        ),
        Recording(
            "runs/right", "mindspore", steps=(0, 1), ranks=(0,), calls=calls, environment={"mindspore": "2.10.0"}
        ),
    )


def _alone(side: str, blocks: int) -> Iterator[tuple[int, int, Alone]]:
    for number in range(max(3, blocks // 20)):
        call = _call(10**6 + number, Kind.API, "torch.clip" if side == "left" else "mint.clamp", side)
        yield number % 2, 0, Alone(call, "no call of the other side takes or gives such shapes")
    yield 0, 0, Alone(_call(10**7, Kind.API, "torch.Tensor.to", side), "a cast, on one side only", skipped=True)
    yield 0, 0, Alone(_call(10**7 + 1, Kind.API, FORMULA, side), f"{FORMULA} is the name of nothing")


def _call(number: int, kind: Kind, name: str, side: str, *, type: str = "", path: str = "", **values: object) -> Call:
    frame = Frame(f"/home/{side}/model.py", 20 + number % 80, "forward", f"x = self.step{number % 80}(x)")
    caller = Frame(f"/home/{side}/train.py", 31, "main", "loss = net(x)")
    config = Config(name, type, dict(values)) if values else None
    site = Site(kind, name, number % 3 if kind is Kind.API else 0, Phase.FORWARD, path, type)
    return Call(
        number, site, None, (TensorRef(0),), {}, TensorRef(1), stack=(frame, caller), config=config, order=number
    )


def _block(block: int, culprit: int | None) -> Iterator[CallResult]:
    """`PER_BLOCK` tensors in five results: a module, an operation, a fused call beside two, one that is odd, a parameter."""
    step, first = block // BLOCKS_PER_STEP, block * 10
    here, after = block == culprit, culprit is not None and block > culprit
    calm = ROUNDING if block % 3 else SAME
    came, went = (DIFFERENT if after else calm), (DIFFERENT if after or here else calm)
    names = f"encoder.{block}", f"enc.cells.{block}"

    norm = Match(
        (_call(first, Kind.MODULE, f"{names[0]}.norm", "left", type="LayerNorm", eps=1e-5, affine=True),),
        (_call(first, Kind.MODULE, f"{names[1]}.ln", "right", type="LayerNorm", eps=1e-6, affine=True),),
        "the same parameters, in the same place",
    )
    yield _result(
        step, norm, first,
        [
            (Part.INPUT, "0", "0", Spec("f32", (4, 16)), came),
            (Part.PARAMETER, "weight", "gamma", Spec("f32", (16,)), SAME),
            (Part.PARAMETER, "bias", "beta", Spec("f32", (16,)), SAME),
            (Part.OUTPUT, "", "", Spec("f32", (4, 16)), went),
            (Part.OUTPUT_GRADIENT, "", "", Spec("f32", (4, 16)), came),
            (Part.INPUT_GRADIENT, "0", "0", Spec("f32", (4, 16)), went),
        ],
        introduced=here, settings={"eps": ("1e-05", "1e-06")},
    )  # fmt: skip

    linear = Match(
        (_call(first + 1, Kind.API, "torch.nn.functional.linear", "left", path=names[0]),),
        (_call(first + 1, Kind.API, "mindspore.ops.dense", "right", path=names[1]),),
        "equivalent operations, the same shapes, the same place",
        0.97,
    )
    yield _result(
        step, linear, first + 1,
        [
            (Part.INPUT, "0", "0", Spec("f32", (4, 16)), went),
            (Part.INPUT, "1", "kw.weight", Spec("f32", (32, 16)), ROUNDING),
            (Part.OUTPUT, "", "", Spec("bf16", (4, 32)), went),
            (Part.OUTPUT_GRADIENT, "", "", Spec("bf16", (4, 32)), came),
            (Part.INPUT_GRADIENT, "0", "0", Spec("f32", (4, 16)), came),
        ],
    )  # fmt: skip

    fused = Match(
        (
            _call(first + 2, Kind.API, "torch.matmul", "left", path=names[0]),
            _call(first + 3, Kind.API, "torch.softmax", "left", path=names[0]),
        ),
        (_call(first + 2, Kind.API, "mindspore.ops.flash_attention_score", "right", path=names[1]),),
        "two calls on the left give what one call on the right gives",
        0.9,
    )
    yield _result(
        step, fused, first + 2,
        [
            (Part.INPUT, "0", "0", Spec("f16", (4, 2, 8)), went),
            (Part.INPUT, "kw.mask", "3", Spec("b8", (4, 4)), SAME),
            (Part.OUTPUT, "", "0", Spec("f16", (4, 2, 8)), went),
        ],
    )  # fmt: skip

    odd = Match(
        (_call(first + 5, Kind.API, FORMULA, "left", path=MARKUP),),
        (_call(first + 5, Kind.API, "@SUM(1+1)*cmd|' /C calc'!A0", "right", path="-1+1"),),
        f"+{MARKUP}",
        0.5,
    )
    yield _result(
        step, odd, first + 5,
        [
            (Part.INPUT, "=1+1", "+1", Spec("f32", (0, 3)), SAME),
            (Part.INPUT, "1", "1", Spec("i64", ()), SAME),
            (Part.BUFFER, "running_mean", "moving_mean", Spec("f32", (16,)), UNKNOWN if block % 4 == 1 else SAME),
            (Part.OUTPUT, "", "", Spec("c64", (4, 16)), came),
            (Part.AFTER, "2", "2", Spec("f8e4m3fn", (4, 16)), came),
        ],
    )  # fmt: skip

    yield _result(
        step, Match((), (), "the gradient of a parameter"), first + 6,
        [(Part.PARAMETER_GRADIENT, f"{names[0]}.norm.weight", f"{names[1]}.ln.gamma", Spec("f32", (16,)), went)],
    )  # fmt: skip


def _result(
    step: int,
    match: Match,
    number: int,
    rows: list[tuple[Part, str, str, Spec, Verdict]],
    *,
    introduced: bool = False,
    settings: dict[str, tuple[str, str]] | None = None,
) -> CallResult:
    tensors = tuple(_tensor(number * 10 + at, *row) for at, row in enumerate(rows))
    strays = (
        (Stray(Part.OUTPUT, "1", number * 10 + 9, "the other side gives one output only"),) if len(rows) == 3 else ()
    )
    match = replace(match, tensors=tuple(item.pair for item in tensors), only_right=strays)
    return CallResult(
        step,
        0,
        match,
        tensors,
        None,
        None,
        introduced_forward=introduced,
        introduced_backward=introduced,
        settings=settings or {},
        mistakes=(MISTAKE,) if introduced else (),
        untold="" if introduced else "its values were not kept" * (len(rows) == 3),
    )


def _tensor(number: int, part: Part, left: str, right: str, spec: Spec, verdict: Verdict) -> TensorResult:
    layout = Layout((1, 0)) if right == "kw.weight" else Layout()
    because = f"{left} is called {right}" if left != right else ""
    pair = TensorPair(part, left, right, number, number + 1, layout, because)
    other = Spec(spec.dtype, tuple(reversed(spec.shape))) if layout.axes else spec
    one = Tensor(number, spec, statistics=STATISTICS, fingerprint=f"{number:032x}")
    two = Tensor(number + 1, other, statistics=STATISTICS, fingerprint=f"{number:032x}")
    if verdict.outcome is Outcome.UNKNOWN:
        return TensorResult(
            pair, one, replace(two, statistics=None, fingerprint=None, missing="the disk was full"), verdict
        )
    if verdict.outcome is Outcome.SAME:
        return TensorResult(pair, one, two, verdict)
    two = replace(two, fingerprint=f"{number + 7:032x}")
    if spec.dtype == "f8e4m3fn":  # only statistics were kept
        return TensorResult(pair, one, replace(two, statistics=UNPLEASANT), verdict, None, ONE_SIDED)
    nan = 2 if spec.dtype == "c64" else 0
    found = measured(worst=verdict.error or 0.0, spec=spec, heat=verdict.outcome is Outcome.DIFFERENT, nan=nan)
    terms = Terms(0.25, 2e-3 if verdict.outcome is Outcome.DIFFERENT else 0.0, 1e-4, 0.5)
    return TensorResult(pair, one, two, verdict, found, DIFFERENCE, None if nan else terms)


def _verdicts(tensors: tuple[TensorResult, ...]) -> dict[str, Verdict | None]:
    found: dict[str, Verdict | None] = {}
    for name, backward in (("forward", False), ("backward", True)):
        side = [item.verdict for item in tensors if item.pair.part.backward is backward]
        found[name] = max(side, key=badness, default=None)
    return found


def _divergence(results: list[CallResult], *, backward: bool) -> Divergence | None:
    for position, result in enumerate(results):
        if result.introduced_backward if backward else result.introduced_forward:
            tensors = tuple(
                item
                for item in result.tensors
                if item.pair.part.backward is backward and item.verdict.outcome is Outcome.DIFFERENT
            )
            if tensors:
                because = "what comes in agrees, what goes out does not"
                mistake = result.mistakes[0] if result.mistakes and not backward else None
                return Divergence(
                    result, backward, tensors, inherited=False, because=because, after=position, mistake=mistake,
                    share="" if backward else "99.8 % of the gap at the loss goes away if this call gives what the left's gives",
                )  # fmt: skip
    return None

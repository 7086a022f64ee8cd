"""Names of the same thing: operations, parameters, arguments. Data, and how to look it up.

    operation_of("torch.nn.functional.linear")           linear
    operation_of("mindspore.nn.Dense")                   linear
    operation_of("aten.native_layer_norm.default")       layernorm
    meaning_of("linear", Part.INPUT, "1")                weight
    meaning_of("batchnorm", Part.PARAMETER, "gamma")     weight

A name is first reduced to its core: its last part, in lower case, without underscores, without suffixes that only say how it is
implemented (`Ext`, `.default`, a final `_`). Most names of PyTorch, `mindspore.mint` and MSAdapter are then equal; the tables hold
the rest. Each row is one meaning, and a name stands in one row only, so that the relation is symmetric and has no chains
(tests/align/test_equivalents.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ..model.pairs import Part

# One row for each operation: its name here, then what else it is called. Modules, functions, methods and kernels alike.
_OPERATIONS = """
linear            dense addmm fullyconnected linearwithbias nondynamicallyquantizablelinear conv1dgpt
                  rowparallellinear columnparallellinear densethor
matmul            mm bmm batchmatmul matmulv2 rmatmul imatmul dot mv baddbmm batchdot tensordot inner vecdot
conv              conv1d conv2d conv3d convolution convolutionoverrideable mkldnnconvolution thnnconv2d conv2dthor
                  conv2dpadding
convtranspose     convtranspose1d convtranspose2d convtranspose3d conv1dtranspose conv2dtranspose conv3dtranspose
                  conv2dbackpropinput
batchnorm         batchnorm1d batchnorm2d batchnorm3d nativebatchnorm nativebatchnormlegit syncbatchnorm
                  cudnnbatchnorm batchnormwithactivation
layernorm         nativelayernorm layernormv3
rmsnorm           fusedrmsnorm llamarmsnorm qwen2rmsnorm mistralrmsnorm
groupnorm         nativegroupnorm
instancenorm      instancenorm1d instancenorm2d instancenorm3d
embedding         gather embeddinglookup embeddingthor vocabembedding indexselect gatherv2 take
getitem           index slice stridedslice select selectview slicegetitem gathernd tensorslice tuplegetitem narrow
gatherelements    gatherd takealongdim
setitem           indexput indexputimpl slicescatter selectscatter copyslices tensorscatterupdate
add               radd iadd tensoradd biasadd addn accumulaten accumulatenv2 augassignadd adds inplaceadds inplaceadd
                  hyperadd addscalar scalaradd
sub               isub subtract tensorsub augassignsub subs inplacesub subscalar
rsub
mul               rmul imul multiply tensormul muls tensormuls augassignmul mulscalar inplacemul
div               truediv itruediv divide realdiv truedivide tensordiv divs augassigndiv divscalar
rdiv              rtruediv
floordiv          floordivide tensorfloordiv ifloordiv
mod               remainder fmod floormod truncatemod tensormod imod
pow               ipow power tensorpow pows powscalar powtensorscalar powtensortensor square rpow powscalartensor
neg               negative
exp               tensorexp
sqrt
rsqrt
reciprocal        inv
abs               absolute
maximum
minimum
clip              clamp clipbyvalue clamptensor clampscalar clampmin clampmax
relu              reluv2 threshold
relu6
leakyrelu
prelu             preluweight
elu               eluext
gelu              fastgelu npugelu geluactivation newgeluactivation quickgelu
silu              swish siluactivation
swiglu
hardswish         hswish
hardsigmoid       hsigmoid
hardshrink        hshrink
sigmoid           inplacesigmoid sigmoidv2
tanh
softmax           internalsoftmax safesoftmax
logsoftmax
softplus
mish
glu
dropout           dropout1d dropout2d dropout3d nativedropout alphadropout featuredropout dropoutdomask
identity          alias clone contiguous detach stopgradient depend copy positive pos lazyclone identityn deepcopy
cast              to tocopy float half double bfloat16 int long bool type typeas astype asdtype scalarcast
                  mixedprecisioncast
transfer          cpu cuda npu moveto
reshape           view viewas reshapeas unsafeview flatten squeeze unsqueeze expanddims unflatten ravel squeezeview
                  reshapeview
transpose         permute t mt h swapaxes swapdims moveaxis movedim transposeview transposeextview permuteview adjoint
expand            expandas broadcastto tile repeat repeatinterleave repeatelements broadcast
concat            cat concatenate hstack vstack dstack
stack             pack
split             chunk splitwithsizes tensorsplit splitv unbind unstack unpack splittensor splitwithsize unsafesplit
                  hsplit vsplit
sum               reducesum sumdimintlist sumdim cumulativesum
mean              reducemean meandim
prod              reduceprod
max               amax reducemax argmaxwithvalue maxdim
min               amin reducemin argminwithvalue mindim
var               varmean varcorrection
std               stdmean reducestd
norm              vectornorm linalgvectornorm lpnorm matrixnorm frobeniusnorm normext euclideannorm
normalize         l2normalize
logsumexp         reducelogsumexp
all               reduceall
any               reduceany
argmax            argmaxv2
argmin            argminv2
cumsum            cumsumext
topk              topkext topkv2
sort              sortext
where             selectwhere swhere
maskedfill        maskedfillscalar maskedfilltensor
maskedselect
maxpool           maxpool1d maxpool2d maxpool3d maxpool2dwithindices maxpool1dwithindices maxpool3dwithindices
                  maxpoolwithargmax maxpoolwithindices maxpoolwithmask
avgpool           avgpool1d avgpool2d avgpool3d
adaptiveavgpool   adaptiveavgpool1d adaptiveavgpool2d adaptiveavgpool3d
adaptivemaxpool   adaptivemaxpool1d adaptivemaxpool2d adaptivemaxpool3d
upsample          interpolate upsamplenearest2d upsamplebilinear2d resizebilinear resizebilinearv2
                  resizenearestneighbor resizenearestneighborv2 upsamplingbilinear2d upsamplingnearest2d
                  upsamplenearest1d resizebicubic
pixelshuffle      depthtospace
pixelunshuffle    spacetodepth
pad               constantpadnd constantpad1d constantpad2d constantpad3d zeropad1d zeropad2d zeropad3d
                  reflectionpad1d reflectionpad2d replicationpad2d mirrorpad padv3
unfold            im2col
fold              col2im
lstm              lstmcudnn dynamicrnn
gru               dynamicgruv2
rnn               rnntanh rnnrelu
lstmcell          basiclstmcell
grucell
rnncell           rnntanhcell rnnrelucell
attention         scaleddotproductattention scaleddotproductflashattention scaleddotproductflashattentionforcpu
                  scaleddotproductefficientattention flashattentionscore promptflashattention fusedinferattentionscore
                  flashattention
multiheadattention multiheadattentionforward
crossentropy      crossentropyloss softmaxcrossentropywithlogits sparsesoftmaxcrossentropywithlogits
nll               nllloss nllloss2d nlllossforward nlllossnd
mse               mseloss mselossext
l1loss            maeloss l1lossext
smoothl1          smoothl1loss
huber             huberloss
bce               bceloss binarycrossentropy
bcewithlogits     bcewithlogitsloss binarycrossentropywithlogits sigmoidcrossentropywithlogits
kldiv             kldivloss kldivlossext
ctcloss           ctclossv2
onehot            onehotext
arange            range tensorrange
zeros             zeroslike newzeros zeroslikeext
ones              oneslike newones oneslikeext
full              fulllike newfull fill fillv2 fills fillscalar filltensor
empty             emptylike newempty emptystrided
tensor            scalartensor astensor scalartotensor lifefresh tupletoarray
randn             normal standardnormal randnlike inplacenormal
rand              uniform uniformreal randlike
randint           uniformint
tril
triu
einsum            einsumext
lt                less tensorlt
gt                greater tensorgt
le                lessequal tensorle
ge                greaterequal tensorge
eq                equal
ne                notequal
logicaland        and booland bitwiseand
logicalor         or boolor bitwiseor
logicalnot        invert boolnot bitwisenot
flip              reverse reversev2
roll
sequential        sequentialcell
modulelist        celllist
addcmul
addcdiv
lerp              lerpscalar
sgd               momentum applymomentum
adam              adamweightdecay adamw fusedadamw applyadam
allreduce         allreduceinner
allgather         allgatherintotensor
reducescatter     reducescattertensor
relugrad          thresholdbackward
softmaxgrad       softmaxbackwarddata softmaxbackward
logsoftmaxgrad    logsoftmaxbackwarddata
tanhgrad          tanhbackward
sigmoidgrad       sigmoidbackward
gelugrad          gelubackward
silugrad          silubackward
convgrad          convolutionbackward conv2dbackpropfilter conv2dgrad convolutiongrad
layernormgrad     nativelayernormbackward layernormgradv3
batchnormgrad     nativebatchnormbackward batchnormgradext
maxpoolgrad       maxpool2dwithindicesbackward maxpoolgradwithargmax maxpoolgradwithindices maxpoolgradwithmask
avgpoolgrad       avgpool2dbackward avgpool2dgrad
adaptiveavgpoolgrad adaptiveavgpool2dbackward adaptiveavgpool2dgrad
embeddinggrad     embeddingdensebackward embeddingdense unsortedsegmentsum
biasaddgrad
nllgrad           nlllossbackward nlllossgrad
mselossgrad       mselossbackward
slicebackward     slicegrad stridedslicegrad selectbackward
"""

# Operations that hand their values on, in another shape, type or place: without partner, they are passed over.
SHAPING = frozenset(("reshape", "transpose", "identity", "cast", "transfer"))
# The same, while the values that come out are those that went in.
SOMETIMES_SHAPING = frozenset(
    ("dropout", "expand", "pad", "getitem", "concat", "split", "pixelshuffle", "pixelunshuffle", "flip", "roll")
)
# They move values about and compute none: where all who take their results are compared, nothing is lost without them.
MOVING = frozenset(("getitem", "split", "concat", "stack", "expand", "pad", "flip", "roll", "setitem", "dropout"))
# They make values from nothing: zeros for a first hidden state, positions, masks.
MAKING = frozenset(("zeros", "ones", "full", "arange", "tensor", "empty", "randn", "rand", "randint"))
# Layers that frameworks themselves build of other modules, and that are one operation all the same.
COMPOSITE = frozenset(
    ("lstm", "gru", "rnn", "lstmcell", "grucell", "rnncell", "linear", "conv", "convtranspose", "multiheadattention")
)
# They only hold others.
CONTAINERS = frozenset(("sequential", "modulelist", "moduledict", "celldict"))

_PARAMETERS = """
weight            gamma embeddingtable w
bias              beta
runningmean       movingmean
runningvar        movingvariance
"""

# What the tensors among the positional arguments of a function mean, in order.
_ARGUMENTS = """
linear            input weight bias
conv              input weight bias
convtranspose     input weight bias
batchnorm         input runningmean runningvar weight bias
instancenorm      input runningmean runningvar weight bias
layernorm         input weight bias
rmsnorm           input weight
groupnorm         input weight bias
prelu             input weight
attention         query key value mask
crossentropy      input target
nll               input target
mse               input target
l1loss            input target
bce               input target
bcewithlogits     input target
kldiv             input target
where             condition input other
maskedfill        input mask value
add               input other
sub               input other
mul               input other
div               input other
matmul            input other
"""

# The same for functions that have another order than their namesakes, by their full names.
_ARGUMENTS_OF = """
mindspore.ops.BatchNorm     input weight bias runningmean runningvar
mindspore.ops.Gather        weight input
mindspore.ops.gather        weight input
"""

# Names of keyword arguments, and of positions where an operation has no row above.
_KEYWORDS = """
input             x inputx inputs self tensor a logits predict data
other             y mat2 inputy b exponent
target            labels label
mask              attnmask attentionmask
tensors           tensorlist
query             q
key               k
value             v
"""

_SUFFIX = re.compile(r"(ext|view|op|impl|func|functional)$")


def _rows(text: str) -> dict[str, tuple[str, ...]]:
    """Name, then its equals; an indented line goes on with the one above."""
    lines = (line.split() for line in text.replace("\n ", " ").strip().splitlines())
    return {name: tuple(others) for name, *others in lines}


OPERATIONS = _rows(_OPERATIONS)
PARAMETERS = _rows(_PARAMETERS)
ARGUMENTS = _rows(_ARGUMENTS)
ARGUMENTS_OF = _rows(_ARGUMENTS_OF)
KEYWORDS = _rows(_KEYWORDS)


def _inverted(rows: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: row for row, others in rows.items() for name in (row, *others)}


_OPERATION = _inverted(OPERATIONS)
_PARAMETER = _inverted(PARAMETERS)
_KEYWORD = _inverted(KEYWORDS)


@lru_cache(maxsize=65536)
def operation_of(name: str) -> str:
    """The name of an operation here; a name that is in no table is its own operation."""
    for bones in _bones(name):
        found = _OPERATION.get(bones)
        if found is not None:
            return found
    return next(iter(_bones(name)))


@lru_cache(maxsize=65536)
def is_known(name: str) -> bool:
    """Is this one of the operations in the table?"""
    return operation_of(name) in OPERATIONS


def _bones(name: str) -> tuple[str, ...]:
    """The candidates for a look-up, from the whole to what is left without suffixes."""
    parts = [part for part in name.split(".") if part]
    if len(parts) > 2 and parts[0] in ("aten", "prims") and parts[1]:
        parts = parts[:2]  # aten.mm.default, aten.add.Tensor: the rest is the overload
    last = parts[-1] if parts else name
    whole = last.strip("_").replace("_", "").lower()
    short = whole
    while (cut := _SUFFIX.sub("", short)) and cut != short:
        short = cut
    inplace = short.removeprefix("inplace") or short
    return whole or name.lower(), short or whole, inplace


@lru_cache(maxsize=65536)
def meaning_of(operation: str, part: Part, slot: str, rank: int = -1, function: str = "") -> str:
    """What a tensor is for its operation: `weight` for the second argument of linear, for gamma, for embedding_table.

    `rank` is its place among the tensors in positions; `function` the full name of the function, which may have its own order.
    """
    if part in (Part.PARAMETER, Part.BUFFER):
        owner, _, last = slot.rpartition(".")
        name = _bare(last)
        return f"{owner}.{_PARAMETER.get(name, name)}" if owner else _PARAMETER.get(name, name)
    if part is not Part.INPUT:
        return slot
    head, _, rest = slot.partition(".")
    if head == "kw":
        head, _, rest = rest.partition(".")
        name = _bare(head)
        name = _PARAMETER.get(name, _KEYWORD.get(name, name))
    elif head.isdigit():
        row = ARGUMENTS_OF.get(function, ARGUMENTS.get(operation, ()))
        place = int(head) if rank < 0 else rank
        name = row[place] if place < len(row) else ("input" if head == "0" else head)
    else:
        name = head
    return f"{name}.{rest}" if rest else name


def ranks(slots: Sequence[str]) -> list[int]:
    """The place of each slot among those that are positions; -1 for the others, and for what is inside a container."""
    places = sorted(int(slot) for slot in slots if slot.isdigit())
    return [places.index(int(slot)) if slot.isdigit() else -1 for slot in slots]


def _bare(name: str) -> str:
    return name.replace("_", "").lower()


def parameter_meaning(name: str) -> str:
    """The name of a parameter here: `gamma` is `weight`."""
    bare = _bare(name)
    return _PARAMETER.get(bare, bare)

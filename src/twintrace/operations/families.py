"""Families: what an operation is by its name alone, the same for functions, methods, kernels, modules and Cells of all frameworks.

    family_of("torch.nn.functional.linear")            linear
    family_of("Dense")                                 linear
    family_of("aten.native_layer_norm.default")        layer_norm
    family_of("LayerNormGrad")                         layer_norm_backward
    operations_named("torch.max")                      ("amax", "max_dim")

Names come from the tables of the frameworks (`torch_names.py`, `mindspore_names.py`, `module_names.py`): a new operation has its
row there, and is a family by itself. Here stand only operations that do the same work in other words (`view` and `squeeze`
are rows of `reshape` already; `linear` and `addmm` are two operations), and names that have no row.

A name is brought to its bones first: its last part, in lower case, without underscores, and, where that is not known, without
what only says how it is implemented (`Ext`, `Scalar`, `V2`, a final `_`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from . import mindspore_names, module_names, torch_names
from .catalog import OPERATIONS
from .rows import joined

# The name of a family, which is an operation of it if the catalog has one of this name, and its further operations; behind the
# bar names in their bones that have no row, or whose rows are of other families. `torch.…`: what PyTorch alone means by it.
_FAMILIES = """
linear addmm | fullyconnected linearwithbias conv1dgpt rowparallellinear columnparallellinear densethor
matmul tensordot | baddbmm addmv batchmatmul imatmul batchdot inner vecdot
conv | convolution convolutionoverrideable mkldnnconvolution thnnconv2d conv2dthor conv2dpadding convdepthwise2d
    convolutionmode
conv_transpose | conv1dtranspose conv3dtranspose
conv_backward | conv2dbackpropfilter
batch_norm | syncbatchnorm batchnormwithactivation batchnormimplindex
rms_norm | fusedrmsnorm llamarmsnorm qwen2rmsnorm mistralrmsnorm
embedding index_select take | gather embeddingthor vocabembedding gatherv2
embedding_backward | embeddingdensebackward embeddingdense unsortedsegmentsum
getitem gather_nd | select slicegetitem tuplegetitem
gather_elements gather | torch.gather
setitem index_put | slicescatter selectscatter copyslices tensorscatterupdate
add bias_add add_all | adds inplaceadds hyperadd scalaradd
sub | subs
rsub | rsub
mul
div | divmod
rdiv | rdiv rtruediv
remainder fmod
pow square | power pows
relu threshold
prelu | preluweight
gelu quick_gelu | geluactivation newgeluactivation
silu | siluactivation
softmax | internalsoftmax maskedsoftmax
dropout feature_dropout alpha_dropout | dropoutdomask
identity detach positive | copy identityn lazyclone
assign copy
transfer | cpu cuda npu moveto
cast | astype asdtype scalarcast mixedprecisioncast
expand tile repeat_interleave | broadcast
cat | vstack dstack rowstack
stack | pack
split unbind | hsplit vsplit splitv unpack
sum | sumdim sumdimintlist cumulativesum
mean | meandim
amax max_dim | max argmaxwithvalue
amin min_dim | min argminwithvalue
median median_dim
var var_mean | varcorrection
std std_mean
vector_norm | norm matrixnorm frobeniusnorm euclideannorm
normalize l2_normalize
logsumexp | reducelogsumexp
where | selectwhere swhere
max_pool | maxpool1dwithindices maxpool2dwithindices maxpool3dwithindices maxpoolwithindices maxpoolwithmask
interpolate | resizebilinear resizenearestneighbor resizebicubic upsamplenearest1d
pixel_shuffle depth_to_space
pixel_unshuffle space_to_depth
pad mirror_pad
unfold unfold_axis
fold | col2im
lstm flat_lstm lstm_layer | lstmcudnn dynamicrnn
gru | dynamicgru
rnn | cudnnrnn
lstm_cell | basiclstmcell
scaled_dot_product_attention | attention flashattention flashattentionscore promptflashattention fusedinferattentionscore
transformer_layer | transformerencoderlayer transformerdecoderlayer
transformer | transformerencoder transformerdecoder
nll_loss | nll
mse_loss | mse
l1_loss | maeloss
smooth_l1_loss | smoothl1
huber_loss | huber
binary_cross_entropy | bce
binary_cross_entropy_with_logits | bcewithlogits
ctc_loss
arange | range
full fill
tensor | scalartensor scalartotensor astensor asarray tupletoarray lifefresh
random
randn | randn randnlike normal standardnormal inplacenormal
rand | rand randlike uniform uniformreal
randint | randint uniformint
logical_and bitwise_and | booland
logical_or bitwise_or | boolor
logical_not bitwise_not | boolnot
sequential | sequentialcell
module_list | celllist
module_dict | celldict
sgd | momentum applymomentum
adam | adamw adamweightdecay fusedadamw applyadam
clip_grad_norm | clipbyglobalnorm getgradnorm
all_reduce | allreduceinner
all_gather | allgatherintotensor
reduce_scatter | reducescattertensor
"""

SHAPING = frozenset(("reshape", "permute", "identity", "cast", "transfer"))
"""Families that hand their values on, in another shape, type or place: without partner, they are passed over."""
SOMETIMES_SHAPING = frozenset((
    "dropout", "expand", "pad", "getitem", "cat", "split", "pixel_shuffle", "pixel_unshuffle", "flip", "roll",
))  # fmt: skip
"""The same, while the values that come out are those that went in."""
MOVING = frozenset(("getitem", "split", "cat", "stack", "expand", "pad", "flip", "roll", "setitem", "dropout"))
"""They move values and compute none: where all who take their results are compared, nothing is lost without them."""
MAKING = frozenset(("zeros", "ones", "full", "arange", "tensor", "empty", "random", "randn", "rand", "randint"))
"""They make values from nothing: zeros for a first hidden state, positions, masks."""
COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum", "fmax", "fmin", "eq", "ne", "logical_and", "logical_or"))
"""Their two operands may be exchanged."""
COMPOSITE = frozenset((
    "lstm", "gru", "rnn", "lstm_cell", "gru_cell", "rnn_cell", "linear", "conv", "conv_transpose", "multi_head_attention",
))  # fmt: skip
"""Layers that frameworks themselves build of other modules, and that are one operation all the same."""
CONTAINERS = frozenset(("sequential", "module_list", "module_dict"))
"""They only hold others."""

_BEFORE = re.compile(r"^(inplace|tensor|augassign)")
_BEHIND = re.compile(r"(ext|view|op|impl|func|functional|scalar|tensor|v\d)$")
_BACKWARD = re.compile(r"grad|backward(data)?")


def _bones(name: str) -> str:
    """The last part of a name, in lower case without underscores; `add` of `aten.add.Tensor`, whose end is an overload."""
    parts = [part for part in name.split(".") if part]
    if len(parts) > 2 and parts[0] in ("aten", "prims"):
        parts = parts[:2]
    last = (parts[-1] if parts else name).removeprefix("_foreach_")
    return last.replace("_", "").lower() or name.lower()


class _Table:
    """Families and operations by bones."""

    def __init__(self) -> None:
        self.family: dict[str, str] = {operation: operation for operation in OPERATIONS}
        self.members: dict[str, set[str]] = {}
        stated: dict[str, str] = {}
        for line in joined(_FAMILIES):
            members, _, names = line.partition("|")
            name, *others = members.split()
            self.family |= dict.fromkeys((name, *others), name)
            self.members[name] = {operation for operation in (name, *others) if operation in OPERATIONS}
            stated |= dict.fromkeys((_bones(name), *names.split()), name)
        self.operations = _operations({own: self.members[family] for own, family in stated.items()})
        self.named = {own: self._family_of(found) for own, found in self.operations.items() if found} | stated
        self.classes = {*stated, *map(_bones, filter(_is_class, _names()))}

    def _family_of(self, operations: set[str]) -> str:
        return min(self.family[operation] for operation in operations)


def _names() -> Iterator[str]:
    for table in (
        *(torch_names.ROWS, torch_names.ALIASES, torch_names.OPERATORS, mindspore_names.ROWS, mindspore_names.ALIASES),
        *(mindspore_names.OPERATORS, module_names.TORCH, module_names.MINDSPORE),
    ):
        yield from table


def _is_class(name: str) -> bool:
    """Primitives, modules and Cells are classes; functions and methods begin with a small letter."""
    return name.rpartition(".")[2][0].isupper()


def _operations(stated: dict[str, set[str]]) -> dict[str, set[str]]:
    """Operations by bones: of the catalog, of the frameworks' rows, and of what is another name of these."""
    found: dict[str, set[str]] = {_bones(operation): {operation} for operation in OPERATIONS}
    for rows in (torch_names.ROWS, mindspore_names.ROWS, module_names.TORCH, module_names.MINDSPORE):
        for name, row in rows.items():
            if row.operation in OPERATIONS:
                found.setdefault(_bones(name), set()).add(row.operation)
    for own, operations in stated.items():
        found.setdefault(own, set(operations))
    for aliases in (torch_names.ALIASES, mindspore_names.ALIASES, torch_names.OPERATORS, mindspore_names.OPERATORS):
        for name, other in aliases.items():
            found.setdefault(_bones(name), set()).update(found.get(_bones(other), ()))
    return found


_TABLE = _Table()


@lru_cache(maxsize=65536)
def _candidates(name: str) -> tuple[str, ...]:
    """Bones to look up, from the whole name to what is left without what only says how it is implemented."""
    bones = _bones(name)
    found = [f"torch.{bones}", bones] if name.startswith(("torch.", "aten.")) else [bones]
    while (short := _BEHIND.sub("", bones)) and short != bones:
        bones = short
        found.append(bones)
    return (*found, _BEFORE.sub("", bones) or bones)


@lru_cache(maxsize=65536)
def family_of(name: str) -> str:
    """Family of the operation that has this name; a name that is in no table is a family by itself, in its bones."""
    known = _known(name)
    return _bones(name) if known is None else known


@lru_cache(maxsize=65536)
def is_known(name: str) -> bool:
    """Is this the name of an operation that a table has, or of its backward pass?"""
    return _known(name) is not None


@lru_cache(maxsize=65536)
def is_class(name: str) -> bool:
    """Is this the class of a module that is one operation? A user's class that is called like a function is not."""
    return any(bones in _TABLE.classes for bones in _candidates(name))


@lru_cache(maxsize=65536)
def operations_named(name: str) -> frozenset[str]:
    """Operations of the catalog that a call of this name may be, or be the backward pass of: `max` may be two."""
    for bones in _candidates(_forward(name) or name):
        if found := _TABLE.operations.get(bones.removeprefix("foreach")):
            return frozenset(found)
    return frozenset()


@lru_cache(maxsize=65536)
def _known(name: str) -> str | None:
    for bones in _candidates(name):
        if bones in _TABLE.named:
            return _TABLE.named[bones]
    forward = _forward(name)
    found = _known(forward) if forward else None
    return None if found is None else f"{found}_backward"


@lru_cache(maxsize=65536)
def _forward(name: str) -> str:
    """Bones of the operation whose backward pass this is; empty if it is none."""
    bones = _bones(name)
    if any(own in _TABLE.named for own in _candidates(name)):
        return ""
    forward = _BACKWARD.sub("", bones)
    return forward if forward != bones else ""

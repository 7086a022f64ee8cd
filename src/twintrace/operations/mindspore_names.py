"""MindSpore's names: functions of `ops` and `mint`, methods of tensors, primitives (and the kernels of the same names).

    gelu            ops.gelu, Tensor.gelu; mint's functions are PyTorch's (`torch_names.py`) unless there is a row `mint.…`
    ops.max(…)      one home only: ops, Tensor, mint
    MatMul(…)       a primitive: `mindspore.ops.MatMul`, or the kernel MatMul; its attributes are settings of the call

Where a function has several signatures (methods of tensors take PyTorch's names and MindSpore's) both names are on the left.
"""

from __future__ import annotations

from .catalog import OPERATIONS
from .rows import Row, joined, rows_in

OPERATORS = {
    "__radd__": "add", "__rsub__": "rsub", "__rmul__": "mul", "__rtruediv__": "rdiv", "__rfloordiv__": "rfloordiv",
    "__rmod__": "rmod", "__rpow__": "rpow", "__rmatmul__": "rmatmul", "__iadd__": "add_", "__isub__": "sub_",
    "__imul__": "mul_", "__itruediv__": "div_", "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__round__": "round",
}  # fmt: skip
"""Operators that are not recorded under their method's name."""

_SAME = """
abs acos acosh asin asinh atan atanh cos cosh deg2rad rad2deg digamma erf erfc erfinv exp exp2 expm1 lgamma log log10
log1p log2 neg positive real imag conj angle reciprocal rsqrt sqrt square sin sinc sinh tan tanh sigmoid softsign
tanhshrink relu relu6 silu mish selu hardswish hardsigmoid sign sgn signbit ceil floor trunc frac isfinite isinf isnan
isneginf isposinf logical_not bitwise_not maximum minimum fmax fmin atan2 hypot logaddexp logaddexp2 xlogy copysign
nextafter ldexp gcd lcm eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
bitwise_left_shift bitwise_right_shift matmul kron mul floor_divide remainder fmod addcmul addcdiv lerp where nan_to_num
logit softplus hardtanh hardshrink pixel_shuffle pixel_unshuffle view_as_real einsum addbmm tril triu
masked_select isclose masked_scatter cdist polar
"""
SAME = frozenset(_SAME.split())
"""Functions and methods that have the arguments of the catalog's operation of their name."""
PRIMITIVES = {
    name.replace("_", ""): name
    for name in SAME
    if {parameter.name for parameter in OPERATIONS[name].parameters} <= {"input", "other"}
}
"""Functions whose primitive (`LogicalNot`, here in lower case) is the same and has no attributes."""

# An operation or a row, and what else it is called.
_ALIASES = """
abs absolute
acos arccos
acosh arccosh
asin arcsin
asinh arcsinh
atan arctan
atanh arctanh
atan2 arctan2
neg negative
reciprocal inv Inv
bitwise_not invert
mul multiply Muls
sub subtract Sub SubExt
div true_divide divide realdiv Div RealDiv Divs
gt greater Greater
ge greater_equal GreaterEqual
lt less Less
le less_equal LessEqual
eq equal
ne not_equal NotEqual
add tensor_add Add AddExt TensorAdd
silu swish silu_func inplace_silu SiLUExt
identity clone contiguous deepcopy copy move_to Identity Copy Clone Contiguous
clip clamp ClampScalar ClampTensor
concat cat
softshrink soft_shrink SoftShrink
softmax softmax_ext
hardtanh hardtanh_op
threshold threshold_op
elu elu_ext inplace_elu
flatten flatten_ext
adaptive_avg_pool3d adaptive_avg_pool3d_ext
gelu npu_gelu
movedim moveaxis
outer ger
gather_elements gather_d
BiasAdd bias_add
cumsum cumsum_ext
trunc fix
remainder floor_mod floormod FloorMod
i0 bessel_i0
reshape view
swapaxes swapdims
topk top_k
hardswish HSwish
hardsigmoid HSigmoid
round_to_even Rint Round
eq Equal
div_no_nan DivNoNan
floor_divide FloorDiv
fmod Mod
pow Pow PowTensorScalar PowScalarTensor
matmul MatMulExt
masked_fill MaskedFill
cdist Cdist
masked_select MaskedSelect
stop_gradient StopGradient
GeLU Gelu
hardshrink HShrink
softplus Softplus
log_softmax LogSoftmaxExt
embedding_lookup EmbeddingLookup
"""

_ROWS = """
# arithmetic
add(input, other, alpha=1) = add
sub(input, other, alpha=1) = sub
rsub(input, other) = sub(input=other, other=input)
rdiv(input, other) = div(input=other, other=input)
rpow(input, other) = pow(input=other, other=input)
rmod(input, other) = remainder(input=other, other=input)
rfloordiv(input, other) = floor_divide(input=other, other=input)
rmatmul(input, other) = matmul(input=other, other=input)
pow(input, exponent) = pow(other=exponent)
float_power(input, exponent) = pow(other=exponent)
addn(x) = add_all(tensors=x)
AddN(x) = add_all(tensors=x)
accumulate_n(x) = add_all(tensors=x)
AccumulateNV2(x) = add_all(tensors=x)
floor_div(x, y) = floor_divide(input=x, other=y)
truncate_div(x, y) = trunc_divide(input=x, other=y)
truncate_mod(x, y) = fmod(input=x, other=y)
DivNoNan(x1, x2) = div_no_nan(input=x1, other=x2)
heaviside(input, values) = heaviside(other=values)
clip(input, min=None, max=None) = clamp
clip_by_value(x, clip_value_min=None, clip_value_max=None) = clamp(input=x, min=clip_value_min, max=clip_value_max)
outer(input, vec2) = outer(other=vec2)
round_to_even(input) = round(decimals=0)
round(input, *, decimals=0) = round
assign(variable, value) = copy(input=variable, src=value)
Assign(variable, value) = copy(input=variable, src=value)
assign_add(variable, value) = add(input=variable, other=value)
AssignAdd(variable, value) = add(input=variable, other=value)
assign_sub(variable, value) = sub(input=variable, other=value)
AssignSub(variable, value) = sub(input=variable, other=value)
assign_value(variable, value) = copy(input=variable, src=value)
Select(condition, input, other) = where
ops.select(condition, input, other) = where

# activations
gelu(input, approximate='none') = gelu
Tensor.gelu(input, approximate='none') = gelu
GeLU(input) = gelu(approximate='tanh')
GeluExt(input, approximate='none') = gelu
fast_gelu(x) = quick_gelu(input=x)
FastGeLU(x) = quick_gelu(input=x)
FastGelu(x) = quick_gelu(input=x)
leaky_relu(input, alpha=0.2) = leaky_relu(negative_slope=alpha)
LeakyReLU(input, negative_slope) = leaky_relu
elu(input_x, alpha=1.0) = elu(input=input_x)
Elu(input, alpha=1.0) = elu
celu(x, alpha=1.0) = celu(input=x)
CeLU(x, alpha=1.0) = celu(input=x)
softshrink(input, lambd=0.5) = softshrink
HShrink(input, lambd=0.5) = hardshrink
threshold(input, thr, value) = threshold(threshold=thr)
prelu(input, weight) = prelu
PReLU(input, weight) = prelu
rrelu(input, lower=0.125, upper=0.3333333333333333) = rrelu(training=True)
logsigmoid(x) = logsigmoid(input=x)
LogSigmoid(x) = logsigmoid(input=x)
glu(x, axis=-1) = glu(input=x, dim=axis)
swiglu(input, dim=-1) = swiglu
Swiglu(input, dim=-1) = swiglu
softmax(input, axis=-1, *, dtype=None) = softmax(dim=axis)
Tensor.softmax(input, axis=-1, *, dim=None, dtype=None) = softmax(dim=given(dim, axis))
Softmax(input, axis) = softmax(dim=only(axis))
softmin(x, axis=-1, *, dtype=None) = softmin(input=x, dim=axis)
log_softmax(logits, axis=-1) = log_softmax(input=logits, dim=axis)
LogSoftmax(logits, axis) = log_softmax(input=logits, dim=axis)
mint.log_softmax(input, dim=None, *, dtype=None) = log_softmax(dim=implicit_dim(input, dim))
gumbel_softmax(logits, tau=1.0, hard=False, dim=-1) = gumbel_softmax
dropout(input, p=0.5, training=True, seed=None) = dropout
Dropout(input, keep_prob, *, Seed0=0) = dropout(p=1 - keep_prob, training=True)
DropoutExt(input, p, *rest) = dropout(training=True)
dropout<n>d(input, p=0.5, training=True) = feature_dropout
Dropout2D(input, keep_prob) = feature_dropout(p=1 - keep_prob, training=True)
Dropout3D(input, keep_prob) = feature_dropout(p=1 - keep_prob, training=True)

# reductions
sum(input, axis=None, dtype=None, keepdims=False, initial=None, *, dim=None, keepdim=False)
    = sum(dim=given(dim, axis), keepdim=keepdims or keepdim)
ops.sum(input, dim=None, keepdim=False, *, dtype=None) = sum
mean(x, axis=None, keep_dims=False, *, dim=None, keepdim=False, input=None, dtype=None)
    = mean(input=given(input, x), dim=given(dim, axis), keepdim=keep_dims or keepdim)
prod(input, axis=None, keep_dims=False, dtype=None, *, dim=None, keepdim=False)
    = prod(dim=given(dim, axis), keepdim=keep_dims or keepdim)
all(input, axis=None, keep_dims=False, *, dim=None, keepdim=False) = all(dim=given(dim, axis), keepdim=keep_dims or keepdim)
any(input, axis=None, keep_dims=False, *, dim=None, keepdim=False) = any(dim=given(dim, axis), keepdim=keep_dims or keepdim)
amax(input, axis=None, keepdims=False, *, initial=None, where=None, dim=None, keepdim=False)
    = amax(dim=given(dim, axis), keepdim=keepdims or keepdim)
amin(input, axis=None, keepdims=False, *, initial=None, where=None, dim=None, keepdim=False)
    = amin(dim=given(dim, axis), keepdim=keepdims or keepdim)
nansum(input, axis=None, keepdims=False, *, dtype=None, dim=None, keepdim=False)
    = nansum(dim=given(dim, axis), keepdim=keepdims or keepdim)
nanmean(input, axis=None, keepdims=False, *, dtype=None) = nanmean(dim=axis, keepdim=keepdims)
logsumexp(input, dim, keepdim=False) = logsumexp
count_nonzero(x, axis=(), keep_dims=False, dtype=None) = count_nonzero(input=x, dim=axis)
ReduceSum(x, axis=(), keep_dims=False, skip_mode=False) = sum(input=x, dim=axis, keepdim=keep_dims)
SumExt(x, dim=None, keepdim=False, dtype=None) = sum(input=x)
ReduceMean(x, axis=(), keep_dims=False) = mean(input=x, dim=axis, keepdim=keep_dims)
MeanExt(x, dim=None, keepdim=False, dtype=None) = mean(input=x)
ReduceProd(x, axis=(), keep_dims=False) = prod(input=x, dim=axis, keepdim=keep_dims)
ReduceMax(x, axis=(), keep_dims=False) = amax(input=x, dim=axis, keepdim=keep_dims)
ReduceMin(x, axis=(), keep_dims=False) = amin(input=x, dim=axis, keepdim=keep_dims)
ReduceAll(x, axis=(), keep_dims=False) = all(input=x, dim=axis, keepdim=keep_dims)
ReduceAny(x, axis=(), keep_dims=False) = any(input=x, dim=axis, keepdim=keep_dims)
ReduceStd(x, axis=(), unbiased=True, keep_dims=False) = std_mean(input=x, dim=axis, correction=int(unbiased), keepdim=keep_dims)
var(input, axis=None, ddof=0, keepdims=False, *, dim=None, correction=None, keepdim=False, unbiased=None)
    = var(dim=given(dim, axis), correction=unbiased_by(ddof, correction, unbiased), keepdim=keepdims or keepdim)
std(input, axis=None, ddof=0, keepdims=False, *, dim=None, correction=None, keepdim=False, unbiased=None)
    = std(dim=given(dim, axis), correction=unbiased_by(ddof, correction, unbiased), keepdim=keepdims or keepdim)
var_mean(input, axis=None, ddof=0, keepdims=False) = var_mean(dim=axis, correction=int(ddof), keepdim=keepdims)
std_mean(input, axis=None, ddof=0, keepdims=False) = std_mean(dim=axis, correction=int(ddof), keepdim=keepdims)
argmax(input, dim=None, keepdim=False, *, axis=None) = argmax(dim=given(dim, axis))
Tensor.argmax(input, axis=None, keepdims=False, *, dim=None, keepdim=False)
    = argmax(dim=given(dim, axis), keepdim=keepdims or keepdim)
argmin(input, axis=None, keepdims=False, *, dim=None, keepdim=False) = argmin(dim=given(dim, axis), keepdim=keepdims or keepdim)
Argmax(input, axis=-1, output_type=None) = argmax(dim=axis, keepdim=False)
Argmin(input, axis=-1, output_type=None) = argmin(dim=axis, keepdim=False)
cumsum(x, axis=None, dtype=None, *, dim=None, input=None) = cumsum(input=given(input, x), dim=given(dim, axis))
CumSum(x, axis, *, exclusive=False, reverse=False) = cumsum(input=unless(x, exclusive or reverse), dim=axis)
cumprod(input, dim, dtype=None) = cumprod
CumProd(x, axis, *, exclusive=False, reverse=False) = cumprod(input=unless(x, exclusive or reverse), dim=axis)
cummax(input, axis) = cummax(dim=axis)
cummin(input, axis) = cummin(dim=axis)
logcumsumexp(input, axis) = logcumsumexp(dim=axis)
sort(input_x, axis=-1, descending=False, *, dim=None) = sort(input=input_x, dim=given(dim, axis))
Sort(input_x, *, axis=-1, descending=False) = sort(input=input_x, dim=axis)
argsort(input, axis=-1, descending=False, *, dim=None, stable=False) = argsort(dim=given(dim, axis))
topk(input, k, dim=None, largest=True, sorted=True) = topk(dim=given(dim, -1))
TopK(input, k, *, sorted=True) = topk(dim=-1, largest=True)
diff(x, n=1, axis=-1, prepend=None, append=None) = diff(input=x, dim=axis)
bucketize(input, boundaries, *, right=False) = bucketize
vector_norm(x, ord=2, axis=None, keepdims=False, *, dtype=None) = vector_norm(input=x, dim=axis, keepdim=keepdims)
LpNorm(x, axis, *, p=2, keep_dims=False, epsilon=1e-12) = vector_norm(input=x, ord=p, dim=axis, keepdim=keep_dims)
L2Normalize(x, axis=0, epsilon=0.0001) = l2_normalize(input=x, dim=axis, eps=epsilon)

# contractions
BatchMatMulExt(x, y) = matmul(input=x, other=y)
Dense(x, w, b=None) = linear(input=x, weight=w, bias=b)
dense(input, weight, bias=None) = linear
bidense(input1, input2, weight, bias=None) = bilinear
mm(input, mat2) = matmul(other=mat2)
bmm(input_x, mat2) = matmul(input=input_x, other=mat2)
Mm(input, mat2) = matmul(other=mat2)
mint.bmm(input, mat2) = matmul(other=mat2)
mv(mat, vec) = matmul(input=mat, other=vec)
Tensor.dot(input, other) = matmul
mint.dot(input, other) = matmul
addmm(input, mat1, mat2, *, beta=1, alpha=1) = addmm
baddbmm(input, batch1, batch2, beta=1, alpha=1) = addmm(mat1=batch1, mat2=batch2)
addmv(input, mat, vec, *, beta=1, alpha=1) = addmm(mat1=mat, mat2=vec)
addr(x, vec1, vec2, *, beta=1, alpha=1) = addr(input=x)
einsum(equation, *operands) = einsum(operands=flat(operands))
Einsum(operands, *, equation) = einsum
tensordot(x1, x2, axes) = tensordot(input=x1, other=x2, dims=axes)
conv<n>d(input, weight, bias=None, stride=1, pad_mode='valid', padding=0, dilation=1, groups=1)
    = conv(stride=spread(stride, <n>), padding=mode_sides(input, kernel(weight), pad_mode, padding, stride, dilation),
    dilation=spread(dilation, <n>))
Conv2D(x, w, *, pad_mode, pad, stride, dilation, group, data_format='NCHW')
    = conv(input=channels_first(x, data_format), weight=w, bias=None, stride=spread(stride, 2),
    padding=mode_sides(x, kernel(w), pad_mode, pad, stride, dilation), dilation=spread(dilation, 2), groups=group)
DepthwiseConv2dNative(x, w, *, pad_mode, pad, stride, dilation, group=1)
    = conv(input=x, weight=w, bias=None, stride=spread(stride, 2), groups=size(x, 1),
    padding=mode_sides(x, kernel(w), pad_mode, pad, stride, dilation), dilation=spread(dilation, 2))
Conv<n>DExt(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)
    = conv(stride=spread(stride, <n>), padding=conv_sides(input, weight, padding, stride, dilation), dilation=spread(dilation,
    <n>))
Conv3D(x, w, *, pad_mode, pad, stride, dilation, group, data_format='NCDHW')
    = conv(input=channels_first(x, data_format), weight=w, bias=None, stride=spread(stride, 3),
    padding=mode_sides(x, kernel(w), pad_mode, pad, stride, dilation), dilation=spread(dilation, 3), groups=group)
Conv2DTranspose(x, w, input_size=None, *, pad_mode, pad, stride, dilation, group, data_format='NCHW')
    = conv_transpose(input=channels_first(x, data_format), weight=w, bias=None, stride=spread(stride, 2), groups=group,
    padding=transposed_sides(x, kernel(w), pad_mode, pad, stride, dilation), dilation=spread(dilation, 2),
    output_padding=transposed_rest(x, kernel(w), pad_mode, pad, stride, dilation))
Conv2DBackpropInput(x, w, input_size=None, *, pad_mode, pad, stride, dilation, group, data_format='NCHW')
    = conv_transpose(input=channels_first(x, data_format), weight=w, bias=None, stride=spread(stride, 2), groups=group,
    padding=transposed_sides(x, kernel(w), pad_mode, pad, stride, dilation), dilation=spread(dilation, 2),
    output_padding=transposed_rest(x, kernel(w), pad_mode, pad, stride, dilation))
max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False)
    = max_pool(input=x, kernel_size=spread(kernel_size, 2), stride=spread(given(stride, kernel_size), 2), padding=sides(padding, 2),
    dilation=spread(dilation, 2), ceil_mode=pool_overhang(x, kernel_size, stride, padding, dilation, ceil_mode, 2))
max_pool3d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)
    = max_pool(input=x, kernel_size=spread(kernel_size, 3), stride=spread(given(stride, kernel_size), 3), padding=sides(padding, 3),
    dilation=spread(dilation, 3), ceil_mode=pool_overhang(x, kernel_size, stride, padding, dilation, ceil_mode, 3))
avg_pool1d(input_x, kernel_size=1, stride=1, padding=0, ceil_mode=False, count_include_pad=True)
    = avg_pool(input=input_x, kernel_size=spread(kernel_size, 1), stride=spread(stride, 1), padding=sides(padding, 1),
    ceil_mode=pool_overhang(input_x, kernel_size, stride, padding, 1, ceil_mode, 1),
    count_include_pad=without_padding(sides(padding, 1), count_include_pad), divisor_override=None)
avg_pool2d(input_x, kernel_size=1, stride=1, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=0)
    = avg_pool(input=input_x, kernel_size=spread(kernel_size, 2), stride=spread(stride, 2), padding=sides(padding, 2),
    ceil_mode=pool_overhang(input_x, kernel_size, stride, padding, 1, ceil_mode, 2),
    count_include_pad=without_padding(sides(padding, 2), count_include_pad), divisor_override=divisor_override or None)
avg_pool3d(input_x, kernel_size=1, stride=1, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=0)
    = avg_pool(input=input_x, kernel_size=spread(kernel_size, 3), stride=spread(stride, 3), padding=sides(padding, 3),
    ceil_mode=pool_overhang(input_x, kernel_size, stride, padding, 1, ceil_mode, 3),
    count_include_pad=without_padding(sides(padding, 3), count_include_pad), divisor_override=divisor_override or None)
MaxPool(x, *, kernel_size, strides, pad_mode, data_format='NCHW')
    = max_pool(input=channels_first(x, data_format), kernel_size=spread(kernel_size, 2), stride=spread(strides, 2), dilation=(1, 1),
    padding=mode_sides(x, spread(kernel_size, 2), pad_mode, 0, strides), ceil_mode=(0, 0))
MaxPoolWithArgmax(x, *, kernel_size, strides, pad_mode, data_format='NCHW')
    = max_pool(input=channels_first(x, data_format), kernel_size=spread(kernel_size, 2), stride=spread(strides, 2), dilation=(1, 1),
    padding=mode_sides(x, spread(kernel_size, 2), pad_mode, 0, strides), ceil_mode=(0, 0))
MaxPoolWithArgmaxV2(x, *, kernel_size, strides=None, pads=0, dilation=(1, 1), ceil_mode=False)
    = max_pool(input=x, kernel_size=spread(kernel_size, 2), stride=spread(given(strides, kernel_size), 2), padding=sides(pads, 2),
    dilation=spread(dilation, 2), ceil_mode=pool_overhang(x, kernel_size, strides, pads, dilation, ceil_mode, 2))
MaxPool3DWithArgmax(x, *, ksize, strides, pads=0, dilation=(1, 1, 1), ceil_mode=False)
    = max_pool(input=x, kernel_size=spread(ksize, 3), stride=spread(strides, 3), padding=sides(pads, 3),
    dilation=spread(dilation, 3), ceil_mode=pool_overhang(x, ksize, strides, pads, dilation, ceil_mode, 3))
MaxPool3D(x, *, kernel_size, strides, pad_mode, pad_list=0, ceil_mode=None, data_format='NCDHW')
    = max_pool(input=x, kernel_size=spread(kernel_size, 3), stride=spread(strides, 3), dilation=(1, 1, 1),
    padding=mode_sides(x, spread(kernel_size, 3), pad_mode, pad_list, strides),
    ceil_mode=mode_overhang(x, spread(kernel_size, 3), pad_mode, pad_list, strides, ceil_mode))
AvgPool(x, kernel_size, strides, pad_mode, data_format='NCHW')
    = avg_pool(input=channels_first(x, data_format), kernel_size=spread(kernel_size, 2), stride=spread(strides, 2),
    padding=mode_sides(x, spread(kernel_size, 2), pad_mode, 0, strides), ceil_mode=(0, 0), count_include_pad=False,
    divisor_override=None)
AvgPool3D(x, *, kernel_size, strides, pad_mode, pad=0, ceil_mode=False, count_include_pad=True, divisor_override=0)
    = avg_pool(input=x, kernel_size=spread(kernel_size, 3), stride=spread(strides, 3),
    padding=mode_sides(x, spread(kernel_size, 3), pad_mode, pad, strides),
    ceil_mode=mode_overhang(x, spread(kernel_size, 3), pad_mode, pad, strides, ceil_mode), count_include_pad=count_include_pad,
    divisor_override=divisor_override or None)
adaptive_avg_pool<n>d(input, output_size) = adaptive_avg_pool(output_size=out_shape()[-<n>:])
AdaptiveAvgPool2D(input, *, output_size) = adaptive_avg_pool(output_size=out_shape()[-2:])
AdaptiveAvgPool3D(input, *, output_size) = adaptive_avg_pool(output_size=out_shape()[-3:])
adaptive_max_pool1d(input, output_size) = adaptive_max_pool(output_size=out_shape()[-1:])
adaptive_max_pool2d(input, output_size, return_indices=False) = adaptive_max_pool(output_size=out_shape()[-2:])
adaptive_max_pool3d(input, output_size, return_indices=False) = adaptive_max_pool(output_size=out_shape()[-3:])
AdaptiveMaxPool2D(input, *, output_size) = adaptive_max_pool(output_size=out_shape()[-2:])
lp_pool1d(x, norm_type, kernel_size, stride=None, ceil_mode=False)
    = lp_pool(input=x, kernel_size=spread(kernel_size, 1), stride=spread(given(stride, kernel_size), 1))
lp_pool2d(x, norm_type, kernel_size, stride=None, ceil_mode=False)
    = lp_pool(input=x, kernel_size=spread(kernel_size, 2), stride=spread(given(stride, kernel_size), 2))
unfold(input, kernel_size, dilation=1, padding=0, stride=1)
    = unfold(kernel_size=spread(kernel_size, 2), dilation=spread(dilation, 2), padding=spread(padding, 2), stride=spread(stride, 2))
fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)
    = fold(output_size=spread(output_size, 2), kernel_size=spread(kernel_size, 2), dilation=spread(dilation, 2),
    padding=spread(padding, 2), stride=spread(stride, 2))

LSTM(input, h, c, w, *, input_size, hidden_size, num_layers, has_bias, bidirectional, dropout, proj_size=0)
    = flat_lstm(input=unless(input, num_layers > 1 or bidirectional or proj_size), weight=w)[:3]

# normalisation
batch_norm(input_x, running_mean, running_var, weight, bias, training=False, momentum=0.1, eps=1e-5) = batch_norm(input=input_x)
BatchNorm(input_x, scale, bias, running_mean, running_var, is_training, epsilon=1e-5, momentum=0.1, data_format='NCHW')
    = batch_norm(input=channels_first(input_x, data_format), weight=scale, training=is_training, eps=epsilon)[:1]
layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5) = layer_norm
LayerNorm(input_x, gamma, beta, begin_norm_axis, begin_params_axis, epsilon)
    = layer_norm(input=input_x, normalized_shape=tail(input_x, begin_norm_axis), weight=gamma, bias=beta, eps=epsilon)[:2]
BatchNormExt(input, weight, bias, running_mean=None, running_var=None, training=False, momentum=0.1, epsilon=1e-5)
    = batch_norm(eps=epsilon)[:1]
LayerNormExt(input, normalized_shape, weight=None, bias=None, eps=1e-5) = layer_norm
group_norm(input, num_groups, weight=None, bias=None, eps=1e-5) = group_norm
GroupNorm(input, num_groups, weight=None, bias=None, eps=1e-5) = group_norm
rms_norm(x, gamma, epsilon=1e-06) = rms_norm(input=x, normalized_shape=shape(gamma), weight=gamma, eps=epsilon)
Complex(real, imag) = complex
Polar(abs, angle) = polar
RmsNorm(x, gamma, epsilon=1e-06) = rms_norm(input=x, normalized_shape=shape(gamma), weight=gamma, eps=epsilon)
lrn(x, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, norm_region='ACROSS_CHANNELS')
    = local_response_norm(input=x, size=2 * depth_radius + 1, alpha=alpha * (2 * depth_radius + 1), k=bias)
LRN(x, *, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, norm_region='ACROSS_CHANNELS')
    = local_response_norm(input=x, size=2 * depth_radius + 1, alpha=alpha * (2 * depth_radius + 1), k=bias)

# losses
mse_loss(input, target, reduction='mean') = mse_loss
l1_loss(input, target, reduction='mean') = l1_loss
smooth_l1_loss(input, target, beta=1.0, reduction='none') = smooth_l1_loss
SmoothL1Loss(input, target, *, beta=1.0, reduction='none') = smooth_l1_loss
mint.smooth_l1_loss(input, target, reduction='mean', beta=1.0) = smooth_l1_loss
huber_loss(input, target, reduction='mean', delta=1.0) = huber_loss
cross_entropy(input, target, weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0) = cross_entropy
mint.cross_entropy(input, target, weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0) = cross_entropy
nll_loss(inputs, target, weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0)
    = nll_loss(input=unless(inputs, label_smoothing))
mint.nll_loss(input, target, weight=None, ignore_index=-100, reduction='mean') = nll_loss
NLLLoss(logits, labels, weight, *, reduction='mean', ignore_index=-100) = nll_loss(input=logits, target=labels)[:1]
binary_cross_entropy(logits, labels, weight=None, reduction='mean') = binary_cross_entropy(input=logits, target=labels)
BinaryCrossEntropy(logits, labels, weight=None, *, reduction='mean') = binary_cross_entropy(input=logits, target=labels)
mint.binary_cross_entropy(input, target, weight=None, reduction='mean') = binary_cross_entropy
binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction='mean') = binary_cross_entropy_with_logits
mint.binary_cross_entropy_with_logits(input, target, weight=None, reduction='mean', pos_weight=None)
    = binary_cross_entropy_with_logits
BCEWithLogitsLoss(input, target, weight, pos_weight, *, reduction='mean') = binary_cross_entropy_with_logits
SigmoidCrossEntropyWithLogits(logits, label)
    = binary_cross_entropy_with_logits(input=logits, target=label, weight=None, pos_weight=None, reduction='none')
kl_div(logits, labels, reduction='mean') = kl_div(input=logits, target=labels, log_target=False)
KLDivLoss(logits, labels, *, reduction='mean') = kl_div(input=logits, target=labels, log_target=False)
mint.kl_div(input, target, reduction='mean', log_target=False) = kl_div
SoftmaxCrossEntropyWithLogits(logits, labels)
    = cross_entropy(input=logits, target=labels, weight=None, label_smoothing=0.0, reduction='none')[:1]
SparseSoftmaxCrossEntropyWithLogits(logits, labels, *, is_grad=False)
    = cross_entropy(input=unless(logits, is_grad), target=labels, weight=None, label_smoothing=0.0, reduction='mean')
L2Loss(input_x) = half_square_sum(input=input_x)
soft_margin_loss(input, target, reduction='mean') = soft_margin_loss
SoftMarginLoss(input, target, *, reduction='mean') = soft_margin_loss
multilabel_soft_margin_loss(input, target, weight=None, reduction='mean') = multilabel_soft_margin_loss
multi_margin_loss(input, target, p=1, margin=1, weight=None, reduction='mean') = multi_margin_loss
hinge_embedding_loss(inputs, targets, margin=1.0, reduction='mean') = hinge_embedding_loss(input=inputs, target=targets)
cosine_embedding_loss(input1, input2, target, margin=0.0, reduction='mean') = cosine_embedding_loss
margin_ranking_loss(input1, input2, target, margin=0.0, reduction='mean') = margin_ranking_loss
triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, reduction='mean') = triplet_margin_loss
gaussian_nll_loss(x, target, var, full=False, eps=1e-06, reduction='mean') = gaussian_nll_loss(input=x)
ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction='mean', zero_infinity=False) = ctc_loss
cosine_similarity(x1, x2, dim=1, eps=1e-08) = cosine_similarity

# movement
identity(input) = identity
stop_gradient(input) = detach
detach(input) = detach
cast(input, *rest, dtype=None) = cast(dtype=out_dtype())
reshape(input, *shape) = reshape(shape=out_shape())
Reshape(input, shape=None) = reshape(shape=out_shape())
View(input, shape=None) = reshape(shape=out_shape())
view_as(input, other) = reshape(shape=out_shape())
reshape_as(input, other) = reshape(shape=out_shape())
flatten(input, *rest, order='C', start_dim=0, end_dim=-1) = reshape(shape=out_shape())
Flatten(input) = reshape(shape=out_shape())
ravel(input) = reshape(shape=out_shape())
unflatten(input, *rest, axis=0, dim=0, sizes=()) = reshape(shape=out_shape())
squeeze(input, *axis) = reshape(shape=out_shape())
Squeeze(input, *rest) = reshape(shape=out_shape())
unsqueeze(input, dim) = reshape(shape=out_shape())
expand_dims(input, axis) = reshape(shape=out_shape())
ExpandDims(input, axis) = reshape(shape=out_shape())
ops.expand_dims(input_x, axis) = reshape(input=input_x, shape=out_shape())
permute(input, *dims) = permute(dims=order(input, dims))
ops.permute(input, axis) = permute(dims=order(input, axis))
ops.transpose(input, dims) = permute(dims=order(input, dims))
Transpose(input, dims) = permute(dims=order(input, dims))
TransposeView(input, dims) = permute(dims=order(input, dims))
swapaxes(input, axis0, axis1) = permute(dims=permutation(input, axis0, axis1))
ops.swapdims(input, dim0, dim1) = permute(dims=permutation(input, dim0, dim1))
mint.transpose(input, dim0, dim1) = permute(dims=permutation(input, dim0, dim1))
TransposeExtView(input, dim0, dim1) = permute(dims=permutation(input, dim0, dim1))
movedim(x, source, destination) = permute(input=x, dims=moved(x, source, destination))
t(input) = permute(dims=reversed_axes(input))
T(input) = permute(dims=reversed_axes(input))
mT(input) = permute(dims=permutation(input, -2, -1))
adjoint(x) = permute(input=x, dims=permutation(real_only(x), -2, -1))
expand(input, *size) = expand(size=out_shape())
ops.expand(input_x, size) = expand(input=input_x, size=out_shape())
expand_as(input, other) = expand(size=out_shape())
broadcast_to(input, *shape) = expand(size=out_shape())
BroadcastTo(input, *rest) = expand(size=out_shape())
ExpandAs(input, other) = expand(size=out_shape())
tile(input, *dims) = tile(dims=full_rank(input, flat(dims)))
Tile(input, dims) = tile(dims=full_rank(input, dims))
Tensor.repeat(input, *repeats) = tile(dims=full_rank(input, flat(repeats)))
__getitem__(input, index) = getitem(index=picked(input, index))
__setitem__(input, index, value) = setitem(index=picked(input, index))
narrow(input, axis, start, length, *, dim=None) = getitem(index=sliced(input, given(dim, axis), start, start + length))
Tensor.select(input, dim, index) = getitem(index=selected(input, dim, index))
mint.select(input, dim, index) = getitem(index=selected(input, dim, index))
SelectExtView(input, dim, index) = getitem(index=selected(input, dim, index))
SliceExt(input, dim, start, end, step=1) = getitem(index=sliced(input, dim, start, end, step))
slice(input_x, begin, size) = getitem(input=input_x, index=boxed(input_x, begin, size))
Slice(input_x, begin, size) = getitem(input=input_x, index=boxed(input_x, begin, size))
strided_slice(input_x, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0)
    = getitem(input=input_x, index=strided(input_x, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
    shrink_axis_mask))
StridedSlice(input_x, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0)
    = getitem(input=input_x, index=strided(input_x, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
    shrink_axis_mask))
concat(tensors, axis=0, *, dim=None) = cat(dim=given(dim, axis))
Concat(tensors, axis=0) = cat(dim=axis)
stack(tensors, axis=0, *, dim=None) = stack(dim=given(dim, axis))
Stack(tensors, *, axis=0) = stack(dim=axis)
StackExt(tensors, dim=0) = stack
chunk(input, chunks, axis=0, *, dim=None) = split(sizes=parts(front(input, given(dim, axis))), dim=given(dim, axis))
split(tensor, split_size_or_sections, axis=0, *, dim=None)
    = split(input=tensor, sizes=parts(front(tensor, given(dim, axis))), dim=given(dim, axis))
Split(input, axis=0, output_num=1) = split(sizes=parts(front(input, axis)), dim=axis)
tensor_split(input, indices_or_sections, axis=0, *, dim=None)
    = split(sizes=parts(front(input, given(dim, axis))), dim=given(dim, axis))
SplitTensor(input, split_size, dim=0) = split(sizes=parts(front(input, dim)))
SplitWithSize(input, split_sections, dim=0) = split(sizes=parts(front(input, dim)))
unbind(input, dim=0) = unbind
unstack(input_x, axis=0) = unbind(input=input_x, dim=axis)
Unstack(input_x, *, axis=0, num=None) = unbind(input=input_x, dim=axis)
ops.gather(input_params, input_indices, axis, batch_dims=0)
    = index_select(input=unless(input_params, batch_dims), index=input_indices, dim=axis)
Gather(input_params, input_indices, axis, batch_dims=0)
    = index_select(input=unless(input_params, batch_dims), index=input_indices, dim=axis)
gather_elements(input, dim, index) = gather
GatherD(input, dim, index) = gather
gather_nd(input_x, indices) = gather_nd(input=input_x, indices=indices)
GatherNd(input_x, indices) = gather_nd(input=input_x, indices=indices)
index_select(input, axis=None, index=None, *, dim=None) = index_select(dim=given(dim, axis))
embedding_lookup(params, indices, offset=0) = embedding(input=indices, weight=unless(params, offset), padding_idx=None)
Embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, *rest) = embedding
one_hot(indices, depth, on_value=1, off_value=0, axis=-1) = one_hot(input=indices, num_classes=depth, dim=axis)
mint.one_hot(tensor, num_classes=-1) = one_hot(input=tensor, num_classes=out_shape()[-1])
OneHot(indices, depth, on_value, off_value, axis=-1) = one_hot(input=indices, num_classes=depth, dim=axis)
scatter(input, axis, index, src) = scatter(dim=axis)
Tensor.scatter(input, dim=None, index=None, src=None, *, axis=None) = scatter(dim=given(dim, axis))
tensor_scatter_elements(input_x, indices, updates, axis=0, reduction='none')
    = scatter(input=unless(input_x, reduction != 'none'), dim=axis, index=indices, src=updates)
TensorScatterElements(input_x, indices, updates, *, axis=0, reduction='none')
    = scatter(input=unless(input_x, reduction != 'none'), dim=axis, index=indices, src=updates)
IndexAddExt(input, dim, index, source, alpha=1) = index_add
index_add(x, indices, y, axis, use_lock=True, check_index_bound=True) = index_add(input=x, dim=axis, index=indices, source=y)
index_fill(x, axis, index, value) = index_fill(input=x, dim=axis)
masked_fill(input_x, mask, value) = masked_fill(input=input_x)
fill(type, shape, value) = full(size=out_shape(), fill_value=value, dtype=out_dtype())
Fill(type, shape, value) = full(size=out_shape(), fill_value=value, dtype=out_dtype())
fills(x, value) = full(size=out_shape(), fill_value=value, dtype=out_dtype())
Tensor.fill_(input, value) = fill
zero(input) = fill(value=0)
copy_(input, src, non_blocking=False) = copy
flip(input, *dims) = flip(dims=flat(dims))
reverse(x, axis) = flip(input=x, dims=spread_any(axis))
ReverseV2(x, axis) = flip(input=x, dims=spread_any(axis))
fliplr(input) = flip(dims=(1,))
flipud(input) = flip(dims=(0,))
roll(input, shifts, dims=None) = roll(shifts=spread_any(shifts), dims=rolled(input, dims))
Roll(input, *, shift, axis) = roll(shifts=spread_any(shift), dims=rolled(input, axis))
pad(input_x, padding, mode='constant', value=None) = pad(input=input_x, pad=padding, value=given(value, 0))
Pad(input_x, *, paddings) = pad(input=input_x, pad=from_behind(paddings), mode='constant', value=0)
PadV3(input_x, paddings, constant_value=0, *, mode='constant', paddings_contiguous=True)
    = pad(input=input_x, pad=paddings, mode=pad_mode_name(mode), value=given(constant_value, 0))
MirrorPad(input_x, paddings, *, mode='REFLECT') = mirror_pad(input=input_x, paddings=paddings, mode=mode)
ConstantPadND(input, padding, value=0) = pad(pad=padding, mode='constant')
repeat_interleave(input, repeats, axis=None, *, dim=None) = repeat_interleave(dim=given(dim, axis))
repeat_elements(x, rep, axis=0) = repeat_interleave(input=x, repeats=rep, dim=axis)
meshgrid(*inputs, indexing='xy') = meshgrid(tensors=flat(inputs))
mint.meshgrid(*tensors, indexing=None) = meshgrid(tensors=flat(tensors), indexing=given(indexing, 'ij'))
Meshgrid(inputs, *, indexing='xy') = meshgrid(tensors=inputs)
diag(input) = diag
diagonal(input, offset=0, dim1=0, dim2=1) = diagonal
channel_shuffle(x, groups) = channel_shuffle(input=x)
DepthToSpace(x, *, block_size) = depth_to_space(input=x, block_size=block_size)
SpaceToDepth(x, *, block_size) = space_to_depth(input=x, block_size=block_size)
interpolate(input, size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None)
    = interpolate(size=out_shape()[2:], scales=used_scales(input, size, scale_factor, recompute_scale_factor),
    align_corners=bool(align_corners))
ResizeBilinearV2(image, size, *, align_corners=False, half_pixel_centers=False)
    = interpolate(input=image, size=out_shape()[2:], scales=used_scales(image, size, None), mode='bilinear',
    align_corners=resize_corners(align_corners, half_pixel_centers))
UpsampleNearest2D(x, output_size=None, scales=None)
    = interpolate(input=x, size=out_shape()[2:], scales=used_scales(x, output_size, scales), mode='nearest')
UpsampleBilinear2D(x, output_size=None, scales=None, align_corners=False)
    = interpolate(input=x, size=out_shape()[2:], scales=used_scales(x, output_size, scales), mode='bilinear')
grid_sample(input, grid, mode='bilinear', padding_mode='zeros', align_corners=False)
    = grid_sample(align_corners=bool(align_corners))
affine_grid(theta, size, align_corners=False) = affine_grid
isnan(tensor) = isnan(input=tensor)
argwhere(input) = nonzero
nonzero(input, *, as_tuple=False) = nonzero

# creation
zeros(*size, shape=None, dtype=None) = zeros(size=out_shape(), dtype=out_dtype())
ones(*size, shape=None, dtype=None) = ones(size=out_shape(), dtype=out_dtype())
Zeros(*size) = zeros(size=out_shape(), dtype=out_dtype())
Ones(*size) = ones(size=out_shape(), dtype=out_dtype())
zeros_like(input) = zeros(size=out_shape(), dtype=out_dtype())
ones_like(input) = ones(size=out_shape(), dtype=out_dtype())
ZerosLike(input) = zeros(size=out_shape(), dtype=out_dtype())
OnesLike(input) = ones(size=out_shape(), dtype=out_dtype())
new_zeros(input, *size) = zeros(size=out_shape(), dtype=out_dtype())
new_ones(input, *size) = ones(size=out_shape(), dtype=out_dtype())
full(size, fill_value) = full(size=out_shape(), dtype=out_dtype())
full_like(input, fill_value) = full(size=out_shape(), dtype=out_dtype())
FillScalar(size, fill_value) = full(size=out_shape(), dtype=out_dtype())
FillV2(size, fill_value) = full(size=out_shape(), dtype=out_dtype())
scalar_to_tensor(input_x, dtype=None) = full(size=(), fill_value=input_x, dtype=out_dtype())
ScalarToTensor(input_x, dtype=None) = full(size=(), fill_value=input_x, dtype=out_dtype())
Depend(value, expr) = identity(input=value)
linspace(start, end, steps) = linspace(dtype=out_dtype())
LinSpace(start, stop, num) = linspace(end=stop, steps=num, dtype=out_dtype())
eye(n, m=None, dtype=None) = eye(m=given(m, n), dtype=out_dtype())
Eye(n, m, t=None) = eye(dtype=out_dtype())
empty(*size) = empty(size=out_shape(), dtype=out_dtype())
empty_like(input) = empty(size=out_shape(), dtype=out_dtype())
rand(*size) = random(distribution='uniform', size=out_shape(), dtype=out_dtype())
rand_like(*size) = random(distribution='uniform', size=out_shape(), dtype=out_dtype())
uniform(*rest) = random(distribution='uniform', size=out_shape(), dtype=out_dtype())
UniformReal(*rest) = random(distribution='uniform', size=out_shape(), dtype=out_dtype())
randn(*size) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
randn_like(*size) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
normal(*rest) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
standard_normal(*rest) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
StandardNormal(*rest) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
randint(*rest) = random(distribution='integers', size=out_shape(), dtype=out_dtype())
randperm(*rest) = random(distribution='permutation', size=out_shape(), dtype=out_dtype())
bernoulli(*rest) = random(distribution='bernoulli', size=out_shape(), dtype=out_dtype())
multinomial(*rest) = random(distribution='multinomial', size=out_shape(), dtype=out_dtype())
"""

ROWS: dict[str, Row] = {row.signature.name: row for row in rows_in(_ROWS)}
ALIASES: dict[str, str] = {alias: name for name, *aliases in map(str.split, joined(_ALIASES)) for alias in aliases}

"""PyTorch's names: functions, methods, operators and kernels. One row each; without a right side, the row of the catalog itself.

    gelu                        F.gelu, torch.gelu, Tensor.gelu, aten.gelu.default: found by the last part of the name
    F.embedding(…)              a row for one home only: F (nn.functional), torch, Tensor, aten, linalg, special

Methods bind the tensor first. A name that ends in `_`, `__iadd__` and `out=` are the operation out of place; where the result
went is in the meaning's `results`.
"""

from __future__ import annotations

from .catalog import OPERATIONS
from .rows import Row, joined, rows_in

OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "sub", "__rsub__": "rsub", "__mul__": "mul", "__rmul__": "mul",
    "__truediv__": "div", "__rtruediv__": "rdiv", "__div__": "div", "__rdiv__": "rdiv", "__floordiv__": "floor_divide",
    "__rfloordiv__": "rfloordiv", "__mod__": "remainder", "__rmod__": "rmod", "__pow__": "pow", "__rpow__": "rpow",
    "__matmul__": "matmul", "__rmatmul__": "rmatmul", "__and__": "bitwise_and", "__rand__": "bitwise_and",
    "__or__": "bitwise_or", "__ror__": "bitwise_or", "__xor__": "bitwise_xor", "__rxor__": "bitwise_xor",
    "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__neg__": "neg",
    "__pos__": "positive", "__abs__": "abs", "__invert__": "bitwise_not", "__getitem__": "__getitem__",
    "__setitem__": "__setitem__", "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_", "__idiv__": "div_",
    "__ifloordiv__": "floor_divide_", "__imod__": "remainder_", "__ipow__": "pow_", "__iand__": "bitwise_and_",
    "__ior__": "bitwise_or_", "__ixor__": "bitwise_xor_", "__ilshift__": "bitwise_left_shift_",
    "__irshift__": "bitwise_right_shift_",
}  # fmt: skip
"""Python's operators, by what they are called as functions."""

QUESTIONS = frozenset((
    "__bool__", "__int__", "__float__", "__index__", "__complex__", "item", "tolist", "size", "equal", "allclose", "is_nonzero",
    "local_scalar_dense", "numel", "dim", "shape", "stride", "asnumpy", "isinstance", "typeof", "is_tensor",
))  # fmt: skip
"""Functions that hand a value to Python, or look at it: nothing of theirs goes on in the graph."""

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
trunc fix
sigmoid expit special.expit
silu swish
logsigmoid log_sigmoid log_sigmoid_forward
div divide true_divide
mul multiply
sub subtract
gt greater
ge greater_equal
lt less
le less_equal
ne not_equal
clamp clip
cat concat concatenate
hstack column_stack
matmul mm bmm mv dot vdot
identity clone contiguous alias lift_fresh lift_fresh_copy cpu cuda npu requires_grad_ resolve_conj resolve_neg _fake_quantize
detach data
conj _conj conj_physical
movedim moveaxis
transpose swapaxes swapdims
outer ger
reshape _unsafe_view view
chunk unsafe_chunk
split unsafe_split
lgamma special.gammaln
digamma special.psi
"""

_ROWS = """
rsub(input, other, *, alpha=1) = sub(input=other, other=input, alpha=alpha)
rdiv(input, other) = div(input=other, other=input)
rpow(input, other) = pow(input=other, other=input)
rmod(input, other) = remainder(input=other, other=input)
rfloordiv(input, other) = floor_divide(input=other, other=input)
rmatmul(input, other) = matmul(input=other, other=input)
add(input, other, alpha=1) = add
sub(input, other, alpha=1) = sub
pow(input, exponent) = pow(other=exponent)
float_power(input, exponent) = pow(other=exponent)
mm(input, mat2) = matmul(other=mat2)
bmm(input, mat2) = matmul(other=mat2)
mv(input, vec) = matmul(other=vec)
dot(input, tensor) = matmul(other=tensor)
outer(input, vec2) = outer(other=vec2)
addmm(input, mat1, mat2, *, beta=1, alpha=1) = addmm
baddbmm(input, batch1, batch2, *, beta=1, alpha=1) = addmm(mat1=batch1, mat2=batch2)
addmv(input, mat, vec, *, beta=1, alpha=1) = addmm(mat1=mat, mat2=vec)
functional.einsum(equation, *operands) = einsum(operands=flat(operands))
einsum(equation, *operands) = einsum(operands=flat(operands))
tensordot(a, b, dims=2) = tensordot(input=a, other=b)
linalg.cross(input, other, *, dim=-1) = cross
linalg.multi_dot(tensors) = multi_dot(tensors=tensors)
cdist(x1, x2, p=2.0, compute_mode=None) = cdist
Tensor.lerp(input, end, weight) = lerp
clamp_min(input, min) = clamp(min=min, max=None)
clamp_max(input, max) = clamp(min=None, max=max)
square(input) = square
threshold(input, threshold, value, inplace=False) = threshold
relu(input, inplace=False) = relu
relu6(input, inplace=False) = relu6
silu(input, inplace=False) = silu
mish(input, inplace=False) = mish
selu(input, inplace=False) = selu
hardswish(input, inplace=False) = hardswish
hardsigmoid(input, inplace=False) = hardsigmoid
leaky_relu(input, negative_slope=0.01, inplace=False) = leaky_relu
elu(input, alpha=1.0, inplace=False) = elu
aten.elu(input, alpha=1.0, scale=1.0, input_scale=1.0) = elu
celu(input, alpha=1.0, inplace=False) = celu
hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False) = hardtanh
rrelu(input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False) = rrelu
torch.prelu(input, weight) = prelu
_prelu_kernel(input, weight) = prelu
softmax(input, dim=None, _stacklevel=3, dtype=None) = softmax(dim=implicit_dim(input, dim))
Tensor.softmax(input, dim, dtype=None) = softmax
torch.softmax(input, dim, dtype=None) = softmax
_softmax(input, dim, half_to_float=False) = softmax
_safe_softmax(input, dim, dtype=None) = softmax
softmin(input, dim=None, _stacklevel=3, dtype=None) = softmin(dim=implicit_dim(input, dim))
log_softmax(input, dim=None, _stacklevel=3, dtype=None) = log_softmax(dim=implicit_dim(input, dim))
Tensor.log_softmax(input, dim, dtype=None) = log_softmax
torch.log_softmax(input, dim, dtype=None) = log_softmax
_log_softmax(input, dim, half_to_float=False) = log_softmax
gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1) = gumbel_softmax
dropout(input, p=0.5, training=True, inplace=False) = dropout
torch.dropout(input, p, train) = dropout(training=train)
native_dropout(input, p, train) = dropout(training=train)[:1]
dropout<n>d(input, p=0.5, training=True, inplace=False) = feature_dropout
feature_dropout(input, p, train) = feature_dropout(training=train)
alpha_dropout(input, p=0.5, training=False, inplace=False) = alpha_dropout

sum(input, dim=None, keepdim=False, *, dtype=None) = sum()
mean(input, dim=None, keepdim=False, *, dtype=None) = mean()
nansum(input, dim=None, keepdim=False, *, dtype=None) = nansum
nanmean(input, dim=None, keepdim=False, *, dtype=None) = nanmean
prod(input, dim=None, keepdim=False, *, dtype=None) = prod
amax(input, dim=(), keepdim=False) = amax
amin(input, dim=(), keepdim=False) = amin
logsumexp(input, dim, keepdim=False) = logsumexp
all(input, dim=None, keepdim=False) = all
any(input, dim=None, keepdim=False) = any
linalg.vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None) = vector_norm(input=x)
linalg_vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None) = vector_norm(input=x)
argmax(input, dim=None, keepdim=False) = argmax
argmin(input, dim=None, keepdim=False) = argmin
sort(input, dim=-1, descending=False, stable=False) = sort
argsort(input, dim=-1, descending=False, stable=False) = argsort
cumsum(input, dim, *, dtype=None) = cumsum
cumprod(input, dim, *, dtype=None) = cumprod
bucketize(input, boundaries, *, out_int32=False, right=False) = bucketize
searchsorted(sorted_sequence, input, *, out_int32=False, right=False) = searchsorted
cosine_similarity(x1, x2, dim=1, eps=1e-8) = cosine_similarity
normalize(input, p=2.0, dim=1, eps=1e-12, out=None) = normalize
_weight_norm(v, g, dim=0) = weight_norm
renorm(input, p, dim, maxnorm) = renorm(p=p, dim=dim, maxnorm=maxnorm)

conv<n>d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1)
    = conv(stride=spread(stride, <n>), padding=conv_sides(input, weight, padding, stride, dilation), dilation=spread(dilation,
    <n>))
conv_transpose<n>d(input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1)
    = conv_transpose(stride=spread(stride, <n>), padding=sides(padding, <n>), output_padding=spread(output_padding, <n>),
    dilation=spread(dilation, <n>))
max_pool<n>d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)
    = max_pool(kernel_size=spread(kernel_size, <n>), stride=spread(given(stride, kernel_size), <n>), padding=sides(padding, <n>),
    dilation=spread(dilation, <n>), ceil_mode=pool_overhang(input, kernel_size, stride, padding, dilation, ceil_mode, <n>))
avg_pool<n>d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None)
    = avg_pool(kernel_size=spread(kernel_size, <n>), stride=spread(given(stride, kernel_size), <n>), padding=sides(padding, <n>),
    ceil_mode=pool_overhang(input, kernel_size, stride, padding, 1, ceil_mode, <n>),
    count_include_pad=without_padding(sides(padding, <n>), count_include_pad))
lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False)
    = lp_pool(kernel_size=spread(kernel_size, 1), stride=spread(given(stride, kernel_size), 1))
lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False)
    = lp_pool(kernel_size=spread(kernel_size, 2), stride=spread(given(stride, kernel_size), 2))
adaptive_avg_pool1d(input, output_size) = adaptive_avg_pool(output_size=out_shape()[-1:])
adaptive_avg_pool2d(input, output_size) = adaptive_avg_pool(output_size=out_shape()[-2:])
_adaptive_avg_pool2d(input, output_size) = adaptive_avg_pool(output_size=out_shape()[-2:])
adaptive_avg_pool3d(input, output_size) = adaptive_avg_pool(output_size=out_shape()[-3:])
adaptive_max_pool<n>d(input, output_size, return_indices=False) = adaptive_max_pool(output_size=out_shape()[-<n>:])
unfold(input, kernel_size, dilation=1, padding=0, stride=1)
    = unfold(kernel_size=spread(kernel_size, 2), dilation=spread(dilation, 2), padding=spread(padding, 2), stride=spread(stride, 2))
im2col(input, kernel_size, dilation, padding, stride)
    = unfold(kernel_size=spread(kernel_size, 2), dilation=spread(dilation, 2), padding=spread(padding, 2), stride=spread(stride, 2))
Tensor.unfold(input, dimension, size, step) = unfold_axis(dim=dimension)
fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)
    = fold(output_size=spread(output_size, 2), kernel_size=spread(kernel_size, 2), dilation=spread(dilation, 2),
    padding=spread(padding, 2), stride=spread(stride, 2))
scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False)
    = scaled_dot_product_attention(scale=attention_scale(query, scale))
_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None)
    = scaled_dot_product_attention(scale=attention_scale(query, scale))[:1]
_scaled_dot_product_flash_attention_for_cpu_backward(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal,
    attn_mask=None, scale=None) = attention_backward(scale=attention_scale(query, scale))
_scaled_dot_product_flash_attention(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, scale=None)
    = scaled_dot_product_attention(scale=attention_scale(query, scale))[:1]
_scaled_dot_product_efficient_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False,
    scale=None) = scaled_dot_product_attention(attn_mask=attn_bias, scale=attention_scale(query, scale))[:1]
_scaled_dot_product_cudnn_attention(query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False,
    return_debug_mask=False, scale=None)
    = scaled_dot_product_attention(attn_mask=attn_bias, scale=attention_scale(query, scale))[:1]
_scaled_dot_product_attention_math(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, dropout_mask=None, scale=None,
    enable_gqa=False) = scaled_dot_product_attention(scale=attention_scale(query, scale))[:1]

batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05) = batch_norm
torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled) = batch_norm
native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps) = batch_norm[:1]
_native_batch_norm_legit(input, weight, bias, running_mean, running_var, training, momentum, eps) = batch_norm[:1]
cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps) = batch_norm[:1]
instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-05)
    = instance_norm
torch.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled=True)
    = instance_norm
layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True) = layer_norm
native_layer_norm(input, normalized_shape, weight, bias, eps) = layer_norm
group_norm(input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True) = group_norm
native_group_norm(input, weight, bias, N, C, HxW, group, eps) = group_norm(num_groups=group)
rms_norm(input, normalized_shape, weight=None, eps=None) = rms_norm(eps=given(eps, machine_epsilon(input)))
local_response_norm(input, size, alpha=0.0001, beta=0.75, k=1.0) = local_response_norm

mse_loss(input, target, size_average=None, reduce=None, reduction='mean', weight=None)
    = mse_loss(reduction=reduction_of(reduction, size_average, reduce))
aten.mse_loss(input, target, reduction=1) = mse_loss(reduction=reduction_of(reduction))
l1_loss(input, target, size_average=None, reduce=None, reduction='mean', weight=None)
    = l1_loss(reduction=reduction_of(reduction, size_average, reduce))
smooth_l1_loss(input, target, size_average=None, reduce=None, reduction='mean', beta=1.0)
    = smooth_l1_loss(reduction=reduction_of(reduction, size_average, reduce))
aten.smooth_l1_loss(input, target, reduction=1, beta=1.0) = smooth_l1_loss(reduction=reduction_of(reduction))
huber_loss(input, target, reduction='mean', delta=1.0, weight=None) = huber_loss(reduction=reduction_of(reduction))
cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0)
    = cross_entropy(reduction=reduction_of(reduction, size_average, reduce))
nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean')
    = nll_loss(reduction=reduction_of(reduction, size_average, reduce))
nll_loss_nd(input, target, weight=None, reduction=1, ignore_index=-100) = nll_loss(reduction=reduction_of(reduction))
nll_loss2d(input, target, weight=None, reduction=1, ignore_index=-100) = nll_loss(reduction=reduction_of(reduction))
nll_loss_forward(input, target, weight, reduction, ignore_index) = nll_loss(reduction=reduction_of(reduction))[:1]
nll_loss2d_forward(input, target, weight, reduction, ignore_index) = nll_loss(reduction=reduction_of(reduction))[:1]
binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction='mean')
    = binary_cross_entropy(reduction=reduction_of(reduction, size_average, reduce))
aten.binary_cross_entropy(input, target, weight=None, reduction=1) = binary_cross_entropy(reduction=reduction_of(reduction))
binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None)
    = binary_cross_entropy_with_logits(reduction=reduction_of(reduction, size_average, reduce))
aten.binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=1)
    = binary_cross_entropy_with_logits(reduction=reduction_of(reduction))
kl_div(input, target, size_average=None, reduce=None, reduction='mean', log_target=False)
    = kl_div(reduction=reduction_of(reduction, size_average, reduce))
aten.kl_div(input, target, reduction=1, *, log_target=False) = kl_div(reduction=reduction_of(reduction))
soft_margin_loss(input, target, size_average=None, reduce=None, reduction='mean')
    = soft_margin_loss(reduction=reduction_of(reduction, size_average, reduce))
multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction='mean')
    = multilabel_soft_margin_loss(reduction=reduction_of(reduction, size_average, reduce))
multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction='mean')
    = multilabel_margin_loss(reduction=reduction_of(reduction, size_average, reduce))
multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction='mean')
    = multi_margin_loss(reduction=reduction_of(reduction, size_average, reduce))
hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction='mean')
    = hinge_embedding_loss(reduction=reduction_of(reduction, size_average, reduce))
cosine_embedding_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction='mean')
    = cosine_embedding_loss(reduction=reduction_of(reduction, size_average, reduce))
margin_ranking_loss(input1, input2, target, margin=0.0, size_average=None, reduce=None, reduction='mean')
    = margin_ranking_loss(reduction=reduction_of(reduction, size_average, reduce))
triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-06, swap=False, size_average=None, reduce=None,
    reduction='mean') = triplet_margin_loss(reduction=reduction_of(reduction, size_average, reduce))
poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean')
    = poisson_nll_loss(reduction=reduction_of(reduction, size_average, reduce))
gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction='mean') = gaussian_nll_loss
ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction='mean', zero_infinity=False)
    = ctc_loss(reduction=reduction_of(reduction))

cast(input, *rest, dtype=None) = cast(dtype=out_dtype())
reshape(input, *shape) = reshape(shape=out_shape())
view_as(input, other) = reshape(shape=out_shape())
reshape_as(input, other) = reshape(shape=out_shape())
flatten(input, start_dim=0, end_dim=-1) = reshape(shape=out_shape())
unflatten(input, dim, sizes) = reshape(shape=out_shape())
ravel(input) = reshape(shape=out_shape())
squeeze(input, *dim) = reshape(shape=out_shape())
unsqueeze(input, dim) = reshape(shape=out_shape())
atleast_<n>d(input) = reshape(shape=out_shape())
permute(input, *dims) = permute(dims=order(input, dims))
transpose(input, dim0, dim1) = permute(dims=permutation(input, dim0, dim1))
t(input) = permute(dims=reversed_axes(input))
T(input) = permute(dims=reversed_axes(input))
mT(input) = permute(dims=permutation(input, -2, -1))
adjoint(input) = permute(dims=permutation(real_only(input), -2, -1))
H(input) = permute(dims=reversed_axes(real_only(input)))
mH(input) = permute(dims=permutation(real_only(input), -2, -1))
movedim(input, source, destination) = permute(dims=moved(input, source, destination))
expand(input, *size, implicit=False) = expand(size=out_shape())
expand_as(input, other) = expand(size=out_shape())
broadcast_to(input, *size) = expand(size=out_shape())
repeat(input, *sizes) = tile(dims=flat(sizes))
tile(input, *dims) = tile(dims=full_rank(input, flat(dims)))
__getitem__(input, index) = getitem(index=picked(input, index))
__setitem__(input, index, value) = setitem(index=picked(input, index))
narrow(input, dim, start, length) = getitem(index=sliced(input, dim, start, start + length))
select(input, dim, index) = getitem(index=selected(input, dim, index))
slice(input, dim=0, start=None, end=None, step=1) = getitem(index=sliced(input, dim, start, end, step))
aten.index(input, indices) = getitem(index=picked(input, holes(indices)))
index_put(input, indices, values, accumulate=False) = index_put(indices=holes(indices))
stack(tensors, dim=0) = stack
hstack(tensors) = cat(dim=stacked_axis(tensors, 1))
chunk(input, chunks, dim=0) = split(sizes=parts(axis(dim, rank(input))))
split(input, split_size, dim=0) = split(sizes=parts(axis(dim, rank(input))))
functional.split(tensor, split_size_or_sections, dim=0) = split(input=tensor, sizes=parts(axis(dim, rank(tensor))))
torch.split(tensor, split_size_or_sections, dim=0) = split(input=tensor, sizes=parts(axis(dim, rank(tensor))))
split_with_sizes(input, split_sizes, dim=0) = split(sizes=parts(axis(dim, rank(input))))
tensor_split(input, indices_or_sections, dim=0) = split(sizes=parts(axis(dim, rank(input))))
unbind(input, dim=0) = unbind
gather(input, dim, index, *, sparse_grad=False) = gather
take_along_dim(input, indices, dim) = gather(index=same_rank(input, indices))
embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False)
    = embedding(padding_idx=padding_row(weight, padding_idx))
torch.embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False)
    = embedding(input=indices, padding_idx=padding_row(weight, padding_idx if padding_idx >= 0 else None))
aten.embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False)
    = embedding(input=indices, padding_idx=padding_row(weight, padding_idx if padding_idx >= 0 else None))
embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', sparse=False,
    per_sample_weights=None, include_last_offset=False, padding_idx=None) = embedding_bag(weight=unless(weight, max_norm))
one_hot(input, num_classes=-1) = one_hot(num_classes=out_shape()[-1])
scatter(input, dim, index, src, *, reduce=None) = scatter
Tensor.copy_(input, src, non_blocking=False) = copy
copy(input, src, non_blocking=False) = copy
zero(input) = fill(value=0)
zero_(input) = fill(value=0)
fill(input, value) = fill
fill_diagonal(input, fill_value, wrap=False) = fill_diagonal(value=fill_value)
masked_fill(input, mask, value) = masked_fill
index_fill(input, dim, index, value) = index_fill
index_add(input, dim, index, source, *, alpha=1) = index_add
flip(input, *dims) = flip(dims=flat(dims))
fliplr(input) = flip(dims=(1,))
flipud(input) = flip(dims=(0,))
roll(input, shifts, dims=None) = roll(shifts=spread_any(shifts), dims=rolled(input, dims))
pad(input, pad, mode='constant', value=None) = pad(value=given(value, 0))
constant_pad_nd(input, pad, value=0) = pad
repeat_interleave(input, repeats, dim=None, *, output_size=None) = repeat_interleave
meshgrid(*tensors, indexing='ij') = meshgrid(tensors=flat(tensors))
functional.meshgrid(*tensors, indexing='ij') = meshgrid(tensors=flat(tensors))
broadcast_tensors(*tensors) = broadcast_tensors(tensors=flat(tensors))
functional.broadcast_tensors(*tensors) = broadcast_tensors(tensors=flat(tensors))
interpolate(input, size=None, scale_factor=None, mode='nearest', align_corners=None, recompute_scale_factor=None, antialias=False)
    = interpolate(size=out_shape()[2:], scales=used_scales(input, size, scale_factor, recompute_scale_factor),
    align_corners=bool(align_corners))
upsample_nearest2d(input, output_size=None, scales_h=None, scales_w=None)
    = interpolate(size=out_shape()[2:], scales=kernel_scales(input, scales_h, scales_w), mode='nearest')
upsample_bilinear2d(input, output_size, align_corners, scales_h=None, scales_w=None)
    = interpolate(size=out_shape()[2:], scales=kernel_scales(input, scales_h, scales_w), mode='bilinear')
grid_sample(input, grid, mode='bilinear', padding_mode='zeros', align_corners=None) = grid_sample(align_corners=bool(align_corners))
affine_grid(theta, size, align_corners=None) = affine_grid(align_corners=bool(align_corners))

zeros(*size, dtype=None) = zeros(size=out_shape(), dtype=out_dtype())
zeros_like(input) = zeros(size=out_shape(), dtype=out_dtype())
new_zeros(input, *size) = zeros(size=out_shape(), dtype=out_dtype())
ones(*size, dtype=None) = ones(size=out_shape(), dtype=out_dtype())
ones_like(input) = ones(size=out_shape(), dtype=out_dtype())
new_ones(input, *size) = ones(size=out_shape(), dtype=out_dtype())
full(size, fill_value) = full(size=out_shape(), dtype=out_dtype())
full_like(input, fill_value) = full(size=out_shape(), dtype=out_dtype())
new_full(input, size, fill_value) = full(size=out_shape(), dtype=out_dtype())
scalar_tensor(s) = full(size=(), fill_value=s, dtype=out_dtype())
linspace(start, end, steps=100) = linspace(dtype=out_dtype())
eye(n, m=None) = eye(m=given(m, n), dtype=out_dtype())
tensor(data, *, dtype=None) = tensor(dtype=out_dtype())
new_tensor(input, data) = tensor(dtype=out_dtype())
as_tensor(data, dtype=None) = as_tensor(data=data, dtype=out_dtype())
empty(*size) = empty(size=out_shape(), dtype=out_dtype())
empty_like(input) = empty(size=out_shape(), dtype=out_dtype())
empty_strided(size, stride) = empty(size=out_shape(), dtype=out_dtype())
empty_permuted(size, physical_layout) = empty(size=out_shape(), dtype=out_dtype())
new_empty(input, *size) = empty(size=out_shape(), dtype=out_dtype())
new_empty_strided(input, size, stride) = empty(size=out_shape(), dtype=out_dtype())
rand(*size) = random(distribution='uniform', size=out_shape(), dtype=out_dtype())
rand_like(*size) = random(distribution='uniform', size=out_shape(), dtype=out_dtype())
uniform(input, *rest) = random(distribution='uniform', size=out_shape(), dtype=out_dtype())
randn(*size) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
randn_like(*size) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
normal(*rest) = random(distribution='normal', size=out_shape(), dtype=out_dtype())
trunc_normal(*rest) = random(distribution='truncated normal', size=out_shape(), dtype=out_dtype())
randint(*rest) = random(distribution='integers', size=out_shape(), dtype=out_dtype())
randint_like(*rest) = random(distribution='integers', size=out_shape(), dtype=out_dtype())
randperm(*rest) = random(distribution='permutation', size=out_shape(), dtype=out_dtype())
bernoulli(*rest) = random(distribution='bernoulli', size=out_shape(), dtype=out_dtype())
multinomial(*rest) = random(distribution='multinomial', size=out_shape(), dtype=out_dtype())
exponential(*rest) = random(distribution='exponential', size=out_shape(), dtype=out_dtype())
random(*rest) = random(distribution='integers', size=out_shape(), dtype=out_dtype())
cauchy(*rest) = random(distribution='cauchy', size=out_shape(), dtype=out_dtype())
geometric(*rest) = random(distribution='geometric', size=out_shape(), dtype=out_dtype())
log_normal(*rest) = random(distribution='log-normal', size=out_shape(), dtype=out_dtype())
poisson(*rest) = random(distribution='poisson', size=out_shape(), dtype=out_dtype())

lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) = lstm
mkldnn_rnn_layer(input, w_ih, w_hh, b_ih, b_hh, h, c, reverse, batch_sizes, mode, hidden_size, num_layers, has_biases,
    bidirectional, batch_first, train) = lstm_layer(input=unless(input, mode != 2 or len(batch_sizes) > 0))[:3]
mkldnn_rnn_layer_backward(input, w_ih, w_hh, b_ih, b_hh, h, c, output, last_h, last_c, grad_out, grad_h, grad_c, reverse, mode,
    hidden_size, num_layers, has_biases, train, bidirectional, batch_sizes, batch_first, workspace)
    = lstm_layer_backward(input=unless(input, mode != 2 or len(batch_sizes) > 0))
gru(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) = gru
rnn_tanh(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) = rnn(nonlinearity='tanh')
rnn_relu(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) = rnn(nonlinearity='relu')
rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None) = rnn_cell(nonlinearity='tanh')
rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None) = rnn_cell(nonlinearity='relu')
multi_head_attention_forward(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v,
    add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, key_padding_mask=None, need_weights=True,
    attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, k_proj_weight=None, v_proj_weight=None,
    static_k=None, static_v=None, average_attn_weights=True, is_causal=False)
    = multi_head_attention(in_proj=projections(in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight), batch_first=False)
"""

_CASTS = "to type type_as float double half bfloat16 int long short bool byte char chalf cfloat cdouble _to_copy"

ROWS: dict[str, Row] = {row.signature.name: row for row in rows_in(_ROWS)}
ROWS |= {name: ROWS["cast"] for name in _CASTS.split()}
ALIASES: dict[str, str] = {alias: name for name, *aliases in map(str.split, joined(_ALIASES)) for alias in aliases}


def row_of(home: str, name: str) -> Row | None:
    """Row of a function: `home` is F, torch, Tensor, aten, linalg, special …, `name` without the in-place underscore."""
    for key in (f"{home}.{name}", name):
        if key in ROWS:
            return ROWS[key]
        if key in ALIASES and ALIASES[key] != name:
            return row_of(home, ALIASES[key])
    if home in ("F", "torch", "Tensor", "aten", "functional", "special") and name in OPERATIONS:
        return Row(OPERATIONS[name], name)
    return None

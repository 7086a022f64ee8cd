"""Modules and Cells that are one operation: rows as for functions, with the settings, parameters and buffers of the module.

    Linear(input, *, weight, bias=None) = linear
    Dense(x, *, weight, bias=None, activation_flag=False) = linear(input=x, weight=unless(weight, activation_flag))

Only the framework's own classes are read: a class of the user's that is called `GELU` may do anything. Containers, and modules
whose parameters belong to modules inside (MultiheadAttention, TransformerEncoderLayer), are in no row: their parts are recorded.
"""

from __future__ import annotations

from .rows import Row, rows_in

_TORCH = """
Identity(input) = identity
Linear(input, *, weight, bias=None) = linear
NonDynamicallyQuantizableLinear(input, *, weight, bias=None) = linear
Bilinear(input1, input2, *, weight, bias=None) = bilinear
Flatten(input) = reshape(shape=out_shape())
Unflatten(input) = reshape(shape=out_shape())
Conv<n>d(input, *, weight, bias=None, stride, padding, dilation, groups, padding_mode='zeros')
    = conv(input=unless(input, padding_mode != 'zeros'), stride=spread(stride, <n>), dilation=spread(dilation, <n>),
    padding=conv_sides(input, weight, padding, stride, dilation))
ConvTranspose<n>d(input, output_size=None, *, weight, bias=None, stride, padding, output_padding, dilation, groups)
    = conv_transpose(input=unless(input, output_size), stride=spread(stride, <n>), padding=sides(padding, <n>),
    output_padding=spread(output_padding, <n>), dilation=spread(dilation, <n>))
MaxPool<n>d(input, *, kernel_size, stride, padding, dilation, ceil_mode)
    = max_pool(kernel_size=spread(kernel_size, <n>), stride=spread(stride, <n>), padding=sides(padding, <n>),
    dilation=spread(dilation, <n>), ceil_mode=pool_overhang(input, kernel_size, stride, padding, dilation, ceil_mode, <n>))
AvgPool<n>d(input, *, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None)
    = avg_pool(kernel_size=spread(kernel_size, <n>), stride=spread(stride, <n>), padding=sides(padding, <n>),
    ceil_mode=pool_overhang(input, kernel_size, stride, padding, 1, ceil_mode, <n>),
    count_include_pad=without_padding(sides(padding, <n>), count_include_pad))
AdaptiveAvgPool<n>d(input) = adaptive_avg_pool(output_size=out_shape()[-<n>:])
AdaptiveMaxPool<n>d(input) = adaptive_max_pool(output_size=out_shape()[-<n>:])
BatchNorm<n>d(input, *, running_mean=None, running_var=None, weight=None, bias=None, training, momentum, eps)
    = batch_norm(training=training or running_mean is None)
InstanceNorm<n>d(input, *, running_mean=None, running_var=None, weight=None, bias=None, training, momentum, eps)
    = instance_norm(use_input_stats=training or running_mean is None)
LayerNorm(input, *, normalized_shape, weight=None, bias=None, eps) = layer_norm
GroupNorm(input, *, num_groups, weight=None, bias=None, eps) = group_norm
RMSNorm(input, *, normalized_shape, weight=None, eps=None) = rms_norm(eps=given(eps, machine_epsilon(input)))
LocalResponseNorm(input, *, size, alpha, beta, k) = local_response_norm
Embedding(input, *, weight, padding_idx=None, max_norm=None, scale_grad_by_freq=False)
    = embedding(weight=unless(weight, max_norm), padding_idx=padding_row(weight, padding_idx))
EmbeddingBag(input, offsets=None, per_sample_weights=None, *, weight, mode, max_norm=None, include_last_offset=False,
    padding_idx=None) = embedding_bag(weight=unless(weight, max_norm))
Dropout(input, *, p, training) = dropout
Dropout<n>d(input, *, p, training) = feature_dropout
AlphaDropout(input, *, p, training) = alpha_dropout
ReLU(input) = relu
ReLU6(input) = relu6
GELU(input, *, approximate) = gelu
SiLU(input) = silu
Mish(input) = mish
SELU(input) = selu
CELU(input, *, alpha) = celu
ELU(input, *, alpha) = elu
LeakyReLU(input, *, negative_slope) = leaky_relu
PReLU(input, *, weight) = prelu
RReLU(input, *, lower, upper, training) = rrelu
Hardswish(input) = hardswish
Hardsigmoid(input) = hardsigmoid
Hardtanh(input, *, min_val, max_val) = hardtanh
Hardshrink(input, *, lambd) = hardshrink
Softshrink(input, *, lambd) = softshrink
Softplus(input, *, beta, threshold) = softplus
Softsign(input) = softsign
Tanh(input) = tanh
Tanhshrink(input) = tanhshrink
Sigmoid(input) = sigmoid
LogSigmoid(input) = logsigmoid
Threshold(input, *, threshold, value) = threshold
Softmax(input, *, dim=None) = softmax(dim=implicit_dim(input, dim))
LogSoftmax(input, *, dim=None) = log_softmax(dim=implicit_dim(input, dim))
Softmin(input, *, dim=None) = softmin(dim=implicit_dim(input, dim))
Softmax2d(input) = softmax(dim=-3)
GLU(input, *, dim) = glu
Upsample(input, *, size=None, scale_factor=None, mode, align_corners=None, recompute_scale_factor=None)
    = interpolate(size=out_shape()[2:], scales=used_scales(input, size, scale_factor, recompute_scale_factor),
    align_corners=bool(align_corners))
UpsamplingNearest2d(input, *, size=None, scale_factor=None)
    = interpolate(size=out_shape()[2:], scales=used_scales(input, size, scale_factor), mode='nearest')
UpsamplingBilinear2d(input, *, size=None, scale_factor=None)
    = interpolate(size=out_shape()[2:], scales=used_scales(input, size, scale_factor), mode='bilinear', align_corners=True)
PixelShuffle(input, *, upscale_factor) = pixel_shuffle
PixelUnshuffle(input, *, downscale_factor) = pixel_unshuffle
ChannelShuffle(input, *, groups) = channel_shuffle
ZeroPad<n>d(input, *, padding) = pad(pad=padding, value=0)
ConstantPad<n>d(input, *, padding, value) = pad(pad=padding)
ReflectionPad1d(input, *, padding) = pad(pad=padding, mode='reflect')
ReflectionPad2d(input, *, padding) = pad(pad=padding, mode='reflect')
ReplicationPad<n>d(input, *, padding) = pad(pad=padding, mode='replicate')
CircularPad2d(input, *, padding) = pad(pad=padding, mode='circular')
Unfold(input, *, kernel_size, dilation, padding, stride)
    = unfold(kernel_size=spread(kernel_size, 2), dilation=spread(dilation, 2), padding=spread(padding, 2), stride=spread(stride, 2))
Fold(input, *, output_size, kernel_size, dilation, padding, stride)
    = fold(output_size=spread(output_size, 2), kernel_size=spread(kernel_size, 2), dilation=spread(dilation, 2),
    padding=spread(padding, 2), stride=spread(stride, 2))
MSELoss(input, target, *, reduction) = mse_loss
L1Loss(input, target, *, reduction) = l1_loss
SmoothL1Loss(input, target, *, reduction, beta) = smooth_l1_loss
HuberLoss(input, target, *, reduction, delta) = huber_loss
CrossEntropyLoss(input, target, *, weight=None, ignore_index, label_smoothing, reduction) = cross_entropy
NLLLoss(input, target, *, weight=None, ignore_index, reduction) = nll_loss
BCELoss(input, target, *, weight=None, reduction) = binary_cross_entropy
BCEWithLogitsLoss(input, target, *, weight=None, pos_weight=None, reduction) = binary_cross_entropy_with_logits
KLDivLoss(input, target, *, reduction, log_target) = kl_div
SoftMarginLoss(input, target, *, reduction) = soft_margin_loss
HingeEmbeddingLoss(input, target, *, margin, reduction) = hinge_embedding_loss
CosineEmbeddingLoss(input1, input2, target, *, margin, reduction) = cosine_embedding_loss
MarginRankingLoss(input1, input2, target, *, margin, reduction) = margin_ranking_loss
TripletMarginLoss(anchor, positive, negative, *, margin, p, eps, swap, reduction) = triplet_margin_loss
PoissonNLLLoss(input, target, *, log_input, full, eps, reduction) = poisson_nll_loss
GaussianNLLLoss(input, target, var, *, full, eps, reduction) = gaussian_nll_loss
CTCLoss(log_probs, targets, input_lengths, target_lengths, *, blank, reduction, zero_infinity) = ctc_loss
CosineSimilarity(x1, x2, *, dim, eps) = cosine_similarity
PairwiseDistance(x1, x2, *, norm, eps, keepdim) = pairwise_distance(p=norm)
LSTMCell(input, hx=None, *, weight_ih, weight_hh, bias_ih=None, bias_hh=None)
    = lstm_cell(w_ih=weight_ih, w_hh=weight_hh, b_ih=bias_ih, b_hh=bias_hh)
GRUCell(input, hx=None, *, weight_ih, weight_hh, bias_ih=None, bias_hh=None)
    = gru_cell(w_ih=weight_ih, w_hh=weight_hh, b_ih=bias_ih, b_hh=bias_hh)
RNNCell(input, hx=None, *, weight_ih, weight_hh, bias_ih=None, bias_hh=None, nonlinearity='tanh')
    = rnn_cell(w_ih=weight_ih, w_hh=weight_hh, b_ih=bias_ih, b_hh=bias_hh)
"""

_MINDSPORE = """
Identity(x) = identity(input=x)
Dense(x, *, weight, bias=None, activation_flag=False) = linear(input=x, weight=unless(weight, activation_flag))
Linear(input, *, weight, bias=None) = linear
Flatten(x) = reshape(input=x, shape=out_shape())
Conv1d(x, *, weight, bias=None, stride, pad_mode, padding, dilation, group)
    = conv(input=x, stride=spread(stride, 1), dilation=spread(dilation, 1), groups=group,
    padding=mode_sides(x, kernel(weight)[-1:], pad_mode, last_pair(padding), stride, dilation))
Conv2d(x, *, weight, bias=None, stride, pad_mode, padding, dilation, group, data_format='NCHW')
    = conv(input=channels_first(x, data_format), stride=spread(stride, 2), dilation=spread(dilation, 2), groups=group,
    padding=mode_sides(x, kernel(weight), pad_mode, padding, stride, dilation))
Conv3d(x, *, weight, bias=None, stride, pad_mode, padding, dilation, group, data_format='NCDHW')
    = conv(input=channels_first(x, data_format), stride=spread(stride, 3), dilation=spread(dilation, 3), groups=group,
    padding=mode_sides(x, kernel(weight), pad_mode, padding, stride, dilation))
Conv2dTranspose(x, *, weight, bias=None, stride, pad_mode, padding, dilation, group)
    = conv_transpose(input=x, stride=spread(stride, 2), dilation=spread(dilation, 2), groups=group,
    padding=transposed_sides(x, kernel(weight), pad_mode, padding, stride, dilation),
    output_padding=transposed_rest(x, kernel(weight), pad_mode, padding, stride, dilation))
MaxPool2d(x, *, kernel_size, stride, pad_mode, use_pad=False, format='NCHW', return_indices=False)
    = max_pool(input=channels_first(unless(x, use_pad), format), kernel_size=spread(kernel_size, 2), stride=spread(stride, 2),
    dilation=(1, 1), padding=mode_sides(x, spread(kernel_size, 2), pad_mode, 0, stride), ceil_mode=(0, 0))
MaxPool1d(x, *, kernel_size, stride, pad_mode, use_pad=False)
    = max_pool(input=unless(x, use_pad), kernel_size=spread(kernel_size, 1), stride=spread(stride, 1),
    dilation=(1,), padding=mode_sides(x, spread(kernel_size, 1), pad_mode, 0, stride), ceil_mode=(0,))
AvgPool2d(x, *, kernel_size, stride, pad_mode, is_expand=False, format='NCHW')
    = avg_pool(input=channels_first(unless(x, is_expand), format), kernel_size=spread(kernel_size, 2), stride=spread(stride, 2),
    padding=mode_sides(x, spread(kernel_size, 2), pad_mode, 0, stride), ceil_mode=(0, 0),
    count_include_pad=without_padding(mode_sides(x, spread(kernel_size, 2), pad_mode, 0, stride), False), divisor_override=None)
AdaptiveAvgPool<n>d(x) = adaptive_avg_pool(input=x, output_size=out_shape()[-<n>:])
BatchNorm<n>d(x, *, moving_mean, moving_variance, gamma=None, beta=None, training, use_batch_statistics=None, momentum, eps)
    = batch_norm(input=x, running_mean=moving_mean, running_var=moving_variance, weight=gamma, bias=beta,
    training=given(use_batch_statistics, training))
LayerNorm(x, *, normalized_shape, gamma=None, beta=None, begin_norm_axis=-1, epsilon)
    = layer_norm(input=x, normalized_shape=tail(x, begin_norm_axis), weight=gamma, bias=beta, eps=epsilon)
LayerNormExt(input, *, normalized_shape, weight=None, bias=None, eps) = layer_norm
GroupNorm(x, *, num_groups, gamma=None, beta=None, weight=None, bias=None, eps)
    = group_norm(input=x, weight=gamma or weight, bias=beta or bias)
Embedding(ids, *, embedding_table) = embedding(input=ids, weight=embedding_table, padding_idx=None)
EmbeddingExt(input, *, weight, padding_idx=None, max_norm=None, scale_grad_by_freq=False)
    = embedding(weight=unless(weight, max_norm), padding_idx=padding_row(weight, padding_idx))
Dropout(x, *, p=None, keep_prob=0.5, training) = dropout(input=x, p=1 - keep_prob if p is None else p)
DropoutExt(input, *, p, training) = dropout
GELU(x, *, approximate) = gelu(input=x, approximate=approximation(approximate))
ReLU(x) = relu(input=x)
ReLU6(x) = relu6(input=x)
SiLU(x) = silu(input=x)
Tanh(x) = tanh(input=x)
Sigmoid(x) = sigmoid(input=x)
HSwish(x) = hardswish(input=x)
HSigmoid(x) = hardsigmoid(input=x)
Hardswish(x) = hardswish(input=x)
Hardsigmoid(x) = hardsigmoid(input=x)
Mish(x) = mish(input=x)
ELU(x) = elu(input=x, alpha=1.0)
PReLU(x, *, w) = prelu(input=x, weight=w)
FastGelu(x) = quick_gelu(input=x)
LogSigmoid(x) = logsigmoid(input=x)
DiceLoss(logits, label, *, smooth) = dice_loss(input=logits, target=label)
GRUCell(x, hx, *, weight_ih, weight_hh, bias_ih=None, bias_hh=None)
    = gru_cell(input=x, w_ih=weight_ih, w_hh=weight_hh, b_ih=bias_ih, b_hh=bias_hh)
LSTMCell(x, hx, *, weight_ih, weight_hh, bias_ih=None, bias_hh=None)
    = lstm_cell(input=x, w_ih=weight_ih, w_hh=weight_hh, b_ih=bias_ih, b_hh=bias_hh)
"""

TORCH: dict[str, Row] = {row.signature.name: row for row in rows_in(_TORCH)}
MINDSPORE: dict[str, Row] = {row.signature.name: row for row in rows_in(_MINDSPORE)}

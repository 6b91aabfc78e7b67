"""The methods of ai.onnx, opsets 6 to 11.

A line is ``method@opset OpType-version inputs>outputs parameters...``: from that opset on, a method
makes this version of the operator.  The rules of the notation stand in `popc.popart.opsets.rows`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TABLE"]

TABLE: Final = """
abs@6 Abs-6 1>1
acos@7 Acos-7 1>1
acosh@9 Acosh-9 1>1
add@6 Add-6 2>1 axis:int? broadcast:int=0
add@7 Add-7 2>1
argmax@6 ArgMax-1 1>1 axis:int=0 keepdims:int=1
argmax@11 ArgMax-11 1>1 axis:int=0 keepdims:int=1
argmin@6 ArgMin-1 1>1 axis:int=0 keepdims:int=1
argmin@11 ArgMin-11 1>1 axis:int=0 keepdims:int=1
asin@7 Asin-7 1>1
asinh@9 Asinh-9 1>1
atan@7 Atan-7 1>1
atanh@9 Atanh-9 1>1
averagepool@6 AveragePool-1 1>1 kernel_shape:ints pads:ints=[] strides:ints=[]
averagepool@7 AveragePool-7 1>1 kernel_shape:ints count_include_pad:int=0 pads:ints=[] strides:ints=[]
averagepool@10 AveragePool-10 1>1 kernel_shape:ints ceil_mode:int=0 count_include_pad:int=0 pads:ints=[] strides:ints=[]
averagepool@11 AveragePool-11 1>1 kernel_shape:ints ceil_mode:int=0 count_include_pad:int=0 pads:ints=[] strides:ints=[]
batchnormalization@6 BatchNormalization-6 5>..5 epsilon:float=1e-05 is_test:int=0 momentum:float=0.9 spatial:int=1
batchnormalization@7 BatchNormalization-7 5>..5 epsilon:float=1e-05 momentum:float=0.9 spatial:int=1
batchnormalization@9 BatchNormalization-9 5>..5 epsilon:float=1e-05 momentum:float=0.9
bitshift@11 BitShift-11 2>1 direction:str
cast@6 Cast-6 1>1 to:onnx_type
cast@9 Cast-9 1>1 to:onnx_type
ceil@6 Ceil-6 1>1
clip@6 Clip-6 1>1 max:float=3.4028234663852886e+38 min:float=-3.4028234663852886e+38
clip@11 Clip-11 1..3>1
compress@9 Compress-9 2>1 axis:int?
compress@11 Compress-11 2>1 axis:int?
concat@6 Concat-4 1..>1 axis:int
concat@11 Concat-11 1..>1 axis:int
concatfromsequence@11 ConcatFromSequence-11 1>1 axis:int new_axis:int=0
constant@6 Constant-1 0>1 value:array
constant@9 Constant-9 0>1 value:array
constant@11 Constant-11 0>1 value:array is_value_sparse:dense=False
constantofshape@9 ConstantOfShape-9 1>1 value:array
conv@6 Conv-1 2..3>1 dilations:ints=[] group:int=1 kernel_shape:ints=[] pads:ints=[] strides:ints=[]
conv@11 Conv-11 2..3>1 dilations:ints=[] group:int=1 kernel_shape:ints=[] pads:ints=[] strides:ints=[]
convinteger@10 ConvInteger-10 2..4>1 dilations:ints=[] group:int=1 kernel_shape:ints=[] pads:ints=[] strides:ints=[]
convtranspose@6 ConvTranspose-1 2..3>1 dilations:ints=[] group:int=1 kernel_shape:ints=[] output_padding:ints=[] output_shape:ints=[] pads:ints=[] strides:ints=[]
convtranspose@11 ConvTranspose-11 2..3>1 dilations:ints=[] group:int=1 kernel_shape:ints=[] output_padding:ints=[] output_shape:ints=[] pads:ints=[] strides:ints=[]
cos@7 Cos-7 1>1
cosh@9 Cosh-9 1>1
cumsum@11 CumSum-11 2>1 exclusive:int=0 reverse:int=0
depthtospace@6 DepthToSpace-1 1>1 blocksize:int
depthtospace@11 DepthToSpace-11 1>1 blocksize:int mode:str=DCR
dequantizelinear@10 DequantizeLinear-10 2..3>1
det@11 Det-11 1>1
div@6 Div-6 2>1 axis:int? broadcast:int=0
div@7 Div-7 2>1
dropout@6 Dropout-6 1>..2 is_test:int=0 ratio:float=0.5
dropout@7 Dropout-7 1>..2 ratio:float=0.5
dropout@10 Dropout-10 1>..2 ratio:float=0.5
dynamicquantizelinear@11 DynamicQuantizeLinear-11 1>3
elu@6 Elu-6 1>1 alpha:float=1.0
equal@6 Equal-1 2>1 axis:int? broadcast:int=0
equal@7 Equal-7 2>1
equal@11 Equal-11 2>1
erf@9 Erf-9 1>1
exp@6 Exp-6 1>1
expand@8 Expand-8 2>1
eyelike@9 EyeLike-9 1>1 dtype:int? k:int=0
flatten@6 Flatten-1 1>1 axis:int=1
flatten@9 Flatten-9 1>1 axis:int=1
flatten@11 Flatten-11 1>1 axis:int=1
floor@6 Floor-6 1>1
gather@6 Gather-1 2>1 axis:int=0
gather@11 Gather-11 2>1 axis:int=0
gatherelements@11 GatherElements-11 2>1 axis:int=0
gathernd@11 GatherND-11 2>1
gemm@6 Gemm-6 3>1 alpha:float=1.0 beta:float=1.0 broadcast:int=0 transA:int=0 transB:int=0
gemm@7 Gemm-7 3>1 alpha:float=1.0 beta:float=1.0 transA:int=0 transB:int=0
gemm@9 Gemm-9 3>1 alpha:float=1.0 beta:float=1.0 transA:int=0 transB:int=0
gemm@11 Gemm-11 2..3>1 alpha:float=1.0 beta:float=1.0 transA:int=0 transB:int=0
globalaveragepool@6 GlobalAveragePool-1 1>1
globallppool@6 GlobalLpPool-2 1>1 p:int=2
globalmaxpool@6 GlobalMaxPool-1 1>1
greater@6 Greater-1 2>1 axis:int? broadcast:int=0
greater@7 Greater-7 2>1
greater@9 Greater-9 2>1
gru@6 GRU-3 3..6>..2 activation_alpha:floats=[] activation_beta:floats=[] activations:strs=[] clip:float? direction:str=forward hidden_size:int? linear_before_reset:int=0 output_sequence:int=0
gru@7 GRU-7 3..6>..2 activation_alpha:floats=[] activation_beta:floats=[] activations:strs=[] clip:float? direction:str=forward hidden_size:int? linear_before_reset:int=0
hardmax@6 Hardmax-1 1>1 axis:int=1
hardmax@11 Hardmax-11 1>1 axis:int=1
hardsigmoid@6 HardSigmoid-6 1>1 alpha:float=0.2 beta:float=0.5
identity@6 Identity-1 1>1
instancenormalization@6 InstanceNormalization-6 3>1 epsilon:float=1e-05
isinf@10 IsInf-10 1>1 detect_negative:int=1 detect_positive:int=1
isnan@9 IsNaN-9 1>1
leakyrelu@6 LeakyRelu-6 1>1 alpha:float=0.01
less@6 Less-1 2>1 axis:int? broadcast:int=0
less@7 Less-7 2>1
less@9 Less-9 2>1
log@6 Log-6 1>1
logical_and@6 And-1 2>1 axis:int? broadcast:int=0
logical_and@7 And-7 2>1
logical_if@6 If-1 1>.. else_branch:graph then_branch:graph debug=name
logical_if@11 If-11 1>.. else_branch:graph then_branch:graph debug=name
logical_not@6 Not-1 1>1
logical_or@6 Or-1 2>1 axis:int? broadcast:int=0
logical_or@7 Or-7 2>1
logical_xor@6 Xor-1 2>1 axis:int? broadcast:int=0
logical_xor@7 Xor-7 2>1
logsoftmax@6 LogSoftmax-1 1>1 axis:int=1
logsoftmax@11 LogSoftmax-11 1>1 axis:int=1
loop@6 Loop-1 3..>.. body:graph
loop@11 Loop-11 2..>.. body:graph
lpnormalization@6 LpNormalization-1 1>1 axis:int=-1 p:int=2
lppool@6 LpPool-2 1>1 kernel_shape:ints p:int=2 pads:ints=[] strides:ints=[]
lppool@11 LpPool-11 1>1 kernel_shape:ints p:int=2 pads:ints=[] strides:ints=[]
lrn@6 LRN-1 1>1 size:int alpha:float=0.0001 beta:float=0.75 bias:float=1.0
lstm@6 LSTM-1 3..8>..3 activation_alpha:floats=[] activation_beta:floats=[] activations:strs=[] clip:float? direction:str=forward hidden_size:int? input_forget:int=0 output_sequence:int=0
lstm@7 LSTM-7 3..8>..3 activation_alpha:floats=[] activation_beta:floats=[] activations:strs=[] clip:float? direction:str=forward hidden_size:int? input_forget:int=0
matmul@6 MatMul-1 2>1
matmul@9 MatMul-9 2>1
matmulinteger@10 MatMulInteger-10 2..4>1
max@6 Max-6 1..>1
max@8 Max-8 1..>1
maxpool@6 MaxPool-1 1>1 kernel_shape:ints pads:ints=[] strides:ints=[]
maxpool@8 MaxPool-8 1>..2 kernel_shape:ints pads:ints=[] storage_order:int=0 strides:ints=[]
maxpool@10 MaxPool-10 1>..2 kernel_shape:ints ceil_mode:int=0 dilations:ints=[] pads:ints=[] storage_order:int=0 strides:ints=[]
maxpool@11 MaxPool-11 1>..2 kernel_shape:ints ceil_mode:int=0 dilations:ints=[] pads:ints=[] storage_order:int=0 strides:ints=[]
maxroipool@6 MaxRoiPool-1 2>1 pooled_shape:ints spatial_scale:float=1.0
maxunpool@9 MaxUnpool-9 2..3>1 kernel_shape:ints pads:ints=[] strides:ints=[]
maxunpool@11 MaxUnpool-11 2..3>1 kernel_shape:ints pads:ints=[] strides:ints=[]
mean@6 Mean-6 1..>1
mean@8 Mean-8 1..>1
meanvariancenormalization@9 MeanVarianceNormalization-9 1>1 axes:ints=[]
min@6 Min-6 1..>1
min@8 Min-8 1..>1
mod@10 Mod-10 2>1 fmod:int=0
mul@6 Mul-6 2>1 axis:int? broadcast:int=0
mul@7 Mul-7 2>1
multinomial@7 Multinomial-7 1>1 dtype:int=6 sample_size:int=1 seed:float?
neg@6 Neg-6 1>1
nonmaxsuppression@10 NonMaxSuppression-10 2..5>1 center_point_box:int=0
nonmaxsuppression@11 NonMaxSuppression-11 2..5>1 center_point_box:int=0
nonzero@9 NonZero-9 1>1
onehot@9 OneHot-9 3>1 axis:int=-1
onehot@11 OneHot-11 3>1 axis:int=-1
pad@6 Pad-2 1>1 pads:ints mode:str=constant value:float=0.0
pad@11 Pad-11 2..3>1 mode:str=constant
pow@6 Pow-1 2>1 axis:int? broadcast:int=0
pow@7 Pow-7 2>1
prelu@6 PRelu-6 2>1
prelu@7 PRelu-7 2>1
prelu@9 PRelu-9 2>1
qlinearconv@10 QLinearConv-10 8..9>1 dilations:ints=[] group:int=1 kernel_shape:ints=[] pads:ints=[] strides:ints=[]
qlinearmatmul@10 QLinearMatMul-10 8>1
quantizelinear@10 QuantizeLinear-10 2..3>1
randomnormal@6 RandomNormal-1 0>1 shape:ints dtype:int=1 mean:float=0.0 scale:float=1.0 seed:float?
randomnormallike@6 RandomNormalLike-1 1>1 dtype:int? mean:float=0.0 scale:float=1.0 seed:float?
randomuniform@6 RandomUniform-1 0>1 shape:ints dtype:int=1 high:float=1.0 low:float=0.0 seed:float?
randomuniformlike@6 RandomUniformLike-1 1>1 dtype:int? high:float=1.0 low:float=0.0 seed:float?
range@11 Range-11 3>1
reciprocal@6 Reciprocal-6 1>1
reducel1@6 ReduceL1-1 1>1 axes:ints? keepdims:int=1
reducel1@11 ReduceL1-11 1>1 axes:ints? keepdims:int=1
reducel2@6 ReduceL2-1 1>1 axes:ints? keepdims:int=1
reducel2@11 ReduceL2-11 1>1 axes:ints? keepdims:int=1
reducelogsum@6 ReduceLogSum-1 1>1 axes:ints? keepdims:int=1
reducelogsum@11 ReduceLogSum-11 1>1 axes:ints? keepdims:int=1
reducelogsumexp@6 ReduceLogSumExp-1 1>1 axes:ints? keepdims:int=1
reducelogsumexp@11 ReduceLogSumExp-11 1>1 axes:ints? keepdims:int=1
reducemax@6 ReduceMax-1 1>1 axes:ints? keepdims:int=1
reducemax@11 ReduceMax-11 1>1 axes:ints? keepdims:int=1
reducemean@6 ReduceMean-1 1>1 axes:ints? keepdims:int=1
reducemean@11 ReduceMean-11 1>1 axes:ints? keepdims:int=1
reducemin@6 ReduceMin-1 1>1 axes:ints? keepdims:int=1
reducemin@11 ReduceMin-11 1>1 axes:ints? keepdims:int=1
reduceprod@6 ReduceProd-1 1>1 axes:ints? keepdims:int=1
reduceprod@11 ReduceProd-11 1>1 axes:ints? keepdims:int=1
reducesum@6 ReduceSum-1 1>1 axes:ints? keepdims:int=1
reducesum@11 ReduceSum-11 1>1 axes:ints? keepdims:int=1
reducesumsquare@6 ReduceSumSquare-1 1>1 axes:ints? keepdims:int=1
reducesumsquare@11 ReduceSumSquare-11 1>1 axes:ints? keepdims:int=1
relu@6 Relu-6 1>1
reshape@6 Reshape-5 2>1
resize@10 Resize-10 2>1 mode:str=nearest
resize@11 Resize-11 3..4>1 coordinate_transformation_mode:str=half_pixel cubic_coeff_a:float=-0.75 exclude_outside:int=0 extrapolation_value:float=0.0 mode:str=nearest nearest_mode:str=round_prefer_floor
reversesequence@10 ReverseSequence-10 2>1 batch_axis:int=1 time_axis:int=0
rnn@6 RNN-1 3..6>..2 activation_alpha:floats=[] activation_beta:floats=[] activations:strs=[] clip:float? direction:str=forward hidden_size:int? output_sequence:int=0
rnn@7 RNN-7 3..6>..2 activation_alpha:floats=[] activation_beta:floats=[] activations:strs=[] clip:float? direction:str=forward hidden_size:int?
roialign@10 RoiAlign-10 3>1 mode:str=avg output_height:int=1 output_width:int=1 sampling_ratio:int=0 spatial_scale:float=1.0
round@11 Round-11 1>1
scan@8 Scan-8 2..>.. body:graph num_scan_inputs:int directions:ints=[]
scan@9 Scan-9 1..>.. body:graph num_scan_inputs:int scan_input_axes:ints=[] scan_input_directions:ints=[] scan_output_axes:ints=[] scan_output_directions:ints=[]
scan@11 Scan-11 1..>.. body:graph num_scan_inputs:int scan_input_axes:ints=[] scan_input_directions:ints=[] scan_output_axes:ints=[] scan_output_directions:ints=[]
scatter@9 Scatter-9 3>1 axis:int=0
scatter@11 Scatter-11 3>1 axis:int=0
scatterelements@11 ScatterElements-11 3>1 axis:int=0
scatternd@11 ScatterND-11 3>1
selu@6 Selu-6 1>1 alpha:float=1.67326 gamma:float=1.0507
sequenceat@11 SequenceAt-11 2>1
sequenceconstruct@11 SequenceConstruct-11 1..>1
sequenceempty@11 SequenceEmpty-11 0>1 dtype:int?
sequenceerase@11 SequenceErase-11 1..2>1
sequenceinsert@11 SequenceInsert-11 2..3>1
sequencelength@11 SequenceLength-11 1>1
shape@6 Shape-1 1>1
shrink@9 Shrink-9 1>1 bias:float=0.0 lambd:float=0.5
sigmoid@6 Sigmoid-6 1>1
sign@9 Sign-9 1>1
sin@7 Sin-7 1>1
sinh@9 Sinh-9 1>1
size@6 Size-1 1>1
slice@6 Slice-1 1>1 ends:ints starts:ints axes:ints=[]
slice@10 Slice-10 3..5>1
slice@11 Slice-11 3..5>1
softmax@6 Softmax-1 1>1 axis:int=1
softmax@11 Softmax-11 1>1 axis:int=1
softplus@6 Softplus-1 1>1
softsign@6 Softsign-1 1>1
spacetodepth@6 SpaceToDepth-1 1>1 blocksize:int
split@6 Split-2 1>.. axis:int=0 split:ints=[]
split@11 Split-11 1>.. axis:int=0 split:ints=[]
splittosequence@11 SplitToSequence-11 1..2>1 axis:int=0 keepdims:int=1
sqrt@6 Sqrt-6 1>1
squeeze@6 Squeeze-1 1>1 axes:ints=[]
squeeze@11 Squeeze-11 1>1 axes:ints=[]
stringnormalizer@10 StringNormalizer-10 1>1 case_change_action:str=NONE is_case_sensitive:int=0 locale:str= stopwords:strs=[]
sub@6 Sub-6 2>1 axis:int? broadcast:int=0
sub@7 Sub-7 2>1
sum@6 Sum-6 1..>1
sum@8 Sum-8 1..>1
tan@7 Tan-7 1>1
tanh@6 Tanh-6 1>1
tfidfvectorizer@9 TfIdfVectorizer-9 1>1 max_gram_length:int max_skip_count:int min_gram_length:int mode:str ngram_counts:ints ngram_indexes:ints pool_int64s:ints=[] pool_strings:strs=[] weights:floats=[]
thresholdedrelu@10 ThresholdedRelu-10 1>1 alpha:float=1.0
tile@6 Tile-6 2>1
topk@6 TopK-1 1>2 k:int axis:int=-1
topk@10 TopK-10 2>2 axis:int=-1
topk@11 TopK-11 2>2 axis:int=-1 largest:int=1 sorted:int=1
transpose@6 Transpose-1 1>1 perm:ints=[]
unique@11 Unique-11 1>..4 axis:int? sorted:int=1
unsqueeze@6 Unsqueeze-1 1>1 axes:ints
unsqueeze@11 Unsqueeze-11 1>1 axes:ints
upsample@6 Upsample-1 1>1 height_scale:float width_scale:float mode:str=nearest
upsample@7 Upsample-7 1>1 scales:floats mode:str=nearest
upsample@9 Upsample-9 2>1 mode:str=nearest
upsample@10 Upsample-10 2>1 mode:str=nearest
where@9 Where-9 3>1
"""

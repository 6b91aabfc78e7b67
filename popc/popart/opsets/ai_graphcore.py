"""The methods of ai.graphcore, opset 1, in the notation of `popc.popart.opsets.rows`."""

from __future__ import annotations

from typing import Final

__all__ = ["TABLE"]

TABLE: Final = """
abort@1 Abort-1 ~0..1>0
atan2@1 Atan2-1 2>1
batchnormalization@1 BatchNormalization-1 5>..5 epsilon:float/=1e-05 momentum:float/=0.9 unbiased_variance!0
bitwiseand@1 BitwiseAnd-1 ~2>1
bitwisenot@1 BitwiseNot-1 ~1>1
bitwiseor@1 BitwiseOr-1 ~2>1
bitwisexnor@1 BitwiseXnor-1 ~2>1
bitwisexor@1 BitwiseXor-1 ~2>1
bucketize@1 Bucketize-1 ~2>1 right:int=0
call@1 Call-1 0..>.. callee:graph debug=debugName
copyvarupdate@1 CopyVarUpdate-1 0..>1
ctcbeamsearchdecoder@1 CtcBeamSearchDecoder-1 2>3 blank:int=0 beam_width:int=100 top_paths:int=1 debug=debug_context
ctcloss@1 Ctc-1 4>1+1 reduction:loss=Mean blank:int=0 outDataType:onnx_type=UNDEFINED zeroInfinity:bool=False
depthtospace@1 DepthToSpace-1 1>1 blocksize:int mode:str/DCR
detach@1 Detach-1 1>1
dynamicadd@1 DynamicAdd-1 3>1 axes:ints sizes:ints
dynamicslice@1 DynamicSlice-1 2..3>1 axes:ints sizes:ints noOverlap:int=0
dynamicupdate@1 DynamicUpdate-1 3>1 axes:ints sizes:ints noOverlap:int=0
dynamiczero@1 DynamicZero-1 2>1 axes:ints sizes:ints
expm1@1 Expm1-1 1>1
fmod@1 Fmod-1 2>1
gelu@1 Gelu-1 1>1
geluerf@1 GeluErf-1 1>1
groupedgather@1 GroupedGather-1 ~2>1 axis:int=0 group_size:int=1
groupedscatterreduce@1 ScatterReduce-1 ~2..3>1 axis_size:int axis:int=-1 reduction:scatter=Sum group_size:int=1 enable_index_broadcast:int=1
groupnormalization@1 GroupNormalization-1 3>3 num_groups:int epsilon:float/=1e-05
identityloss@1 IdentityLoss-1 1>1 reduction:loss=Mean
incrementmod@1 IncrementMod-1 ~1>1 increment:float modulus:float
init@1 Init-1 0>1 shape:ints data_type:int init_type:int batch_axis:int
init@1 Init-1 0>1 shape:ints data_type:int init_type:int batch_axis!-1
l1loss@1 L1-1 1>1 lambda:float reduction:loss=Mean
log1p@1 Log1p-1 1>1
lstm@1 LSTM-1 4>2 outputFullSequence>output_full_sequence:int=1
nearbyint@1 NearbyInt-1 1>1
nllloss@1 Nll-1 2>1 reduction:loss=Mean ignoreIndex:int? inputIsLogProbability:bool=False
nop@1 Nop-1 1>1
normalize_image@1 NormalizeImage-1 3>1 scale:float=1.0
packedDataBlock@1 PackedDataBlock-1 0..>1 maxSequenceLengths:ints resultSize:int callbackBatchSize:int callback:graph debug=debugName
printtensor@1 PrintTensor-1 1>1 print_gradient:int=1 debug title:str= summariseThreshold:int=1000 edgeItems:int=3 maxLineWidth:int=75 digits:int=8 floatFormat:int=0 separator:char=\\s openBracket:char=[ closeBracket:char=]
reducemedian@1 ReduceMedian-1 1>2 axes:ints? keepdims:int=1
remainder@1 Remainder-1 2>1
replicatedallreduce@1 ReplicatedAllReduce-1 1>1 collectiveOperator>__collectiveOperator:collective? commGroup>__collectiveCommGroup:group?
replicatedreducescatter@1 ReplicatedReduceScatter-1 1..2>1 collectiveOperator>__collectiveOperator:collective? commGroup>__collectiveCommGroup:group?
reshape@1 Reshape-1 =1>1 shape:ints
reverse@1 Reverse-1 1>1 dimensions:ints
round@1 Round-1 1>1
scale@1 Scale-1 1>1 scale:float
scaledadd@1 ScaledAdd-1 2..4>1 scale0:float=1.0 scale1:float=1.0
scatterreduce@1 ScatterReduce-1 ~2..3>1 axis_size:int axis:int=-1 reduction:scatter=Sum group_size!1 enable_index_broadcast:int=1
sequenceslice@1 SequenceSlice-1 5>1 zeroUnused:int=0
shapeddropout@1 ShapedDropout-1 1>1 shape:ints ratio:float=0.5
slice@1 Slice-1 1>1 ends:ints starts:ints axes:ints/
sort@1 Sort-1 ~1>2 axis:int=-1 descending:int=0 stable:int=0
splinebasis@1 SplineBasis-1 ~3>2 degree:int
splineweighting@1 SplineWeighting-1 ~4>1
subsample@1 Subsample-1 1>1 strides:ints
swish@1 Swish-1 ~1>1
tensorremap@1 TensorRemap-1 1..2>1 remap_type:int=0 debug=debugPrefix
"""

"""The settings of other systems, as their documentation lists them."""

from __future__ import annotations

from typing import Final

__all__ = ["NAMES"]

_TENSORFLOW: Final = """
    allow_recompute selection_order serialization_output_folder compilation_poplar_options
    gcl_poplar_options auto_select_ipus select_ipus
    convolutions.poplar_options
    device_connection.type device_connection.version device_connection.enable_remote_buffers
    experimental.always_rearrange_copies_on_the_host experimental.enable_remote_buffer_embedding
    experimental.multi_replica_distribution.process_index
    experimental.multi_replica_distribution.process_count
    floating_point_behaviour.inv floating_point_behaviour.div0 floating_point_behaviour.oflo
    floating_point_behaviour.esr floating_point_behaviour.nanoo floating_point_behaviour.set_all
    io_tiles.num_io_tiles io_tiles.place_ops_on_io_tiles io_tiles.available_memory_proportion
    ipu_model.compile_ipu_code ipu_model.tiles_per_ipu ipu_model.version
    matmuls.clear_pass_type matmuls.poplar_options
    norms.use_stable_statistics norms.experimental.distributed_batch_norm_replica_group_size
    optimizations.prefetch_data_streams optimizations.combine_embedding_lookups
    optimizations.combine_matmuls optimizations.enable_graph_outlining
    optimizations.merge_infeed_io_copies optimizations.maximum_cross_replica_sum_buffer_size
    optimizations.maximum_reduce_scatter_buffer_size
    optimizations.maximum_inter_ipu_copies_buffer_size optimizations.maximum_send_recv_cluster_size
    optimizations.minimum_remote_tensor_size optimizations.merge_remote_buffers
    optimizations.enable_gather_simplifier optimizations.triangular_solve_expander_block_size
    optimizations.cholesky_block_size optimizations.enable_fast_math
    pooling.poplar_options
    scheduling.algorithm scheduling.maximum_scheduler_lookahead_depth
    scheduling.maximum_scheduler_search_space_size
"""
_OPTIMUM: Final = """
    seed auto_loss_scaling executable_cache_dir replication_factor inference_replication_factor
    gradient_accumulation_steps layers_per_ipu inference_layers_per_ipu ipus_per_replica
    inference_ipus_per_replica sharded_execution_for_inference optimizer_state_offchip
    replicated_tensor_sharding matmul_proportion inference_matmul_proportion enable_half_partials
    embedding_serialization_factor inference_embedding_serialization_factor
    serialized_embedding_splits_per_ipu inference_serialized_embedding_splits_per_ipu
    projection_serialization_factor inference_projection_serialization_factor
    serialized_projection_splits_per_ipu inference_serialized_projection_splits_per_ipu
    recompute_checkpoint_every_layer explicit_ir_inference parallelize_kwargs
    inference_parallelize_kwargs device_iterations inference_device_iterations output_mode
"""
_PADDLE: Final = """
    num_ipus is_training micro_batch_size enable_pipelining batches_per_step
    enable_gradient_accumulation accumulation_factor enable_fp16
    build_strategy.fuse_elewise_add_act_ops build_strategy.fuse_bn_act_ops
    build_strategy.fuse_all_reduce_ops build_strategy.enable_inplace
    build_strategy.memory_optimize build_strategy.sync_batch_norm
    exec_strategy.num_threads exec_strategy.num_iteration_per_run
    with_data_parallel.loss_name with_data_parallel.share_vars_from with_data_parallel.places
"""

NAMES: Final = {
    "tensorflow": _TENSORFLOW.split(),
    "optimum": _OPTIMUM.split(),
    "paddle": _PADDLE.split(),
}

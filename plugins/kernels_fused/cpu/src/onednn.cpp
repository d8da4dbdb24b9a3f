#include "onednn.hpp"

#include <dnnl.h>
#include <omp.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "espalier/error.hpp"

namespace espalier::kernels_fused {
namespace {

void check(dnnl_status_t status, const char* expression) {
  if (status == dnnl_success) return;
  throw DeviceError("kernels_fused: oneDNN: " + std::string(expression) + " returned status " + std::to_string(status));
}
#define ESPALIER_DNNL(expression) check((expression), #expression)

/// oneDNN starts an OpenMP team as big as its calling thread may have: here one, since the pool's threads are the team.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }

 private:
  int before_;
};

dnnl_data_type_t type_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return dnnl_bf16;
    case DType::f16:
      return dnnl_f16;
    default:
      return dnnl_f32;
  }
}

dnnl_memory_desc_t matrix(std::int64_t rows, std::int64_t cols, std::int64_t stride, bool transposed, DType dtype) {
  const dnnl_dims_t dims = {rows, cols};
  const dnnl_dims_t plain = {stride, 1}, swapped = {1, stride};
  dnnl_memory_desc_t desc;
  ESPALIER_DNNL(dnnl_memory_desc_init_by_strides(&desc, 2, dims, type_of(dtype), transposed ? swapped : plain));
  return desc;
}

dnnl_cpu_isa_t isa_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::avx2:
      return dnnl_cpu_isa_avx2;
    case InstructionSet::avx512:
      return dnnl_cpu_isa_avx512_core;
    case InstructionSet::avx512_bf16:
      return dnnl_cpu_isa_avx512_core_bf16;
    case InstructionSet::amx:
      break;
  }
  return dnnl_cpu_isa_avx512_core_amx;
}

/// oneDNN takes a cap once a process, before its first primitive.
void cap(InstructionSet set) {
  static bool asked = false;
  static InstructionSet first = set;
  if (!asked) {
    const dnnl_status_t status = dnnl_set_max_cpu_isa(isa_of(set));
    if (status != dnnl_success && dnnl_get_effective_cpu_isa() != isa_of(set)) {
      throw DeviceError("kernels_fused: oneDNN is already in use in this process and cannot be held to " +
                        std::string(title(set)));
    }
    asked = true;
    first = set;
  }
  if (first != set) {
    throw DeviceError("kernels_fused: this process already uses " + std::string(title(first)) +
                      " and oneDNN cannot change to " + std::string(title(set)) +
                      "; give one instruction_set for all uses of kernels_fused");
  }
}

struct HashShape {
  std::size_t operator()(const GemmShape& s) const {
    std::uint64_t hash = 0;
    const auto mix = [&](std::uint64_t value) {
      hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    };
    for (const std::int64_t value : {s.m, s.n, s.k, s.a_stride, s.b_stride, s.dst_stride}) {
      mix(static_cast<std::uint64_t>(value));
    }
    mix(static_cast<std::uint64_t>(s.type) | static_cast<std::uint64_t>(s.dst_type) << 4 |
        static_cast<std::uint64_t>(s.bias_type) << 8 | std::uint64_t{s.transpose_a} << 12 |
        std::uint64_t{s.transpose_b} << 13 | std::uint64_t{s.accumulate} << 14 | std::uint64_t{s.biased} << 15);
    return hash;
  }
};

}  // namespace

const char* onednn_version() {
  static const std::string text = [] {
    const dnnl_version_t* version = dnnl_version();
    return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
  }();
  return text.c_str();
}

/// A primitive, and for each lane the memory objects that carry the pointers of a call.
class OneDnn::Plan {
 public:
  struct Lane {
    dnnl_memory_t a = nullptr, b = nullptr, bias = nullptr, dst = nullptr, scratch = nullptr;
  };

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (const Lane& lane : lanes) {
      for (const dnnl_memory_t memory : {lane.a, lane.b, lane.bias, lane.dst, lane.scratch}) {
        if (memory != nullptr) dnnl_memory_destroy(memory);
      }
    }
    if (primitive != nullptr) dnnl_primitive_destroy(primitive);
  }

  dnnl_primitive_t primitive = nullptr;
  std::size_t scratch_bytes = 0;
  std::vector<Lane> lanes;
};

struct OneDnn::State {
  dnnl_engine_t engine = nullptr;
  std::vector<dnnl_stream_t> streams;  // one a lane
  std::unordered_map<GemmShape, Plan, HashShape> plans;
};

OneDnn::OneDnn(InstructionSet set, int lanes) : state_(std::make_unique<State>()) {
  cap(set);
  ESPALIER_DNNL(dnnl_engine_create(&state_->engine, dnnl_cpu, 0));
  state_->streams.resize(static_cast<std::size_t>(lanes));
  for (dnnl_stream_t& stream : state_->streams) {
    ESPALIER_DNNL(dnnl_stream_create(&stream, state_->engine, dnnl_stream_default_flags));
  }
}

OneDnn::~OneDnn() {
  state_->plans.clear();
  for (const dnnl_stream_t stream : state_->streams) dnnl_stream_destroy(stream);
  dnnl_engine_destroy(state_->engine);
}

const OneDnn::Plan& OneDnn::prepare(const GemmShape& shape) {
  const auto found = state_->plans.find(shape);
  if (found != state_->plans.end()) return found->second;

  const OneThread one;
  const dnnl_engine_t engine = state_->engine;
  const dnnl_memory_desc_t a = matrix(shape.m, shape.k, shape.a_stride, shape.transpose_a, shape.type);
  const dnnl_memory_desc_t b = matrix(shape.k, shape.n, shape.b_stride, shape.transpose_b, shape.type);
  const dnnl_memory_desc_t bias = matrix(1, shape.n, shape.n, false, shape.bias_type);
  const dnnl_memory_desc_t dst = matrix(shape.m, shape.n, shape.dst_stride, false, shape.dst_type);
  dnnl_matmul_desc_t desc;
  ESPALIER_DNNL(dnnl_matmul_desc_init(&desc, &a, &b, shape.biased ? &bias : nullptr, &dst));
  dnnl_primitive_attr_t attributes = nullptr;
  ESPALIER_DNNL(dnnl_primitive_attr_create(&attributes));
  // Scratch from the lane: oneDNN's own would tie the primitive to one thread.
  ESPALIER_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
  dnnl_post_ops_t after = nullptr;
  ESPALIER_DNNL(dnnl_post_ops_create(&after));
  if (shape.accumulate) {
    ESPALIER_DNNL(dnnl_post_ops_append_sum(after, 1.0f));
    ESPALIER_DNNL(dnnl_primitive_attr_set_post_ops(attributes, after));
  }
  dnnl_primitive_desc_t made = nullptr;
  ESPALIER_DNNL(dnnl_primitive_desc_create(&made, &desc, attributes, engine, nullptr));
  dnnl_post_ops_destroy(after);
  dnnl_primitive_attr_destroy(attributes);

  Plan& plan = state_->plans[shape];
  const dnnl_memory_desc_t* scratch = dnnl_primitive_desc_query_md(made, dnnl_query_scratchpad_md, 0);
  plan.scratch_bytes = scratch == nullptr ? 0 : dnnl_memory_desc_get_size(scratch);
  ESPALIER_DNNL(dnnl_primitive_create(&plan.primitive, made));
  plan.lanes.resize(state_->streams.size());
  for (Plan::Lane& lane : plan.lanes) {
    ESPALIER_DNNL(dnnl_memory_create(&lane.a, &a, engine, DNNL_MEMORY_NONE));
    ESPALIER_DNNL(dnnl_memory_create(&lane.b, &b, engine, DNNL_MEMORY_NONE));
    ESPALIER_DNNL(dnnl_memory_create(&lane.bias, &bias, engine, DNNL_MEMORY_NONE));
    ESPALIER_DNNL(dnnl_memory_create(&lane.dst, &dst, engine, DNNL_MEMORY_NONE));
    if (plan.scratch_bytes != 0) ESPALIER_DNNL(dnnl_memory_create(&lane.scratch, scratch, engine, DNNL_MEMORY_NONE));
  }
  dnnl_primitive_desc_destroy(made);
  return plan;
}

std::size_t OneDnn::scratch_bytes(const Plan& plan) { return plan.scratch_bytes; }

void OneDnn::run(const Plan& plan, int lane_index, const void* a, const void* b, const void* bias, void* dst,
                 void* scratch) {
  const OneThread one;
  const Plan::Lane& lane = plan.lanes[static_cast<std::size_t>(lane_index)];
  bool good = dnnl_memory_set_data_handle(lane.a, const_cast<void*>(a)) == dnnl_success;
  good &= dnnl_memory_set_data_handle(lane.b, const_cast<void*>(b)) == dnnl_success;
  good &= dnnl_memory_set_data_handle(lane.dst, dst) == dnnl_success;
  dnnl_exec_arg_t args[5] = {{DNNL_ARG_SRC, lane.a}, {DNNL_ARG_WEIGHTS, lane.b}, {DNNL_ARG_DST, lane.dst}, {}, {}};
  int count = 3;
  if (bias != nullptr) {
    good &= dnnl_memory_set_data_handle(lane.bias, const_cast<void*>(bias)) == dnnl_success;
    args[count++] = {DNNL_ARG_BIAS, lane.bias};
  }
  if (lane.scratch != nullptr) {
    good &= dnnl_memory_set_data_handle(lane.scratch, scratch) == dnnl_success;
    args[count++] = {DNNL_ARG_SCRATCHPAD, lane.scratch};
  }
  const dnnl_stream_t stream = state_->streams[static_cast<std::size_t>(lane_index)];
  good &= dnnl_primitive_execute(plan.primitive, stream, count, args) == dnnl_success;
  good &= dnnl_stream_wait(stream) == dnnl_success;
  // The body of a pool item may not throw, and no input of a prepared plan can make these fail.
  ESPALIER_ASSERT(good);
}

void OneDnn::sgemm(const GemmShape& shape, float alpha, const float* a, const float* b, float beta, float* dst) {
  const OneThread one;
  const dnnl_status_t status =
      dnnl_sgemm(shape.transpose_a ? 'T' : 'N', shape.transpose_b ? 'T' : 'N', shape.m, shape.n, shape.k, alpha, a,
                 shape.a_stride, b, shape.b_stride, beta, dst, shape.dst_stride);
  ESPALIER_ASSERT(status == dnnl_success);
}

}  // namespace espalier::kernels_fused

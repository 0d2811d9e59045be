// SPDX-License-Identifier: Apache-2.0
//
// The C interface: the only place where exceptions end and statuses become codes.
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "api/validate.h"
#include "leapquant/leapquant.h"
#include "plan/backend.h"
#include "pool/pool.h"

#define LQ_STRING_OF(x) #x
#define LQ_STRING(x) LQ_STRING_OF(x)

struct lq_context {
  std::shared_ptr<leapquant::Backend> backend;
};

struct lq_pool {
  std::unique_ptr<leapquant::Pool> pool;
};

namespace leapquant::api {
namespace {

static_assert(static_cast<int>(Code::kInternal) == LQ_INTERNAL && static_cast<int>(Code::kIo) == LQ_IO);
static_assert(static_cast<int>(DType::kFloat32) == LQ_FLOAT32 && static_cast<int>(DType::kInt8) == LQ_INT8);
static_assert(static_cast<int>(DeviceType::kCuda) == LQ_DEVICE_CUDA);
static_assert(static_cast<int>(Gate::kGdn) == LQ_GATE_GDN && static_cast<int>(Layout::kPadded) == LQ_LAYOUT_PADDED);
static_assert(static_cast<int>(GateFunction::kGiven) == LQ_GATE_GIVEN);
static_assert(static_cast<int>(StateOrder::kKeyValue) == LQ_STATE_KV && kMaxDraftTokens == LQ_MAX_DRAFT_TOKENS);
static_assert(kErrorKindCount == LQ_ERROR_KIND_COUNT && kMaxDims == LQ_MAX_DIMS);

// A fixed buffer: to report a failed allocation must not allocate.
thread_local char last_error[1024] = "";

lq_status fail(Code code, const char* text) noexcept {
  std::strncpy(last_error, text, sizeof(last_error) - 1);
  return static_cast<lq_status>(code);
}

lq_status finish(const Status& status) noexcept {
  return status.ok() ? LQ_OK : fail(status.code(), status.message().c_str());
}

// Runs `body`, a function that returns Status, and turns what comes out of it into a code.
template <class Body>
lq_status guarded(Body body) noexcept {
  try {
    return finish(body());
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "out of host memory");
  } catch (const std::system_error& error) {  // threads that the system does not give
    return fail(Code::kOutOfMemory, error.what());
  } catch (const std::exception& error) {
    return fail(Code::kInternal, error.what());
  } catch (...) {
    return fail(Code::kInternal, "unknown exception");
  }
}

Status require(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return invalid_argument(std::string(name) + ": expected a pointer, got NULL");
}

Status create_context(const lq_context_options* options, lq_context** context) {
  LQ_RETURN_IF_ERROR(require(context, "context"));
  const lq_context_options chosen = options == nullptr ? lq_context_options{} : *options;
  const BackendOptions backend_options{
      .threads = chosen.threads, .device = chosen.device, .target = chosen.target == nullptr ? "" : chosen.target};
  Result<std::unique_ptr<Backend>> backend =
      create_backend(chosen.backend == nullptr ? "" : chosen.backend, backend_options);
  if (!backend.ok()) return backend.status();
  *context = new lq_context{std::move(backend.value())};
  return {};
}

Status flush(lq_context* context, const FlushRequest& request, void* stream) {
  LQ_RETURN_IF_ERROR(require(context, "context"));
  const Result<FlushPlan> plan = plan_flush(*context->backend, request);
  if (!plan.ok()) return plan.status();
  if ((request.flags & LQ_FLUSH_CHECK_FINITE) != 0) {
    LQ_RETURN_IF_ERROR(check_finite(*context->backend, plan.value(), stream));
  }
  return context->backend->flush(plan.value(), stream);
}

Status create_pool(lq_context* context, const lq_pool_options* options, lq_pool** pool) {
  LQ_RETURN_IF_ERROR(require(context, "context"));
  LQ_RETURN_IF_ERROR(require(options, "options"));
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<Geometry> geometry = to_geometry(&options->geometry);
  if (!geometry.ok()) return geometry.status();
  LQ_RETURN_IF_ERROR(context->backend->supports(geometry.value()));
  if ((options->flags & ~uint32_t{LQ_POOL_KEEP_CONTENTS}) != 0) return invalid_argument("pool: unknown flags");
  const bool keep = (options->flags & LQ_POOL_KEEP_CONTENTS) != 0;
  if (keep && options->storage == nullptr) {
    return invalid_argument("pool: LQ_POOL_KEEP_CONTENTS expects caller-owned storage, got NULL");
  }
  const auto layout = static_cast<Layout>(options->layout);
  PoolStorage storage;
  if (options->storage != nullptr) {
    Result<PoolStorage> given =
        to_storage(geometry.value(), layout, options->num_slots, *options->storage, context->backend->state().device);
    if (!given.ok()) return given.status();
    storage = given.value();
  }
  Result<std::unique_ptr<Pool>> created =
      Pool::create(context->backend, {.geometry = geometry.value(),
                                      .layout = layout,
                                      .num_slots = options->num_slots,
                                      .storage = options->storage == nullptr ? nullptr : &storage,
                                      .keep_contents = keep});
  if (!created.ok()) return created.status();
  *pool = new lq_pool{std::move(created.value())};
  return {};
}

Status view_pool(const lq_pool* pool, lq_pool_tensors* tensors) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  LQ_RETURN_IF_ERROR(require(tensors, "tensors"));
  const PoolStorage& storage = pool->pool->storage();
  const CheckpointTensors checkpoints = pool->pool->checkpoints();
  *tensors = {.raw = to_tensor(storage.raw),
              .codes = to_tensor(checkpoints.codes),
              .s_k = to_tensor(checkpoints.key_scale),
              .s_v = to_tensor(checkpoints.value_scale),
              .uq = to_tensor(checkpoints.factors),
              .kbuf = to_tensor(storage.window_key),
              .ubuf = to_tensor(storage.window_update),
              .w = to_tensor(storage.window_weight),
              .gbuf = to_tensor(storage.window_gate),
              .pcum = to_tensor(storage.log_decay),
              .p = to_tensor(storage.decay),
              .hcnt = to_tensor(storage.fill_count)};
  return {};
}

Status flush_inplace(lq_pool* pool, const lq_tensor* idx, const lq_tensor* q0, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<FlushPlan> plan = plan_flush_inplace(*pool->pool, idx, q0);
  if (!plan.ok()) return plan.status();
  if (plan.value().batch == 0) return {};
  return pool->pool->backend().flush(plan.value(), stream);
}

Status step(lq_context* context, const StepRequest& request, void* stream) {
  LQ_RETURN_IF_ERROR(require(context, "context"));
  const Result<StepPlan> plan = plan_step(*context->backend, request);
  if (!plan.ok()) return plan.status();
  return context->backend->step(plan.value(), stream);
}

Status step_inplace(lq_pool* pool, const InplaceStepRequest& request, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<StepPlan> plan = plan_step_inplace(*pool->pool, request);
  if (!plan.ok()) return plan.status();
  if (plan.value().batch == 0) return {};
  return pool->pool->backend().step(plan.value(), stream);
}

Status step_flush_inplace(lq_pool* pool, const InplaceStepRequest& request, const lq_tensor* q0, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<StepFlushPlans> plans = plan_step_flush_inplace(*pool->pool, request, q0);
  if (!plans.ok()) return plans.status();
  if (plans.value().step.batch == 0) return {};
  LQ_RETURN_IF_ERROR(pool->pool->backend().step(plans.value().step, stream));
  return pool->pool->backend().flush(plans.value().flush, stream);
}

Status size_draft(const lq_geometry* geometry, int64_t n, int32_t tokens, int64_t* bytes) {
  LQ_RETURN_IF_ERROR(require(bytes, "bytes"));
  const Result<Geometry> valid = to_geometry(geometry);
  if (!valid.ok()) return valid.status();
  const Result<int64_t> size = draft_bytes(valid.value(), n, tokens);
  if (!size.ok()) return size.status();
  *bytes = size.value();
  return {};
}

Status draft(lq_pool* pool, const InplaceStepRequest& request, int32_t tokens, const lq_tensor* scratch, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<DraftPlan> plan = plan_draft(*pool->pool, request, tokens, scratch);
  if (!plan.ok()) return plan.status();
  if (plan.value().step.batch == 0) return {};
  return pool->pool->backend().draft(plan.value(), stream);
}

Status commit(lq_pool* pool, const CommitRequest& request, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<CommitPlan> plan = plan_commit(*pool->pool, request);
  if (!plan.ok()) return plan.status();
  if (plan.value().flush.batch == 0) return {};
  return pool->pool->backend().commit(plan.value(), stream);
}

Status flush_now(lq_pool* pool, const lq_tensor* idx, const lq_tensor* q0, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  Result<FlushPlan> plan = plan_flush_inplace(*pool->pool, idx, q0);
  if (!plan.ok()) return plan.status();
  if (plan.value().batch == 0) return {};
  plan.value().any_fill = true;
  return pool->pool->backend().flush_now(plan.value(), stream);
}

Status reset_slots(lq_pool* pool, const lq_tensor* idx, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<SlotPlan> plan = plan_reset(*pool->pool, idx);
  if (!plan.ok()) return plan.status();
  if (plan.value().count == 0) return {};
  return pool->pool->backend().reset_slots(plan.value(), stream);
}

Status copy_slots(lq_pool* pool, const lq_tensor* src, const lq_tensor* dst, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<SlotPlan> plan = plan_copy(*pool->pool, src, dst);
  if (!plan.ok()) return plan.status();
  if (plan.value().count == 0) return {};
  return pool->pool->backend().copy_slots(plan.value(), stream);
}

Status import_state(lq_pool* pool, const ImportRequest& request, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<StatePlan> plan = plan_import(*pool->pool, request);
  if (!plan.ok()) return plan.status();
  if (plan.value().batch == 0) return {};
  return pool->pool->backend().import_state(plan.value(), stream);
}

Status export_state(lq_pool* pool, const lq_tensor* idx, const lq_tensor* state, lq_state_order order, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<StatePlan> plan = plan_export(*pool->pool, idx, state, order);
  if (!plan.ok()) return plan.status();
  if (plan.value().batch == 0) return {};
  return pool->pool->backend().export_state(plan.value(), stream);
}

Status check_indices(lq_pool* pool, const lq_tensor* idx, void* stream) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  const Result<TensorView> indices = to_indices(*pool->pool, idx);
  if (!indices.ok()) return indices.status();
  return pool->pool->check_indices(static_cast<const int32_t*>(indices.value().data), indices.value().shape[0], stream);
}

Status read_errors(lq_pool* pool, void* stream, lq_pool_errors* errors) {
  LQ_RETURN_IF_ERROR(require(pool, "pool"));
  LQ_RETURN_IF_ERROR(require(errors, "errors"));
  const Result<ErrorWord> word = pool->pool->read_errors(stream);
  if (!word.ok()) return word.status();
  *errors = {};
  for (int kind = 0; kind < kErrorKindCount; ++kind) {
    const int32_t first = word.value().first_position[kind];
    errors->first_position[kind] = first == kNoPosition ? -1 : first;
    if (first != kNoPosition) errors->flags |= 1u << kind;
  }
  return {};
}

Status size_pool(const lq_geometry* geometry, lq_layout layout, int64_t num_slots, lq_pool_sizes* sizes) {
  LQ_RETURN_IF_ERROR(require(sizes, "sizes"));
  const Result<Geometry> valid = to_geometry(geometry);
  if (!valid.ok()) return valid.status();
  const Result<PoolSizes> result = pool_sizes(valid.value(), static_cast<Layout>(layout), num_slots);
  if (!result.ok()) return result.status();
  *sizes = {.raw_bytes = result.value().raw_bytes,
            .window_bytes = result.value().window_bytes,
            .checkpoint_bytes_per_slot = result.value().checkpoint_bytes_per_slot,
            .window_bytes_per_slot = result.value().window_bytes_per_slot,
            .fp32_bytes_per_slot = result.value().fp32_bytes_per_slot};
  return {};
}

Status count_slots(const lq_geometry* geometry, lq_layout layout, int64_t bytes, int64_t* num_slots) {
  LQ_RETURN_IF_ERROR(require(num_slots, "num_slots"));
  lq_pool_sizes one_slot;
  LQ_RETURN_IF_ERROR(size_pool(geometry, layout, 1, &one_slot));
  if (bytes < 0) return invalid_argument("bytes: expected 0 or more, got " + std::to_string(bytes));
  *num_slots = slots_in(to_geometry(geometry).value(), static_cast<Layout>(layout), bytes);
  return {};
}

Status describe_backend(int32_t index, lq_backend_info* info) {
  LQ_RETURN_IF_ERROR(require(info, "info"));
  const int32_t count = lq_backend_count();
  if (index < 0 || index >= count) {
    return invalid_argument("backend index: expected 0 to " + std::to_string(count - 1) + ", got " +
                            std::to_string(index));
  }
  const BackendEntry& entry = backend_registry()[static_cast<size_t>(index)];
  *info = {.name = entry.name,
           .device = static_cast<lq_device_type>(entry.device),
           .description = entry.description,
           .supports = entry.supports,
           .targets = entry.targets()};
  return {};
}

Status describe_context(const lq_context* context, lq_context_info* info) {
  LQ_RETURN_IF_ERROR(require(context, "context"));
  LQ_RETURN_IF_ERROR(require(info, "info"));
  const BackendState& state = context->backend->state();
  *info = {.backend = state.name,
           .target = state.target.c_str(),
           .threads = state.threads,
           .device = {static_cast<lq_device_type>(state.device.type), state.device.index}};
  return {};
}

Status context_supports(const lq_context* context, const lq_geometry* geometry) {
  LQ_RETURN_IF_ERROR(require(context, "context"));
  const Result<Geometry> valid = to_geometry(geometry);
  if (!valid.ok()) return valid.status();
  return context->backend->supports(valid.value());
}

}  // namespace
}  // namespace leapquant::api

namespace api = leapquant::api;

extern "C" {

const char* lq_version(void) {
  return LQ_STRING(LQ_VERSION_MAJOR) "." LQ_STRING(LQ_VERSION_MINOR) "." LQ_STRING(LQ_VERSION_PATCH);
}

const char* lq_status_name(lq_status status) {
  switch (status) {
    case LQ_OK:
      return "OK";
    case LQ_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case LQ_UNSUPPORTED:
      return "UNSUPPORTED";
    case LQ_OUT_OF_MEMORY:
      return "OUT_OF_MEMORY";
    case LQ_CUDA:
      return "CUDA";
    case LQ_IO:
      return "IO";
    case LQ_INTERNAL:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

const char* lq_last_error(void) { return api::last_error; }

lq_tensor lq_tensor_contiguous(void* data, lq_dtype dtype, lq_device device, int32_t ndim, const int64_t* shape) {
  lq_tensor tensor{};
  tensor.data = data;
  tensor.dtype = dtype;
  tensor.device = device;
  tensor.ndim = ndim;
  if (ndim < 0 || ndim > LQ_MAX_DIMS || (ndim > 0 && shape == nullptr)) return tensor;
  int64_t stride = 1;
  for (int32_t d = ndim - 1; d >= 0; --d) {
    tensor.shape[d] = shape[d];
    tensor.strides[d] = stride;
    if (__builtin_mul_overflow(stride, shape[d], &stride)) stride = std::numeric_limits<int64_t>::max();
  }
  return tensor;
}

lq_geometry lq_geometry_default(lq_gate gate) {
  const leapquant::Geometry geometry;
  return {.gate = gate,
          .num_heads = geometry.num_heads,
          .num_key_heads = gate == LQ_GATE_GDN ? geometry.num_heads / 2 : geometry.num_heads,
          .value_dim = geometry.value_dim,
          .key_dim = geometry.key_dim,
          .window = geometry.window,
          .rank = geometry.rank,
          .code_bits = geometry.code_bits};
}

int32_t lq_backend_count(void) { return static_cast<int32_t>(leapquant::backend_registry().size()); }

lq_status lq_backend_describe(int32_t index, lq_backend_info* info) {
  return api::guarded([&] { return api::describe_backend(index, info); });
}

lq_status lq_context_create(const lq_context_options* options, lq_context** context) {
  return api::guarded([&] { return api::create_context(options, context); });
}

void lq_context_destroy(lq_context* context) { delete context; }

lq_status lq_context_describe(const lq_context* context, lq_context_info* info) {
  return api::guarded([&] { return api::describe_context(context, info); });
}

lq_status lq_context_supports(const lq_context* context, const lq_geometry* geometry) {
  return api::guarded([&] { return api::context_supports(context, geometry); });
}

lq_status lq_flush(lq_context* context, const lq_geometry* geometry, const lq_checkpoint* checkpoint,
                   const lq_window* window, const lq_tensor* q0, const lq_checkpoint* result, uint32_t flags,
                   void* stream) {
  return api::guarded([&] { return api::flush(context, {geometry, checkpoint, window, q0, result, flags}, stream); });
}

lq_status lq_step(lq_context* context, const lq_geometry* geometry, const lq_checkpoint* checkpoint,
                  const lq_window* window, const lq_tensor* h, const lq_token* token, const lq_step_params* params,
                  const lq_step_result* result, void* stream) {
  return api::guarded([&] {
    return api::step(context, {geometry, checkpoint, window, h, token, params, result}, stream);
  });
}

lq_status lq_pool_size(const lq_geometry* geometry, lq_layout layout, int64_t num_slots, lq_pool_sizes* sizes) {
  return api::guarded([&] { return api::size_pool(geometry, layout, num_slots, sizes); });
}

lq_status lq_pool_slots_in(const lq_geometry* geometry, lq_layout layout, int64_t bytes, int64_t* num_slots) {
  return api::guarded([&] { return api::count_slots(geometry, layout, bytes, num_slots); });
}

lq_status lq_pool_create(lq_context* context, const lq_pool_options* options, lq_pool** pool) {
  return api::guarded([&] { return api::create_pool(context, options, pool); });
}

void lq_pool_destroy(lq_pool* pool) { delete pool; }

lq_status lq_pool_view(const lq_pool* pool, lq_pool_tensors* tensors) {
  return api::guarded([&] { return api::view_pool(pool, tensors); });
}

lq_status lq_flush_inplace(lq_pool* pool, const lq_tensor* idx, const lq_tensor* q0, void* stream) {
  return api::guarded([&] { return api::flush_inplace(pool, idx, q0, stream); });
}

lq_status lq_step_inplace(lq_pool* pool, const lq_tensor* idx, const lq_token* token, const lq_step_params* params,
                          const lq_tensor* o, void* stream) {
  return api::guarded([&] { return api::step_inplace(pool, {idx, token, params, o}, stream); });
}

lq_status lq_step_flush_inplace(lq_pool* pool, const lq_tensor* idx, const lq_token* token,
                                const lq_step_params* params, const lq_tensor* q0, const lq_tensor* o, void* stream) {
  return api::guarded([&] { return api::step_flush_inplace(pool, {idx, token, params, o}, q0, stream); });
}

lq_status lq_draft_bytes(const lq_geometry* geometry, int64_t n, int32_t tokens, int64_t* bytes) {
  return api::guarded([&] { return api::size_draft(geometry, n, tokens, bytes); });
}

lq_status lq_pool_draft(lq_pool* pool, const lq_tensor* idx, int32_t tokens, const lq_token* token,
                        const lq_step_params* params, const lq_tensor* scratch, const lq_tensor* o, void* stream) {
  return api::guarded([&] { return api::draft(pool, {idx, token, params, o}, tokens, scratch, stream); });
}

lq_status lq_pool_commit(lq_pool* pool, const lq_tensor* idx, int32_t tokens, const lq_tensor* scratch,
                         const lq_tensor* accepted, const lq_tensor* q0, void* stream) {
  return api::guarded([&] { return api::commit(pool, {idx, tokens, scratch, accepted, q0}, stream); });
}

lq_status lq_pool_flush_now(lq_pool* pool, const lq_tensor* idx, const lq_tensor* q0, void* stream) {
  return api::guarded([&] { return api::flush_now(pool, idx, q0, stream); });
}

lq_status lq_pool_reset_slots(lq_pool* pool, const lq_tensor* idx, void* stream) {
  return api::guarded([&] { return api::reset_slots(pool, idx, stream); });
}

lq_status lq_pool_copy_slots(lq_pool* pool, const lq_tensor* src, const lq_tensor* dst, void* stream) {
  return api::guarded([&] { return api::copy_slots(pool, src, dst, stream); });
}

lq_status lq_pool_import_state(lq_pool* pool, const lq_tensor* idx, const lq_tensor* state, lq_state_order order,
                               const lq_tensor* offset, const lq_tensor* q0, void* stream) {
  return api::guarded([&] { return api::import_state(pool, {idx, state, order, offset, q0}, stream); });
}

lq_status lq_pool_export_state(lq_pool* pool, const lq_tensor* idx, const lq_tensor* state, lq_state_order order,
                               void* stream) {
  return api::guarded([&] { return api::export_state(pool, idx, state, order, stream); });
}

lq_status lq_pool_check_indices(lq_pool* pool, const lq_tensor* idx, void* stream) {
  return api::guarded([&] { return api::check_indices(pool, idx, stream); });
}

lq_status lq_pool_read_errors(lq_pool* pool, void* stream, lq_pool_errors* errors) {
  return api::guarded([&] { return api::read_errors(pool, stream, errors); });
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
//
// leapquant: a thin C++17 layer over the C interface. Owning handles, exceptions instead of status codes. The C
// header documents shapes, units, errors and lifetimes; nothing is added to them here.
#ifndef LEAPQUANT_LEAPQUANT_HPP_
#define LEAPQUANT_LEAPQUANT_HPP_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "leapquant/leapquant.h"

namespace leapquant {

// Everything here is compiled into the user's program: the inline namespace keeps it apart from the library's own
// classes, which may bear the same names, when the two are linked statically.
inline namespace v0 {

// A failed call: the library's text, and its status code.
class Error : public std::runtime_error {
 public:
  Error(lq_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  lq_status status() const noexcept { return status_; }

 private:
  lq_status status_;
};

// Throws Error unless `status` is LQ_OK. Call it on the thread that made the call.
inline void check(lq_status status) {
  if (status != LQ_OK) throw Error(status, lq_last_error());
}

inline constexpr lq_device kCpuDevice{LQ_DEVICE_CPU, 0};

inline constexpr lq_step_params kStepDefaults = LQ_STEP_PARAMS_DEFAULT;

// A contiguous tensor over memory of the caller.
inline lq_tensor tensor(void* data, lq_dtype dtype, std::initializer_list<int64_t> shape,
                        lq_device device = kCpuDevice) {
  return lq_tensor_contiguous(data, dtype, device, static_cast<int32_t>(shape.size()), shape.begin());
}

// A backend with its workers. Pools made from it may outlive it.
class Context {
 public:
  // An empty backend takes the build's first; 0 threads as many as the process may use.
  explicit Context(const std::string& backend = "", int32_t threads = 0, const std::string& target = "",
                   int32_t device = 0) {
    lq_context_options options{};
    options.backend = backend.empty() ? nullptr : backend.c_str();
    options.threads = threads;
    options.device = device;
    options.target = target.empty() ? nullptr : target.c_str();
    lq_context* context = nullptr;
    check(lq_context_create(&options, &context));
    context_.reset(context);
  }

  lq_context* get() const noexcept { return context_.get(); }

  lq_context_info info() const {
    lq_context_info result{};
    check(lq_context_describe(get(), &result));
    return result;
  }

  // Throws Error (LQ_UNSUPPORTED) that says what the backend lacks.
  void require(const lq_geometry& geometry) const { check(lq_context_supports(get(), &geometry)); }

  // See lq_flush.
  void flush(const lq_geometry& geometry, const lq_checkpoint& checkpoint, const lq_window& window, const lq_tensor& q0,
             const lq_checkpoint& result, uint32_t flags = LQ_FLUSH_DEFAULT, void* stream = nullptr) const {
    check(lq_flush(get(), &geometry, &checkpoint, &window, &q0, &result, flags, stream));
  }

  // See lq_step.
  void step(const lq_geometry& geometry, const lq_checkpoint& checkpoint, const lq_window& window, const lq_tensor& h,
            const lq_token& token, const lq_step_result& result, const lq_step_params& params = kStepDefaults,
            void* stream = nullptr) const {
    check(lq_step(get(), &geometry, &checkpoint, &window, &h, &token, &params, &result, stream));
  }

 private:
  struct Destroy {
    void operator()(lq_context* context) const noexcept { lq_context_destroy(context); }
  };
  std::unique_ptr<lq_context, Destroy> context_;
};

// A pool of slots. See lq_pool_create, lq_step_inplace and lq_flush_inplace.
class Pool {
 public:
  Pool(const Context& context, const lq_pool_options& options) {
    lq_pool* pool = nullptr;
    check(lq_pool_create(context.get(), &options, &pool));
    pool_.reset(pool);
  }

  // A pool whose memory the library owns.
  Pool(const Context& context, const lq_geometry& geometry, int64_t num_slots, lq_layout layout = LQ_LAYOUT_COMPACT)
      : Pool(context, lq_pool_options{geometry, layout, num_slots, nullptr, LQ_POOL_DEFAULT}) {}

  lq_pool* get() const noexcept { return pool_.get(); }

  lq_pool_tensors tensors() const {
    lq_pool_tensors result{};
    check(lq_pool_view(get(), &result));
    return result;
  }

  void flush_inplace(const lq_tensor& idx, const lq_tensor& q0, void* stream = nullptr) const {
    check(lq_flush_inplace(get(), &idx, &q0, stream));
  }

  // See lq_step_inplace.
  void step_inplace(const lq_tensor& idx, const lq_token& token, const lq_tensor& o,
                    const lq_step_params& params = kStepDefaults, void* stream = nullptr) const {
    check(lq_step_inplace(get(), &idx, &token, &params, &o, stream));
  }

  // See lq_step_flush_inplace.
  void step_flush_inplace(const lq_tensor& idx, const lq_token& token, const lq_tensor& q0, const lq_tensor& o,
                          const lq_step_params& params = kStepDefaults, void* stream = nullptr) const {
    check(lq_step_flush_inplace(get(), &idx, &token, &params, &q0, &o, stream));
  }

  // See lq_pool_draft.
  void draft(const lq_tensor& idx, int32_t tokens, const lq_token& token, const lq_tensor& scratch, const lq_tensor& o,
             const lq_step_params& params = kStepDefaults, void* stream = nullptr) const {
    check(lq_pool_draft(get(), &idx, tokens, &token, &params, &scratch, &o, stream));
  }

  // See lq_pool_commit.
  void commit(const lq_tensor& idx, int32_t tokens, const lq_tensor& scratch, const lq_tensor& accepted,
              const lq_tensor& q0, void* stream = nullptr) const {
    check(lq_pool_commit(get(), &idx, tokens, &scratch, &accepted, &q0, stream));
  }

  void flush_now(const lq_tensor& idx, const lq_tensor& q0, void* stream = nullptr) const {
    check(lq_pool_flush_now(get(), &idx, &q0, stream));
  }

  void reset_slots(const lq_tensor& idx, void* stream = nullptr) const {
    check(lq_pool_reset_slots(get(), &idx, stream));
  }

  void copy_slots(const lq_tensor& src, const lq_tensor& dst, void* stream = nullptr) const {
    check(lq_pool_copy_slots(get(), &src, &dst, stream));
  }

  // See lq_pool_import_state. `offset` may be null.
  void import_state(const lq_tensor& idx, const lq_tensor& state, lq_state_order order, const lq_tensor* offset,
                    const lq_tensor& q0, void* stream = nullptr) const {
    check(lq_pool_import_state(get(), &idx, &state, order, offset, &q0, stream));
  }

  // See lq_pool_export_state.
  void export_state(const lq_tensor& idx, const lq_tensor& state, lq_state_order order = LQ_STATE_VK,
                    void* stream = nullptr) const {
    check(lq_pool_export_state(get(), &idx, &state, order, stream));
  }

  void check_indices(const lq_tensor& idx, void* stream = nullptr) const {
    check(lq_pool_check_indices(get(), &idx, stream));
  }

  // Reads and clears the error word.
  lq_pool_errors read_errors(void* stream = nullptr) const {
    lq_pool_errors result{};
    check(lq_pool_read_errors(get(), stream, &result));
    return result;
  }

 private:
  struct Destroy {
    void operator()(lq_pool* pool) const noexcept { lq_pool_destroy(pool); }
  };
  std::unique_ptr<lq_pool, Destroy> pool_;
};

// Bytes of the scratch for drafts of `tokens` tokens of n sequences.
inline int64_t draft_bytes(const lq_geometry& geometry, int64_t n, int32_t tokens) {
  int64_t bytes = 0;
  check(lq_draft_bytes(&geometry, n, tokens, &bytes));
  return bytes;
}

// The backends of this build, preferred first.
inline std::vector<lq_backend_info> backends() {
  std::vector<lq_backend_info> result(static_cast<size_t>(lq_backend_count()));
  for (size_t i = 0; i < result.size(); ++i) check(lq_backend_describe(static_cast<int32_t>(i), &result[i]));
  return result;
}

}  // namespace v0
}  // namespace leapquant

#endif  // LEAPQUANT_LEAPQUANT_HPP_

/* SPDX-License-Identifier: Apache-2.0
 *
 * leapquant: the C interface.
 *
 * LeapQuant keeps the recurrent state of a linear-attention layer as a quantized checkpoint plus a window of buffered
 * rank-1 updates. This interface steps: one token's output, and its entry for the window; and flushes windows into new
 * checkpoints, on tensors that the caller holds or in a pool of slots, whose states can be imported, copied, exported
 * and stepped ahead. docs/format.md describes the bytes and the formulas; the step numbers below refer to it.
 *
 * Conventions
 *  - Every function returns an lq_status and never throws, prints or aborts. On any status but LQ_OK nothing was
 *    written to the caller's tensors, and lq_last_error() holds a text that names what was wrong.
 *  - One context may be used by several threads at a time; its calls then run one after another. Calls on one pool must
 *    be ordered by the caller.
 *  - `stream` is the backend's queue: NULL on CPU backends, where every call has finished when it returns; a
 *    cudaStream_t on "cuda", where NULL is the legacy default stream and calls only enqueue, those aside that say
 *    otherwise.
 *  - On "cuda" every program of a tensor of checkpoints or windows begins at a multiple of 16 bytes (GDN's p aside), as
 *    in a contiguous tensor and in a pool of the library's; others are refused (LQ_UNSUPPORTED).
 *  - Tensor names are the wire names of the format: see lq_checkpoint and lq_window.
 */
#ifndef LEAPQUANT_LEAPQUANT_H_
#define LEAPQUANT_LEAPQUANT_H_

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define LQ_API
#else
#define LQ_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define LQ_VERSION_MAJOR 0
#define LQ_VERSION_MINOR 1
#define LQ_VERSION_PATCH 0

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef enum lq_status {
  LQ_OK = 0,
  LQ_INVALID_ARGUMENT = 1, /* a tensor, size or option is wrong; the text names it, what was expected, what came */
  LQ_UNSUPPORTED = 2,      /* the request is valid, but this backend lacks it */
  LQ_OUT_OF_MEMORY = 3,    /* memory or threads that the system does not give */
  LQ_CUDA = 4,             /* an error of the CUDA runtime */
  LQ_IO = 5,               /* a file that cannot be read or written */
  LQ_INTERNAL = 6          /* a defect of the library */
} lq_status;

/* "1.2.3" of the library that is loaded. Static storage. */
LQ_API const char* lq_version(void);

/* Name of a status, such as "INVALID_ARGUMENT". Static storage; never NULL. */
LQ_API const char* lq_status_name(lq_status status);

/* Text of the newest failed call of this thread; "" before the first. Valid until the thread's next failing call. */
LQ_API const char* lq_last_error(void);

/* ---- tensors --------------------------------------------------------------------------------------------------- */

#define LQ_MAX_DIMS 5

typedef enum lq_dtype {
  LQ_DTYPE_NONE = 0,
  LQ_INT8 = 1,
  LQ_INT32 = 2,
  LQ_FLOAT16 = 3,
  LQ_BFLOAT16 = 4,
  LQ_FLOAT32 = 5
} lq_dtype;

/* The values are DLPack's. */
typedef enum lq_device_type { LQ_DEVICE_CPU = 1, LQ_DEVICE_CUDA = 2 } lq_device_type;

typedef struct lq_device {
  lq_device_type type;
  int32_t index; /* 0 on the CPU */
} lq_device;

/* A view of memory that somebody else owns. A tensor that a call does not use is all zero. */
typedef struct lq_tensor {
  void* data;
  lq_dtype dtype;
  lq_device device;
  int32_t ndim;
  int64_t shape[LQ_MAX_DIMS];
  int64_t strides[LQ_MAX_DIMS]; /* in elements */
} lq_tensor;

/* A contiguous (row-major) tensor. `ndim` beyond LQ_MAX_DIMS, or no shape, gives a tensor that every call refuses. */
LQ_API lq_tensor lq_tensor_contiguous(void* data, lq_dtype dtype, lq_device device, int32_t ndim, const int64_t* shape);

/* ---- geometry -------------------------------------------------------------------------------------------------- */

typedef enum lq_gate {
  LQ_GATE_KDA = 1, /* Kimi Delta Attention: one decay per key channel */
  LQ_GATE_GDN = 2  /* Gated DeltaNet: one decay per head */
} lq_gate;

typedef struct lq_geometry {
  lq_gate gate;
  int32_t num_heads;     /* H: value heads */
  int32_t num_key_heads; /* H_k: divides num_heads; equal to it for KDA */
  int32_t value_dim;     /* V */
  int32_t key_dim;       /* K */
  int32_t window;        /* L: entries in a window */
  int32_t rank;          /* R: rank-1 factors in a checkpoint */
  int32_t code_bits;     /* bits of a residual code */
} lq_geometry;

/* The default geometry of a gate: 32 heads, V = K = 128, window 16, rank 4, 8-bit codes. */
LQ_API lq_geometry lq_geometry_default(lq_gate gate);

/* ---- backends and contexts ------------------------------------------------------------------------------------- */

/* What one backend of this build offers. Static storage. */
typedef struct lq_backend_info {
  const char* name;        /* "cpu", "ref", ... */
  lq_device_type device;   /* where its tensors live */
  const char* description; /* one line */
  const char* supports;    /* one line: the geometries it takes */
  const char* targets;     /* instruction sets or architectures usable on this machine, best first, comma separated;
                              "" when there is none: no such device here, and lq_context_create says so */
} lq_backend_info;

/* Number of backends in this build. Those on host memory come first, preferred first: a context made without a name
 * takes host tensors on every machine, and whoever has device tensors names the backend. */
LQ_API int32_t lq_backend_count(void);

/* Describes backend `index` in [0, lq_backend_count()). */
LQ_API lq_status lq_backend_describe(int32_t index, lq_backend_info* info);

typedef struct lq_context_options {
  const char* backend; /* NULL: the first of lq_backend_describe */
  int32_t threads; /* CPU backends: 0 = as many as the process may use (affinity and container quota); at most 1024 */
  int32_t device;  /* device index; 0 on the CPU */
  const char* target; /* CPU backend: force an instruction set; NULL = environment LQ_CPU_TARGET, or the best one */
} lq_context_options;

/* A backend, ready to run: its worker threads and scratch memory. */
typedef struct lq_context lq_context;

/* Creates a context. `options` may be NULL. All memory that calls need is allocated here or in lq_pool_create. */
LQ_API lq_status lq_context_create(const lq_context_options* options, lq_context** context);

/* Destroys a context; NULL is allowed. Pools made from it stay valid. */
LQ_API void lq_context_destroy(lq_context* context);

typedef struct lq_context_info {
  const char* backend; /* valid as long as the context */
  const char* target;  /* instruction set or architecture in use */
  int32_t threads;     /* threads that work on a call, the calling one included */
  lq_device device;
} lq_context_info;

/* Describes a context: what was chosen where the options left it open. */
LQ_API lq_status lq_context_describe(const lq_context* context, lq_context_info* info);

/* LQ_OK when the context's backend takes the geometry; otherwise the error text says what it lacks. */
LQ_API lq_status lq_context_supports(const lq_context* context, const lq_geometry* geometry);

/* ---- functional flush ------------------------------------------------------------------------------------------ */

/* Checkpoints of B x H programs. decode: S[v,k] = sum_r q[r,v] u[r,k] + codes[v,k] (s_k[k] / 127) s_v[v] */
typedef struct lq_checkpoint {
  lq_tensor codes; /* int8    [B, H, V, K] residual codes in [-127, 127] */
  lq_tensor s_k;   /* float32 [B, H, K]    column (key) scales */
  lq_tensor s_v;   /* float32 [B, H, V]    row (value) scales */
  lq_tensor u;     /* float16 [B, H, R, K] key factors */
  lq_tensor q;     /* float16 [B, H, R, V] value factors */
} lq_checkpoint;

/* Windows of B x H programs. */
typedef struct lq_window {
  lq_tensor kbuf; /* bfloat16 [B, H, L, K] normalised keys */
  lq_tensor ubuf; /* bfloat16 [B, H, L, V] update vectors */
  lq_tensor w;    /* float32  [B, H, L]    entry weights; an entry of weight 0 contributes nothing */
  lq_tensor gbuf; /* float16  [B, H, L, K] KDA only: decay factor of the step that appended the entry */
  lq_tensor pcum; /* float32  [B, H, K]    KDA only: log-gate summed since the checkpoint */
  lq_tensor p;    /* float32  [B, H]       GDN only: product of the gates since the checkpoint; or [B, H, 1] */
} lq_window;

typedef enum lq_flush_flags {
  LQ_FLUSH_DEFAULT = 0,
  /* Refuse NaN and Inf in any input, naming the tensor and the first place. Looks at copies on the host: the call
   * allocates them, on a GPU it waits for `stream` and cannot be captured, and it costs far more than the flush. */
  LQ_FLUSH_CHECK_FINITE = 1
} lq_flush_flags;

/* Flushes every program of a batch: rebuilds each state from `checkpoint` and `window` (step 1) and quantizes it into
 * `result` (steps 2 and 3).
 *
 *   q0      float32 [V, R], contiguous: the fixed start basis of the subspace iteration, shared by all programs. It may
 *           be rank deficient or zero; the factors then come out zero in the missing directions.
 *   result  contiguous tensors that overlap no input and not one another.
 *
 * Inputs may be strided over batch and head (and u, q over the rank); the inner dimensions are contiguous. B is taken
 * from `codes` and is at least 1. Non-finite inputs of a program make that program's result non-finite, and no other.
 */
LQ_API lq_status lq_flush(lq_context* context, const lq_geometry* geometry, const lq_checkpoint* checkpoint,
                          const lq_window* window, const lq_tensor* q0, const lq_checkpoint* result, uint32_t flags,
                          void* stream);

/* ---- step ------------------------------------------------------------------------------------------------------ */

/* How a log-gate g, one a key channel or (GDN) one a head, comes about (format.md, T2). */
typedef enum lq_gate_function {
  LQ_GATE_SOFTPLUS = 0, /* -exp(A_log) softplus(a + dt_bias) */
  LQ_GATE_BOUNDED = 1,  /* lower_bound sigmoid(exp(A_log) (a + dt_bias)) */
  LQ_GATE_GIVEN = 2     /* log_gate of the token, as it stands */
} lq_gate_function;

/* Options of a step. Begin with LQ_STEP_PARAMS_DEFAULT: later versions add members at the end, and `size` tells which
 * ones the caller knows. */
typedef struct lq_step_params {
  uint32_t size; /* sizeof(lq_step_params) */
  lq_gate_function gate_function;
  float lower_bound; /* LQ_GATE_BOUNDED: finite, below 0; otherwise not looked at */
  uint32_t flags;    /* 0 */
} lq_step_params;

#define LQ_STEP_PARAMS_DEFAULT \
  { sizeof(lq_step_params), LQ_GATE_SOFTPLUS, -5.0f, 0 }

/* One token of each of B sequences, H programs each. Query, key and value come as one packed row per sequence or as
 * three tensors, gates as pre-activations or given; tensors that are not used are zero. All may be strided over batch
 * and head; the inner dimension is contiguous. Nothing is normalised: T1 does that.
 *
 * Value head i takes query and key of key head i / (H / H_k). C is K for KDA; for GDN, whose decay is one number, the
 * tensors lack that dimension or have one of 1. */
typedef struct lq_token {
  lq_tensor mixed;    /* bfloat16 [B, 2 H_k K + H V]: queries of the key heads, their keys, values of the heads */
  lq_tensor qx;       /* bfloat16 [B, H_k, K]   query, where there is no `mixed` */
  lq_tensor kx;       /* bfloat16 [B, H_k, K]   key */
  lq_tensor vx;       /* bfloat16 [B, H, V]     value */
  lq_tensor a;        /* bfloat16 [B, H, C]     gate pre-activations, unless the gate is given */
  lq_tensor b;        /* bfloat16 [B, H]        beta pre-activations */
  lq_tensor A_log;    /* float32  [H]           contiguous; unless the gate is given */
  lq_tensor dt_bias;  /* float32  [H, C]        contiguous; unless the gate is given */
  lq_tensor log_gate; /* float32  [B, H, C]     natural logarithm of the gate, <= 0; only LQ_GATE_GIVEN */
} lq_token;

/* What a functional step gives. */
typedef struct lq_step_result {
  lq_tensor o;        /* bfloat16 [B, H, V]  output */
  lq_tensor k_row;    /* bfloat16 [B, H, K]  entry h of kbuf */
  lq_tensor u_row;    /* bfloat16 [B, H, V]  entry h of ubuf */
  lq_tensor g_row;    /* float16  [B, H, K]  KDA only: entry h of gbuf */
  lq_tensor w_new;    /* float32  [B, H, L]  `w`, below entry h as GDN's gate leaves it, and 1 at entry h */
  lq_tensor pcum_new; /* float32  [B, H, K]  KDA only: takes the place of pcum */
  lq_tensor p_new;    /* float32  [B, H]     GDN only: takes the place of p; or [B, H, 1] */
} lq_step_result;

/* Steps every program of a batch by one token, from `checkpoint` and the first h entries of `window`. What the rows
 * from h on hold is not looked at, and neither are the rows of an entry of weight 0, its gate aside.
 *
 *   h       int32 [B, H], may be strided: occupied entries, 0 to L - 1.
 *   params  NULL: LQ_STEP_PARAMS_DEFAULT.
 *   result  contiguous tensors that overlap no input and not one another.
 *
 * A backend on host memory refuses any other count of entries. On a device nobody looks before the call: all results of
 * such a program are NaN.
 *
 * Checkpoint and window are strided as in lq_flush. B is taken from `codes` and is at least 1. Non-finite inputs of a
 * program make that program's results non-finite, and no other. Allocates and synchronises as lq_step_inplace does.
 */
LQ_API lq_status lq_step(lq_context* context, const lq_geometry* geometry, const lq_checkpoint* checkpoint,
                         const lq_window* window, const lq_tensor* h, const lq_token* token,
                         const lq_step_params* params, const lq_step_result* result, void* stream);

/* ---- pool ------------------------------------------------------------------------------------------------------ */

typedef enum lq_layout {
  LQ_LAYOUT_COMPACT = 1, /* heads follow one another: the checkpoint takes only the bytes it needs */
  LQ_LAYOUT_PADDED = 2   /* the published layout: 65,536 bytes a head, H + 1 heads a slot, 49,152 bytes in front */
} lq_layout;

/* Bytes of a pool. A slot is one sequence's H programs. */
typedef struct lq_pool_sizes {
  int64_t raw_bytes;                 /* the flat checkpoint buffer, base offset included */
  int64_t window_bytes;              /* window tensors and counters together */
  int64_t checkpoint_bytes_per_slot; /* stride of a slot in the flat buffer */
  int64_t window_bytes_per_slot;
  int64_t fp32_bytes_per_slot; /* what a dense fp32 state would take */
} lq_pool_sizes;

/* Sizes of a pool of `num_slots` slots. Slot 0 is reserved, and counts. */
LQ_API lq_status lq_pool_size(const lq_geometry* geometry, lq_layout layout, int64_t num_slots, lq_pool_sizes* sizes);

/* The largest number of slots whose checkpoint and window tensors fit in `bytes`; 0 when not even one does. */
LQ_API lq_status lq_pool_slots_in(const lq_geometry* geometry, lq_layout layout, int64_t bytes, int64_t* num_slots);

/* The tensors of a pool. N slots; all but `raw` and the checkpoint views are dense.
 * Only `raw`, the window tensors and `hcnt` own bytes: codes, s_k, s_v and uq are strided views of `raw`. */
typedef struct lq_pool_tensors {
  lq_tensor raw;   /* float32  flat: the checkpoint buffer */
  lq_tensor codes; /* int8     [N, H, V, K] */
  lq_tensor s_k;   /* float32  [N, H, K] */
  lq_tensor s_v;   /* float32  [N, H, V] */
  lq_tensor uq;    /* float16  [N, H, R, K + V]; row r is u[r] followed by q[r] */
  lq_tensor kbuf;  /* bfloat16 [N, H, L, K] */
  lq_tensor ubuf;  /* bfloat16 [N, H, L, V] */
  lq_tensor w;     /* float32  [N, H, L] */
  lq_tensor gbuf;  /* float16  [N, H, L, K]  KDA only */
  lq_tensor pcum;  /* float32  [N, H, K]     KDA only */
  lq_tensor p;     /* float32  [N, H]        GDN only */
  lq_tensor hcnt;  /* int32    [N, H]        fill counter of each program */
} lq_pool_tensors;

typedef enum lq_pool_flags {
  LQ_POOL_DEFAULT = 0,
  LQ_POOL_KEEP_CONTENTS = 1 /* caller-owned memory already holds slots: don't initialise it */
} lq_pool_flags;

typedef struct lq_pool_options {
  lq_geometry geometry;
  lq_layout layout;
  int64_t num_slots; /* N, slot 0 included */
  /* NULL: the library owns the memory. Otherwise the caller's contiguous raw, kbuf, ubuf, w, gbuf, pcum or p, and hcnt,
   * which outlive the pool and overlap nowhere; p may be [N, H, 1]. The view members (codes, s_k, s_v, uq) are not
   * read. */
  const lq_pool_tensors* storage;
  uint32_t flags; /* lq_pool_flags */
} lq_pool_options;

typedef struct lq_pool lq_pool;

/* Creates a pool. Unless LQ_POOL_KEEP_CONTENTS is given, every slot is a valid zero state: raw, kbuf, ubuf, w, pcum and
 * hcnt zero, gbuf and p one. */
LQ_API lq_status lq_pool_create(lq_context* context, const lq_pool_options* options, lq_pool** pool);

/* Destroys a pool; NULL is allowed. */
LQ_API void lq_pool_destroy(lq_pool* pool);

/* Views of the pool's memory, valid as long as the pool. */
LQ_API lq_status lq_pool_view(const lq_pool* pool, lq_pool_tensors* tensors);

/* Flushes, in place, every program of the slots in `idx` whose counter equals L: writes the new checkpoint over the old
 * one and resets the window (w = 0, gbuf = 1, pcum = 0; GDN: w = 0, p = 1). All other bytes stay, counters included: a
 * counter of L then means "flushed, empty" to the next step, and a second flush without a step quantizes again.
 *
 *   idx  int32 [n], contiguous, on the pool's device. Entries <= 0 mean "no sequence" and are skipped. An entry beyond
 *        the pool touches nothing and is recorded in the error word. n may be 0 or exceed the number of slots.
 *        Duplicates are the caller's error: see lq_pool_check_indices.
 *   q0   float32 [V, R], contiguous, on the pool's device.
 *
 * No allocation (the reference backend aside, whose scratch comes and goes), no synchronisation. On a GPU backend the
 * call only enqueues, and idx, q0 and the pool must stay alive until it has run (for a captured graph: as long as the
 * graph).
 */
LQ_API lq_status lq_flush_inplace(lq_pool* pool, const lq_tensor* idx, const lq_tensor* q0, void* stream);

/* Steps the sequences of the slots in `idx` by one token, in place: writes the output rows, appends an entry to each
 * window, and counts it. Position i of `idx` takes row i of the token's tensors and of `o`.
 *
 *   idx     int32 [n], contiguous, on the pool's device. Entries <= 0 mean "no sequence": their output rows are zero.
 *           So is that of an entry beyond the pool, which touches nothing and is recorded in the error word. n may be 0
 *           or exceed the number of slots. Duplicates are the caller's error: see lq_pool_check_indices.
 *   token   B is n. On the pool's device; overlaps nothing of the pool.
 *   params  NULL: LQ_STEP_PARAMS_DEFAULT.
 *   o       bfloat16 [n, H, V], contiguous, on the pool's device; overlaps nothing else.
 *
 * A counter from 0 to L - 1 is the number of occupied entries; the new one goes behind them, and the counter grows by
 * one. A counter of L means that a flush has emptied the window: the new entry is its first, and the counter becomes 1.
 * Of two kinds of window a program's step leaves every byte as it was, writes a zero output row, and records the
 * position in the error word: one with a counter of L whose last weight is not 0 was never flushed
 * (LQ_ERROR_UNFLUSHED), and a counter below 0 or above L is none (LQ_ERROR_COUNTER). A step whose results are not
 * finite is carried out and recorded (LQ_ERROR_NONFINITE).
 *
 * No allocation (the reference backend aside), no synchronisation. On a GPU backend the call only enqueues, and idx,
 * token, o and the pool must stay alive until it has run (for a captured graph: as long as the graph).
 */
LQ_API lq_status lq_step_inplace(lq_pool* pool, const lq_tensor* idx, const lq_token* token,
                                 const lq_step_params* params, const lq_tensor* o, void* stream);

/* lq_step_inplace and then lq_flush_inplace, with the same bits and the same records in the error word: what the step
 * has made due is flushed at once, so that an engine makes one call a layer and token. (A window that the step found
 * full and not flushed is due as well; its token is not in it.) All arguments are checked before anything is written.
 * `q0` is that of lq_flush_inplace, and does not overlap `o`. */
LQ_API lq_status lq_step_flush_inplace(lq_pool* pool, const lq_tensor* idx, const lq_token* token,
                                       const lq_step_params* params, const lq_tensor* q0, const lq_tensor* o,
                                       void* stream);

/* ---- speculative decoding ---- */

#define LQ_MAX_DRAFT_TOKENS 8

/* Bytes of the scratch that holds drafts of `tokens` tokens (1 to LQ_MAX_DRAFT_TOKENS) of n sequences: 1,280 a token
 * and head, and 528 a head, at K = V = 128. GDN: 520 a token and head, 96 a head, and up to 24 to round up. */
LQ_API lq_status lq_draft_bytes(const lq_geometry* geometry, int64_t n, int32_t tokens, int64_t* bytes);

/* Steps the sequences of the slots in `idx` by `tokens` drafted tokens each, T of them, and keeps what the steps would
 * append in `scratch`: every token attends to checkpoint, window and the drafted tokens before it, and no byte of the
 * pool is written until lq_pool_commit. Token t does not depend on later ones: sequences with fewer drafts fill up with
 * any rows, and don't accept them.
 *
 *   idx      as in lq_step_inplace.
 *   token    B is n T; row i T + t holds token t of position i: [n, T, ...] seen as [n T, ...].
 *   params   NULL: LQ_STEP_PARAMS_DEFAULT.
 *   scratch  int8 [bytes], contiguous, at a multiple of 16 bytes, at least lq_draft_bytes(n, T) long, on the pool's
 *            device; overlaps nothing else. What it held before does not matter.
 *   o        bfloat16 [n T, H, V], contiguous, rows as in `token`; overlaps nothing else.
 *
 * While the window has room for them, the tokens' outputs are those of T single steps, bit for bit. Those beyond its
 * end attend to all of its entries, which single steps would have flushed into the checkpoint by then.
 *
 * Programs that lq_step_inplace would not step give zero rows, and are recorded as there. Results that are not finite
 * are recorded by the commit that appends them. Allocates and synchronises as lq_step_inplace does. */
LQ_API lq_status lq_pool_draft(lq_pool* pool, const lq_tensor* idx, int32_t tokens, const lq_token* token,
                               const lq_step_params* params, const lq_tensor* scratch, const lq_tensor* o,
                               void* stream);

/* Appends the first accepted[i] of the tokens drafted for position i, in every head, and flushes each window that they
 * fill, as lq_step_flush_inplace would: at the window's end, and before the next token goes into the empty one. With 0
 * accepted a slot keeps every byte; with all T, and room for them, its bytes are those of T calls of
 * lq_step_flush_inplace.
 *
 *   idx, tokens, scratch  those of the draft. An index beyond the pool is recorded whatever it accepts.
 *   accepted              int32 [n], contiguous, on the pool's device: 0 to T. A backend on host memory refuses any
 *                         other value; elsewhere nothing is appended, and it is recorded (LQ_ERROR_COUNTER).
 *   q0                    as in lq_flush_inplace.
 *
 * Between draft and commit the slots must stay as they are: where there are not as many occupied entries as the draft
 * met, nothing is appended, and it is recorded (LQ_ERROR_COUNTER). So a draft is committed once. Allocates and
 * synchronises as lq_flush_inplace does. */
LQ_API lq_status lq_pool_commit(lq_pool* pool, const lq_tensor* idx, int32_t tokens, const lq_tensor* scratch,
                                const lq_tensor* accepted, const lq_tensor* q0, void* stream);

/* ---- whole slots ---- */

/* Flushes, in place, windows of any fill: every program of the slots in `idx` whose counter is from 1 to L gets a new
 * checkpoint, an empty window and counter 0. (A counter of L over a window that a flush has emptied becomes 0, and
 * nothing is quantized.) Entries from the counter on must be empty: weight 0, gate 1. Otherwise as lq_flush_inplace. */
LQ_API lq_status lq_pool_flush_now(lq_pool* pool, const lq_tensor* idx, const lq_tensor* q0, void* stream);

/* Gives the slots in `idx` the bytes of a new pool's: a zero state, an empty window, counters 0. Indices as in
 * lq_flush_inplace; duplicates are harmless. Allocates and synchronises as that does. */
LQ_API lq_status lq_pool_reset_slots(lq_pool* pool, const lq_tensor* idx, void* stream);

/* Copies slot src[i] to slot dst[i], for all i, byte for byte: checkpoint, window and counters. For forks of a sequence
 * and for prefix caches.
 *
 *   src, dst  int32 [n], contiguous, on the pool's device. A pair with an index <= 0 is skipped; one with an index
 *             beyond the pool is skipped and recorded in the error word. A slot of `dst` stands there once and nowhere
 *             in `src`: other lists are refused on host memory, which takes n * n comparisons; elsewhere they are the
 *             caller's error.
 *
 * Bytes between the regions of the padded layout are not copied. Allocates and synchronises as lq_flush_inplace does.
 */
LQ_API lq_status lq_pool_copy_slots(lq_pool* pool, const lq_tensor* src, const lq_tensor* dst, void* stream);

/* Which way the elements of a dense state run in memory. */
typedef enum lq_state_order {
  LQ_STATE_VK = 1, /* [V, K] */
  LQ_STATE_KV = 2  /* [K, V] */
} lq_state_order;

/* Imports dense states, as a prefill leaves them: every program of the slots in `idx` gets the checkpoint of its state
 * (steps 2 and 3 of a flush), an empty window, and the counter that `offset` says. Nothing of the slot's last tenant
 * stays. The state of a slot that is exported and imported again is as close as a flush would have left it, and on host
 * memory the same bit for bit.
 *
 *   idx     as in lq_flush_inplace; position i takes state i.
 *   state   float32 or bfloat16, [n, H, V, K] (LQ_STATE_VK) or [n, H, K, V] (LQ_STATE_KV); may be strided over n and H.
 *   offset  int32 [n, H], may be strided (stride 0 over n: the same for every sequence), or NULL for zeros: counters to
 *           begin with, 0 to L - 1. Offset c counts c entries that are empty, so that the first flush falls due after
 *           L - c steps: offsets spread over the heads spread the flushes over the tokens. A backend on host memory
 *           refuses any other value; elsewhere such a program keeps every byte and is recorded (LQ_ERROR_COUNTER).
 *   q0      as in lq_flush_inplace.
 *
 * A state that is not finite is imported all the same, and recorded (LQ_ERROR_NONFINITE). Allocates and synchronises as
 * lq_flush_inplace does. */
LQ_API lq_status lq_pool_import_state(lq_pool* pool, const lq_tensor* idx, const lq_tensor* state, lq_state_order order,
                                      const lq_tensor* offset, const lq_tensor* q0, void* stream);

/* Exports the states of the slots in `idx` at any fill: what checkpoint and window stand for (step 1 of a flush). The
 * pool keeps every byte. Entries from the counter on must be empty: weight 0, gate 1.
 *
 *   idx    as in lq_flush_inplace; position i gives state i. The states of an entry <= 0 and of one beyond the pool are
 *          zero, and so is that of a program whose counter is below 0 or above L; the last two are recorded
 *          (LQ_ERROR_INDEX, LQ_ERROR_COUNTER).
 *   state  float32 [n, H, V, K] (LQ_STATE_VK) or [n, H, K, V] (LQ_STATE_KV), contiguous; overlaps nothing else.
 *
 * Allocates and synchronises as lq_flush_inplace does. */
LQ_API lq_status lq_pool_export_state(lq_pool* pool, const lq_tensor* idx, const lq_tensor* state, lq_state_order order,
                                      void* stream);

/* Reports duplicate entries of `idx` as LQ_INVALID_ARGUMENT, naming the first two positions. Synchronises. */
LQ_API lq_status lq_pool_check_indices(lq_pool* pool, const lq_tensor* idx, void* stream);

/* Kinds of trouble that in-place calls meet in the data; they never stop the call. */
typedef enum lq_pool_error_kind {
  LQ_ERROR_INDEX = 0,     /* an index beyond the pool */
  LQ_ERROR_NONFINITE = 1, /* a flush or an import whose state or start basis holds NaN or Inf: so does the new
                             checkpoint; or a step, or a commit of one, whose output, update or log-decay (GDN: decay)
                             is NaN or Inf */
  LQ_ERROR_UNFLUSHED = 2, /* a step, draft or commit met a full window that was not flushed */
  LQ_ERROR_COUNTER = 3,   /* a step, draft or export met a counter below 0 or above L; a commit, one that is not what
                             its draft met; on a device, `offset` or `accepted` out of range */
  LQ_ERROR_KIND_COUNT = 4
} lq_pool_error_kind;

typedef struct lq_pool_errors {
  uint32_t flags;                              /* bit 1 << kind */
  int32_t first_position[LQ_ERROR_KIND_COUNT]; /* smallest batch position of each kind; -1 where there is none */
} lq_pool_errors;

/* Reads and clears the pool's sticky error word. Synchronises the stream. */
LQ_API lq_status lq_pool_read_errors(lq_pool* pool, void* stream, lq_pool_errors* errors);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* LEAPQUANT_LEAPQUANT_H_ */

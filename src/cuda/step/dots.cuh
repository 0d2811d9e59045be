// SPDX-License-Identifier: Apache-2.0
//
// T3 over the key channels: dot products of window entries and old factors with both sides.
#pragma once

#include "cuda/step/prepare.cuh"

namespace leapquant::cuda::step {

inline constexpr uint32_t kOwnEntries = 4;  // of a half of a warp in a pass
inline constexpr uint32_t kPassEntries = 2 * kOwnEntries;
inline constexpr uint32_t kOwnFactors = 2;
inline constexpr uint32_t kPassFactors = 2 * kOwnFactors;

// The pair of an entry `age` behind the one that `pairs` is of.
__device__ __forceinline__ uint32_t pair_behind(const char* pairs, uint32_t age) {
  return *reinterpret_cast<const uint32_t*>(pairs - age * kRowBytes);
}

// The two channels of a lane, from the lanes that have them.
__device__ __forceinline__ float2 pair_of_lanes(const Place& place, float value) {
  const uint32_t first = 2 * (place.lane % 16);
  return make_float2(__shfl_sync(kFullWarp, value, first), __shfl_sync(kFullWarp, value, first + 1));
}
struct PairSides {
  float2 key;
  float2 query;

  __device__ __forceinline__ PairSides(const Place& place, const Sides& side)
      : key(pair_of_lanes(place, side.key)), query(pair_of_lanes(place, side.query)) {}
  __device__ __forceinline__ PairSides(const PairSides& side, float2 decay)
      : key(make_float2(side.key.x * decay.x, side.key.y * decay.y)),
        query(make_float2(side.query.x * decay.x, side.query.y * decay.y)) {}
};

// Two dot products with a row, as far as a lane's channels go.
__device__ __forceinline__ void dot_pair(float2 row, const PairSides& side, float* value) {
  value[0] = fmaf(row.y, side.key.y, row.x * side.key.x);
  value[1] = fmaf(row.y, side.query.y, row.x * side.query.x);
}

// Writes the warp's part of a half's dot products, `first` and on. `value` is (x, y) of each in turn.
template <int kRoom, int kCount>
__device__ __forceinline__ void write_dots(WindowStorage<kRoom>& smem, const Place& place, uint32_t first,
                                           float (&value)[kCount]) {
  constexpr uint32_t kLanes = 16 / kCount;  // that get the same sum
  const float sum = reduce_values<16>(value, place.lane);
  const uint32_t lane = place.lane % 16;
  if (lane % kLanes == 0) reinterpret_cast<float*>(&smem.dot_part[place.warp][first])[lane / kLanes] = sum;
}

// The sides as old factors meet them.
__device__ __forceinline__ PairSides factor_sides(const Place& place, const PairSides& side,
                                                  const Gate<Decay::kByChannel>& gate) {
  return {side, pair_of_lanes(place, gate.state_decay)};
}
__device__ __forceinline__ PairSides factor_sides(const Place& /*place*/, const PairSides& side,
                                                  const Gate<Decay::kByHead>& /*gate*/) {
  return side;
}

// Beyond the rank rows hold anything, and so do their dot products, which nobody reads.
template <Decay kDecay, int kRoom>
__device__ __forceinline__ void add_factors(WindowStorage<kRoom>& smem, const Place& place, const PairSides& side,
                                            const Gate<kDecay>& gate, uint32_t rank) {
  const PairSides decayed = factor_sides(place, side, gate);
#pragma unroll 1
  for (uint32_t pass = 0; pass < rank; pass += kPassFactors) {
    const uint32_t first = pass + kOwnFactors * place.half;
    float value[kSides * kOwnFactors];
#pragma unroll
    for (uint32_t i = 0; i < kOwnFactors; ++i) {
      dot_pair(unpack_half(place.pair_of(smem.key_factor[first + i])), decayed, value + kSides * i);
    }
    write_dots(smem, place, smem.kFirstFactorDot + first, value);
  }
}

// What the decays since they were appended make of a pass's entries.
template <Decay kDecay>
class EntryDecays;

// By channel each is a product of the gates after the entry's: those within the half, and that at its beginning.
template <>
class EntryDecays<Decay::kByChannel> {
 public:
  __device__ __forceinline__ EntryDecays(const Place& place, const Gate<Decay::kByChannel>& gate)
      : decay_(pair_of_lanes(place, gate.decay)) {}

  template <int kRoom>
  __device__ __forceinline__ void enter_pass(const StorageOf<Decay::kByChannel, kRoom>& smem, const Place& place,
                                             uint32_t first, uint32_t entries) {
    constexpr uint32_t kHalfOnes = 0x3C003C00u;
    const char* const gates = place.pairs_from(smem.window_gate, first, entries);
    float2 product = make_float2(1.0f, 1.0f);
#pragma unroll
    for (uint32_t i = 0; i < kOwnEntries; ++i) {
      const uint32_t seen = pair_behind(gates, i);
      const float2 gate = unpack_half(first + i < entries ? seen : kHalfOnes);
      inner_[i] = product;
      product = make_float2(product.x * gate.x, product.y * gate.y);
    }
    const float2 other =
        make_float2(__shfl_xor_sync(kFullWarp, product.x, 16), __shfl_xor_sync(kFullWarp, product.y, 16));
    begin_ = place.half == 0 ? decay_ : make_float2(decay_.x * other.x, decay_.y * other.y);
    decay_ = make_float2(decay_.x * (product.x * other.x), decay_.y * (product.y * other.y));
  }
  __device__ __forceinline__ PairSides of(const PairSides& side) const { return {side, begin_}; }
  __device__ __forceinline__ float2 of(float2 key, uint32_t i) const {
    return make_float2(key.x * inner_[i].x, key.y * inner_[i].y);
  }

 private:
  float2 decay_;  // of the pass's newest entry
  float2 begin_;
  float2 inner_[kOwnEntries];
};

// By head, weights have taken them.
template <>
class EntryDecays<Decay::kByHead> {
 public:
  __device__ __forceinline__ EntryDecays(const Place& /*place*/, const Gate<Decay::kByHead>& /*gate*/) {}

  template <int kRoom>
  __device__ __forceinline__ void enter_pass(const StorageOf<Decay::kByHead, kRoom>& /*smem*/, const Place& /*place*/,
                                             uint32_t /*first*/, uint32_t /*entries*/) {}
  __device__ __forceinline__ const PairSides& of(const PairSides& side) const { return side; }
  __device__ __forceinline__ float2 of(float2 key, uint32_t /*i*/) const { return key; }
};

// From the newest entry on. An entry that is not live is not looked at, its gate aside.
template <Decay kDecay, int kRoom>
__device__ __forceinline__ void add_entries(StorageOf<kDecay, kRoom>& smem, const Place& place, const PairSides& side,
                                            const Gate<kDecay>& gate, uint32_t entries, uint32_t live) {
  static_assert(kMostFactors >= kPassEntries - 1 && kEntries >= kPassEntries, "see Place::pairs_from");
  EntryDecays<kDecay> decays(place, gate);
#pragma unroll 1
  for (uint32_t pass = 0; pass < entries; pass += kPassEntries) {
    const uint32_t first = pass + kOwnEntries * place.half;
    const char* const keys = place.pairs_from(smem.window_key, first, entries);
    const uint32_t own_live = live >> first;
    decays.enter_pass(smem, place, first, entries);
    const PairSides decayed = decays.of(side);
    float value[kSides * kOwnEntries];
#pragma unroll
    for (uint32_t i = 0; i < kOwnEntries; ++i) {
      const uint32_t seen = pair_behind(keys, i);
      const float2 key = unpack_bfloat((own_live & 1u << i) != 0 ? seen : 0);
      dot_pair(decays.of(key, i), decayed, value + kSides * i);
    }
    write_dots(smem, place, first, value);
  }
}

template <int kRoom>
__device__ __forceinline__ void add_key_query(WindowStorage<kRoom>& smem, const Place& place, const Sides& side) {
  float value[1] = {side.key * side.query};
  const float sum = reduce_values<32>(value, place.lane);
  if (place.lane == 0) smem.dot_part[place.warp][smem.kKeyQueryDot] = make_float2(sum, 0.0f);
}

// By what the dot product whose number is the lane counts, and which entries are live: bit 0 is the newest.
struct Weights {
  float own;
  uint32_t live;

  template <Decay kDecay, int kRoom>
  __device__ __forceinline__ Weights(const WindowStorage<kRoom>& smem, const Place& place, const Gate<kDecay>& gate,
                                     uint32_t entries) {
    const bool occupied = place.lane < entries;
    const float of_other = place.lane < smem.kKeyQueryDot ? gate.of_checkpoint() : 1.0f;
    own = occupied ? smem.window_weight[place.warp][entries - 1 - place.lane] * gate.of_window() : of_other;
    live = __ballot_sync(kFullWarp, occupied && own != 0.0f);
  }
};

// Adds the warps' parts up, each warp for itself. Entries and factors that are not there get zeros.
template <int kRoom>
__device__ __forceinline__ void finish_dots(WindowStorage<kRoom>& smem, const Place& place, const Weights& weights,
                                            uint32_t rank) {
#pragma unroll
  for (uint32_t first = 0; first < smem.kDots; first += 32) {
    const uint32_t n = first + place.lane;
    const float weight = first == 0 ? weights.own : 1.0f;
    const bool is_live =
        n < kRoom ? (weights.live >> n & 1) != 0 : n < smem.kFirstFactorDot + rank || n == smem.kKeyQueryDot;
    float2 sum = make_float2(0.0f, 0.0f);
    if (is_live) {
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        const float2 part = smem.dot_part[warp][n];
        sum = make_float2(sum.x + part.x, sum.y + part.y);
      }
      sum = make_float2(weight * sum.x, weight * sum.y);
    }
    if (n < smem.kDots) smem.dot[place.warp][n] = sum;
  }
  __syncwarp();
}

}  // namespace leapquant::cuda::step

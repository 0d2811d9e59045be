// SPDX-License-Identifier: Apache-2.0
#include "sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace leapquant::cuda_test {
namespace {

constexpr size_t kBlock = 64;
constexpr std::array<int, 64> kPrimes = {
    2,   3,   5,   7,   11,  13,  17,  19,  23,  29,  31,  37,  41,  43,  47,  53,  59,  61,  67,  71,  73,  79,
    83,  89,  97,  101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193,
    197, 199, 211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283, 293, 307, 311};

// The first 32 bits of a root's fraction: exact, since a long double has 11 bits more than are asked for.
uint32_t fraction(long double root) { return static_cast<uint32_t>((root - std::floor(root)) * 0x1p32L); }

uint32_t big_endian(const unsigned char* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

void add_block(std::array<uint32_t, 8>& hash, const unsigned char* block) {
  std::array<uint32_t, 64> words;
  for (size_t i = 0; i < 16; ++i) words[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = words[i - 15];
    const uint32_t b = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + words[i - 7] +
               (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  static const auto constants = [] {
    std::array<uint32_t, 64> result;
    for (size_t i = 0; i < 64; ++i) result[i] = fraction(std::cbrt(static_cast<long double>(kPrimes[i])));
    return result;
  }();
  auto [a, b, c, d, e, f, g, h] = hash;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + words[i];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const uint32_t sums[] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) hash[i] += sums[i];
}

}  // namespace

std::string sha256(std::span<const unsigned char> bytes) {
  std::array<uint32_t, 8> hash;
  for (size_t i = 0; i < 8; ++i) hash[i] = fraction(std::sqrt(static_cast<long double>(kPrimes[i])));
  const size_t whole = bytes.size() / kBlock * kBlock;
  for (size_t at = 0; at < whole; at += kBlock) add_block(hash, bytes.data() + at);
  std::vector<unsigned char> tail(bytes.begin() + static_cast<int64_t>(whole), bytes.end());
  tail.push_back(0x80);
  while (tail.size() % kBlock != kBlock - 8) tail.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) tail.push_back(static_cast<unsigned char>(bytes.size() * 8 >> shift));
  for (size_t at = 0; at < tail.size(); at += kBlock) add_block(hash, tail.data() + at);
  std::string text;
  for (const uint32_t word : hash) {
    char digits[9];
    std::snprintf(digits, sizeof(digits), "%08x", word);
    text += digits;
  }
  return text;
}

}  // namespace leapquant::cuda_test

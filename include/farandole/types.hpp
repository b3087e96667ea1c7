// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace farandole {

/// An integer type of its own, so that ranks, counts and numbers of bytes cannot be mixed up.
template <class Tag, class Representation>
class StrongInt {
 public:
  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Representation value) : value_(value) {}
  constexpr Representation value() const { return value_; }

  constexpr auto operator<=>(const StrongInt&) const = default;
  constexpr StrongInt& operator+=(StrongInt other) { return value_ += other.value_, *this; }
  constexpr StrongInt& operator-=(StrongInt other) { return value_ -= other.value_, *this; }
  constexpr StrongInt& operator++() { return ++value_, *this; }
  friend constexpr StrongInt operator+(StrongInt a, StrongInt b) { return a += b; }
  friend constexpr StrongInt operator-(StrongInt a, StrongInt b) { return a -= b; }

 private:
  Representation value_ = 0;
};

using Rank = StrongInt<struct RankTag, std::int32_t>;   // position in a communicator
using Count = StrongInt<struct CountTag, std::size_t>;  // elements
using Bytes = StrongInt<struct BytesTag, std::size_t>;  // bytes

enum class DType : std::uint8_t {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kFloat8E4M3,  // OCP's finite variant, without infinities. Moved, never reduced
  kFloat8E5M2,  // moved, never reduced
};
inline constexpr int kDTypeCount = 17;

/// Element-wise reductions. kAverage is a sum followed by a division by the number of ranks (of
/// integers the exact sum is divided, and rounded toward zero). kPremultipliedSum scales every
/// input before the sum.
enum class Reduction : std::uint8_t {
  kSum,
  kProduct,
  kMin,
  kMax,
  kAverage,
  kLogicalAnd,
  kLogicalOr,
  kLogicalXor,
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  kPremultipliedSum,
};
inline constexpr int kReductionCount = 12;

enum class Collective : std::uint8_t {
  kAllreduce,
  kReduce,
  kBroadcast,
  kReducescatter,
  kAllgather,
  kGather,
  kScatter,
  kAlltoall,
  kBarrier,
};
inline constexpr int kCollectiveCount = 9;
/// True if the collective reduces its inputs.
constexpr bool reduces(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kReducescatter;
}
/// True if one rank is its root.
constexpr bool has_root(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

/// Size of one element: 1, 2, 4, 8 or 16.
constexpr Bytes size_of(DType dtype) {
  constexpr std::size_t kSizes[kDTypeCount] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16, 1, 1};
  return Bytes{kSizes[static_cast<std::size_t>(dtype)]};
}
constexpr Bytes operator*(Count count, Bytes each) {
  return Bytes{count.value() * each.value()};
}

/// Names as users write them: "float32", "sum", "allreduce". parse_*() return none for other texts.
std::string_view name(DType dtype);
std::string_view name(Reduction reduction);
std::string_view name(Collective collective);
std::optional<DType> parse_dtype(std::string_view text);
std::optional<Reduction> parse_reduction(std::string_view text);
std::optional<Collective> parse_collective(std::string_view text);

}  // namespace farandole

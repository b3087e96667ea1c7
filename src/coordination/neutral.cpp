// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "coordination/neutral.hpp"

#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>

namespace farandole {
namespace {

/// The bytes of one element.
struct Element {
  std::byte bytes[16] = {};
  std::size_t size = 1;
};

template <class Value>
Element element(Value value) {
  Element result;
  result.size = sizeof(Value);
  std::memcpy(result.bytes, &value, sizeof(Value));
  return result;
}

enum class Kind : std::uint8_t { kZero, kOne, kHighest, kLowest, kAllOnes };

Kind kind_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kProduct:
    case Reduction::kLogicalAnd:
      return Kind::kOne;
    case Reduction::kMin:
      return Kind::kHighest;
    case Reduction::kMax:
      return Kind::kLowest;
    case Reduction::kBitwiseAnd:
      return Kind::kAllOnes;
    case Reduction::kSum:
    case Reduction::kAverage:
    case Reduction::kPremultipliedSum:
    case Reduction::kLogicalOr:
    case Reduction::kLogicalXor:
    case Reduction::kBitwiseOr:
    case Reduction::kBitwiseXor:
      break;
  }
  return Kind::kZero;
}

template <class Value>
Element integer(Kind kind) {
  using Limits = std::numeric_limits<Value>;
  switch (kind) {
    case Kind::kZero:
      break;
    case Kind::kOne:
      return element(Value{1});
    case Kind::kHighest:
      return element(Limits::max());
    case Kind::kLowest:
      return element(Limits::min());
    case Kind::kAllOnes:
      return element(static_cast<Value>(~Value{0}));
  }
  return element(Value{0});
}

/// The element of a float type, whose 1 and infinity are given as bits; the highest bit is the
/// sign.
template <class Bits>
Element floating(Kind kind, Bits one, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  if (kind == Kind::kOne) return element(one);
  if (kind == Kind::kHighest) return element(infinity);
  if (kind == Kind::kLowest) return element(static_cast<Bits>(infinity | kSign));
  return element(Bits{0});
}

Element neutral(DType dtype, Kind kind) {
  switch (dtype) {
    case DType::kBool:
      return element(static_cast<std::uint8_t>(kind != Kind::kZero && kind != Kind::kLowest));
    case DType::kInt8:
      return integer<std::int8_t>(kind);
    case DType::kInt16:
      return integer<std::int16_t>(kind);
    case DType::kInt32:
      return integer<std::int32_t>(kind);
    case DType::kInt64:
      return integer<std::int64_t>(kind);
    case DType::kUInt8:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return integer<std::uint8_t>(kind);
    case DType::kUInt16:
      return integer<std::uint16_t>(kind);
    case DType::kUInt32:
      return integer<std::uint32_t>(kind);
    case DType::kUInt64:
      return integer<std::uint64_t>(kind);
    case DType::kFloat16:
      return floating<std::uint16_t>(kind, 0x3c00, 0x7c00);
    case DType::kBFloat16:
      return floating<std::uint16_t>(kind, 0x3f80, 0x7f80);
    case DType::kFloat32:
      return floating<std::uint32_t>(kind, 0x3f800000, 0x7f800000);
    case DType::kFloat64:
      return floating<std::uint64_t>(kind, 0x3ff0000000000000, 0x7ff0000000000000);
    case DType::kComplex64:
      return element(std::complex<float>(kind == Kind::kOne ? 1.0f : 0.0f));
    case DType::kComplex128:
      return element(std::complex<double>(kind == Kind::kOne ? 1.0 : 0.0));
  }
  return {};
}

}  // namespace

void fill_neutral(std::byte* data, Count count, DType dtype, Reduction reduction) {
  const Kind kind = kind_of(reduction);
  if (kind == Kind::kZero) {
    if (count.value() > 0) std::memset(data, 0, (count * size_of(dtype)).value());
    return;
  }
  const Element one = neutral(dtype, kind);
  for (std::size_t i = 0; i < count.value(); ++i) {
    std::memcpy(data + i * one.size, one.bytes, one.size);
  }
}

}  // namespace farandole

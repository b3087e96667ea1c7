// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "unit/reduce/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <type_traits>

namespace farandole::reference {
namespace {

struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};
template <class T>
struct Pair {
  T real, imaginary;
};

// Calls `body` with a value of the type that stands for `dtype`; bool is uint8 with `truth` set.
template <class Body>
auto visit(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUInt8:
    case DType::kFloat8E4M3:  // reduces nothing
    case DType::kFloat8E5M2:
      return body(std::uint8_t{});
    case DType::kInt8:
      return body(std::int8_t{});
    case DType::kInt16:
      return body(std::int16_t{});
    case DType::kInt32:
      return body(std::int32_t{});
    case DType::kInt64:
      return body(std::int64_t{});
    case DType::kUInt16:
      return body(std::uint16_t{});
    case DType::kUInt32:
      return body(std::uint32_t{});
    case DType::kUInt64:
      return body(std::uint64_t{});
    case DType::kFloat16:
      return body(Half{});
    case DType::kBFloat16:
      return body(Brain{});
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat64:
      return body(double{});
    case DType::kComplex64:
      return body(Pair<float>{});
    case DType::kComplex128:
      break;
  }
  return body(Pair<double>{});
}

template <class T>
std::vector<T> elements(const Data& data) {
  std::vector<T> values(data.size() / sizeof(T));
  if (!data.empty()) std::memcpy(values.data(), data.data(), data.size());
  return values;
}
template <class T>
Data bytes(const std::vector<T>& values) {
  Data data(values.size() * sizeof(T));
  if (!data.empty()) std::memcpy(data.data(), values.data(), data.size());
  return data;
}

template <class T>
T canonical(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

template <class T>
std::optional<T> real(Reduction reduction, T a, T b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  const bool a_first = a < b || (a == b && std::signbit(a));
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
    case Reduction::kPremultipliedSum:
      return canonical<T>(a + b);
    case Reduction::kProduct:
      return canonical<T>(a * b);
    case Reduction::kMin:
      return nan ? canonical<T>(NAN) : a_first ? a : b;
    case Reduction::kMax:
      return nan ? canonical<T>(NAN) : a_first ? b : a;
    default:
      return std::nullopt;
  }
}

template <class T>
std::optional<T> one(Reduction reduction, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return real(reduction, a, b);
  } else {
    // Wide enough for any product, and converting back keeps the low bits.
    __extension__ using Wide = __int128;
    const Wide x = a, y = b;
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kAverage:
      case Reduction::kPremultipliedSum:
        return static_cast<T>(x + y);
      case Reduction::kProduct: {
        using Low = unsigned long long;
        return static_cast<T>(static_cast<Low>(x) * static_cast<Low>(y));
      }
      case Reduction::kMin:
        return std::min(a, b);
      case Reduction::kMax:
        return std::max(a, b);
      case Reduction::kLogicalAnd:
        return static_cast<T>(a != 0 && b != 0 ? 1 : 0);
      case Reduction::kLogicalOr:
        return static_cast<T>(a != 0 || b != 0 ? 1 : 0);
      case Reduction::kLogicalXor:
        return static_cast<T>((a != 0) != (b != 0) ? 1 : 0);
      case Reduction::kBitwiseAnd:
        return static_cast<T>(x & y);
      case Reduction::kBitwiseOr:
        return static_cast<T>(x | y);
      case Reduction::kBitwiseXor:
        return static_cast<T>(x ^ y);
    }
    return std::nullopt;
  }
}

std::optional<std::uint16_t> sixteen(DType dtype, Reduction reduction, std::uint16_t a,
                                     std::uint16_t b) {
  const auto wide =
      real(reduction, static_cast<float>(widen(dtype, a)), static_cast<float>(widen(dtype, b)));
  if (!wide) return std::nullopt;
  return narrow(dtype, static_cast<double>(*wide));
}
std::optional<Half> one(Reduction reduction, Half a, Half b) {
  const auto bits = sixteen(DType::kFloat16, reduction, a.bits, b.bits);
  return bits ? std::optional(Half{*bits}) : std::nullopt;
}
std::optional<Brain> one(Reduction reduction, Brain a, Brain b) {
  const auto bits = sixteen(DType::kBFloat16, reduction, a.bits, b.bits);
  return bits ? std::optional(Brain{*bits}) : std::nullopt;
}

template <class T>
std::optional<Pair<T>> one(Reduction reduction, Pair<T> a, Pair<T> b) {
  if (reduction == Reduction::kMin || reduction == Reduction::kMax) return std::nullopt;
  if (reduction == Reduction::kProduct) {
    // volatile: no fused multiply-add, which some compilers would make of these.
    const volatile T rr = a.real * b.real, ii = a.imaginary * b.imaginary;
    const volatile T ri = a.real * b.imaginary, ir = a.imaginary * b.real;
    return Pair<T>{canonical<T>(rr - ii), canonical<T>(ri + ir)};
  }
  const auto sum_real = real(reduction, a.real, b.real);
  const auto sum_imaginary = real(reduction, a.imaginary, b.imaginary);
  if (!sum_real) return std::nullopt;
  return Pair<T>{*sum_real, *sum_imaginary};
}

std::optional<bool> truth(Reduction reduction, bool a, bool b) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
    case Reduction::kPremultipliedSum:
    case Reduction::kLogicalOr:
    case Reduction::kBitwiseOr:
      return a || b;
    case Reduction::kProduct:
    case Reduction::kMin:
    case Reduction::kLogicalAnd:
    case Reduction::kBitwiseAnd:
      return a && b;
    case Reduction::kLogicalXor:
    case Reduction::kBitwiseXor:
      return a != b;
    case Reduction::kAverage:
      break;
  }
  return std::nullopt;
}

// Toward zero, modulo 2^64.
template <class T>
T integer_of(double value) {
  if (!std::isfinite(value)) return 0;
  const double whole = std::trunc(value);
  const double low = std::fmod(std::abs(whole), 0x1p64);
  const auto magnitude = static_cast<std::uint64_t>(low);
  return static_cast<T>(whole < 0 ? std::uint64_t{0} - magnitude : magnitude);
}

template <class T>
T scaled(T value, double factor) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical(static_cast<T>(value * static_cast<T>(factor)));
  } else {
    return integer_of<T>(static_cast<double>(value) * factor);
  }
}
template <class T>
T divided(T value, std::size_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical(value / static_cast<T>(divisor));
  } else {
    __extension__ using Wide = __int128;
    return static_cast<T>(Wide{value} / static_cast<Wide>(divisor));
  }
}

// Applies `change` to every real number of `data`; halves go through float32.
template <class Change>
Data map_numbers(DType dtype, const Data& data, const Change& change) {
  return visit(dtype, [&](auto tag) {
    using T = decltype(tag);
    auto values = elements<T>(data);
    for (T& value : values) {
      if constexpr (requires { value.real; }) {
        value = {change(value.real), change(value.imaginary)};
      } else if constexpr (requires { value.bits; }) {
        const auto wide = static_cast<float>(widen(dtype, value.bits));
        value.bits = narrow(dtype, static_cast<double>(change(wide)));
      } else {
        value = change(value);
      }
    }
    return bytes(values);
  });
}

// Bit patterns that are special to T, then noise; `shift` makes two samples meet differently.
template <class T>
std::vector<T> patterns(const std::vector<T>& special, std::size_t count, std::uint32_t seed) {
  std::mt19937 noise(seed);
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = std::uint64_t{noise()} << 32 | noise();
    const bool pick = noise() % 3 == 0;
    values[i] = pick ? special[noise() % special.size()] : static_cast<T>(bits);
  }
  return values;
}

std::vector<std::uint32_t> float_patterns() {
  return {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x3f800000, 0xbf800000,
          0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xff812345};
}
std::vector<std::uint64_t> double_patterns() {
  std::vector<std::uint64_t> bits = {0,
                                     1,
                                     0x3ff0000000000000,
                                     0x7fefffffffffffff,
                                     0x7ff0000000000000,
                                     0x7ff8000000000000,
                                     0x7ff0000000000001,
                                     0x7ff8000000012345};
  for (std::size_t i = 0; i < 8; ++i) bits.push_back(bits[i] | 0x8000000000000000);
  return bits;
}

}  // namespace

double widen(DType dtype, std::uint16_t bits) {
  const int mantissa_bits = dtype == DType::kFloat16 ? 10 : 7;
  const int bias = dtype == DType::kFloat16 ? 15 : 127;
  const int exponent_max = 2 * bias + 1;
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double magnitude = std::ldexp(exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits),
                                std::max(exponent, 1) - bias - mantissa_bits);
  if (exponent == exponent_max) magnitude = mantissa == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

std::uint16_t narrow(DType dtype, double value) {
  const int mantissa_bits = dtype == DType::kFloat16 ? 10 : 7;
  const int bias = dtype == DType::kFloat16 ? 15 : 127;
  const int infinity = (2 * bias + 1) << mantissa_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity | 1 << (mantissa_bits - 1));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  const double magnitude = std::abs(value);
  const int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
  // In units of the last place; rounding may reach the next power of two, which counts on.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
  const int bits = units + ((exponent + bias - 1) << mantissa_bits);
  return static_cast<std::uint16_t>(sign | std::min(bits, infinity));
}

std::optional<Data> reduce(DType dtype, Reduction reduction, const Data& left, const Data& right) {
  if (dtype == DType::kBool) {
    Data result(left.size());
    if (!truth(reduction, false, false)) return std::nullopt;
    for (std::size_t i = 0; i < left.size(); ++i) {
      result[i] = std::byte{*truth(reduction, left[i] != std::byte{0}, right[i] != std::byte{0})};
    }
    return result;
  }
  return visit(dtype, [&](auto tag) -> std::optional<Data> {
    using T = decltype(tag);
    if (!one(reduction, T{}, T{})) return std::nullopt;
    const auto a = elements<T>(left), b = elements<T>(right);
    std::vector<T> result(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) result[i] = *one(reduction, a[i], b[i]);
    return bytes(result);
  });
}

Data divide(DType dtype, const Data& source, std::size_t divisor) {
  return map_numbers(dtype, source, [divisor](auto value) { return divided(value, divisor); });
}

Data scale(DType dtype, const Data& source, double factor) {
  return map_numbers(dtype, source, [&](auto value) {
    const bool sixteen_bit =
        size_of(dtype) == Bytes{2} && std::is_floating_point_v<decltype(value)>;
    if (!sixteen_bit) return scaled(value, factor);
    return static_cast<decltype(value)>(static_cast<float>(value) * static_cast<float>(factor));
  });
}

Data sample(DType dtype, std::size_t count, std::uint32_t seed) {
  switch (dtype) {
    case DType::kBool:
      return bytes(patterns<std::uint8_t>({0, 0, 0, 1, 1, 2, 255}, count, seed));
    case DType::kFloat16:
      return bytes(patterns<std::uint16_t>(
          {0, 0x8000, 1, 0x83ff, 0x3c00, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xfe55}, count,
          seed));
    case DType::kBFloat16:
      return bytes(patterns<std::uint16_t>(
          {0, 0x8000, 1, 0x807f, 0x3f80, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffd5}, count,
          seed));
    case DType::kFloat32:
      return bytes(patterns(float_patterns(), count, seed));
    case DType::kFloat64:
      return bytes(patterns(double_patterns(), count, seed));
    case DType::kComplex64:
      return bytes(patterns(float_patterns(), 2 * count, seed));
    case DType::kComplex128:
      return bytes(patterns(double_patterns(), 2 * count, seed));
    default:
      break;
  }
  return visit(dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_integral_v<T>) {
      using Limits = std::numeric_limits<T>;
      return bytes(
          patterns<T>({0, 1, static_cast<T>(-1), Limits::min(), Limits::max()}, count, seed));
    } else {
      return Data{};
    }
  });
}

}  // namespace farandole::reference

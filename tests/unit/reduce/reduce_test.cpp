// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "reduce/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "reduce/cpu/kernel_table.hpp"
#include "unit/reduce/reference.hpp"

namespace farandole {
namespace {

using reference::Data;
constexpr std::size_t kCounts[] = {0, 1, 15, 17, 1000};
constexpr std::size_t kDivisors[] = {1, 2, 3, 200, 1024, 65537};
constexpr double kFactors[] = {0.3, -2.5, 1e12, -0.0, INFINITY, NAN};

std::vector<DType> every_dtype() {
  std::vector<DType> all;
  for (int i = 0; i < kDTypeCount; ++i) all.push_back(static_cast<DType>(i));
  return all;
}
bool only_moved(DType dtype) {
  return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
}
// Those that can be computed with.
std::vector<DType> dtypes() {
  std::vector<DType> all = every_dtype();
  std::erase_if(all, only_moved);
  return all;
}
std::vector<Reduction> reductions() {
  std::vector<Reduction> all;
  for (int i = 0; i < kReductionCount; ++i) all.push_back(static_cast<Reduction>(i));
  return all;
}
ReduceKernel kernel_of(const KernelVariant& variant, DType dtype, Reduction reduction) {
  return variant.kernels->reduce[static_cast<int>(dtype)][static_cast<int>(reduction)];
}
std::string label(const KernelVariant& variant, DType dtype, Reduction reduction) {
  return std::string(variant.name) + " " + std::string(name(dtype)) + " " +
         std::string(name(reduction));
}

// Memory at an address that is `offset` past an aligned one, between two guards.
class Buffer {
 public:
  Buffer(const Data& content, std::size_t offset)
      : bytes_(kGuard + content.size() + kGuard, kMark),
        at_(kGuard + offset),
        size_(content.size()) {
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }
  std::byte* data() { return bytes_.data() + at_; }
  Data content() const {
    const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(at_);
    return Data(first, first + static_cast<std::ptrdiff_t>(size_));
  }
  bool guards_intact() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < at_ || i >= at_ + size_) && bytes_[i] != kMark) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::byte kMark{0xa5};
  Data bytes_;
  std::size_t at_, size_;
};

template <class T>
Data data_of(std::initializer_list<T> values) {
  Data data(values.size() * sizeof(T));
  std::memcpy(data.data(), std::data(values), data.size());
  return data;
}

enum class Place { kApart, kOnLeft, kOnRight };

// Runs one kernel and compares with the reference.
void check(const KernelVariant& variant, DType dtype, Reduction reduction, std::size_t count,
           std::size_t offset, Place place) {
  const Data a = reference::sample(dtype, count, 1), b = reference::sample(dtype, count, 2);
  const auto expected = reference::reduce(dtype, reduction, a, b);
  const ReduceKernel kernel = kernel_of(variant, dtype, reduction);
  ASSERT_EQ(kernel != nullptr, expected.has_value());
  if (!expected) return;
  Buffer left(a, offset), right(b, offset + 1), apart(Data(a.size()), offset + 2);
  Buffer& target = place == Place::kApart ? apart : place == Place::kOnLeft ? left : right;
  kernel(target.data(), left.data(), right.data(), Count{count});
  EXPECT_EQ(target.content(), *expected) << "count " << count << ", offset " << offset;
  EXPECT_TRUE(left.guards_intact() && right.guards_intact() && apart.guards_intact());
  EXPECT_TRUE(place == Place::kOnLeft || left.content() == a);
  EXPECT_TRUE(place == Place::kOnRight || right.content() == b);
}

// Goal: each kernel of each instruction set does what its name says, bit for bit, and touches
// nothing else. Method: compare with a scalar reference, over odd counts and addresses, special
// values included, between guard bytes.
TEST(ReduceKernels, MatchTheScalarReference) {
  for (const KernelVariant& variant : kernel_variants()) {
    for (const DType dtype : dtypes()) {
      for (const Reduction reduction : reductions()) {
        SCOPED_TRACE(label(variant, dtype, reduction));
        for (const std::size_t count : kCounts) {
          for (const std::size_t offset : {0, 1, 3}) {
            check(variant, dtype, reduction, count, offset, Place::kApart);
          }
        }
      }
    }
  }
}

// Goal: a target may be either operand. Method: the same comparison, written over each of them.
TEST(ReduceKernels, MayWriteOverEitherOperand) {
  for (const KernelVariant& variant : kernel_variants()) {
    for (const DType dtype : dtypes()) {
      for (const Reduction reduction : reductions()) {
        SCOPED_TRACE(label(variant, dtype, reduction));
        for (const std::size_t count : kCounts) {
          check(variant, dtype, reduction, count, 1, Place::kOnLeft);
          check(variant, dtype, reduction, count, 1, Place::kOnRight);
        }
      }
    }
  }
}

// Goal: ranks that reduce the same two operands in different order agree, NaN or not.
// Method: swap the operands of every kernel and compare bits.
TEST(ReduceKernels, GiveEqualBitsWhenOperandsSwap) {
  constexpr std::size_t kCount = 4099;
  for (const KernelVariant& variant : kernel_variants()) {
    for (const DType dtype : dtypes()) {
      Buffer a(reference::sample(dtype, kCount, 5), 0), b(reference::sample(dtype, kCount, 6), 0);
      Buffer ab(a.content(), 0), ba(a.content(), 0);
      for (const Reduction reduction : reductions()) {
        const ReduceKernel kernel = kernel_of(variant, dtype, reduction);
        if (kernel == nullptr) continue;
        kernel(ab.data(), a.data(), b.data(), Count{kCount});
        kernel(ba.data(), b.data(), a.data(), Count{kCount});
        EXPECT_EQ(ab.content(), ba.content()) << label(variant, dtype, reduction);
      }
    }
  }
}

// Goal: hosts with different CPUs agree. Method: compare each variant with the portable one on
// 10,007 elements of noise and special values, in reduction, division and scaling.
TEST(ReduceKernels, AllInstructionSetsGiveEqualBits) {
  constexpr std::size_t kCount = 10007;
  const KernelTable& portable = kBaselineKernels;
  for (const KernelVariant& variant : kernel_variants()) {
    for (const DType dtype : dtypes()) {
      const auto row = static_cast<std::size_t>(dtype);
      Buffer a(reference::sample(dtype, kCount, 7), 0), b(reference::sample(dtype, kCount, 8), 0);
      Buffer one(a.content(), 0), other(a.content(), 0);
      for (const Reduction reduction : reductions()) {
        const ReduceKernel kernel = kernel_of(variant, dtype, reduction);
        if (kernel == nullptr) continue;
        portable.reduce[row][static_cast<int>(reduction)](one.data(), a.data(), b.data(),
                                                          Count{kCount});
        kernel(other.data(), a.data(), b.data(), Count{kCount});
        EXPECT_EQ(one.content(), other.content()) << label(variant, dtype, reduction);
      }
      portable.divide[row](one.data(), a.data(), Count{kCount}, 7);
      variant.kernels->divide[row](other.data(), a.data(), Count{kCount}, 7);
      EXPECT_EQ(one.content(), other.content()) << variant.name << " " << name(dtype) << " divide";
      portable.scale[row](one.data(), a.data(), Count{kCount}, 0.7);
      variant.kernels->scale[row](other.data(), a.data(), Count{kCount}, 0.7);
      EXPECT_EQ(one.content(), other.content()) << variant.name << " " << name(dtype) << " scale";
    }
  }
}

// Goal: 16-bit floats survive the trip through float32. Method: multiply each of the 65,536 by
// one; all but NaNs come back as they were.
TEST(ReduceKernels, KeepEverySixteenBitFloat) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    std::vector<std::uint16_t> all(65536), ones(65536), result(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::fill(ones.begin(), ones.end(), reference::narrow(dtype, 1.0));
    const std::uint16_t nan = reference::narrow(dtype, NAN);
    for (const KernelVariant& variant : kernel_variants()) {
      kernel_of(variant, dtype, Reduction::kProduct)(
          reinterpret_cast<std::byte*>(result.data()), reinterpret_cast<std::byte*>(all.data()),
          reinterpret_cast<std::byte*>(ones.data()), Count{all.size()});
      for (std::size_t i = 0; i < all.size(); ++i) {
        const bool is_nan = std::isnan(reference::widen(dtype, all[i]));
        ASSERT_EQ(result[i], is_nan ? nan : all[i]) << variant.name << " " << name(dtype);
      }
    }
  }
}

// Goal: halfway cases round to even, once. Method: published values of IEEE 754 half precision,
// which share no code with the reference.
TEST(ReduceKernels, RoundSixteenBitFloatsToNearestEven) {
  struct Case {
    std::uint16_t a, b, sum;
  };
  const Case cases[] = {
      {0x6800, 0x3800, 0x6800},  // 2048 + 0.5 = 2048
      {0x6800, 0x3c00, 0x6800},  // 2048 + 1 is halfway to 2050: even mantissa wins
      {0x6801, 0x3c00, 0x6802},  // 2050 + 1 is halfway to 2052
      {0x7bff, 0x4bff, 0x7bff},  // 65504 + 15.99 stays
      {0x7bff, 0x4c00, 0x7c00},  // 65504 + 16 is infinite
      {0x0001, 0x0001, 0x0002},  // subnormal
      {0x03ff, 0x0001, 0x0400},  // from subnormal to normal
      {0x8000, 0x8000, 0x8000},  // -0 + -0
      {0x7c00, 0xfc00, 0x7e00},  // infinity - infinity
  };
  for (const KernelVariant& variant : kernel_variants()) {
    for (const Case& c : cases) {
      std::uint16_t sum = 0;
      kernel_of(variant, DType::kFloat16, Reduction::kSum)(
          reinterpret_cast<std::byte*>(&sum), reinterpret_cast<const std::byte*>(&c.a),
          reinterpret_cast<const std::byte*>(&c.b), Count{1});
      EXPECT_EQ(sum, c.sum) << variant.name << " " << c.a << " + " << c.b;
    }
  }
}

// Goal: a pair that makes no sense is refused with both names and what is allowed; every other
// pair has a kernel. Method: all pairs, against the rules of the header.
TEST(FindKernel, RefusesWhatIsNotDefined) {
  for (const DType dtype : every_dtype()) {
    const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
    const bool is_exact = dtype <= DType::kUInt64;
    for (const Reduction reduction : reductions()) {
      const bool exact_only =
          reduction >= Reduction::kLogicalAnd && reduction <= Reduction::kBitwiseXor;
      const bool ordered = reduction == Reduction::kMin || reduction == Reduction::kMax;
      const bool bad = only_moved(dtype) || (exact_only && !is_exact) || (ordered && is_complex) ||
                       (reduction == Reduction::kAverage && dtype == DType::kBool);
      const auto kernel = find_kernel(dtype, reduction);
      ASSERT_EQ(static_cast<bool>(kernel), !bad) << name(dtype) << " " << name(reduction);
      if (!bad) continue;
      EXPECT_EQ(kernel.error().kind, ErrorKind::kInvalidArgument);
      for (const std::string_view part :
           {name(dtype), name(reduction), std::string_view("takes")}) {
        EXPECT_NE(kernel.error().message.find(part), std::string::npos) << kernel.error().message;
      }
    }
  }
}

// Goal: what is said to be allowed is allowed, and does not count float8 in.
TEST(FindKernel, SaysWhatFloat8CannotDo) {
  const auto kernel = find_kernel(DType::kFloat8E4M3, Reduction::kSum);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().message,
            "sum is not defined on float8_e4m3; it takes all dtypes but float8, which is moved "
            "and never reduced.");
}

// Goal: the widest instructions found are the ones used. Method: compare pointers.
TEST(FindKernel, UsesTheWidestVariant) {
  EXPECT_EQ(*find_kernel(DType::kFloat32, Reduction::kSum),
            kernel_of(kernel_variants().back(), DType::kFloat32, Reduction::kSum));
}

// Goal: divide() and scale() follow the header for every dtype, apart and in place.
// Method: compare with the reference over odd counts and addresses.
TEST(DivideAndScale, MatchTheScalarReference) {
  for (const DType dtype : dtypes()) {
    if (dtype == DType::kBool) continue;
    SCOPED_TRACE(name(dtype));
    for (const std::size_t count : kCounts) {
      const Data source = reference::sample(dtype, count, 3);
      Buffer from(source, 3), to(source, 1);
      for (const std::size_t divisor : kDivisors) {
        divide(to.data(), from.data(), Count{count}, dtype, divisor);
        EXPECT_EQ(to.content(), reference::divide(dtype, source, divisor)) << divisor;
      }
      for (const double factor : kFactors) {
        scale(to.data(), from.data(), Count{count}, dtype, factor);
        EXPECT_EQ(to.content(), reference::scale(dtype, source, factor)) << factor;
      }
      EXPECT_TRUE(to.guards_intact());
      Buffer same(source, 1);
      divide(same.data(), same.data(), Count{count}, dtype, 3);
      EXPECT_EQ(same.content(), reference::divide(dtype, source, 3));
    }
  }
}

// Goal: a float32 is scaled in float32, as NumPy and PyTorch do.
// Method: a product that comes out one bit larger when it is computed in float64.
TEST(DivideAndScale, ScalesFloatsInTheirOwnPrecision) {
  const float value = 2.5F * 3.0F;
  int different = 0;
  for (int i = 1; i < 1000; ++i) {
    const float factor = static_cast<float>(0.1 * i);
    Data data = data_of<float>({value});
    scale(data.data(), data.data(), Count{1}, DType::kFloat32, 0.1 * i);
    EXPECT_EQ(data, data_of<float>({value * factor})) << i;
    different += static_cast<float>(static_cast<double>(value) * (0.1 * i)) != value * factor;
  }
  EXPECT_GT(different, 0);
}

__extension__ using Exact = __int128;

template <class T>
void expect_exact_averages(DType dtype) {
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 random(7);
  for (const std::size_t ranks : {1, 2, 3, 4, 7, 100, 1000}) {
    std::vector<Exact> exact(64);
    std::vector<std::int64_t> sums(64 * wide_length(dtype)), wide(sums.size());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<T> values(64);
      for (T& value : values) value = static_cast<T>(random());
      values[0] = Limits::max(), values[1] = Limits::min(), values[2] = T(0) - T(1);
      for (std::size_t i = 0; i < 64; ++i) exact[i] += values[i];
      widen(reinterpret_cast<std::byte*>(wide.data()),
            reinterpret_cast<const std::byte*>(values.data()), Count{64}, dtype, ranks, 1.0);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sums[i]) +
                                            static_cast<std::uint64_t>(wide[i]));
      }
    }
    std::vector<T> averages(64), halves(64);
    const auto narrowed = [&](std::vector<T>& into, double factor) {
      narrow(reinterpret_cast<std::byte*>(into.data()),
             reinterpret_cast<const std::byte*>(sums.data()), Count{64}, dtype, ranks, factor);
    };
    narrowed(averages, 1.0);
    narrowed(halves, 0.5);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(averages[i], static_cast<T>(exact[i] / static_cast<Exact>(ranks))) << ranks;
      const double half = static_cast<double>(exact[i]) * (0.5 / static_cast<double>(ranks));
      EXPECT_EQ(halves[i], static_cast<T>(half)) << ranks;
    }
  }
}

// Goal: the average of integers is that of the exact sum, rounded toward zero.
// Method: 128-bit sums of random and of extreme values, for every integer dtype.
TEST(WidenAndNarrow, AverageExactly) {
  expect_exact_averages<std::int8_t>(DType::kInt8);
  expect_exact_averages<std::int16_t>(DType::kInt16);
  expect_exact_averages<std::int32_t>(DType::kInt32);
  expect_exact_averages<std::int64_t>(DType::kInt64);
  expect_exact_averages<std::uint8_t>(DType::kUInt8);
  expect_exact_averages<std::uint16_t>(DType::kUInt16);
  expect_exact_averages<std::uint32_t>(DType::kUInt32);
  expect_exact_averages<std::uint64_t>(DType::kUInt64);
  for (const DType dtype : {DType::kBool, DType::kFloat16, DType::kFloat64, DType::kComplex64}) {
    EXPECT_EQ(wide_length(dtype), 0U) << name(dtype);
  }
}

template <class T>
Data divided(DType dtype, std::initializer_list<T> values, std::size_t divisor) {
  Data data = data_of(values);
  divide(data.data(), data.data(), Count{data.size() / size_of(dtype).value()}, dtype, divisor);
  return data;
}
template <class T>
Data scaled(DType dtype, std::initializer_list<T> values, double factor) {
  Data data = data_of(values);
  scale(data.data(), data.data(), Count{data.size() / size_of(dtype).value()}, dtype, factor);
  return data;
}

// Goal: rounding toward zero, and a divisor that the element type cannot hold.
// Method: answers worked out by hand.
TEST(DivideAndScale, DivideRoundsTowardZero) {
  EXPECT_EQ(divided<std::int32_t>(DType::kInt32, {7, -7, 1, -1}, 2),
            data_of<std::int32_t>({3, -3, 0, 0}));
  EXPECT_EQ(divided<std::int8_t>(DType::kInt8, {127, -128}, 200), data_of<std::int8_t>({0, 0}));
  EXPECT_EQ(divided<std::uint64_t>(DType::kUInt64, {UINT64_MAX}, 3),
            data_of<std::uint64_t>({UINT64_MAX / 3}));
  EXPECT_EQ(divided<float>(DType::kComplex64, {1.0F, -3.0F}, 2), data_of<float>({0.5F, -1.5F}));
  EXPECT_EQ(divided<std::uint8_t>(DType::kBool, {0, 1, 5}, 1), data_of<std::uint8_t>({0, 1, 1}));
  EXPECT_EQ(divided<std::uint8_t>(DType::kBool, {0, 1, 5}, 2), data_of<std::uint8_t>({0, 0, 0}));
}

// Goal: integers round toward zero and wrap around at their own width, whatever the factor.
// Method: answers worked out by hand.
TEST(DivideAndScale, ScaledIntegersWrap) {
  EXPECT_EQ(scaled<std::int32_t>(DType::kInt32, {7, -7}, 0.5), data_of<std::int32_t>({3, -3}));
  EXPECT_EQ(scaled<std::int8_t>(DType::kInt8, {100}, 2.0), data_of<std::int8_t>({-56}));
  EXPECT_EQ(scaled<std::uint8_t>(DType::kUInt8, {1, 200}, -1.0), data_of<std::uint8_t>({255, 56}));
  EXPECT_EQ(scaled<std::uint64_t>(DType::kUInt64, {1}, 0x1p63),
            data_of<std::uint64_t>({std::uint64_t{1} << 63}));
  EXPECT_EQ(scaled<std::int64_t>(DType::kInt64, {3, -3}, 0x1p64), data_of<std::int64_t>({0, 0}));
  EXPECT_EQ(scaled<std::int64_t>(DType::kInt64, {1, -1, 0}, INFINITY),
            data_of<std::int64_t>({0, 0, 0}));
  EXPECT_EQ(scaled<std::int64_t>(DType::kInt64, {1}, NAN), data_of<std::int64_t>({0}));
  EXPECT_EQ(scaled<std::uint8_t>(DType::kBool, {0, 1, 5}, 2.0), data_of<std::uint8_t>({0, 1, 1}));
  EXPECT_EQ(scaled<std::uint8_t>(DType::kBool, {0, 1, 5}, 0.5), data_of<std::uint8_t>({0, 0, 0}));
}

}  // namespace
}  // namespace farandole

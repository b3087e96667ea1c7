// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "reduce/reduce.hpp"
#include "unit/frontend/ranks.hpp"

// Goal: every allreduce gives the right result, bit for bit the same on all ranks, whatever the
// algorithm, transport, number of ranks, size, dtype and reduction.
// Method: real engines on threads. Exact data, a value unique to (rank, index) modulo a small
// number, is compared with a plain fold over the ranks; then arbitrary bits, NaN and infinities
// among them, must at least agree between the ranks. FARANDOLE_TEST_FULL=1 runs the long message
// with every dtype and reduction at every p instead of a selection.
namespace farandole::testing {
namespace {

constexpr std::array kAlgorithms = {"ring", "ring_bidirectional", "recursive_doubling",
                                    "rabenseifner", "direct"};
constexpr std::size_t kLong = 1000003;

bool full_run() { return std::getenv("FARANDOLE_TEST_FULL") != nullptr; }

/// Writes small integers, exact in every dtype, also after reducing 16 of them.
void fill_exact(std::byte* data, std::size_t count, DType dtype, Reduction reduction, int rank) {
  const bool product = reduction == Reduction::kProduct;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t mixed = static_cast<std::size_t>(rank) * 5 + i * 3;
    const auto value = static_cast<std::uint8_t>(product ? 1 + mixed % 2 : mixed % 8);
    std::byte* at = data + i * size_of(dtype).value();
    std::memset(at, 0, size_of(dtype).value());
    switch (dtype) {
      case DType::kBool: *at = static_cast<std::byte>(value & 1); break;
      case DType::kFloat32: case DType::kComplex64: {
        const auto real = static_cast<float>(value);
        std::memcpy(at, &real, sizeof(real));
        break;
      }
      case DType::kFloat64: case DType::kComplex128: {
        const auto real = static_cast<double>(value);
        std::memcpy(at, &real, sizeof(real));
        break;
      }
      case DType::kBFloat16: {
        const auto real = static_cast<float>(value);
        std::uint32_t bits;
        std::memcpy(&bits, &real, sizeof(bits));
        const auto half = static_cast<std::uint16_t>(bits >> 16);
        std::memcpy(at, &half, sizeof(half));
        break;
      }
      case DType::kFloat16: {
        const auto half = static_cast<_Float16>(value);
        std::memcpy(at, &half, sizeof(half));
        break;
      }
      default: *at = static_cast<std::byte>(value); break;  // little-endian integers
    }
  }
}

void fill_random(std::byte* data, std::size_t count, DType dtype, int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  const std::size_t bytes = count * size_of(dtype).value();
  for (std::size_t i = 0; i < bytes; ++i) {
    const auto bits = static_cast<std::uint8_t>(random());
    data[i] = static_cast<std::byte>(dtype == DType::kBool ? bits & 1 : bits);
  }
}

std::vector<std::byte> expected(std::size_t count, DType dtype, Reduction reduction, int size) {
  const std::size_t bytes = count * size_of(dtype).value();
  std::vector<std::byte> total(bytes), next(bytes);
  fill_exact(total.data(), count, dtype, reduction, 0);
  const ReduceKernel kernel = *find_kernel(dtype, reduction);
  for (int rank = 1; rank < size; ++rank) {
    fill_exact(next.data(), count, dtype, reduction, rank);
    kernel(total.data(), total.data(), next.data(), Count{count});
  }
  if (reduction == Reduction::kAverage) {
    divide(total.data(), total.data(), Count{count}, dtype, static_cast<std::size_t>(size));
  }
  return total;
}

struct Case {
  DType dtype;
  Reduction reduction;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int d = 0; d < kDTypeCount; ++d) {
    for (int r = 0; r < kReductionCount; ++r) {
      const Case one{static_cast<DType>(d), static_cast<Reduction>(r)};
      if (find_kernel(one.dtype, one.reduction)) all.push_back(one);
    }
  }
  return all;
}

std::vector<std::size_t> sizes(int p) {
  std::vector<std::size_t> all = {0, 1, 2, 3};
  for (const int n : {p - 1, p, p + 1}) {
    if (n > 3) all.push_back(static_cast<std::size_t>(n));
  }
  return all;
}

/// One (size, dtype, reduction, algorithm) on all ranks; the number of wrong ranks.
class Matrix : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void run(std::size_t count, const Case& one, const char* algorithm, Contexts& contexts) {
    const int size = static_cast<int>(contexts.size());
    const std::size_t bytes = count * size_of(one.dtype).value();
    const std::vector<std::byte> wanted = expected(count, one.dtype, one.reduction, size);
    std::vector<std::vector<std::byte>> exact(contexts.size()), arbitrary(contexts.size());
    run_ranks(contexts, [&](Context&, Communicator& world) {
      const int rank = world.rank().value();
      auto& out = exact[static_cast<std::size_t>(rank)];
      out.resize(bytes + 1);  // one more, so that data() is a pointer even for 0 elements
      fill_exact(out.data(), count, one.dtype, one.reduction, rank);
      auto in_place = world.allreduce(out.data(), out.data(), Count{count}, one.dtype,
                                      one.reduction, {.algorithm = algorithm});
      EXPECT_TRUE(in_place) << in_place.error().message;
      auto& noise = arbitrary[static_cast<std::size_t>(rank)];
      std::vector<std::byte> in(bytes + 1);
      noise.resize(bytes + 1);
      fill_random(in.data(), count, one.dtype, rank);
      auto apart = world.allreduce(in.data(), noise.data(), Count{count}, one.dtype, one.reduction,
                                   {.algorithm = algorithm});
      EXPECT_TRUE(apart) << apart.error().message;
    });
    for (std::size_t rank = 0; rank < contexts.size(); ++rank) {
      const bool right = std::memcmp(exact[rank].data(), wanted.data(), bytes) == 0;
      const bool same = std::memcmp(arbitrary[rank].data(), arbitrary[0].data(), bytes) == 0;
      EXPECT_TRUE(right && same) << algorithm << " " << name(one.dtype) << " "
                                 << name(one.reduction) << " [" << count << "] rank " << rank
                                 << (right ? " differs from rank 0" : " is wrong");
    }
    ++combinations_;
  }
  std::size_t combinations_ = 0;
};

TEST_P(Matrix, SameBitsOnEveryRank) {
  const auto& [transport, p] = GetParam();
  Contexts contexts = make_ranks(p, transport);
  const std::vector<Case> all = cases();
  for (const char* algorithm : kAlgorithms) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const std::size_t count : sizes(p)) run(count, all[i], algorithm, contexts);
      // Long messages: all of them at every p take minutes, so a run takes every 13th.
      const bool chosen = (i + static_cast<std::size_t>(p)) % 13 == 0;
      if (full_run() || chosen) run(kLong, all[i], algorithm, contexts);
    }
  }
  std::printf("%zu combinations\n", combinations_);
}

std::string label(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, Matrix,
                         ::testing::Combine(::testing::Values("inproc", "shm", "tcp"),
                                            ::testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 16)),
                         label);

}  // namespace
}  // namespace farandole::testing

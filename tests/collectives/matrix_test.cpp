// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/counters.hpp"
#include "collectives/exact.hpp"
#include "reduce/reduce.hpp"
#include "unit/base/full_run.hpp"
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
// Under a sanitizer a shorter long message takes the same paths.
constexpr std::size_t kLong = kCounts ? 1000003 : 100003;

// Exact data repeats after this many elements, so that long messages cost a copy.
constexpr std::size_t kPeriod = 64;

/// The first `period_bytes` of `data` over and over.
void repeat(std::byte* data, std::size_t bytes, std::size_t period_bytes) {
  for (std::size_t done = period_bytes; done < bytes; done *= 2) {
    std::memcpy(data + done, data, std::min(done, bytes - done));
  }
}

void fill_exact(std::byte* data, std::size_t count, DType dtype, Reduction reduction, int rank) {
  const std::size_t element = size_of(dtype).value();
  fill_exact_period(data, std::min(count, kPeriod), dtype, reduction, rank);
  repeat(data, count * element, kPeriod * element);
}

/// [16 bytes * kLong] of arbitrary bits, one per rank; bool needs 0 and 1.
const std::vector<std::byte>& noise(int rank, bool boolean) {
  static std::mutex mutex;
  static std::map<std::pair<int, bool>, std::vector<std::byte>> made;
  const std::lock_guard lock(mutex);
  std::vector<std::byte>& data = made[{rank, boolean}];
  if (data.empty()) {
    std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
    data.resize(kLong * 16);
    for (std::byte& byte : data) {
      const auto bits = static_cast<std::uint8_t>(random() >> 32);
      byte = static_cast<std::byte>(boolean ? bits & 1 : bits);
    }
  }
  return data;
}

std::vector<std::byte> expected(std::size_t count, DType dtype, Reduction reduction, int size) {
  const std::size_t element = size_of(dtype).value();
  const Count period{std::min(count, kPeriod)};
  std::vector<std::byte> total(count * element + 1), next(kPeriod * element);
  fill_exact(total.data(), period.value(), dtype, reduction, 0);
  const ReduceKernel kernel = *find_kernel(dtype, reduction);
  for (int rank = 1; rank < size; ++rank) {
    fill_exact(next.data(), period.value(), dtype, reduction, rank);
    kernel(total.data(), total.data(), next.data(), period);
  }
  if (reduction == Reduction::kAverage) {
    divide(total.data(), total.data(), period, dtype, static_cast<std::size_t>(size));
  }
  repeat(total.data(), count * element, kPeriod * element);
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

class Matrix : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  struct Job {
    Case one;
    std::size_t count;
    std::size_t bytes() const { return count * size_of(one.dtype).value(); }
  };
  /// One rank's data of one job: exact values in place, arbitrary bits apart.
  struct Data {
    std::vector<std::byte> exact, noise_out;
    const std::byte* noise_in;
  };

  static Data prepare(const Job& job, int rank) {
    const std::size_t room = job.bytes() + 1;  // so that data() is a pointer for 0 elements, too
    Data data{std::vector<std::byte>(room), std::vector<std::byte>(room),
              noise(rank, job.one.dtype == DType::kBool).data()};
    fill_exact(data.exact.data(), job.count, job.one.dtype, job.one.reduction, rank);
    return data;
  }

  /// All jobs at once on every rank, as many operations in flight; then compares the ranks.
  void run(const std::vector<Job>& jobs, const char* algorithm, Contexts& contexts) {
    std::vector<std::vector<Data>> ranks(contexts.size());
    run_ranks(contexts, [&](Context&, Communicator& world) {
      auto& mine = ranks[static_cast<std::size_t>(world.rank().value())];
      std::vector<Request> requests;
      for (const Job& job : jobs) mine.push_back(prepare(job, world.rank().value()));
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        const auto start = [&](const std::byte* in, std::byte* out) {
          auto request =
              world.start(Collective::kAllreduce, in, out, Count{jobs[i].count}, jobs[i].one.dtype,
                          jobs[i].one.reduction, Rank{0}, {.algorithm = algorithm});
          ASSERT_TRUE(request) << request.error().message;
          requests.push_back(*std::move(request));
        };
        start(mine[i].exact.data(), mine[i].exact.data());
        start(mine[i].noise_in, mine[i].noise_out.data());
      }
      for (Request& request : requests) {
        const auto outcome = request.wait();
        ASSERT_TRUE(outcome) << outcome.error().message;
      }
    });
    for (std::size_t i = 0; i < jobs.size(); ++i) compare(jobs[i], i, algorithm, ranks);
    combinations_ += jobs.size();
  }

  static void compare(const Job& job, std::size_t i, const char* algorithm,
                      const std::vector<std::vector<Data>>& ranks) {
    const std::vector<std::byte> wanted =
        expected(job.count, job.one.dtype, job.one.reduction, static_cast<int>(ranks.size()));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const Data& data = ranks[rank][i];
      const bool right = std::memcmp(data.exact.data(), wanted.data(), job.bytes()) == 0;
      const bool same =
          std::memcmp(data.noise_out.data(), ranks[0][i].noise_out.data(), job.bytes()) == 0;
      EXPECT_TRUE(right && same) << algorithm << " " << name(job.one.dtype) << " "
                                 << name(job.one.reduction) << " [" << job.count << "] rank "
                                 << rank << (right ? " differs from rank 0" : " is wrong");
    }
  }
  std::size_t combinations_ = 0;
};

TEST_P(Matrix, SameBitsOnEveryRank) {
  const auto& [transport, p] = GetParam();
  Contexts contexts = make_ranks(p, transport);
  const std::vector<Case> all = cases();
  for (const char* algorithm : kAlgorithms) {
    for (const std::size_t count : sizes(p)) {
      std::vector<Job> jobs;
      for (const Case& one : all) jobs.push_back({one, count});
      run(jobs, algorithm, contexts);
    }
    // Long messages: all of them at every p take many minutes, so a run takes every 35th.
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool chosen = (i + static_cast<std::size_t>(p)) % 35 == 0;
      if (full_run() || chosen) run({{all[i], kLong}}, algorithm, contexts);
    }
  }
  std::printf("%zu combinations\n", combinations_);
}

std::string label(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
}

/// One, two, an odd number, and powers of two; a whole run takes those between and beyond as well.
std::vector<int> rank_counts() {
  if (full_run()) return {1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
  return {1, 2, 3, 5, 8};
}

INSTANTIATE_TEST_SUITE_P(All, Matrix,
                         ::testing::Combine(::testing::Values("inproc", "shm", "tcp", "device"),
                                            ::testing::ValuesIn(rank_counts())),
                         label);

}  // namespace
}  // namespace farandole::testing

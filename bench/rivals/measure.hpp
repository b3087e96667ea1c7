// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

// What every rival's program does alike: run a collective again and again, check it, print times.
namespace rivals {

enum class Collective { kAllreduce, kAllreduceApart, kReducescatter, kAllgather, kBroadcast };
inline constexpr const char* kNames[] = {"allreduce", "allreduce_apart", "reducescatter",
                                         "allgather", "broadcast"};

/// Binds this process to one of the cores that it may use, ranks in turn, if RIVALS_BOUND is set.
/// Called before a library is joined, so that it sees what it runs on. Launchers would bind each in
/// its own way, and some refuse to where ranks share cores.
inline void bind_if_asked(int rank) {
  if (std::getenv("RIVALS_BOUND") == nullptr) return;
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  const bool known = rank >= 0 && sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  int turn = known ? rank % CPU_COUNT(&allowed) : 0, core = 0;
  while (known && (!CPU_ISSET(core, &allowed) || turn-- > 0)) ++core;
  CPU_SET(core, &own);
  if (known && sched_setaffinity(0, sizeof own, &own) == 0) return;
  std::fprintf(stderr, "rank %d could not be bound\n", rank);
  std::exit(1);
}

/// This process's rank as its launcher says it, or -1.
inline int launched_rank() {
  for (const char* name : {"FARANDOLE_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return -1;
}

/// One library, joined: p ranks, which are processes of one host.
class Library {
 public:
  virtual ~Library() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual float* allocate(std::size_t bytes) = 0;
  /// Sums, or moves, float32. `count` of the longer side: allreduce and broadcast work on `data`
  /// in place, [count]; kAllreduceApart reads data [count] and writes block [count], reducescatter
  /// reads data [count] and writes block [count / p], allgather the other way round.
  virtual void run(Collective collective, float* data, float* block, std::size_t count) = 0;
  virtual void barrier() = 0;
  virtual double max_over_ranks(double value) = 0;
};

inline bool sums(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kAllreduceApart ||
         collective == Collective::kReducescatter;
}
/// Elements of the block.
inline std::size_t block_count(Collective collective, std::size_t count, int size) {
  const bool whole = collective == Collective::kAllreduceApart;
  return whole ? count : count / static_cast<std::size_t>(size);
}

/// One call, with every element checked.
inline bool is_right(Library& library, Collective collective, float* data, float* block,
                     std::size_t count) {
  const auto p = static_cast<std::size_t>(library.size());
  const auto rank = static_cast<std::size_t>(library.rank());
  const auto wanted = [&](std::size_t i) {
    const auto base = static_cast<float>(i % 7);
    return sums(collective) ? base * static_cast<float>(p) + static_cast<float>(p * (p - 1) / 2)
                            : base;
  };
  const bool reads_data = sums(collective) || (collective == Collective::kBroadcast && rank == 0);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = reads_data ? static_cast<float>(i % 7 + (sums(collective) ? rank : 0)) : -1.0F;
  }
  const std::size_t each = count / p;
  for (std::size_t i = 0; i < each; ++i) block[i] = static_cast<float>((rank * each + i) % 7);
  library.run(collective, data, block, count);
  const bool scatters = collective == Collective::kReducescatter;
  const bool to_block = scatters || collective == Collective::kAllreduceApart;
  const float* result = to_block ? block : data;
  for (std::size_t i = 0; i < (scatters ? each : count); ++i) {
    if (result[i] != wanted(scatters ? rank * each + i : i)) return false;
  }
  return true;
}

/// Arguments: collective, smallest and largest bytes, factor, seconds per size. Rank 0 prints one
/// line of JSON per size: microseconds per call, the slowest rank's, in each of several bursts of
/// calls that follow each other without a pause, once the system has shared out its cores.
inline int measure(Library& library, int argc, char** argv) {
  if (argc < 6) return 2;
  Collective collective{};
  for (int i = 0; i < 5; ++i) {
    if (std::strcmp(argv[1], kNames[i]) == 0) collective = static_cast<Collective>(i);
  }
  const std::size_t smallest = std::strtoull(argv[2], nullptr, 10);
  const std::size_t largest = std::strtoull(argv[3], nullptr, 10);
  const std::size_t factor = std::strtoull(argv[4], nullptr, 10);
  const double seconds = std::strtod(argv[5], nullptr);
  using Clock = std::chrono::steady_clock;
  constexpr int kBursts = 5;
  constexpr double kSettleSeconds = 0.3;  // until then of eight ranks six may share a core
  const auto p = static_cast<std::size_t>(library.size());
  bool settled = false;
  float* const data = library.allocate(largest);
  const auto block_bytes = [&](std::size_t bytes) {
    return block_count(collective, bytes, library.size());
  };
  float* const block = library.allocate(block_bytes(largest) + sizeof(float));
  for (std::size_t bytes = smallest; bytes <= largest; bytes *= factor) {
    const std::size_t count = bytes / sizeof(float);
    const bool blocks =
        collective == Collective::kReducescatter || collective == Collective::kAllgather;
    if (blocks && count % p != 0) continue;
    library.barrier();
    const bool right = is_right(library, collective, data, block, count);
    std::memset(data, 0, bytes);  // sums stay finite
    std::memset(block, 0, block_bytes(bytes));
    const auto burst = [&](int calls) {
      library.barrier();
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) library.run(collective, data, block, count);
      const std::chrono::duration<double> spent = Clock::now() - start;
      return library.max_over_ranks(spent.count()) / calls;
    };
    // Each burst is as long as the last one says: ranks that share cores may first be ten times as
    // fast as they are then.
    double each = burst(2);
    each = burst(std::clamp(static_cast<int>(2e-3 / each), 1, 2000));
    const auto calls_in = [&](double time) {
      return std::clamp(static_cast<int>(time / each), 1, 1'000'000);
    };
    if (!std::exchange(settled, true)) each = burst(calls_in(kSettleSeconds));
    std::string times;
    for (int i = 0; i < kBursts; ++i) {
      each = burst(calls_in(seconds / kBursts));
      times += (i == 0 ? "" : ", ") + std::to_string(each * 1e6);
    }
    const bool all_right = library.max_over_ranks(right ? 0 : 1) == 0;
    if (library.rank() != 0) continue;
    std::printf("{\"collective\": \"%s\", \"bytes\": %zu, \"us\": [%s], \"right\": %s}\n", argv[1],
                bytes, times.c_str(), all_right ? "true" : "false");
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace rivals

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "collectives/exact.hpp"
#include "devices/rig.hpp"
#include "reduce/reduce.hpp"
#include "unit/base/full_run.hpp"

// Goal: a collective on a device's memory gives what it gives on the host's, bit for bit, ordered
// with the work of its stream, and no access to memory races with another.
// Method: the simulated driver, with random delays. Every call on host memory first, then copies to
// the device, the call and copies back, all of them enqueued without a wait of the host between.
// A seeded draw from all collectives, dtypes, reductions, roots, odd counts, in place or apart,
// blocking or not; FARANDOLE_TEST_FULL=1 runs all of them.
namespace farandole::testing {
namespace {

/// A call, and where its buffers lie in a part of a rank's memory.
struct Drawn {
  Arguments arguments;  // without buffers
  bool in_place, blocks;
  std::size_t in_count, out_count;  // of ranks that have them
};

bool has_rows(Collective collective, bool of_input) {
  switch (collective) {
    case Collective::kReducescatter:
    case Collective::kScatter:
      return of_input;
    case Collective::kAllgather:
    case Collective::kGather:
      return !of_input;
    default:
      return collective == Collective::kAlltoall;
  }
}

bool is_reduction(Collective collective) {
  return collective == Collective::kAllreduce || collective == Collective::kReduce ||
         collective == Collective::kReducescatter;
}

std::vector<Drawn> all_calls(int size) {
  constexpr std::size_t kCounts[] = {1, 3, 17, 1000, 0};
  std::vector<Drawn> calls;
  std::size_t turn = 0;
  const auto add = [&](Collective collective, DType dtype, Reduction reduction) {
    for (const bool in_place : {false, true}) {
      for (const bool blocks : {false, true}) {
        const std::size_t count = kCounts[turn++ % std::size(kCounts)];
        const Rank root{static_cast<std::int32_t>(turn % static_cast<std::size_t>(size))};
        const auto rows = static_cast<std::size_t>(size);
        calls.push_back({{.collective = collective,
                          .count = Count{count},
                          .dtype = dtype,
                          .reduction = reduction,
                          .root = root},
                         in_place,
                         blocks,
                         has_rows(collective, true) ? count * rows : count,
                         has_rows(collective, false) ? count * rows : count});
      }
    }
  };
  for (int c = 0; c < static_cast<int>(Collective::kBarrier); ++c) {
    const auto collective = static_cast<Collective>(c);
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto dtype = static_cast<DType>(d);
      if (!is_reduction(collective)) add(collective, dtype, Reduction::kSum);
      for (int r = 0; r < kReductionCount && is_reduction(collective); ++r) {
        const auto reduction = static_cast<Reduction>(r);
        if (find_kernel(dtype, reduction)) add(collective, dtype, reduction);
      }
    }
  }
  return calls;
}

/// Bytes of a part that holds both buffers of a call.
std::size_t part_bytes(const Drawn& call) {
  const std::size_t element = size_of(call.arguments.dtype).value();
  return (call.in_count + call.out_count + 16) * element;
}

/// The call with its buffers in a part that begins at `part`.
Arguments placed(const Drawn& call, std::byte* part, int rank) {
  Arguments arguments = call.arguments;
  const std::size_t element = size_of(arguments.dtype).value();
  const std::size_t own = arguments.count.value() * static_cast<std::size_t>(rank) * element;
  const bool shorter_in = call.in_count < call.out_count,
             shorter_out = call.out_count < call.in_count;
  arguments.in = part + (call.in_place && shorter_in ? own : 0);
  arguments.out = call.in_place ? part + (shorter_out ? own : 0) : part + call.in_count * element;
  const bool at_root = arguments.root.value() == rank;
  const Collective collective = arguments.collective;
  if (!at_root && (collective == Collective::kReduce || collective == Collective::kGather)) {
    arguments.out = nullptr;
  }
  if (!at_root && (collective == Collective::kScatter || collective == Collective::kBroadcast)) {
    arguments.in = nullptr;
  }
  return arguments;
}

std::string described(const Drawn& call) {
  const Arguments& arguments = call.arguments;
  return std::string(name(arguments.collective)) + " " + std::string(name(arguments.dtype)) + "[" +
         std::to_string(arguments.count.value()) + "] " + std::string(name(arguments.reduction)) +
         " root " + std::to_string(arguments.root.value()) + (call.in_place ? " in place" : "") +
         (call.blocks ? " blocking" : "");
}

class DeviceMatrix : public DeviceTest, public ::testing::WithParamInterface<int> {
 protected:
  /// Runs all calls on one rank, without a wait between them, and compares what came out.
  static void run(const std::vector<Drawn>& calls, Communicator& world, const Rig& rig) {
    const int rank = world.rank().value();
    std::vector<std::size_t> parts = {0};
    for (const Drawn& call : calls) parts.push_back(parts.back() + part_bytes(call));
    std::vector<std::byte> wanted(parts.back());
    rig.enter();
    std::vector<Request> requests;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Drawn& call = calls[i];
      const std::size_t bytes = parts[i + 1] - parts[i];
      const std::size_t elements = bytes / size_of(call.arguments.dtype).value();
      fill_exact_period(rig.before() + parts[i], elements, call.arguments.dtype,
                        call.arguments.reduction, rank);
      std::memcpy(wanted.data() + parts[i], rig.before() + parts[i], bytes);
      CallOptions options{.factor = 0.5};
      const auto host = world.run(placed(call, wanted.data() + parts[i], rank), options);
      ASSERT_TRUE(host) << host.error().message;
      options.stream = rig.stream();
      rig.upload(parts[i], bytes);
      const Arguments arguments = placed(call, rig.device() + parts[i], rank);
      if (call.blocks) {
        const auto ran = world.run(arguments, options);
        ASSERT_TRUE(ran) << ran.error().message;
      } else {
        auto started = world.start(arguments, options);
        ASSERT_TRUE(started) << started.error().message;
        ASSERT_TRUE(started->order(rig.stream()));
        requests.push_back(*std::move(started));
      }
      rig.download(parts[i], bytes);
    }
    rig.synchronize();
    for (Request& request : requests) {
      const auto ended = request.wait();
      ASSERT_TRUE(ended) << ended.error().message;
    }
    for (std::size_t i = 0; i < calls.size(); ++i) compare(calls[i], parts[i], wanted, rig, rank);
  }

  /// The output, and all of the input that is no output.
  static void compare(const Drawn& call, std::size_t part, const std::vector<std::byte>& wanted,
                      const Rig& rig, int rank) {
    const Arguments arguments = placed(call, rig.after() + part, rank);
    const std::size_t element = size_of(call.arguments.dtype).value();
    const auto same = [&](const void* got, std::size_t count) {
      const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(got) - rig.after());
      return got == nullptr || std::memcmp(got, wanted.data() + at, count * element) == 0;
    };
    EXPECT_TRUE(same(arguments.out, call.out_count)) << "rank " << rank << ": " << described(call);
    if (call.in_place) return;
    EXPECT_TRUE(same(arguments.in, call.in_count))
        << "rank " << rank << ", input: " << described(call);
  }
};

TEST_P(DeviceMatrix, IsWhatTheHostGets) {
  const int size = GetParam();
  std::vector<Drawn> calls = all_calls(size);
  if (!full_run()) {
    std::mt19937_64 random(static_cast<std::uint64_t>(size) * 17);
    std::ranges::shuffle(calls, random);
    calls.resize(96);
  }
  constexpr std::size_t kAtOnce = 32;
  for (std::size_t first = 0; first < calls.size(); first += kAtOnce) {
    const std::vector<Drawn> some(
        calls.begin() + static_cast<std::ptrdiff_t>(first),
        calls.begin() + static_cast<std::ptrdiff_t>(std::min(first + kAtOnce, calls.size())));
    std::size_t bytes = 0;
    for (const Drawn& call : some) bytes += part_bytes(call);
    const auto rigs = make_rigs(static_cast<std::size_t>(size), bytes);
    Contexts contexts = make_ranks(size, "inproc");
    run_ranks(contexts, [&](Context&, Communicator& world) {
      run(some, world, *rigs[static_cast<std::size_t>(world.rank().value())]);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceMatrix, ::testing::Values(1, 2, 3, 4, 5, 8),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace farandole::testing

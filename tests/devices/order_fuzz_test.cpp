// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "devices/rig.hpp"
#include "unit/base/full_run.hpp"

// Goal: whatever streams, communicators and events a program mixes, as long as it orders its own
// accesses, no access races and every value is right.
// Method: seeded random programs, equal on all ranks, of copies, fills and collectives on some
// buffers and streams, the default stream among them. Whoever uses a buffer on a stream first
// orders that after the buffer's last use: by an event, or by a request that is still open. A plain
// model of all ranks' buffers says what comes. FARANDOLE_TEST_FULL=1 runs 500 seeds.
namespace farandole::testing {
namespace {

constexpr std::size_t kBuffers = 4, kStreams = 4, kSteps = 30;
constexpr std::size_t kCount = 300;
constexpr std::size_t kBytes = kCount * sizeof(std::int32_t);

// A sanitizer sees what a few programs do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kSeeds = 5;
#else
constexpr std::uint64_t kSeeds = 25;
#endif

using Values = std::vector<std::int32_t>;
/// By rank and buffer.
using Model = std::vector<std::array<Values, kBuffers>>;

/// One step of a program.
struct Step {
  enum class Kind : std::uint8_t { kFill, kCopy, kAllreduce, kBroadcast, kReducescatter };
  Kind kind;
  std::size_t buffer, other, stream, communicator;
  bool blocks;
  std::int32_t root;
};

std::vector<Step> program(std::uint64_t seed, int size) {
  std::mt19937_64 random(seed);
  std::vector<Step> steps;
  for (std::size_t i = 0; i < kSteps; ++i) {
    const std::size_t buffer = random() % kBuffers;
    steps.push_back({static_cast<Step::Kind>(random() % 5), buffer,
                     (buffer + 1 + random() % (kBuffers - 1)) % kBuffers, random() % kStreams,
                     random() % 2, random() % 2 == 0,
                     static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(size))});
  }
  return steps;
}

void apply(const Step& step, Model& model) {
  const std::size_t block = kCount / model.size();
  const Model before = model;
  for (std::size_t rank = 0; rank < model.size(); ++rank) {
    Values& target = model[rank][step.buffer];
    for (std::size_t i = 0; i < kCount; ++i) {
      std::uint32_t sum = 0;
      for (const auto& buffers : before) sum += static_cast<std::uint32_t>(buffers[step.other][i]);
      std::uint32_t own_sum = 0;
      for (const auto& buffers : before) {
        own_sum += static_cast<std::uint32_t>(buffers[step.buffer][i]);
      }
      switch (step.kind) {
        case Step::Kind::kFill:
          target[i] = 0x01010101 * static_cast<std::int32_t>(step.other + 1);
          break;
        case Step::Kind::kCopy:
          target[i] = before[rank][step.other][i];
          break;
        case Step::Kind::kAllreduce:  // apart
          target[i] = static_cast<std::int32_t>(sum);
          break;
        case Step::Kind::kBroadcast:  // in place
          target[i] = before[static_cast<std::size_t>(step.root)][step.buffer][i];
          break;
        case Step::Kind::kReducescatter:  // in place
          if (i / block == rank) target[i] = static_cast<std::int32_t>(own_sum);
          break;
      }
    }
  }
}

/// One rank that runs a program.
class Player {
 public:
  Player(const Rig& rig, std::vector<Communicator> communicators)
      : gpu_(simulated()), rig_(rig), communicators_(std::move(communicators)) {
    streams_ = {static_cast<cuda::Stream>(rig.stream()), gpu_.stream(), gpu_.stream(0), nullptr};
    for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
      events_[buffer] = gpu_.event();
      last_[buffer] = 0;
    }
  }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;
  ~Player() {
    for (const cuda::Event event : events_) gpu_.check(gpu_.api().event_destroy(event));
    for (const std::size_t i : {1, 2}) gpu_.check(gpu_.api().stream_destroy(streams_[i]));
  }

  void play(const Step& step) {
    const bool two = step.kind == Step::Kind::kCopy || step.kind == Step::Kind::kAllreduce;
    claim(step.buffer, step.stream);
    if (two) claim(step.other, step.stream);
    const cuda::Stream stream = streams_[step.stream];
    switch (step.kind) {
      case Step::Kind::kFill:
        gpu_.check(gpu_.more().memory_set(
            address(step.buffer), static_cast<unsigned char>(step.other + 1), kBytes, stream));
        break;
      case Step::Kind::kCopy:
        gpu_.check(
            gpu_.api().memory_copy(address(step.buffer), address(step.other), kBytes, stream));
        break;
      default:
        collective(step);
        return;
    }
    release(step.buffer, step.stream);
    if (two) release(step.other, step.stream);
  }

  void finish() {
    for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) claim(buffer, 0);
    rig_.download(0, kBuffers * kBytes);
    rig_.synchronize();
  }

 private:
  cuda::Address address(std::size_t buffer) const {
    return reinterpret_cast<cuda::Address>(data(buffer));
  }
  std::byte* data(std::size_t buffer) const { return rig_.device() + buffer * kBytes; }

  /// Orders what comes on the stream after the buffer's last use.
  void claim(std::size_t buffer, std::size_t stream) {
    if (pending_[buffer]) {
      ASSERT_TRUE(pending_[buffer]->order(streams_[stream]));
      pending_[buffer].reset();
    } else if (last_[buffer] != stream) {
      gpu_.check(gpu_.api().stream_wait_event(streams_[stream], events_[buffer], 0));
    }
    last_[buffer] = stream;
  }
  void release(std::size_t buffer, std::size_t stream) {
    gpu_.check(gpu_.api().event_record(events_[buffer], streams_[stream]));
  }

  void collective(const Step& step) {
    const std::size_t block = kCount / static_cast<std::size_t>(communicators_[0].size());
    const auto rank = static_cast<std::size_t>(communicators_[0].rank().value());
    Arguments call{.collective = Collective::kAllreduce,
                   .in = data(step.other),
                   .out = data(step.buffer),
                   .count = Count{kCount},
                   .dtype = DType::kInt32,
                   .root = Rank{step.root}};
    if (step.kind == Step::Kind::kBroadcast) {
      call.collective = Collective::kBroadcast;
      call.in = call.out;
    } else if (step.kind == Step::Kind::kReducescatter) {
      call.collective = Collective::kReducescatter;
      call.in = data(step.buffer);
      call.out = data(step.buffer) + rank * block * sizeof(std::int32_t);
      call.count = Count{block};
    }
    const bool two = step.kind == Step::Kind::kAllreduce;
    Communicator& communicator = communicators_[step.communicator];
    const CallOptions options{.stream = streams_[step.stream]};
    if (step.blocks) {
      const auto ran = communicator.run(call, options);
      ASSERT_TRUE(ran) << ran.error().message;
      release(step.buffer, step.stream);
      if (two) release(step.other, step.stream);
      return;
    }
    auto started = communicator.start(call, options);
    ASSERT_TRUE(started) << started.error().message;
    pending_[step.buffer] = *started;
    if (two) pending_[step.other] = *started;
  }

  const Simulated& gpu_;
  const Rig& rig_;
  std::vector<Communicator> communicators_;
  std::array<cuda::Stream, kStreams> streams_{};
  std::array<cuda::Event, kBuffers> events_{};
  std::array<std::size_t, kBuffers> last_{};  // the stream of a buffer's last use
  std::array<std::optional<Request>, kBuffers> pending_;
};

class OrderFuzz : public DeviceTest {};

TEST_F(OrderFuzz, ValuesAreRightAndNothingRaces) {
  const std::uint64_t seeds = full_run() ? 500 : kSeeds;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const int size = 2 + static_cast<int>(seed % 2);
    const auto ranks = static_cast<std::size_t>(size);
    const std::vector<Step> steps = program(seed, size);
    Model model(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
        for (std::size_t i = 0; i < kCount; ++i) {
          model[rank][buffer].push_back(
              static_cast<std::int32_t>(rank * 1'000'000 + buffer * 10'000 + i));
        }
      }
    }
    const Model begin = model;
    for (const Step& step : steps) apply(step, model);
    const auto rigs = make_rigs(ranks, kBuffers * kBytes);
    Contexts contexts = make_ranks(size, "inproc");
    run_ranks(contexts, [&](Context&, Communicator& world) {
      const auto rank = static_cast<std::size_t>(world.rank().value());
      const Rig& rig = *rigs[rank];
      rig.enter();
      auto second = world.split(0, 0);
      ASSERT_TRUE(second);
      Player player(rig, {world, **second});
      for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
        std::memcpy(rig.before() + buffer * kBytes, begin[rank][buffer].data(), kBytes);
      }
      rig.upload(0, kBuffers * kBytes);
      rig.synchronize();
      for (const Step& step : steps) player.play(step);
      player.finish();
      for (std::size_t buffer = 0; buffer < kBuffers; ++buffer) {
        EXPECT_EQ(std::memcmp(rig.after() + buffer * kBytes, model[rank][buffer].data(), kBytes), 0)
            << "seed " << seed << ", rank " << rank << ", buffer " << buffer;
      }
    });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace farandole::testing

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "devices/rig.hpp"

// What a call on device memory promises beside its result: it does not block the host, the engine
// leaves the driver alone, streams drain whatever happens, and errors are heard of.
namespace farandole::testing {
namespace {

constexpr std::size_t kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(float);

class DeviceCalls : public DeviceTest {};

void fill(const Rig& rig, float value) {
  auto* const data = reinterpret_cast<float*>(rig.before());
  for (std::size_t i = 0; i < kCount; ++i) data[i] = value + static_cast<float>(i);
}

Result<void> allreduce(Communicator& world, const Rig& rig, const CallOptions& options = {}) {
  CallOptions on_stream = options;
  on_stream.stream = rig.stream();
  return world.allreduce(rig.device(), rig.device(), Count{kCount}, DType::kFloat32,
                         Reduction::kSum, on_stream);
}

// Goal: 1,000 calls return while the stream is held, and are right once it goes on.
TEST_F(DeviceCalls, HostIsNeverBlocked) {
  if (!streams_wait()) return;  // nothing to see: calls return when all ranks have called
  const auto rigs = make_rigs(2, kBytes);
  Contexts contexts = make_ranks(2, "inproc");
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const Rig& rig = *rigs[static_cast<std::size_t>(world.rank().value())];
    rig.enter();
    fill(rig, 1);
    // The first call makes the staging memory.
    ASSERT_TRUE(allreduce(world, rig));
    rig.synchronize();
    rig.hold();
    rig.upload(0, kBytes);
    for (int i = 0; i < 1000; ++i) {
      const auto called =
          world.allreduce(rig.device(), rig.device(), Count{kCount}, DType::kFloat32,
                          Reduction::kMax, {.stream = rig.stream()});
      ASSERT_TRUE(called) << called.error().message;
    }
    rig.download(0, kBytes);
    rig.release();
    rig.synchronize();
    EXPECT_EQ(std::memcmp(rig.after(), rig.before(), kBytes), 0);
  });
}

// Goal: wait() returns when the device is done, order() at once.
TEST_F(DeviceCalls, WaitBlocksUntilTheDeviceIsDone) {
  if (!streams_wait()) return;  // start() itself blocks
  const auto rigs = make_rigs(2, kBytes);
  Contexts contexts = make_ranks(2, "inproc");
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const Rig& rig = *rigs[static_cast<std::size_t>(world.rank().value())];
    rig.enter();
    ASSERT_TRUE(allreduce(world, rig));
    rig.synchronize();
    rig.hold();
    auto request = world.start(Collective::kAllreduce, rig.device(), rig.device(), Count{kCount},
                               DType::kFloat32, Reduction::kSum, Rank{0}, {.stream = rig.stream()});
    ASSERT_TRUE(request);
    ASSERT_TRUE(request->order(rig.stream()));
    const auto early = request->test();
    ASSERT_TRUE(early);
    EXPECT_FALSE(*early);
    EXPECT_FALSE(*request->wait_for(std::chrono::milliseconds(1)));
    std::atomic<bool> released{false};
    std::thread later([&] {
      ::usleep(30'000);
      released = true;
      rig.release();
    });
    EXPECT_TRUE(request->wait());
    EXPECT_TRUE(released);
    later.join();
    EXPECT_TRUE(*request->test());
  });
}

std::set<long> threads() {
  std::set<long> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    found.insert(std::stol(entry.path().filename()));
  }
  return found;
}

// Goal: no thread of the library calls the driver.
TEST_F(DeviceCalls, EngineMakesNoDriverCall) {
  const auto rigs = make_rigs(2, kBytes);
  const std::set<long> before = threads();
  Contexts contexts = make_ranks(2, "inproc");
  std::set<long> own;
  for (const long thread : threads()) {
    if (!before.contains(thread)) own.insert(thread);
  }
  ASSERT_FALSE(own.empty());
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const Rig& rig = *rigs[static_cast<std::size_t>(world.rank().value())];
    rig.enter();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(allreduce(world, rig));
    rig.synchronize();
  });
  for (const long thread : own)
    EXPECT_EQ(simulated().more().calls_of(thread), 0) << "thread " << thread;
}

// Goal: when a rank leaves, the streams of the others drain, and the next call and wait() say who.
TEST_F(DeviceCalls, StreamsDrainWhenARankLeaves) {
  if (!streams_wait()) return;  // nothing to see: calls return when all ranks have called
  const auto rigs = make_rigs(3, 2 * kBytes);
  Contexts contexts = make_ranks(3, "inproc");
  std::atomic<int> waiting{0};
  run_ranks(contexts, [&](Context& context, Communicator& world) {
    const Rig& rig = *rigs[static_cast<std::size_t>(world.rank().value())];
    rig.enter();
    ASSERT_TRUE(allreduce(world, rig));
    rig.synchronize();
    if (world.rank() == Rank{1}) {
      while (waiting < 2) ::usleep(100);
      return context.shutdown();
    }
    ASSERT_TRUE(allreduce(world, rig));
    std::byte* const other = rig.device() + kBytes;
    auto request = world.start(Collective::kAllreduce, other, other, Count{kCount}, DType::kFloat32,
                               Reduction::kSum, Rank{0}, {.stream = rig.stream()});
    ASSERT_TRUE(request);
    ++waiting;
    rig.synchronize();  // of the blocking call, which nobody else reports
    const auto ended = request->wait();
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().kind, ErrorKind::kRankFailed) << ended.error().message;
    EXPECT_EQ(ended.error().culprit->rank, 1);
    const auto next = allreduce(world, rig);
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().culprit->rank, 1) << next.error().message;
    rig.synchronize();
  });
}

// Goal: ranks that disagree hear of it on the next call, once, and go on.
TEST_F(DeviceCalls, AMismatchIsHeardOfOnTheNextCall) {
  const auto rigs = make_rigs(2, kBytes);
  Contexts contexts = make_ranks(2, "inproc");
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const Rig& rig = *rigs[static_cast<std::size_t>(world.rank().value())];
    rig.enter();
    const bool differs = world.rank() == Rank{1};
    ASSERT_TRUE(world.allreduce(rig.device(), rig.device(), Count{kCount},
                                differs ? DType::kInt32 : DType::kFloat32, Reduction::kSum,
                                {.stream = rig.stream()}));
    rig.synchronize();
    const auto next = allreduce(world, rig);
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().kind, ErrorKind::kMismatch) << next.error().message;
    fill(rig, 2);
    rig.upload(0, kBytes);
    ASSERT_TRUE(allreduce(world, rig));
    rig.download(0, kBytes);
    rig.synchronize();
    EXPECT_EQ(reinterpret_cast<const float*>(rig.after())[5], 14.0F);
  });
}

TEST_F(DeviceCalls, BuffersLieInTheSameMemory) {
  const auto rigs = make_rigs(1, kBytes);
  Contexts contexts = make_ranks(1, "inproc");
  run_ranks(contexts, [&](Context&, Communicator& world) {
    std::vector<float> host(kCount);
    const auto mixed =
        world.allreduce(rigs[0]->device(), host.data(), Count{kCount}, DType::kFloat32,
                        Reduction::kSum, {.stream = rigs[0]->stream()});
    ASSERT_FALSE(mixed);
    EXPECT_EQ(mixed.error().message,
              "allreduce: argument 'out' is memory of the host, allowed is memory of cuda:0, where "
              "'in' lies.");
  });
}

// Goal: messages between ranks, and of a rank to itself, in stream order.
TEST_F(DeviceCalls, MessagesGoAround) {
  constexpr int kSize = 3;
  const auto rigs = make_rigs(kSize, 4 * kBytes);
  Contexts contexts = make_ranks(kSize, "inproc");
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const int rank = world.rank().value();
    const Rig& rig = *rigs[static_cast<std::size_t>(rank)];
    rig.enter();
    const Rank next{(rank + 1) % kSize}, previous{(rank + kSize - 1) % kSize};
    for (int round = 0; round < 20; ++round) {
      fill(rig, static_cast<float>(100 * rank + round));
      rig.upload(0, kBytes);
      const Message around[] = {
          Message::send(rig.device(), Count{kCount}, DType::kFloat32, next),
          Message::receive(rig.device() + kBytes, Count{kCount}, DType::kFloat32, previous),
          Message::send(rig.device(), Count{kCount}, DType::kFloat32, world.rank()),
          Message::receive(rig.device() + 2 * kBytes, Count{kCount}, DType::kFloat32,
                           world.rank())};
      const CallOptions options{.stream = rig.stream()};
      if (round % 2 == 0) {
        const auto sent = world.batch(around, options);
        ASSERT_TRUE(sent) << sent.error().message;
      } else {
        auto started = world.start(around, options);
        ASSERT_TRUE(started) << started.error().message;
        ASSERT_TRUE(started->order(rig.stream()));
      }
      rig.download(0, 4 * kBytes);
      rig.synchronize();
      const auto* const got = reinterpret_cast<const float*>(rig.after());
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto base = static_cast<float>(round) + static_cast<float>(i);
        ASSERT_EQ(got[kCount + i], static_cast<float>(100 * previous.value()) + base);
        ASSERT_EQ(got[2 * kCount + i], static_cast<float>(100 * rank) + base);
      }
    }
    std::vector<float> host(kCount);
    const Message mixed[] = {
        Message::send(rig.device(), Count{1}, DType::kFloat32, world.rank()),
        Message::receive(host.data(), Count{1}, DType::kFloat32, world.rank())};
    const auto refused = world.batch(mixed, {.stream = rig.stream()});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidArgument);
  });
}

TEST_F(DeviceCalls, CaptureIsRefused) {
  const auto rigs = make_rigs(1, kBytes);
  Contexts contexts = make_ranks(1, "inproc");
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const Rig& rig = *rigs[0];
    rig.enter();
    simulated().check(simulated().more().capture(static_cast<cuda::Stream>(rig.stream()), 0));
    const auto called = allreduce(world, rig);
    ASSERT_FALSE(called);
    EXPECT_EQ(called.error().kind, ErrorKind::kUnsupported) << called.error().message;
  });
}

// Goal: large calls are cut into pieces, also into more than the staging memory holds at once, and
// one piece may be larger than all of it.
TEST_F(DeviceCalls, LargeCallsComeInPieces) {
  constexpr std::size_t kLarge = (std::size_t{40} << 20) / sizeof(std::int32_t) + 3;
  constexpr std::size_t kLargeBytes = kLarge * sizeof(std::int32_t);
  const auto rigs = make_rigs(2, 2 * kLargeBytes);
  Contexts contexts = make_ranks(2, "inproc");
  run_ranks(contexts, [&](Context&, Communicator& world) {
    const Rig& rig = *rigs[static_cast<std::size_t>(world.rank().value())];
    rig.enter();
    auto* const data = reinterpret_cast<std::int32_t*>(rig.before());
    for (std::size_t i = 0; i < kLarge; ++i) {
      data[i] = static_cast<std::int32_t>(i) * (world.rank().value() + 1);
      data[kLarge + i] = 7 - static_cast<std::int32_t>(i);
    }
    rig.upload(0, kLargeBytes);
    ASSERT_TRUE(world.allreduce(rig.device(), rig.device(), Count{kLarge}, DType::kInt32,
                                Reduction::kSum, {.stream = rig.stream()}));
    // Chunks of different lengths cannot be cut. Two such calls at once need memory for two.
    const std::size_t counts[] = {kLarge - 5, 5};
    std::vector<Request> requests;
    for (std::size_t copy = 0; copy < 2; ++copy) {
      std::byte* const out = rig.device() + copy * kLargeBytes;
      if (copy == 1) rig.upload(kLargeBytes, kLargeBytes);
      const Arguments gather{.collective = Collective::kAllgather,
                             .in = out + (world.rank() == Rank{1} ? kLargeBytes - 20 : 0),
                             .out = out,
                             .count = Count{counts[static_cast<std::size_t>(world.rank().value())]},
                             .dtype = DType::kInt32,
                             .by_rank = true,
                             .out_counts = counts};
      auto gathered = world.start(gather, {.stream = rig.stream()});
      ASSERT_TRUE(gathered) << gathered.error().message;
      requests.push_back(*std::move(gathered));
    }
    for (Request& request : requests) ASSERT_TRUE(request.order(rig.stream()));
    rig.download(0, 2 * kLargeBytes);
    rig.synchronize();
    const auto* const data_of_0 = reinterpret_cast<const std::int32_t*>(rig.after() + kLargeBytes);
    for (std::size_t i = 0; i < kLarge - 5; i += 1001) {
      ASSERT_EQ(data_of_0[i], 7 - static_cast<std::int32_t>(i));
    }
    const auto* const sums = reinterpret_cast<const std::int32_t*>(rig.after());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kLarge; ++i) wrong += sums[i] != static_cast<std::int32_t>(i) * 3;
    EXPECT_EQ(wrong, 0);
  });
}

}  // namespace
}  // namespace farandole::testing
